"""spark_bridge/README.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.spark_bridge.export_command import export
from twistmq.spark_bridge.export_plan import FORMATS
from twistmq.spark_bridge.plugin import Plugin
from twistmq.spark_bridge.store_options import STORE_OPTIONS, options_table

FOLDER = Path(__file__).resolve().parents[2] / "spark_bridge"


class ReadmeTests(SynchronousTestCase):
    """Tables, names and links."""

    def setUp(self) -> None:
        self.text = (FOLDER / "README.md").read_text()

    def test_options_of_the_store_source(self) -> None:
        """The table is the one that is made of the rows now."""
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
        """The columns it names of the view are those the view selects."""
        table = self.text.partition("makes one row a message:")[2].partition("## ")[0]
        named = {name for line in table.splitlines() if line.startswith("| `")
                 for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        source = (FOLDER / "trace_view.py").read_text()
        selected = source.partition("return joined.select(")[2].partition("\n\n\n")[0]
        self.assertEqual(named, set(re.findall(r'"(\w+)"', selected)))
