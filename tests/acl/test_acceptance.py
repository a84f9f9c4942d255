"""ACCEPTANCE.md has every row of the list of ACL 2.0, and its tests exist."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.acceptance import TESTS, faults


class AcceptanceTests(SynchronousTestCase):
    """The facts of the table that a test can check."""

    def test_the_page_has_no_fault(self) -> None:
        """The page has seventeen rows, each with the tests of its state."""
        self.assertEqual(faults(TESTS / "acl/ACCEPTANCE.md", 17), [])
