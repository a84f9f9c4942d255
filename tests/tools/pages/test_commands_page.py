"""The page tools/admin/COMMANDS.md."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.tools.pages.commands_page import commands_page

ROOT = Path(__file__).resolve().parents[3]


class CommandsPageTests(SynchronousTestCase):
    """The page and the table of commands."""

    def test_page_is_what_the_table_says(self) -> None:
        """The page is the one that is made from the table now."""
        page = (ROOT / "tools/admin/COMMANDS.md").read_text()
        self.assertEqual(page, commands_page(),
                         msg="write it again: python -m twistmq.tools.pages.commands_page")
