"""Several slaves of one master; ``python -m tests.long.replication slaves`` sends more."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase
from tests.interop.replica_strain import four_slaves


class FourSlavesTests(JavaTestCase):
    """Two of ours, one of 5.3.3, and one of 4.9.4."""

    def test_four_slaves(self) -> None:
        """Their logs equal the master's, and it reports four slaves."""
        self.assertEqual(four_slaves(self.folder, 300).problems, [])
