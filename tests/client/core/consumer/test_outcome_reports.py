"""The results of handlers, as interceptors get them."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.base.handlers import Dead, NoResult, Retry, failure_level
from twistmq.client.base.interceptors import Interceptor, Interceptors
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import Batch

#: Errors of handlers, and how they are told.
ERRORS = ((Retry(), "retry"), (Retry(4), "retry"), (Dead(), "retry"),
          (ValueError("a fault"), "exception"), (NoResult("a text"), "no result"))


class _Outcomes(Interceptor):
    """An interceptor that records the results of messages."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    def after_consume(
        self, group: str, queue: Any, messages: Any, outcome: str
    ) -> None:
        """See ``Interceptor``."""
        self.told += [(int(message.body), outcome) for message in messages]


class OutcomeTests(SynchronousTestCase):
    """Ten messages in one queue, whose handlers may take a minute."""

    def setUp(self) -> None:
        """Create the broker."""
        self.broker = GroupBroker(queues=1)
        for number in range(10):
            self.broker.put("T", 0, b"%d" % number)
        self.note_queues = _Outcomes()

    def box(self, **options: Any) -> GroupBox:
        """Return a member with the interceptor."""
        box = GroupBox(self.broker, consume_timeout_ms=60_000, **options)
        box.core.interceptors = Interceptors((self.note_queues,))
        box.start()
        return box

    def take(self, box: GroupBox, most: int) -> Batch[bytes]:
        """Take a batch that must exist."""
        batch = box.member.take(most)
        assert batch is not None
        return batch

    def handler_raises(self, box: GroupBox, batch: Batch[bytes], error: Exception) -> None:
        """End a handler with an error, as the shells do."""
        message: ReceivedMessage[Any] = batch.messages[0]
        box.member.fail(batch.assigned, batch.messages, failure_level(message, error))
        box.settle()

    def test_each_end_of_a_handler_has_its_word(self) -> None:
        """This is so in an ordered group as well, where one message fails in each way in turn."""
        box = self.box()
        for error, _ in ERRORS:
            self.handler_raises(box, self.take(box, 1), error)
        good = self.take(box, 2)
        box.member.succeed(good.assigned, good.messages)
        words = [word for _, word in ERRORS]
        self.assertEqual(self.note_queues.told, [*enumerate(words), (5, "success"), (6, "success")])
        self.note_queues.told.clear()
        box = self.box(in_order=True)
        for error, _ in ERRORS:
            if not isinstance(error, Dead):
                self.handler_raises(box, self.take(box, 1), error)
                box.advance(1_200)
        self.assertEqual(self.note_queues.told, [(0, word) for error, word in ERRORS
                                          if not isinstance(error, Dead)])

    def test_a_handler_that_took_too_long_is_told_so_whatever_its_result(self) -> None:
        """It ended before its message was sent back, so its result counts."""
        box = self.box()
        done, failed = self.take(box, 1), self.take(box, 1)
        box.advance(60_000)
        self.assertEqual(self.note_queues.told, [])
        box.member.succeed(done.assigned, done.messages)
        self.handler_raises(box, failed, Retry())
        self.assertEqual(self.note_queues.told, [(0, "time-out"), (1, "time-out")])
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [0])
        raised = self.take(box, 1)
        box.advance(60_000)
        self.handler_raises(box, raised, ValueError("late"))
        self.assertEqual(self.note_queues.told[2:], [(2, "exception")])

    def test_a_result_after_the_message_was_sent_back_is_not_told(self) -> None:
        """The message has its result; the others of its batch have their own."""
        box = self.box()
        first, second = self.take(box, 1), self.take(box, 1)
        box.advance(130_000)
        self.assertEqual(self.note_queues.told, [(0, "time-out"), (1, "time-out")])
        box.member.succeed(first.assigned, first.messages)
        self.handler_raises(box, second, ValueError("late"))
        box.advance(1_000)
        self.assertEqual(self.note_queues.told, [(0, "time-out"), (1, "time-out")])
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [3, 3])
