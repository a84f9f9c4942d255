"""Each folder with more than five modules has a page that names them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.folder_pages import BY_HAND, ROOT, folders, page


class PagesTests(SynchronousTestCase):
    """The module tests/folder_pages.py."""

    def test_each_page_is_what_the_docstrings_say(self) -> None:
        """A reader finds a module by its folder's page, which is never out of date."""
        for folder in folders():
            path = ROOT / folder / "README.md"
            self.assertTrue(path.exists(), msg=f"{folder}: python -m tests.folder_pages")
            self.assertEqual(path.read_text(), page(folder),
                             msg=f"{folder}: python -m tests.folder_pages")

    def test_each_page_by_hand_is_of_a_folder_that_needs_one(self) -> None:
        """A deleted folder must be removed from the list."""
        self.assertEqual(BY_HAND - set(folders()), set())
