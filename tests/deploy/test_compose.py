"""The compose files: their commands are ones that the servers take, and Compose accepts them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins
from twistmq.tools.command_line import parse_overrides

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
_FILES: Final = ("compose.yaml", "compose.group.yaml")
_ADDRESS: Final = "192.0.2.1"


def interpolated(text: str) -> str:
    """Replace variables as Compose does: by the address, else by their defaults."""
    text = re.sub(r"\$\{TWISTMQ_ADDRESS:[^}]*\}", _ADDRESS, text)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    return text.replace("$$", "$")


def services(file: str) -> dict[str, dict[str, Any]]:
    """The services of a file, by name."""
    content = yaml.safe_load(interpolated((DEPLOY / file).read_text()))
    found: dict[str, dict[str, Any]] = content["services"]
    return found


def settings_of(command: list[str]) -> Settings:
    """The settings of a server's command, with the rows of plugins."""
    kind, *pairs = command
    load = boot.namesrv_settings if kind == "namesrv" else boot.broker_settings
    settings = load(None, parse_overrides(pairs))
    declare_plugins(kind, settings)
    settings.check()
    return settings


class ComposeTests(SynchronousTestCase):
    """Both files."""

    def servers(self, file: str) -> dict[str, tuple[dict[str, Any], Settings]]:
        """The services that are name servers or brokers, with their settings."""
        return {name: (service, settings_of(service["command"]))
                for name, service in services(file).items()
                if service.get("command", [""])[0] in ("namesrv", "broker")}

    def test_commands_have_known_settings_only(self) -> None:
        """What they set is a setting of that server, and data is on the volume of the service."""
        for file in _FILES:
            content = yaml.safe_load(interpolated((DEPLOY / file).read_text()))
            for name, (service, settings) in self.servers(file).items():
                self.assertEqual(settings.unknown, {}, msg=f"{file}, {name}")
                self.assertEqual(service["volumes"], [f"{name}:/data"])
                self.assertIn(name, content["volumes"])
                self.assertEqual(settings.text("log.format"), "json")
                data = settings.text("kvConfigPath" if name == "namesrv" else "storePathRootDir")
                self.assertTrue(data.startswith("/data/"), msg=data)

    def test_published_ports_are_the_announced_ones(self) -> None:
        """A port has the same number outside, since clients get it from the name server."""
        for file in _FILES:
            outside: list[str] = []
            for name, (service, settings) in self.servers(file).items():
                ports = [each.rpartition(":") for each in service["ports"]]
                pairs = {inside: each.rpartition(":")[2] for each, _, inside in ports}
                outside += pairs.values()
                wanted = ["9876"] if name == "namesrv" else [
                    str(settings.int("listenPort")), str(settings.int("listenPort") - 2)]
                for port in wanted:
                    self.assertEqual(pairs.get(port), port, msg=f"{file}, {name}")
                for each, _, inside in ports:
                    if inside not in wanted:
                        self.assertTrue(each.startswith("127.0.0.1:"), msg=each)
            self.assertEqual(len(set(outside)), len(outside), msg=outside)

    def test_brokers_find_the_name_server_and_each_other(self) -> None:
        """The hosts in their settings are services, and the members of the group are one."""
        for file in _FILES:
            there = self.servers(file)
            for name, (_, settings) in there.items():
                if name != "namesrv":
                    self.assertEqual(settings.text("namesrvAddr"), "namesrv:9876")
        group = {name: settings for name, (_, settings) in self.servers(
            "compose.group.yaml").items() if name != "namesrv"}
        self.assertEqual(len({settings.text("dLegerPeers") for settings in group.values()}), 1)
        [peers] = {settings.text("dLegerPeers") for settings in group.values()}
        self.assertEqual(peers.split(";"), [f"{settings.text('dLegerSelfId')}-{name}:40911"
                                            for name, settings in group.items()])
        self.assertEqual({settings.text("brokerName") for settings in group.values()},
                         {"broker-a"})

    def test_the_console_is_reached_through_its_proxy_only(self) -> None:
        """Console and proxy share the network of the broker, which publishes the proxy's port."""
        content = yaml.safe_load(interpolated((DEPLOY / "compose.yaml").read_text()))
        there = content["services"]
        for name in ("console", "console-proxy"):
            self.assertEqual(there[name]["network_mode"], "service:broker")
            self.assertNotIn("ports", there[name])
        text = content["configs"]["console-proxy"]["content"]
        [listens] = re.findall(r"listen (\d+);", text)
        self.assertIn(f"127.0.0.1:8082:{listens}", there["broker"]["ports"])
        self.assertIn("proxy_pass http://127.0.0.1:8082;", text)

    def test_monitoring_reads_both_servers(self) -> None:
        """Prometheus has the job of the rules, and Grafana has the boards and Prometheus."""
        content = yaml.safe_load(interpolated((DEPLOY / "compose.yaml").read_text()))
        there, configs = content["services"], {
            name: each["content"] for name, each in content["configs"].items()}
        scraped = yaml.safe_load(configs["prometheus"])
        own = yaml.safe_load((DEPLOY / "monitoring/prometheus.yaml").read_text())
        self.assertEqual(scraped["rule_files"], own["rule_files"])
        [job] = scraped["scrape_configs"]
        self.assertEqual(job["job_name"], own["scrape_configs"][0]["job_name"])
        self.assertEqual(job["static_configs"], [{"targets": ["namesrv:5557", "broker:5557"]}])
        [source] = yaml.safe_load(configs["grafana-source"])["datasources"]
        self.assertEqual(source["url"], "http://prometheus:9090")
        [provider] = yaml.safe_load(configs["grafana-boards"])["providers"]
        self.assertIn(f"./monitoring:{provider['options']['path']}:ro", there["grafana"]["volumes"])
        for name in ("prometheus", "grafana"):
            self.assertEqual(there[name]["profiles"], ["monitoring"])
            for each in there[name]["volumes"]:
                source, _, _ = each.partition(":")
                self.assertTrue((DEPLOY / source).exists() or source in content["volumes"])
            self.assertTrue(all(each.startswith("127.0.0.1:") for each in there[name]["ports"]))

    def test_compose_accepts_the_files(self) -> None:
        """``docker-compose config`` has no complaint, and reads the same commands."""
        program = shutil.which("docker-compose")
        if program is None:
            raise SkipTest("docker-compose is not installed")
        for file in _FILES:
            done = subprocess.run(
                [program, "-f", str(DEPLOY / file), "--profile", "*", "config", "--format", "json"],
                capture_output=True, text=True, timeout=60,
                env={**os.environ, "TWISTMQ_ADDRESS": _ADDRESS})
            self.assertEqual((done.returncode, done.stderr), (0, ""), msg=file)
            accepted = json.loads(done.stdout)["services"]
            self.assertEqual(
                {name: service.get("command") for name, service in accepted.items()},
                {name: service.get("command") for name, service in services(file).items()})

    def test_a_group_needs_the_address_of_the_host(self) -> None:
        """Compose refuses to start it without one."""
        program = shutil.which("docker-compose")
        if program is None:
            raise SkipTest("docker-compose is not installed")
        environment = {name: value for name, value in os.environ.items()
                       if name != "TWISTMQ_ADDRESS"}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [program, "-f", str(DEPLOY / "compose.group.yaml"), "config", "-q"], cwd=folder,
                capture_output=True, text=True, timeout=60, env=environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("set it to the address of this host", done.stderr)
