"""ACCEPTANCE.md: every row of the list of DLedger, and tests that exist."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.acceptance import TESTS, faults


class AcceptanceTests(SynchronousTestCase):
    """The table is true as far as a test can tell."""

    def test_the_page_has_no_fault(self) -> None:
        """Fifty-one rows, each with the tests of its state."""
        self.assertEqual(faults(TESTS / "plugins/dledger/ACCEPTANCE.md", 51), [])
