"""Public bug reports about popped messages, reproduced here; see ``tests/REPORTS.md``."""

from __future__ import annotations

from tests.plugins.pop.case import RETRY_TOPIC, REVIVE_TOPIC, PopTestCase, popped_of
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader


class ReportTests(PopTestCase):
    """Check points, and the messages that they name."""

    settings = {"reviveQueueNum": "1"}  # noqa: RUF012

    def test_messages_of_a_topic_that_was_made_again_are_not_revived(self) -> None:
        """apache/rocketmq#8479: a check point outlives its topic and revives the wrong messages.

        Messages of the new topic have the same offsets as those that were popped of the old one.
        """
        self.send_some(3, 1)
        self.assertEqual(len(self.pop()), 3)
        reply = self.box.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        for number in range(3):
            self.send(b"new %d" % number)
        self.pass_time(9000)
        self.assertEqual(self.retries(), [])
        self.assertEqual([each.body for each in self.pop()], [b"new 0", b"new 1", b"new 2"])
        self.pass_time(9000)
        self.assertEqual(self.retries(), [b"new 0", b"new 1", b"new 2"])

    def test_more_acknowledgements_than_check_points(self) -> None:
        """apache/rocketmq#5408: acknowledgements without a check point hold up the revive group."""
        self.send_some(2, 1)
        popped = self.pop()
        for _ in range(3):
            self.ack(*popped)
        self.pass_time(12_000)
        self.assertEqual(self.retries(), [])
        end = len(self.stored(REVIVE_TOPIC, 0))
        self.assertEqual((self.revived_to(), end > 3), ({0: end - 1}, True))

    def test_messages_that_a_held_pop_takes_are_revived(self) -> None:
        """apache/rocketmq#7914: messages that are younger than the request of their pop are lost.

        The wall clock is set back as well, between the send and the pop of another message.
        """
        self.send(b"first")
        self.ack(*self.pop())
        peer = self.box.peer()
        self.wait_pop(peer)
        self.box.now_ms += 3000
        self.send(b"young")
        [popped] = popped_of(self.box.late_replies(peer)[-1])
        self.assertEqual(popped.body, b"young")
        self.box.now_ms -= 60_000
        self.send(b"old")
        self.assertEqual([each.body for each in self.pop()], [b"old"])
        self.pass_time(80_000)
        self.assertEqual(sorted(self.retries(RETRY_TOPIC)), [b"old", b"young"])
