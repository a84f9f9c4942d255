"""The page spark_bridge/README.md agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.integrations.tables.columns import COLUMNS
from twistmq.integrations.tables.options import BATCH_READ, OPTIONS, OptionError, Options
from twistmq.integrations.tables.store_options import STORE_OPTIONS, options_table
from twistmq.spark_bridge.export_command import export
from twistmq.spark_bridge.export_plan import FORMATS
from twistmq.spark_bridge.plugin import Plugin
from twistmq.spark_bridge.rows import SINK_COLUMNS

FOLDER = Path(__file__).resolve().parents[2] / "spark_bridge"


class ReadmeTests(SynchronousTestCase):
    """Tables, names and links."""

    def setUp(self) -> None:
        self.text = (FOLDER / "README.md").read_text()

    def test_options_of_the_store_source(self) -> None:
        """The table is the one that the rows produce."""
        self.assertIn(options_table(STORE_OPTIONS), self.text)

    def test_every_option_of_the_command_it_uses_is_one(self) -> None:
        """Every option of the command it uses is one, and each format and setting is in it."""
        options = {name for each in export.params for name in each.opts}
        used = set(re.findall(r"(?<![-\w])--[a-z]+", self.text)) - {"--data"}
        self.assertLessEqual(used, options)
        for name in (*FORMATS, *(row.name for row in Plugin.register_settings())):
            self.assertIn(name, self.text.lower())

    def test_every_file_it_links_to_is_there(self) -> None:
        """Every file it links to is there."""
        links = re.findall(r"\]\(([^)#]+)\)", self.text)
        self.assertEqual([link for link in links if not (FOLDER / link).exists()], [])
        self.assertTrue(links)

    def test_columns_of_the_view(self) -> None:
        """The columns of the view are those that it selects."""
        table = self.text.partition("the events to one row for each message:")[2].partition(
            "## ")[0]
        named = {name for line in table.splitlines() if line.startswith("| `")
                 for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        source = (FOLDER / "trace_view.py").read_text()
        selected = source.partition("return joined.select(")[2].partition("\n\n\n")[0]
        self.assertEqual(named, set(re.findall(r'"(\w+)"', selected)))

    def test_options_beside_spark_sql_kafka(self) -> None:
        """The replacement of an option is an option; one without a replacement does not exist."""
        table = self.text.partition("and what takes its place:")[2].partition("Columns have")[0]
        rows = [line.split("|")[1:3] for line in table.splitlines()
                if line.startswith("| `") and "`rocketmq`" not in line]
        self.assertGreater(len(rows), 15)
        known = {option.name for option in OPTIONS}
        for theirs, ours in rows:
            if ours.strip() == "missing":
                self.assertEqual(known & set(re.findall(r"`([\w.]+)`", theirs)), set())
                continue
            named = re.findall(r"`([\w.]+)`", theirs if ours.strip() == "the same" else ours)
            self.assertTrue(named, msg=theirs)
            self.assertLessEqual({name for name in named if not name.endswith(".")}, known)
            if ours.strip() != "the same":
                self.assertEqual({self.hinted(name) for name in re.findall(r"`([\w.*]+)`", theirs)},
                                 {named[0]})

    @staticmethod
    def hinted(kafka_name: str) -> str:
        """Return the option that the error about an option of ``kafka`` names."""
        try:
            Options({kafka_name.replace("*", "x"): "x"}, BATCH_READ)
        except OptionError as error:
            return str(error).partition("; ")[2].partition(" ")[0]
        return ""

    def test_columns_beside_spark_sql_kafka(self) -> None:
        """The replacement of a column is a column."""
        table = self.text.partition("the names of RocketMQ:")[2].partition("The metrics")[0]
        rows = [line.split("|")[1:3] for line in table.splitlines()
                if line.startswith("| `") and "`rocketmq`" not in line]
        self.assertEqual(len(rows), 8)
        known = {column.name for column in COLUMNS}
        for theirs, ours in rows:
            named = set(re.findall(r"`(\w+)`", theirs if ours.strip() == "the same" else ours))
            self.assertLessEqual(named, known)

    def test_columns_and_options_of_examples(self) -> None:
        """The examples use columns and options that exist."""
        part = self.text.partition("## Read\n")[2].partition("## Count")[0]
        options = {option.name for option in OPTIONS}
        used = set(re.findall(r'option\("(\w+)"', part))
        self.assertLessEqual(used, options | {"checkpointLocation"})
        self.assertLessEqual(set(re.findall(r"AS (\w+)", part)), set(SINK_COLUMNS))
        selected = re.findall(r"\.select\(([^)]*)\)", part)
        self.assertEqual(len(selected), 2)
        for names in selected:
            self.assertLessEqual(set(re.findall(r'"(\w+)"', names)), set(SINK_COLUMNS))
