"""Documents that must agree with the code."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click
from click.exceptions import Exit
from twisted.trial.unittest import SynchronousTestCase

from tests import code_tests
from twistmq.broker.config.setting_rows import up_rows
from twistmq.tools.command_line import twistmq
from twistmq.tools.pages.settings_page import settings_page, stock_plugin_rows

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
#: Paragraphs of decision pages that state no decision: they list pages or continue a table.
MORE = re.compile(r"(Each decision is on|Plugins with two|Empty cells)")
#: The line before and after a block, with the name of its language.
_FENCE: Final = re.compile(r"\s*```(\w*)")
_SHELLS: Final = frozenset({"", "sh", "bash", "console"})
#: What separates the commands of a line.
_SEPARATORS: Final = frozenset("|&;<>()")
_ASSIGNMENT: Final = re.compile(r"\w+=")
FOLDERS = ("protocol", "broker", "client", "tools", "plugins", "acl", "trace", "transaction",
           "spark_bridge", "integrations", "raft", "console")


class SettingsPageTests(SynchronousTestCase):
    """The page broker/SETTINGS.md."""

    def test_page_is_what_the_rows_say(self) -> None:
        """The page is the one that is made from the rows now."""
        page = (ROOT / "broker/SETTINGS.md").read_text()
        self.assertEqual(page, settings_page(stock_plugin_rows()),
                         msg="write it again: python -m twistmq.tools.pages.settings_page")

    def test_every_setting_is_read(self) -> None:
        """Each name of a row occurs where settings are read."""
        sources = "".join(path.read_text() for path in sorted(ROOT.glob("broker/**/*.py"))
                          if path.name != "setting_rows.py")
        # The store reads its settings as attributes: settings.flush_disk_type.
        attributes = {name.replace("_", "") for name in re.findall(r"\.([a-z_]+)\b", sources)}
        unread = [row.name for row in up_rows()
                  if f'"{row.name}"' not in sources and row.name.lower() not in attributes]
        self.assertEqual(unread, [])


class CodesPageTests(SynchronousTestCase):
    """The page broker/CODES.md."""

    def test_page_is_what_the_tables_say(self) -> None:
        """The page is the one that is made from codes and handler tables now."""
        page = (ROOT / "broker/CODES.md").read_text()
        self.assertEqual(page, code_tests.page(),
                         msg="write it again: python -m twistmq.tools.pages.codes_page")

    def test_every_code_has_a_test(self) -> None:
        """The test is collected and sends the code; a code that is served has more
        than a refusal.
        """
        self.assertEqual(code_tests.faults(), [])


class PageCommandTests(SynchronousTestCase):
    """The commands that a reader may copy from a page."""

    def test_each_command_has_these_options(self) -> None:
        """Each one is accepted as it is written, without the settings of an environment."""
        faults, count = [], 0
        with patch.dict(os.environ, {"NAMESRV_ADDR": ""}), redirect_stdout(StringIO()):
            for page in sorted(ROOT.rglob("*.md")):
                for words in page_commands(page.read_text()):
                    count += 1
                    try:
                        parse_command(twistmq, "twistmq", words, None)
                    except Exit:
                        # The options --help and --version end the program.
                        continue
                    except click.ClickException as error:
                        faults.append(f"{page.relative_to(ROOT)}: twistmq {shlex.join(words)}: "
                                      f"{error.format_message()}")
        self.assertEqual(faults, [])
        self.assertGreater(count, 30)

    def test_commands_of_a_page(self) -> None:
        """They may follow a pipe or an assignment, and may continue on the next line."""
        page = ("twistmq is a broker.\n```sh\nseq 2 | twistmq produce T -n a:1  # twice\n```\n"
                "twistmq up\n```python\ntwistmq = 1\n```\n  ```\n  X=1 bin/twistmq up \\\n"
                "    --group 3 && twistmq --version > out\n  ```\n")
        self.assertEqual(list(page_commands(page)), [
            ["produce", "T", "-n", "a:1"], ["up", "--group", "3"], ["--version"]])


def page_commands(text: str) -> Iterator[list[str]]:
    """Return the arguments of each command ``twistmq`` in the blocks for a shell of a page."""
    language: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        fence = _FENCE.match(line)
        if fence is not None:
            language = fence[1] if language is None else None
        elif language in _SHELLS and "twistmq" in line:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for is_command, words in groupby(lexer, lambda word: not set(word) <= _SEPARATORS):
                rest = list(dropwhile(_ASSIGNMENT.match, words))
                if is_command and rest and Path(rest[0]).name == "twistmq":
                    yield rest[1:]


def parse_command(
    command: click.Command, name: str, words: list[str], parent: click.Context | None
) -> None:
    """Parse the words of a command without running it.

    :raises click.ClickException: when the command does not accept them.
    """
    context = command.make_context(name, words, parent)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        below, child, its_words = command.resolve_command(context, rest)
        assert child is not None
        parse_command(child, below or "", its_words, context)


class DecisionPageTests(SynchronousTestCase):
    """The pages DESIGN.md."""

    def test_each_constant_that_a_decision_names_exists(self) -> None:
        """A bound that is renamed is renamed in its paragraph too."""
        sources = "".join(path.read_text() for folder in FOLDERS
                          for path in sorted((ROOT / folder).rglob("*.py")))
        known = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", sources))
        pages = [page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("DESIGN.md"))]
        self.assertGreater(len(pages), 5)
        missing = [(str(page.relative_to(ROOT)), name) for page in pages
                   for name in re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`", page.read_text())
                   if name not in known]
        self.assertEqual(missing, [])

    def test_each_paragraph_begins_with_its_decision(self) -> None:
        """A page has the heading ``Decisions``; a paragraph begins with a short bold sentence."""
        faults: list[str] = []
        for page in (page for folder in FOLDERS for page in (ROOT / folder).rglob("DESIGN.md")):
            name = page.relative_to(ROOT)
            title, introduction, *paragraphs = page.read_text().rstrip().split("\n\n")
            if not title.startswith("# Decisions: ") or "*why*" not in introduction:
                faults.append(f"{name}: {title}")
            faults += [f"{name}: {text[:60]}" for text in paragraphs
                       if not text.startswith(("## ", "| ")) and not MORE.match(text)
                       and not re.match(r"\*\*[^*]{1,120}\.\*\*(\s|$)", text)]
            faults += [f"{name}: {line[:60]}" for line in page.read_text().splitlines()
                       if len(line) > 120]
        self.assertEqual(faults, [])

    def test_each_page_is_linked(self) -> None:
        """Each page can be reached from broker/DESIGN.md, and every link leads to a file."""
        linked = {ROOT / "broker/DESIGN.md"}
        for page in (ROOT / "broker/DESIGN.md", ROOT / "plugins/DESIGN.md"):
            linked |= {(page.parent / link).resolve()
                       for link in re.findall(r"\]\(([^)#:]+DESIGN\.md)\)", page.read_text())}
        pages = {page for folder in FOLDERS for page in (ROOT / folder).rglob("DESIGN.md")}
        self.assertEqual(linked, pages)


class ReadmeTests(SynchronousTestCase):
    """The page README.md."""

    def test_the_readme_stays_short(self) -> None:
        """It fits a few screens; longer texts are beside the code."""
        lines = README.read_text().splitlines()
        self.assertLessEqual(len(lines), 150)
        self.assertEqual([line for line in lines if len(line) > 120], [])

    def test_every_file_it_links_to_is_there(self) -> None:
        """Every file it links to is there."""
        links = re.findall(r"\]\(([^)#]+)\)", README.read_text())
        missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
        self.assertTrue(links)
        self.assertEqual(missing, [])
