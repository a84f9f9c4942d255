"""The reply to a stored message, encoded directly as a frame."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from twisted.internet.defer import fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import DeferredReply, Reply, Request
from twistmq.broker.request.send_record import StoredReplyMaker
from twistmq.broker.request.send_reply import StoredReplies, StoredReply
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import ONEWAY_FLAG, RemotingCommand, encode_reply
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.record import host_bytes

V4 = host_bytes("127.0.0.1", 10911)
V6 = host_bytes("2001:db8::1", 65535)
KEYS = ([], ["7F000001" * 4], ["größe \u4e16 \U0001f600", "k2"], ['"\\\n\x00\x1f/\x7f'])


def reply(keys: list[str], region: str = "DefaultRegion", trace_on: bool = True,
          host: bytes = V4, place: int = 0, queue_id: int = 0, queue_offset: int = 0
          ) -> StoredReply:
    """The reply to a message that was stored in a place."""
    record = message(queue_id=queue_id, store_host=host)
    record.keys = keys
    record.physical_offset, record.queue_offset = place, queue_offset
    return StoredReply(record, queue_id, host, StoredReplyMaker(region, trace_on))


class StoredReplyTests(SynchronousTestCase):
    """The class StoredReply."""

    def test_frame_is_that_of_the_header(self) -> None:
        """The bytes are equal for any keys, region, offset and host."""
        for keys, region, trace_on, (host, place, queue_id, queue_offset), opaque in product(
            KEYS, ("DefaultRegion", 'r"é\\'), (True, False),
            ((V4, 0, 0, 0), (V6, 2**63 - 1, 2**31 - 1, 2**63 - 1)), (0, 2**31 - 1, -1),
        ):
            written = reply(keys, region, trace_on, host, place, queue_id, queue_offset)
            header = reply(keys, region, trace_on, host, place, queue_id, queue_offset).header
            plain = encode_reply(ResponseCode.SUCCESS, opaque, header, b"", None)
            self.assertEqual(written.frame(opaque), plain,
                             msg=f"{keys} {region} {trace_on} {place} {opaque}")

    def test_what_a_plugin_changes_is_written(self) -> None:
        """Code, remark, body and header can each be changed."""
        self.check_changes(lambda changed: None)

    def test_what_changes_after_it_was_written_ahead(self) -> None:
        """A frame that was encoded in advance is used only if nothing was changed."""
        ahead = reply(["key"])
        ahead.write_ahead(1)
        self.assertEqual(ahead.frame(1), reply(["key"]).frame(1))
        self.check_changes(lambda changed: changed.write_ahead(1))

    def check_changes(self, before: Callable[[StoredReply], None]) -> None:
        """Change one attribute of a reply at a time."""
        header = reply(["key"]).header
        timed_out = ResponseCode.FLUSH_DISK_TIMEOUT
        for name, value, expected in (
            ("code", timed_out, Reply(timed_out, header)),
            ("remark", "a remark", Reply(header=header, remark="a remark")),
            ("body", b"a body", Reply(header=header, body=b"a body")),
            ("header", reply(["another"]).header, reply(["another"])),
        ):
            changed = reply(["key"])
            before(changed)
            setattr(changed, name, value)
            self.assertEqual(changed.frame(1), expected.frame(1), msg=name)
        changed = reply(["key"])
        before(changed)
        changed.header = None
        changed.header = reply(["another"]).header
        self.assertEqual(changed.frame(1), reply(["another"]).frame(1))


class StoredRepliesTests(SynchronousTestCase):
    """The replies of one read in StoredReplies, without an object for each."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(self.box.stop)
        self.records = [message(queue_id=number, store_host=V4) for number in range(3)]
        for number, record in enumerate(self.records):
            record.keys = [f"key{number}"]
            record.physical_offset = record.queue_offset = number
        self.replies = StoredReplies(
            self.records, [0, 1, 2], V4, StoredReplyMaker("DefaultRegion", True))

    def request(self, opaque: int, flag: int = 0) -> Request[EmptyHeader]:
        return Request(RemotingCommand(310, opaque, flag), EmptyHeader(), self.box.peer(), 0)

    def test_frames_are_those_of_the_objects(self) -> None:
        requests = [self.request(opaque) for opaque in (7, 8, 9)]
        self.assertEqual(self.replies.frames(requests), [
            reply.frame(opaque) for reply, opaque in zip(self.replies, (7, 8, 9), strict=True)
            if isinstance(reply, Reply)])
        self.assertEqual(len(self.replies), 3)

    def test_a_one_way_request_has_no_frame(self) -> None:
        requests = [self.request(7), self.request(8, ONEWAY_FLAG), self.request(9)]
        kept = [self.replies[0], self.replies[2]]
        self.assertEqual(self.replies.frames(requests), [
            reply.frame(opaque) for reply, opaque in zip(kept, (7, 9), strict=True)
            if isinstance(reply, Reply)])

    def test_a_part_of_them_is_a_list(self) -> None:
        [last] = self.replies[2:]
        assert isinstance(last, StoredReply)
        self.assertEqual(last.frame(1), self.replies.frames(
            [self.request(0), self.request(0), self.request(1)])[2])

    def test_an_outcome_that_is_known_before_a_reply_is_requested(self) -> None:
        """A leader that loses its lead in the turn of an append refuses the message."""
        requests = [self.request(opaque) for opaque in (7, 8, 9)]
        refusal = Reply(ResponseCode.SYSTEM_ERROR, EmptyHeader(), remark="no leader")
        for safe, code, remark in (
                (fail(RequestRefused(ResponseCode.SYSTEM_ERROR, "no leader")),
                 ResponseCode.SYSTEM_ERROR, "no leader"),
                (succeed(ResponseCode.FLUSH_DISK_TIMEOUT), ResponseCode.FLUSH_DISK_TIMEOUT, None)):
            self.replies.wait(safe, lambda _: refusal, requests)
            for held in (self.replies[0], self.replies[2:][0]):
                assert isinstance(held, DeferredReply)
                self.successResultOf(held.until)
                self.assertEqual((held.reply.code, held.reply.remark), (code, remark))
