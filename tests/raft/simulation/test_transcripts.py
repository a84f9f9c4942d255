"""The double of Apache's member answers as Apache's members did in recorded exchanges."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.simulation import java_member
from tests.raft.simulation.transcript import MEMBERS, read_transcript, replay

TRANSCRIPTS: Final = Path(__file__).resolve().parents[2] / "golden" / "dledger-transcripts"
#: The interval of heartbeats in the recordings, see tests/interop/ledger_members.py.
HEARTBEAT_MS: Final = 500
#: The answers of the three members that are compared at least.
COUNT_MIN: Final = 80


class TranscriptTests(SynchronousTestCase):
    """``JavaMember`` beside the members of 4.9.4 and 5.5.0."""

    def setUp(self) -> None:
        self.patch(java_member, "_HEARTBEAT_MS", HEARTBEAT_MS)
        self.patch(java_member, "_LEAD_MS", 3 * HEARTBEAT_MS)

    def check(self, version: str) -> None:
        """Replay the transcript of a version for each member."""
        rows = read_transcript(TRANSCRIPTS / f"{version}.jsonl.xz")
        compared = 0
        for member in MEMBERS:
            double, differences, count = replay(rows, member)
            self.assertEqual(differences, [])
            self.assertEqual(double.unasked, [])
            compared += count
        self.assertGreaterEqual(compared, COUNT_MIN)
        answers = [row["answer"] for row in rows if "answer" in row]
        # Elections, entries, a refused leader and a lead that was handed over.
        self.assertLessEqual({200, 403}, {answer["code"] for answer in answers})
        self.assertLessEqual({"ACCEPT", "REJECT_TERM_NOT_READY", "REJECT_ALREADY_VOTED"}, {
            answer.get("voteResult") for answer in answers})
        self.assertIn(51005, {row.get("code") for row in rows})

    def test_answers_of_4_9_4(self) -> None:
        """DLedger 0.2.6."""
        self.check("4.9.4")

    def test_answers_of_5_5_0(self) -> None:
        """DLedger 0.3.2."""
        self.check("5.5.0")
