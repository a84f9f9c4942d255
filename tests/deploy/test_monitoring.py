"""The alert rules, boards and scaling rules name metrics and labels that the exporters have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.deploy.metric_table import metric_table
from tests.plugins.metrics.case import NO_LIBRARY

_FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy/monitoring"
_NO_PARSER: Final = "" if find_spec("promql_parser") else "promql_parser is not installed"
_BOARDS: Final = sorted(_FOLDER.glob("board-*.json"))
#: What Grafana puts in place of its variables.
_VARIABLES: Final = {"$__rate_interval": "1m"}


class MonitoringTestCase(SynchronousTestCase):
    """A test that reads expressions."""

    if NO_LIBRARY or _NO_PARSER:
        skip = NO_LIBRARY or _NO_PARSER

    def check(self, place: str, expression: str, shown: set[str]) -> list[str]:
        """Compare an expression with the table.

        :param shown: the labels of the result that a text shows.
        :returns: the faults.
        """
        from tests.deploy.promql import read_expression

        for name, text in _VARIABLES.items():
            expression = expression.replace(name, text)
        reading, table = read_expression(expression), metric_table()
        self.assertTrue(reading.labels, msg=f"{place}: {expression}")
        faults = [f"{place}: there is no metric {name}" for name in reading.labels
                  if name not in table]
        faults += [f"{place}: {name} has no label {label}"
                   for name, labels in reading.labels.items() for label in labels
                   if label not in table.get(name, labels)]
        output = reading.output
        if output is None:
            output = set().union(*(table.get(name, set()) for name in reading.labels))
        return faults + [f"{place}: the result has no label {label}" for label in shown - output]


class AlertTests(MonitoringTestCase):
    """alerts.yaml."""

    def rules(self) -> list[dict[str, Any]]:
        groups = yaml.safe_load((_FOLDER / "alerts.yaml").read_text())["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def test_metrics_and_labels_exist(self) -> None:
        """Those of the expressions, and those that the texts show."""
        faults: list[str] = []
        for rule in self.rules():
            texts = " ".join(rule["annotations"].values())
            faults += self.check(rule["alert"], rule["expr"],
                                 set(re.findall(r"\$labels\.(\w+)", texts)))
        self.assertEqual(faults, [])

    def test_each_rule_is_complete(self) -> None:
        """A name of its own, a severity, and texts for the reader."""
        rules = self.rules()
        self.assertEqual(len({rule["alert"] for rule in rules}), len(rules))
        for rule in rules:
            self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))
            self.assertEqual(set(rule["annotations"]), {"summary", "description"})
            self.assertLessEqual(set(rule), {"alert", "expr", "for", "labels", "annotations"})

    def test_the_configuration_names_the_file(self) -> None:
        """The example of a configuration loads the rules, and its job is the one they look for."""
        config = yaml.safe_load((_FOLDER / "prometheus.yaml").read_text())
        self.assertEqual(config["rule_files"], ["alerts.yaml"])
        [job] = [each["job_name"] for each in config["scrape_configs"]]
        [down] = [rule["expr"] for rule in self.rules() if rule["alert"] == "TwistmqServerDown"]
        [pattern] = re.findall(r'job=~"(.+?)"', down)
        self.assertRegex(job, f"^{pattern}$")


class BoardTests(MonitoringTestCase):
    """The boards for Grafana."""

    def panels(self, board: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield panel

    def test_metrics_and_labels_exist(self) -> None:
        """Those of the queries, of the legends and of the variables."""
        faults: list[str] = []
        for path in _BOARDS:
            board = json.loads(path.read_text())
            for panel in self.panels(board):
                for target in panel["targets"]:
                    legend = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
                    faults += self.check(f"{path.name}, {panel['title']}", target["expr"], legend)
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
                    assert match is not None, variable["definition"]
                    faults += self.check(f"{path.name}, {variable['name']}", match[1], {match[2]})
                    self.assertEqual(variable["query"]["query"], variable["definition"])
        self.assertEqual(faults, [])

    def test_a_board_can_be_imported(self) -> None:
        """It has ids of its own, panels side by side, and the data source of its variable."""
        uids = set()
        for path in _BOARDS:
            board = json.loads(path.read_text())
            uids.add(board["uid"])
            self.assertNotIn("id", board)
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(set(ids)), len(ids))
            cells: set[tuple[int, int]] = set()
            for panel in board["panels"]:
                grid = panel["gridPos"]
                self.assertLessEqual(grid["x"] + grid["w"], 24)
                own = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                       for y in range(grid["y"], grid["y"] + grid["h"])}
                self.assertEqual(cells & own, set(), msg=panel["title"])
                cells |= own
            variables = {each["name"] for each in board["templating"]["list"]}
            used = {name for panel in self.panels(board) for target in panel["targets"]
                    for name in re.findall(r"\$(\w+)", target["expr"]) if name not in
                    {"__rate_interval"}}
            self.assertEqual(used - variables, set())
            for panel in self.panels(board):
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                self.assertTrue(panel["description"])
        self.assertEqual(len(uids), 2)


class ScalingTests(MonitoringTestCase):
    """keda.yaml."""

    def test_the_query_reads_an_existing_metric(self) -> None:
        """The metric and its labels exist, and the numbers are texts, as KEDA expects."""
        scaled = yaml.safe_load((_FOLDER / "keda.yaml").read_text())
        self.assertEqual((scaled["apiVersion"], scaled["kind"]),
                         ("keda.sh/v1alpha1", "ScaledObject"))
        [trigger] = scaled["spec"]["triggers"]
        self.assertEqual(trigger["type"], "prometheus")
        self.assertEqual(self.check("keda.yaml", trigger["metadata"]["query"], set()), [])
        for name, value in trigger["metadata"].items():
            self.assertIs(type(value), str, msg=name)
        self.assertLess(float(trigger["metadata"]["activationThreshold"]),
                        float(trigger["metadata"]["threshold"]))


class PageTests(MonitoringTestCase):
    """deploy/MONITORING.md."""

    def test_the_example_is_a_part_of_the_file(self) -> None:
        """A value that only one of them has would not be tested."""
        page = (_FOLDER.parent / "MONITORING.md").read_text()
        [example] = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
        [shown] = yaml.safe_load(example)["triggers"]
        [trigger] = yaml.safe_load((_FOLDER / "keda.yaml").read_text())["spec"]["triggers"]
        self.assertEqual(shown, trigger)

    def test_metrics_and_rules_on_the_page_exist(self) -> None:
        page = (_FOLDER.parent / "MONITORING.md").read_text()
        names = set(re.findall(r"`((?:rocketmq|twistmq)_\w+[a-z])`", page))
        self.assertGreater(len(names), 3)
        self.assertEqual(names - set(metric_table()), set())
        rules = set(re.findall(r"`(Twistmq\w+)`", page))
        self.assertLessEqual(rules, set(re.findall(
            r"alert: (\w+)", (_FOLDER / "alerts.yaml").read_text())))
        self.assertTrue(rules)


class ReaderTests(MonitoringTestCase):
    """The comparison finds what these tests are for."""

    def test_faults_are_found(self) -> None:
        """A metric, and a label of a selector, a group, a match and a text, that do not exist."""
        for expression, shown, fault in (
            ("no_such_metric", set(), "there is no metric no_such_metric"),
            ("rate(rocketmq_messages_in[5m])", set(), "there is no metric rocketmq_messages_in"),
            ('rocketmq_topic_number{topic="x"}', set(), "rocketmq_topic_number has no label topic"),
            ("sum by (topic) (twistmq_held_pulls)", set(), "twistmq_held_pulls has no label topic"),
            ("twistmq_held_pulls and on (slave) ha_slave_behind_seconds", set(),
             "twistmq_held_pulls has no label slave"),
            ("sum by (topic) (rocketmq_half_messages)", {"cluster"},
             "the result has no label cluster"),
            ("max(ha_slave_behind_seconds) > 1", {"slave"}, "the result has no label slave"),
        ):
            self.assertEqual(self.check("x", expression, shown), [f"x: {fault}"], msg=expression)
