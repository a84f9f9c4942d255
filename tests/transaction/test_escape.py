"""Half messages on a slave that acts as master: another broker takes them over."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from tests.transaction.case import COMMIT, TransactionTestCase
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import MessageRecord


class EscapeTests(TransactionTestCase):
    """The check of an acting master."""

    def setUp(self) -> None:
        super().setUp()
        self.escaped: list[MessageRecord] = []
        self.answers: list[Deferred[dict[int, BrokerError]]] = []
        self.at_once = True
        self.box.kernel.use_escape(self.escape)

    def escape(self, records: Sequence[MessageRecord]) -> Deferred[dict[int, BrokerError]]:
        self.escaped += records
        answer: Deferred[dict[int, BrokerError]] = Deferred()
        self.answers.append(answer)
        if self.at_once:
            answer.callback({})
        return answer

    def stand_in(self) -> None:
        self.box.kernel.set_role("SLAVE", 1)
        self.box.kernel.identity.is_acting = True

    def begin_check(self, elapsed_ms: int) -> None:
        """Let time pass and begin a check, which waits for another broker."""
        self.box.now_ms += elapsed_ms
        waiting = self.service.step(self.box.now_ms)
        assert waiting is not None
        self.assertNoResult(waiting)

    def bodies_escaped(self) -> list[bytes]:
        return [each.body for each in self.escaped]

    def test_open_ones_are_taken_over(self) -> None:
        """Open half messages are sent once to another broker; this broker does not ask for them."""
        ended = self.half(b"ended")
        for body in (b"1", b"2", b"3"):
            self.half(body, queue_id=3)
        self.must_end(ended, COMMIT)
        self.write_ends()
        end = self.box.kernel.store.commit_log.max_offset
        self.stand_in()
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual(self.bodies_escaped(), [b"1", b"2", b"3"])
        record = self.escaped[0]
        properties = parse_properties(record.properties)
        self.assertEqual((record.topic, record.queue_id, record.sys_flag), ("T", 3, 0))
        self.assertEqual(properties["TRAN_MSG"], "true")
        self.assertEqual((properties["PGROUP"], properties["UNIQ_KEY"], properties["KEYS"]),
                         ("g", "U-1", "k"))
        self.assertEqual([name for name in properties if name.startswith(("REAL_", "TRANSACTION_",
                                                                          "TRAN_PREPARED"))], [])
        self.assertEqual(self.progress()[0], 4)
        self.asked(30_000)
        self.assertEqual(len(self.escaped), 3)
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, end)

    def test_one_that_was_put_back(self) -> None:
        """A half message that was put back starts again on the other broker, without its copies."""
        self.half(b"1")
        self.assertEqual(self.asked(30_000), [b"1"])
        born_ms = self.halves()[0].born_timestamp
        self.stand_in()
        self.asked(30_000)
        [record] = self.escaped
        self.assertEqual(record.born_timestamp, born_ms)
        self.assertNotIn("TRANSACTION_CHECK_TIMES", parse_properties(record.properties))

    def test_none_without_an_escape_or_beside_the_master(self) -> None:
        self.half(b"1")
        self.stand_in()
        self.box.kernel.use_escape(None)
        self.asked(30_000)
        self.box.kernel.use_escape(self.escape)
        self.box.kernel.identity.has_master = True
        self.asked(30_000)
        self.assertEqual(self.escaped, [])
        self.box.kernel.identity.has_master = False
        self.asked(30_000)
        self.assertEqual(self.bodies_escaped(), [b"1"])

    def test_young_ones_wait(self) -> None:
        """A young half message waits, because its producer may still end it."""
        self.half(b"1")
        self.stand_in()
        self.asked(5999)
        self.assertEqual(self.escaped, [])
        self.asked(1)
        self.assertEqual(self.bodies_escaped(), [b"1"])

    def test_refused_ones_wait_for_the_next_check(self) -> None:
        """A half message that is refused waits for the next check, and all later ones wait too."""
        self.at_once = False
        self.half(b"1")
        self.half(b"2")
        self.stand_in()
        with capturedLogs() as events:
            self.begin_check(30_000)
            self.assertEqual(self.bodies_escaped(), [b"1"])
            self.answers[0].callback({0: BrokerError("no other broker accepts messages of T")})
            self.asked()
        self.assertEqual(self.bodies_escaped(), [b"1"])
        self.assertIn("half message 0 of queue 0 was not stored on another broker: no other broker "
                      "accepts messages of T", [formatEvent(event) for event in events])
        self.assertLessEqual(self.progress()[0], 0)
        self.at_once = True
        self.asked(30_000)
        self.assertEqual(self.bodies_escaped(), [b"1", b"1", b"2"])

    def test_a_master_that_returns_goes_on_behind_them(self) -> None:
        """When the other broker has answered, the offset is committed for the master."""
        self.half(b"1")
        self.half(b"2")
        self.stand_in()
        self.at_once = False
        self.begin_check(30_000)
        self.answers[0].callback({})
        self.assertEqual(self.progress()[0], 1)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.restart()
        self.assertEqual(self.asked(30_000), [b"2"])
