"""Replies with messages have the joined records as their body."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import Reply
from twistmq.broker.request.messages_reply import MessagesReply
from twistmq.protocol.errors import ReplyTooLong
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.headers.pull import PullMessageResponseHeader


class MessagesReplyTests(SynchronousTestCase):
    """The frame, and the reply that a plugin sees and changes."""

    def setUp(self) -> None:
        self.header = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=9)

    def reply(self, *records: bytes) -> MessagesReply:
        """Return a reply with these records."""
        return MessagesReply(0, self.header, records, sum(map(len, records)), "FOUND")

    def test_frame(self) -> None:
        """The frame is the same, whether or not the body was read."""
        for records in ((b"one", b"two!"), (b"one",), ()):
            expected = Reply(0, self.header, b"".join(records), "FOUND").frame(7)
            reply = self.reply(*records)
            self.assertEqual(reply.frame(7), expected)
            self.assertEqual(reply.body, b"".join(records))
            self.assertEqual(reply.frame(7), expected)

    def test_another_body(self) -> None:
        """A plugin may replace the body."""
        reply = self.reply(b"one", b"two")
        reply.body = b"three"
        self.assertEqual(reply.frame(7), Reply(0, self.header, b"three", "FOUND").frame(7))

    def test_too_long(self) -> None:
        """A reply that is too long for a frame is refused before it is made."""
        record = bytes(FRAME_SIZE_MAX // 4)
        self.assertRaises(ReplyTooLong, self.reply(*[record] * 4).frame, 7)
        self.assertEqual(len(self.reply(*[record] * 3).frame(7)) // len(record), 3)
