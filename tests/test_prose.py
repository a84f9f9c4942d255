"""Plain English: the patterns of ``tests/prose.py`` are rare, and become rarer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.prose import ROOT, Sentence, page_sentences, share, source_sentences

#: Sentences with a pattern in a hundred, by folder, at most. The aim is 1 everywhere: a folder that
#: was rewritten has a lower bound, and none may have a higher one again.
BOUNDS: Final = {
    "acl": 1, "broker": 6, "broker/api": 1, "broker/admin": 12,
    "broker/client": 1, "broker/config": 1,
    "broker/edge": 1, "broker/edge/doctor": 1, "broker/namesrv": 1, "broker/net": 1,
    "broker/observe": 1, "broker/pages": 1, "broker/plugin": 1, "broker/remoting": 1,
    "broker/request": 1, "broker/scheduling": 1, "broker/store": 1, "broker/store/inspect": 1,
    "broker/testing": 7, "broker/wire": 1, "broker/wire/bodies": 1, "broker/wire/headers": 1,
    "client": 1, "client/core": 1,
    "plugins": 1, "plugins/admin": 1, "plugins/filter_sql92": 1, "plugins/flow_control": 1,
    "plugins/metrics": 1, "plugins/pop": 1, "plugins/schedule": 2, "plugins/static_topic": 1,
    "plugins/timer": 1, "spark_bridge": 1, "trace": 1, "transaction": 1,
}
#: Pages in which no sentence has a pattern.
PLAIN_PAGES: Final = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "tests/README.md",
                      "tests/golden/README.md", "spark_bridge/COLUMNS.md")


def of_folder(folder: Path) -> list[Sentence]:
    """The sentences of the modules in one folder, without those below it."""
    return [sentence for path in sorted(folder.glob("*.py"))
            for sentence in source_sentences(path)]


class SourceTests(SynchronousTestCase):
    """Docstrings and comments of the product."""

    def test_each_folder_is_within_its_bound(self) -> None:
        """Each folder is within its bound."""
        for folder, bound in BOUNDS.items():
            self.assertLessEqual(share(of_folder(ROOT / folder)), bound, msg=folder)

    def test_each_bound_follows_its_folder_down(self) -> None:
        """A bound more than one above its folder is out of date: lower it."""
        for folder, bound in BOUNDS.items():
            self.assertGreater(share(of_folder(ROOT / folder)), bound - 1.5, msg=folder)

    def test_every_folder_has_a_bound(self) -> None:
        """Every folder with modules of some length has a bound."""
        found = {str(path.parent.relative_to(ROOT))
                 for top in {folder.split("/")[0] for folder in BOUNDS}
                 for path in (ROOT / top).rglob("*.py")}
        without = {"broker/dropin/twisted/plugins",
                   *(name for name in found if name.startswith("spark_bridge/formats/"))}
        self.assertEqual(found - without, set(BOUNDS))


class PageTests(SynchronousTestCase):
    """Pages."""

    def test_plain_pages_have_no_pattern(self) -> None:
        """No sentence of these pages has a pattern."""
        found = [f"{page}:{sentence.line}: {sentence.text}" for page in PLAIN_PAGES
                 for sentence in page_sentences(ROOT / page) if sentence.faults()]
        self.assertEqual(found, [])
