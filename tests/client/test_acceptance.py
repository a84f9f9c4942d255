"""ACCEPTANCE.md has every row of the list, and names tests that exist."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.acceptance import TESTS, faults


class AcceptanceTests(SynchronousTestCase):
    """The table is checked as far as a test can do it."""

    def test_the_page_has_no_fault(self) -> None:
        """It has forty rows, each with the tests of its state."""
        self.assertEqual(faults(TESTS / "client/ACCEPTANCE.md", 40), [])
