"""Plain English: the patterns of ``tests/prose.py`` are rare."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.folder_pages import BY_HAND, folders
from tests.prose import ROOT, Sentence, page_sentences, share, source_sentences

#: The folders of the product.
TOPS: Final = ("acl", "broker", "client", "console", "integrations", "plugins", "raft",
               "spark_bridge", "trace", "transaction")
#: Sentences with a pattern in a hundred, in each folder, at most.
BOUND: Final = 1


def of_folder(folder: Path) -> list[Sentence]:
    """Return the sentences of the modules in one folder, without subfolders."""
    return [sentence for path in sorted(folder.glob("*.py"))
            for sentence in source_sentences(path)]


class SourceTests(SynchronousTestCase):
    """The docstrings and comments of the product."""

    def test_each_folder_is_within_the_bound(self) -> None:
        """In each folder fewer than one sentence in a hundred has a pattern."""
        folders = sorted({path.parent for top in TOPS for path in (ROOT / top).rglob("*.py")})
        self.assertGreater(len(folders), 30)
        for folder in folders:
            self.assertLessEqual(share(of_folder(folder)), BOUND,
                                 msg=f"python -m tests.prose {folder.relative_to(ROOT)}")


class PageTests(SynchronousTestCase):
    """The pages."""

    def test_no_sentence_of_a_page_has_a_pattern(self) -> None:
        """Pages that are made of docstrings count with those."""
        made = {ROOT / folder / "README.md" for folder in set(folders()) - BY_HAND}
        pages = sorted(path for path in ROOT.rglob("*.md")
                       if path not in made
                       and not any(part.startswith(".") or part == "build"
                                   for part in path.relative_to(ROOT).parts))
        self.assertGreater(len(pages), 30)
        found = [f"{page.relative_to(ROOT)}:{sentence.line}: {sentence.text}" for page in pages
                 for sentence in page_sentences(page) if sentence.faults()]
        self.assertEqual(found, [])
