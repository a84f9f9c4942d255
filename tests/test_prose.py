"""Plain English: the patterns of ``tests/prose.py`` are rare."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.prose import ROOT, Sentence, page_sentences, share, source_sentences

#: The folders of the product.
TOPS: Final = ("acl", "broker", "client", "plugins", "spark_bridge", "trace", "transaction")
#: Sentences with a pattern in a hundred, in each folder, at most.
BOUND: Final = 1
#: Pages in which no sentence has a pattern.
PLAIN_PAGES: Final = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "tests/README.md",
                      "tests/golden/README.md", "spark_bridge/COLUMNS.md")


def of_folder(folder: Path) -> list[Sentence]:
    """The sentences of the modules in one folder, without those below it."""
    return [sentence for path in sorted(folder.glob("*.py"))
            for sentence in source_sentences(path)]


class SourceTests(SynchronousTestCase):
    """Docstrings and comments of the product."""

    def test_each_folder_is_within_the_bound(self) -> None:
        """In each folder fewer than one sentence in a hundred has a pattern."""
        folders = sorted({path.parent for top in TOPS for path in (ROOT / top).rglob("*.py")})
        self.assertGreater(len(folders), 30)
        for folder in folders:
            self.assertLessEqual(share(of_folder(folder)), BOUND,
                                 msg=f"python -m tests.prose {folder.relative_to(ROOT)}")


class PageTests(SynchronousTestCase):
    """Pages."""

    def test_plain_pages_have_no_pattern(self) -> None:
        """No sentence of these pages has a pattern."""
        found = [f"{page}:{sentence.line}: {sentence.text}" for page in PLAIN_PAGES
                 for sentence in page_sentences(ROOT / page) if sentence.faults()]
        self.assertEqual(found, [])
