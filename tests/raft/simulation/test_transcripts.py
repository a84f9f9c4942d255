"""The double of Apache's member answers and pushes as recorded members of Apache's did."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.simulation import java_member
from tests.raft.simulation.transcript import MEMBERS, Row, read_transcript, replay
from twistmq.protocol.codes import DLedgerRequestCode

TRANSCRIPTS: Final = Path(__file__).resolve().parents[2] / "golden" / "dledger-transcripts"
#: The interval of heartbeats in the recordings, see tests/interop/ledger_members.py.
HEARTBEAT_MS: Final = 500
#: The answers of the three members that are compared at least, and the pushes of their leaders.
ANSWERS_MIN: Final = 80
PUSHES_MIN: Final = 42


class TranscriptTests(SynchronousTestCase):
    """``JavaMember`` beside the members of 4.9.4 and 5.5.0."""

    def setUp(self) -> None:
        self.patch(java_member, "_HEARTBEAT_MS", HEARTBEAT_MS)
        self.patch(java_member, "_LEAD_MS", 3 * HEARTBEAT_MS)

    def check(self, version: str) -> None:
        """Replay the transcript of a version for each member."""
        rows = read_transcript(TRANSCRIPTS / f"{version}.jsonl.xz")
        answers = pushes = 0
        for member in MEMBERS:
            double, differences, count = replay(rows, member)
            self.assertEqual(differences, [])
            self.assertEqual(double.unasked, [])
            answers += count
            for peer, each in double.pushes.items():
                self.assertEqual((each.differences, each.sent), ([], []), f"{member} to {peer}")
                pushes += each.count
        self.assertGreaterEqual(answers, ANSWERS_MIN)
        self.assertGreaterEqual(pushes, PUSHES_MIN)
        self.check_kinds(rows)

    def check_kinds(self, rows: list[Row]) -> None:
        """Check that a transcript has the exchanges that matter."""
        answers = [row["answer"] for row in rows if "answer" in row]
        self.assertLessEqual({200, 403, 406, 416}, {answer["code"] for answer in answers})
        self.assertLessEqual({"ACCEPT", "REJECT_TERM_NOT_READY", "REJECT_ALREADY_VOTED"}, {
            answer.get("voteResult") for answer in answers})
        self.assertIn(DLedgerRequestCode.LEADERSHIP_TRANSFER, {row.get("code") for row in rows})
        self.assertLessEqual({"COMPARE", "TRUNCATE", "APPEND", "COMMIT"}, {
            row["request"].get("type") for row in rows if "request" in row})

    def test_answers_of_4_9_4(self) -> None:
        """DLedger 0.2.6."""
        self.check("4.9.4")

    def test_answers_of_5_5_0(self) -> None:
        """DLedger 0.3.2."""
        self.check("5.5.0")
