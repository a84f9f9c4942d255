"""The Helm chart: its values, and what it renders for each shape.

``rendered/`` has the output of ``helm template`` for the values of each shape, so that its meaning
is tested where there is no Helm. Where there is Helm, the output must still be the same. After a
change of the chart, ``python -m tests.deploy.test_chart`` writes the files again with Helm.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
CHART: Final = _DEPLOY / "helm/twistmq"
RENDERED: Final = Path(__file__).parent / "rendered"
_HELM: Final = shutil.which("helm")
_NO_HELM: Final = "helm is not installed"
#: The values of each rendered file, in the form of values.yaml.
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "broker": {},
    "pair": {
        "shape": "pair", "namesrv": {"replicas": 2},
        "broker": {"flush": "SYNC_FLUSH", "peers": ["10.244.0.0/16"], "settings": {
            "mappedFileSizeCommitLog": 1073741824, "autoCreateTopicEnable": False}},
        "console": {"enabled": True, "tokenSecret": "token"}},
    "group": {
        "shape": "group", "namesrv": {"replicas": 2, "settings": {"kv.value_size_max": 4194304}},
        "image": {"pullSecrets": [{"name": "registry"}]},
        "broker": {"nodeSelector": {"disk": "fast"}, "storageClass": "local",
                   "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
                   "volumeMounts": [{"name": "keys", "mountPath": "/keys"}]},
        "console": {"enabled": True, "options": ["--login", "account"]},
        "monitoring": {"serviceMonitor": True}},
    "external": {
        "namesrv": {"external": "ns:9876"}, "disruptionBudgets": False, "logFormat": "text"},
}
Resource = dict[str, Any]


def chart_hash() -> str:
    """A hash of all files from which the rendered resources are made."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*")
                       if path.is_file() and path.name not in ("NOTES.txt", ".helmignore")
                       and "monitoring" not in path.relative_to(CHART).parts):
        digest.update(path.relative_to(CHART).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def helm(values: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm with folders of its own and with a file of values."""
    assert _HELM is not None
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "values.yaml")
        file.write_text(yaml.safe_dump(values))
        return subprocess.run(
            [_HELM, *arguments, "--values", str(file)], capture_output=True, text=True,
            timeout=120, env={"HOME": home, "PATH": "/usr/bin:/bin"})


def render(values: dict[str, Any]) -> str:
    """Render the chart with Helm; :raises AssertionError: when Helm refuses it."""
    done = helm(values, "template", "mq", str(CHART), "--namespace", "queues",
                "--kube-version", "1.30.0")
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def resources(shape: str) -> list[Resource]:
    """The resources of a rendered file, which no test changes."""
    return [each for each in yaml.safe_load_all((RENDERED / f"{shape}.yaml").read_text()) if each]


class ValuesTests(SynchronousTestCase):
    """values.yaml and values.schema.json."""

    if find_spec("jsonschema") is None:
        skip = "jsonschema is not installed"

    def setUp(self) -> None:
        from jsonschema import Draft7Validator

        schema = json.loads((CHART / "values.schema.json").read_text())
        Draft7Validator.check_schema(schema)
        self.validator = Draft7Validator(schema)
        self.values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())

    def faults(self, path: str, value: object) -> list[str]:
        """What the schema says of the values with one change."""
        values = copy.deepcopy(self.values)
        *folders, name = path.split(".", 1)
        part = values
        for folder in folders:
            part = part[folder]
        part[name] = value
        return [error.message for error in self.validator.iter_errors(values)]

    def test_the_defaults_are_valid_and_complete(self) -> None:
        """The schema accepts them, and each of its values has a default."""
        self.assertEqual(list(self.validator.iter_errors(self.values)), [])
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(set(schema["properties"]) - {"global"}, set(self.values))
        for name, part in schema["properties"].items():
            if "properties" in part:
                self.assertEqual(set(part["properties"]), set(self.values[name]), msg=name)
        self.assertFalse(self.values["console"]["enabled"])

    def test_the_version_is_the_one_of_the_package(self) -> None:
        """The chart installs the image of its own release."""
        config = ConfigParser(interpolation=None)
        config.read(_DEPLOY.parent / "setup.cfg")
        version = config["metadata"]["version"].partition(".dev")[0]
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))

    def test_wrong_values_are_refused(self) -> None:
        """A misspelt name, a wrong type, a value that no server takes, and a line within a line."""
        for path, value in (
            ("shape", "trio"), ("shap", "pair"), ("broker.members", 4), ("broker.flush", "FAST"),
            ("broker.name", "a b"), ("broker.settings", {"a b": 1}),
            ("broker.settings", {"x": "1\nbrokerRole=SLAVE"}), ("broker.peers", ["everybody"]),
            ("namesrv.replicas", 0), ("namesrv.external", "host"), ("namesrv.storage", 1),
            ("console.enabled", "no"), ("logFormat", "xml"), ("broker.brokerName", "b"),
        ):
            self.assertNotEqual(self.faults(path, value), [], msg=f"{path}={value}")

    def test_other_values_are_accepted(self) -> None:
        for path, value in (
            ("shape", "group"), ("broker.settings", {"autoCreateTopicEnable": False, "x.y": 5}),
            ("namesrv.external", "a.b:9876;c:9876"), ("broker.peers", ["10.0.0.0/8", "fd00::1"]),
            ("console.options", ["--read-only"]),
        ):
            self.assertEqual(self.faults(path, value), [], msg=f"{path}={value}")


class RenderedTests(SynchronousTestCase):
    """The resources of each shape."""

    def of_kind(self, shape: str, kind: str) -> dict[str, Resource]:
        return {each["metadata"]["name"]: each for each in resources(shape)
                if each["kind"] == kind}

    def files(self, shape: str) -> dict[str, str]:
        """The settings files of the ConfigMap."""
        files: dict[str, str] = self.of_kind(shape, "ConfigMap")["mq-twistmq-settings"]["data"]
        return files

    def settings(self, shape: str, name: str, *pairs: str) -> Settings:
        """The settings of a server as it would start, with the rows of plugins."""
        kind = "namesrv" if name == "namesrv.conf" else "broker"
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(self.files(shape)[name])
            file.flush()
            load = boot.namesrv_settings if kind == "namesrv" else boot.broker_settings
            settings = load(file.name, dict(pair.split("=", 1) for pair in pairs))
        declare_plugins(kind, settings)
        settings.check()
        return settings

    def test_the_files_are_of_this_chart(self) -> None:
        """A change of the chart needs new files: ``python -m tests.deploy.test_chart``."""
        for shape in SHAPES:
            first = (RENDERED / f"{shape}.yaml").read_text().partition("\n")[0]
            self.assertEqual(first, f"# {chart_hash()}", msg=shape)

    def test_the_resources_of_each_shape(self) -> None:
        """Their kinds and names."""
        def names(shape: str) -> set[str]:
            return {f"{each['kind']} {each['metadata']['name']}" for each in resources(shape)}

        common = {"ConfigMap mq-twistmq-settings", "Service mq-twistmq-broker"}
        namesrv = {"Service mq-twistmq-namesrv", "StatefulSet mq-twistmq-namesrv"}
        budgets = {f"PodDisruptionBudget mq-twistmq-{part}" for part in ("broker", "namesrv")}
        console = {"Deployment mq-twistmq-console"}
        self.assertEqual(names("broker"), common | namesrv | {"StatefulSet mq-twistmq-broker"})
        self.assertEqual(names("pair"), common | namesrv | budgets | console | {
            "StatefulSet mq-twistmq-master", "StatefulSet mq-twistmq-slave"})
        self.assertEqual(names("group"), common | namesrv | budgets | console | {
            "StatefulSet mq-twistmq-broker", "ServiceMonitor mq-twistmq"})
        self.assertEqual(names("external"), common | {"StatefulSet mq-twistmq-broker"})

    def test_settings_are_known_and_valid(self) -> None:
        """Each file is one that its server starts with."""
        for shape in SHAPES:
            for name in self.files(shape):
                more = ("dLegerSelfId=n1",) if shape == "group" and name != "namesrv.conf" else ()
                settings = self.settings(shape, name, *more)
                self.assertEqual(settings.unknown, {}, msg=f"{shape} {name}")
                self.assertEqual(settings.text("log.output"), "stderr")
                self.assertEqual(settings.text("log.format"),
                                 "text" if shape == "external" else "json")
                if name != "namesrv.conf":
                    self.assertEqual(settings.file, "/data/broker.conf")
                    self.assertTrue(settings.is_read_back("brokerRole"))

    def test_a_pair_has_a_master_and_its_slave(self) -> None:
        master, slave = (self.settings("pair", f"{name}.conf") for name in ("master", "slave"))
        self.assertEqual((master.text("brokerRole"), slave.text("brokerRole")),
                         ("SYNC_MASTER", "SLAVE"))
        self.assertEqual((master.int("brokerId"), slave.int("brokerId")), (0, 1))
        for settings in (master, slave):
            self.assertEqual(settings.int("mappedFileSizeCommitLog"), 1073741824)
            self.assertFalse(settings.flag("autoCreateTopicEnable"))
            self.assertEqual(settings.text("flushDiskType"), "SYNC_FLUSH")
            self.assertEqual(settings.names("ha.peers"), ("10.244.0.0/16",))
            self.assertEqual(settings.text("brokerName"), "broker-a")

    def test_the_members_of_a_group_are_the_pods_of_its_set(self) -> None:
        """Names that the headless service gives to the pods, with the port for members."""
        settings = self.settings("group", "broker.conf", "dLegerSelfId=n0")
        broker = self.of_kind("group", "StatefulSet")["mq-twistmq-broker"]["spec"]
        service = broker["serviceName"]
        self.assertEqual(settings.text("dLegerPeers").split(";"), [
            f"n{index}-mq-twistmq-broker-{index}.{service}.queues.svc:40911"
            for index in range(broker["replicas"])])
        self.assertEqual(broker["podManagementPolicy"], "Parallel")
        headless = self.of_kind("group", "Service")[service]["spec"]
        self.assertEqual((headless["clusterIP"], headless["publishNotReadyAddresses"]),
                         ("None", True))
        [container] = broker["template"]["spec"]["containers"]
        self.assertIn("dLegerSelfId=n$(POD_INDEX)", container["args"])

    def test_name_servers_are_the_pods_of_their_set(self) -> None:
        for shape in ("broker", "pair", "group"):
            spec = self.of_kind(shape, "StatefulSet")["mq-twistmq-namesrv"]["spec"]
            expected = ";".join(
                f"mq-twistmq-namesrv-{index}.{spec['serviceName']}.queues.svc:9876"
                for index in range(spec["replicas"]))
            for name in self.files(shape):
                if name != "namesrv.conf":
                    more = ("dLegerSelfId=n0",) if shape == "group" else ()
                    self.assertEqual(self.settings(shape, name, *more).text("namesrvAddr"),
                                     expected)
            for console in self.of_kind(shape, "Deployment").values():
                [container] = console["spec"]["template"]["spec"]["containers"]
                self.assertEqual(container["args"][:3], ["console", "-n", expected])
        self.assertEqual(self.settings("external", "broker.conf").text("namesrvAddr"), "ns:9876")

    def test_pods_hold_together(self) -> None:
        """Selectors, mounts, files, ports and variables name what exists; no pod is privileged."""
        for shape in SHAPES:
            there = resources(shape)
            pods = [each["spec"]["template"] for each in there
                    if each["kind"] in ("StatefulSet", "Deployment")]
            labels = [pod["metadata"]["labels"] for pod in pods]
            for each in there:
                spec = each.get("spec", {})
                selector = spec.get("selector", {}) if each["kind"] != "Service" else {
                    "matchLabels": spec["selector"]}
                wanted = selector.get("matchLabels", {})
                if each["kind"] != "ServiceMonitor":
                    self.assertTrue(not wanted or any(
                        wanted.items() <= own.items() for own in labels), msg=each["metadata"])
            sets = [each["spec"] for each in there if each["kind"] == "StatefulSet"]
            services = {each["metadata"]["name"] for each in there if each["kind"] == "Service"}
            self.assertLessEqual({each["serviceName"] for each in sets}, services)
            for spec, pod in [(each["spec"], each["spec"]["template"]["spec"]) for each in there
                              if each["kind"] in ("StatefulSet", "Deployment")]:
                [container] = pod["containers"]
                volumes = {each["name"] for each in (
                    *pod["volumes"], *(claim["metadata"] for claim in spec.get(
                        "volumeClaimTemplates", ())))}
                mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
                self.assertEqual(set(mounts), volumes, msg=f"{shape} {container['name']}")
                self.assertEqual(mounts["data"], "/data")
                if "-c" in container["args"]:
                    file = Path(container["args"][container["args"].index("-c") + 1])
                    self.assertEqual(str(file.parent), mounts["settings"])
                    self.assertIn(file.name, self.files(shape))
                ports = {each["name"] for each in container.get("ports", ())}
                for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                    probe = container.get(name, {})
                    for kind in {"tcpSocket", "httpGet"} & set(probe):
                        self.assertIn(probe[kind]["port"], ports)
                variables = {each["name"] for each in container.get("env", ())}
                used = {word.partition("$(")[2].rstrip(")") for word in container["args"]
                        if "$(" in word}
                self.assertLessEqual(used, variables)
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                self.assertTrue(container["image"].startswith("twistmq:"))

    def test_prometheus_finds_the_metrics_of_each_service(self) -> None:
        """The ServiceMonitor selects all services, and each of them has its port."""
        monitor = self.of_kind("group", "ServiceMonitor")["mq-twistmq"]["spec"]
        self.assertEqual([each["port"] for each in monitor["endpoints"]], ["metrics"])
        for service in self.of_kind("group", "Service").values():
            self.assertLessEqual(monitor["selector"]["matchLabels"].items(),
                                 service["metadata"]["labels"].items())
            self.assertIn("metrics", [port["name"] for port in service["spec"]["ports"]])

    def test_kubernetes_accepts_the_resources(self) -> None:
        """They have the form that the schemas of the oldest and the newest Kubernetes ask for."""
        if find_spec("kubernetes_validate") is None:
            raise SkipTest("the extra kubernetes is not installed")
        import kubernetes_validate

        for shape in SHAPES:
            for each in resources(shape):
                if not each["apiVersion"].startswith("monitoring.coreos.com/"):
                    for version in ("1.28.0", "1.37.0"):
                        kubernetes_validate.validate(each, version, strict=True)


class HelmTests(SynchronousTestCase):
    """What Helm itself says."""

    if _HELM is None:
        skip = _NO_HELM

    def test_lint(self) -> None:
        """Helm has no complaint about any shape."""
        for values in SHAPES.values():
            done = helm(values, "lint", "--strict", str(CHART))
            self.assertEqual(done.returncode, 0, msg=done.stdout + done.stderr)

    def test_the_rendered_files_are_its_output(self) -> None:
        for shape in SHAPES:
            self.assertEqual((RENDERED / f"{shape}.yaml").read_text(),
                             f"# {chart_hash()}\n{render(SHAPES[shape])}", msg=shape)

    def test_monitoring_is_the_files_of_the_folder(self) -> None:
        """The rules and boards are the files that Prometheus and Grafana read elsewhere."""
        text = render({"monitoring": {"alerts": True, "boards": True}})
        there = {f"{each['kind']} {each['metadata']['name']}": each
                 for each in yaml.safe_load_all(text) if each}
        folder = _DEPLOY / "monitoring"
        self.assertEqual(there["PrometheusRule mq-twistmq"]["spec"],
                         yaml.safe_load((folder / "alerts.yaml").read_text()))
        boards = there["ConfigMap mq-twistmq-boards"]
        self.assertEqual(boards["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertEqual({name: json.loads(text) for name, text in boards["data"].items()}, {
            f"mq-twistmq-{path.name}": json.loads(path.read_text())
            for path in folder.glob("board-*.json")})

    def test_wrong_values_are_refused_with_a_reason(self) -> None:
        """The schema of the values holds for the command line, too."""
        done = helm({}, "template", "mq", str(CHART), "--set", "shape=trio")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("shape", done.stderr)


def main() -> int:
    """Write the rendered files; :returns: the exit status."""
    if _HELM is None:
        print(_NO_HELM, file=sys.stderr)
        return 1
    RENDERED.mkdir(exist_ok=True)
    for shape in SHAPES:
        (RENDERED / f"{shape}.yaml").write_text(f"# {chart_hash()}\n{render(SHAPES[shape])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
