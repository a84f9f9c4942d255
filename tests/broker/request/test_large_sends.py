"""Batches of many messages, in slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.constants import DISPATCH_STEP_RECORDS
from twistmq.broker.request.acknowledgement import Stage
from twistmq.broker.request.large_sends import PART_COUNT
from twistmq.broker.request.send import LARGE_BATCH_COUNT
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.scheduling.scheduler import SLICE_MS
from twistmq.broker.testing.conversation import read_commands
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.batch import BATCH_COUNT_MAX, encode_batch
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import MessageRecord

#: Messages of a batch that takes several turns, and turns that nothing here takes.
MANY = 3000
STEPS_MAX = 1000


def batch(count: int, properties: str = "", name: str = "m") -> bytes:
    """Return the body of a batch; each message has its number."""
    return encode_batch([(0, b"%s%d" % (name.encode(), number), properties)
                         for number in range(count)])


class LargeCase(SynchronousTestCase):
    """A kernel in which each reading of the clock takes a millisecond."""

    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.appended: list[int] = []
        self.dispatched: list[int] = []
        self.box = KernelBox([("plugin", self)], self.settings, self.disk)
        self.addCleanup(self.box.stop)
        self.store = self.box.kernel.store
        self.box.kernel.topic_config.table["T"] = TopicConfig("T", 4, 4)
        self.box.clock = self.look
        self.soon: list[Callable[[], None]] = []
        self.box.host.run_soon = self.soon.append

    def look(self) -> int:
        self.box.now_ms += 1
        return self.box.now_ms

    @hookimpl
    def before_append(
        self, records: Sequence[MessageRecord]
    ) -> Mapping[int, BrokerError]:
        self.appended.append(len(records))
        return {index: RequestRefused(ResponseCode.NO_PERMISSION, "not this one")
                for index, record in enumerate(records) if b"bad" in record.body}

    @hookimpl
    def on_dispatch(self, records: Sequence[MessageRecord]) -> None:
        self.dispatched.append(len(records))

    def ask(
        self, peer: Peer, body: bytes, *, is_batch: bool = True, topic: str = "T", **fields: Any
    ) -> RemotingCommand | None:
        """Send; :returns: the reply, if it is there."""
        header = send_header(topic, self.box.now_ms, **fields)
        header.batch = is_batch
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        return self.box.send(peer, code, header, body)

    def step(self) -> None:
        """Run one turn of long work."""
        if self.soon:
            self.soon.pop(0)()

    def replies(self, peer: Peer, count: int = 1) -> list[RemotingCommand]:
        """Run turns until this number of responses exists."""
        for _ in range(STEPS_MAX):
            if len(self.box.late_replies(peer)) >= count:
                break
            self.step()
        found = self.box.late_replies(peer)
        self.assertEqual(len(found), count)
        return found

    def bodies(self, queue_id: int = 0, topic: str = "T") -> list[bytes]:
        return [message.body for message in self.box.stored(topic, queue_id)]


class TurnTests(LargeCase):
    """The work of one turn, and the other clients that are served."""

    def test_plugins_and_queues_get_parts(self) -> None:
        """Plugins and queues get parts; a turn makes, stores or enters at most four of them."""
        peer = self.box.peer()
        self.assertIsNone(self.ask(peer, batch(MANY)))
        turns = 0
        most = SLICE_MS * max(PART_COUNT, DISPATCH_STEP_RECORDS)
        while not peer.written:
            before = sum(self.appended), sum(self.dispatched)
            self.step()
            turns += 1
            self.assertLess(turns, STEPS_MAX)
            self.assertLessEqual(sum(self.appended) - before[0], most)
            self.assertLessEqual(sum(self.dispatched) - before[1], most)
        # Made, handed to plugins, told of in the reply: each message three times.
        self.assertGreaterEqual(turns, 3 * MANY // (SLICE_MS * PART_COUNT))
        self.assertEqual((sum(self.appended), max(self.appended)), (MANY, PART_COUNT))
        self.assertEqual((sum(self.dispatched), max(self.dispatched)), (MANY, PART_COUNT))

    def test_others_have_turns(self) -> None:
        """In each turn the send of another connection is answered; the batch stays contiguous."""
        peer, other = self.box.peer(), self.box.peer()
        self.assertIsNone(self.ask(peer, batch(MANY)))
        sent = 0
        while not peer.written:
            reply = self.ask(other, b"other", is_batch=False)
            assert reply is not None
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
            sent += 1
            self.step()
        self.assertGreater(sent, 10)
        self.box.kernel.store.flush_step(self.box.now_ms)
        bodies = self.bodies()
        self.assertEqual(bodies.count(b"other"), sent)
        first = bodies.index(b"m0")
        self.assertGreater(first, 0)
        self.assertEqual(bodies[first:first + MANY], [b"m%d" % n for n in range(MANY)])
        [reply] = self.replies(peer)
        self.assertEqual(reply.header(SendMessageResponseHeader).queue_offset, first)

    def together(self, *sends: tuple[Peer, bool, Sequence[bytes]]) -> list[list[int]]:
        """Let peers send at the same time, batches or not; :returns: the codes for each of them."""
        dispatcher, runs = self.box.kernel.dispatcher, []
        for peer, is_batch, bodies in sends:
            header = send_header("T", self.box.now_ms)
            header.batch = is_batch
            frames = FrameDecoder().feed(b"".join(
                encode_request(RequestCode.SEND_MESSAGE_V2, opaque, header, body)
                for opaque, body in enumerate(bodies)))
            head = dispatcher.read_head(peer, frames, self.box.now_ms)
            self.assertIsNotNone(dispatcher.joined_code(head, len(frames)))
            runs.append(head[0])
        return [[reply.code for reply in read_commands(b"".join(ready))]
                for ready in dispatcher.execute_together(runs)]

    def test_sends_of_others_that_came_with_it(self) -> None:
        """They do not wait for it; other sends of its own connection do."""
        peer, other = self.box.peer(), self.box.peer()
        large = batch(LARGE_BATCH_COUNT + 1)
        self.assertEqual(self.together((peer, True, [large]), (other, False, [b"x", b"y"])),
                         [[], [0, 0]])
        self.assertEqual(self.together((peer, False, [b"behind"]), (other, False, [b"z"])),
                         [[], [0]])
        self.replies(peer, 2)
        self.box.kernel.store.flush_step(self.box.now_ms)
        bodies = self.bodies()
        self.assertEqual([each for each in bodies if each[:1] != b"m"],
                         [b"x", b"y", b"z", b"behind"])
        self.assertEqual(bodies[-1], b"behind")

    def test_as_soon_as_others_had_theirs(self) -> None:
        """In a broker a turn schedules the next one without a delay."""
        soon = self.soon
        peer = self.box.peer()
        self.assertIsNone(self.ask(peer, batch(MANY)))
        turns = 0
        while soon:
            before = sum(self.appended), sum(self.dispatched)
            [turn] = soon
            soon.clear()
            turn()
            turns += 1
            self.assertLessEqual(sum(self.appended) - before[0], SLICE_MS * PART_COUNT)
            self.assertLessEqual(sum(self.dispatched) - before[1], SLICE_MS * DISPATCH_STEP_RECORDS)
        self.assertGreaterEqual(turns, 3 * MANY // (SLICE_MS * PART_COUNT))
        self.assertEqual(self.replies(peer)[0].code, ResponseCode.SUCCESS)
        self.assertIsNone(self.ask(peer, batch(MANY)))
        self.assertEqual(len(soon), 1)

    def test_a_batch_of_some_hundred_messages_is_answered_in_its_own_turn(self) -> None:
        """A batch of some hundred messages is answered in its own turn."""
        reply = self.ask(self.box.peer(), batch(LARGE_BATCH_COUNT))
        assert reply is not None
        self.assertEqual((reply.code, len(self.bodies())),
                         (ResponseCode.SUCCESS, LARGE_BATCH_COUNT))
        self.assertIsNone(self.ask(self.box.peer(), batch(LARGE_BATCH_COUNT + 1)))

    def test_same_connection(self) -> None:
        """Earlier sends of the connection are stored before the batch, and later ones after it."""
        peer = self.box.peer()
        self.assertIsNotNone(self.ask(peer, b"before", is_batch=False))
        self.assertIsNone(self.ask(peer, batch(MANY)))
        self.assertIsNone(self.ask(peer, b"between", is_batch=False))
        self.assertIsNone(self.ask(peer, batch(MANY, name="n")))
        self.assertIsNone(self.ask(peer, b"bad", is_batch=False))
        codes = [reply.code for reply in self.replies(peer, 4)]
        self.assertEqual(codes, [0, 0, 0, ResponseCode.NO_PERMISSION])
        self.assertEqual(self.bodies(), [
            b"before", *[b"m%d" % n for n in range(MANY)], b"between",
            *[b"n%d" % n for n in range(MANY)]])
        self.assertEqual(peer.held_bytes, 0)
        self.step()
        self.assertIsNotNone(self.ask(peer, b"behind", is_batch=False))

    def test_one_at_a_time(self) -> None:
        """Batches of several connections are worked at one after the other."""
        peers = [self.box.peer() for _ in range(3)]
        for number, peer in enumerate(peers):
            self.assertIsNone(self.ask(peer, batch(MANY, name="abc"[number])))
        order: list[int] = []
        for _ in range(STEPS_MAX):
            self.step()
            order += [n for n, peer in enumerate(peers) if peer.written and n not in order]
            if len(order) == 3:
                break
        self.assertEqual(order, [0, 1, 2])
        self.assertEqual(self.bodies(), [
            b"%s%d" % (name, n) for name in (b"a", b"b", b"c") for n in range(MANY)])


class StoredTests(LargeCase):
    """The storage of such a batch."""

    def test_the_reply_lists_all_ids_also_across_files(self) -> None:
        """All ids are listed, also of messages in the next file, and all are found."""
        peer = self.box.peer()
        for count in (1, 2):
            self.ask(peer, batch(MANY, "KEYS\x01k\x02TAGS\x01a\x02"),
                     properties={"UNIQ_KEY": "U"})
            reply = self.replies(peer, count)[-1]
        self.assertGreater(self.store.commit_log.max_offset, 1 << 20)
        header = reply.header(SendMessageResponseHeader)
        self.assertEqual((header.queue_offset, header.transaction_id), (MANY, "U"))
        places = [parse_offset_message_id(text)[2] for text in header.msg_id.split(",")]
        stored = self.box.stored("T", 0)
        self.assertEqual([m.physical_offset for m in stored[MANY:]], places)
        self.assertEqual([m.queue_offset for m in stored], list(range(2 * MANY)))
        self.assertEqual({m.properties_map()["UNIQ_KEY"] for m in stored}, {"U"})
        self.assertEqual(len(self.store.reader.query("T", "k", 64, 0, 2**62)[0]), 64)
        self.assertEqual(self.box.kernel.stats.sums("TOPIC_PUT", "T").count, 2 * MANY)

    def test_waits_for_replicas(self) -> None:
        """The response waits for replicas, as for any send, and reports late replicas."""
        for code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            safe: Deferred[None] = Deferred()
            self.box.kernel.acknowledgement.stages[:] = [
                Stage(lambda offset, safe=safe: safe, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
            peer = self.box.peer()
            self.ask(peer, batch(MANY))
            for _ in range(STEPS_MAX):
                self.step()
            self.assertEqual(peer.written, [])
            if code is ResponseCode.SUCCESS:
                safe.callback(None)
            else:
                self.box.now_ms += 60_000
                self.box.kernel.acknowledgement.expire(self.box.now_ms)
            self.assertEqual(self.replies(peer)[0].code, code)

    def test_waits_for_mandatory_stages(self) -> None:
        """A large batch with WAIT=false waits for a mandatory stage, and for no other."""
        safe: Deferred[None] = Deferred()
        self.box.kernel.acknowledgement.stages[:] = [
            Stage(lambda offset: Deferred(), ResponseCode.FLUSH_SLAVE_TIMEOUT),
            Stage(lambda offset: safe, ResponseCode.SYSTEM_ERROR, is_mandatory=True)]
        peer = self.box.peer()
        self.ask(peer, batch(MANY), properties={"WAIT": "false"})
        for _ in range(STEPS_MAX):
            self.step()
        self.assertEqual((peer.written, len(self.bodies())), ([], MANY))
        safe.callback(None)
        self.assertEqual(self.replies(peer)[0].code, ResponseCode.SUCCESS)

    def test_topic_made(self) -> None:
        """The topic that the batch creates exists, and name servers are informed once."""
        told: list[None] = []
        self.box.host.on_topic_change.append(lambda: told.append(None))
        peer = self.box.peer()
        self.ask(peer, batch(MANY), topic="New")
        self.assertEqual(self.replies(peer)[0].code, ResponseCode.SUCCESS)
        self.assertEqual((len(self.bodies(topic="New")), len(told)), (MANY, 1))

    def test_a_stop_leaves_nothing_of_a_batch_that_is_not_written(self) -> None:
        """The batch is not answered, so its sender sends it again."""
        self.ask(self.box.peer(), batch(MANY))
        self.step()
        self.box.stop()
        again = KernelBox((), self.settings, self.disk)
        self.addCleanup(again.stop)
        self.assertEqual(again.stored("T", 0), [])

    def test_a_stop_keeps_the_whole_batch_once_it_is_written(self) -> None:
        """The whole batch remains, and the next start completes its queue."""
        self.ask(self.box.peer(), batch(MANY))
        while not self.store.commit_log.max_offset:
            self.step()
        self.assertLess(self.store.dispatch.offset, self.store.commit_log.max_offset)
        self.box.stop()
        again = KernelBox((), self.settings, self.disk)
        self.addCleanup(again.stop)
        self.assertEqual(len(again.stored("T", 0)), MANY)


class RefusedTests(LargeCase):
    """Refused batches, of which nothing is stored."""

    def refused(self, body: bytes) -> tuple[int, str]:
        """Send a batch that must be refused; :returns: code and remark."""
        peer = self.box.peer()
        before = self.store.commit_log.max_offset
        reply = self.ask(peer, body) or self.replies(peer)[0]
        self.assertEqual((self.store.commit_log.max_offset, self.bodies()), (before, []))
        self.assertEqual(reply.fields(), {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
        return reply.code, reply.remark or ""

    def test_a_batch_of_more_messages_than_apache_counts_is_refused(self) -> None:
        """More messages than Apache's broker can count are refused."""
        code, remark = self.refused(encode_batch([(0, b"", "")] * (BATCH_COUNT_MAX + 1)))
        self.assertEqual((code, remark), (
            ResponseCode.MESSAGE_ILLEGAL, f"the batch holds more than {BATCH_COUNT_MAX} messages"))

    def test_a_batch_with_a_malformed_last_message_is_refused(self) -> None:
        """A batch whose last message is malformed is refused."""
        code, remark = self.refused(batch(MANY) + b"\0")
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn(f"message {MANY} of the batch", remark)

    def test_last_is_wrong(self) -> None:
        """A batch whose last message a plugin or the store refuses is refused."""
        last = encode_batch([(0, b"bad", "")])
        self.assertEqual(self.refused(batch(MANY) + last),
                         (ResponseCode.NO_PERMISSION, "not this one"))
        last = encode_batch([(0, b"", f"a\x01{'x' * 32_750}\x02")])
        self.assertEqual(self.refused(batch(MANY) + last)[0], ResponseCode.MESSAGE_ILLEGAL)

    def test_disk_full(self) -> None:
        """The next message has the offset that the batch would have had."""
        self.disk.room_bytes = 100_000
        self.assertEqual(self.refused(batch(MANY))[0], ResponseCode.SERVICE_NOT_AVAILABLE)
        self.disk.room_bytes = None
        reply = self.ask(self.box.peer(), b"x", is_batch=False)
        assert reply is not None
        self.assertEqual(reply.header(SendMessageResponseHeader).queue_offset, 0)

    def test_topic_gone(self) -> None:
        """A topic that is deleted in the meantime, and may not be created again, gets nothing."""
        self.box.kernel.settings.update({"autoCreateTopicEnable": "false"})
        del self.box.kernel.topic_config.table["TBW102"]
        peer = self.box.peer()
        self.assertIsNone(self.ask(peer, batch(MANY)))
        self.box.send(self.box.peer(), RequestCode.DELETE_TOPIC_IN_BROKER,
                      DeleteTopicRequestHeader(topic="T"))
        [reply] = self.replies(peer)
        self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(self.store.queues.ids_by_topic(), {})


class BeforeSendTests(LargeCase):
    """The hooks ``before_send`` and ``after_send`` for such a batch."""

    @hookimpl
    def before_send(self, batch: SendBatch) -> Mapping[int, BrokerError]:
        self.seen = [(len(batch.requests), len(batch.records[0]))]
        if batch.requests[0].header.queue_id == 3:
            return {0: RequestRefused(ResponseCode.NO_PERMISSION, "not to this queue")}
        return {}

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        reply: Any = batch.replies[0]
        self.seen.append((reply.code, batch.records[0][-1].queue_offset))

    def test_hooks_see_the_request_with_all_records_once(self) -> None:
        """They get the request with all its records once; a refusal is the response."""
        peer = self.box.peer()
        self.ask(peer, batch(MANY))
        self.assertEqual(self.replies(peer)[0].code, ResponseCode.SUCCESS)
        self.assertEqual(self.seen, [(1, MANY), (ResponseCode.SUCCESS, MANY - 1)])
        self.ask(peer, batch(MANY), queue_id=3)
        self.assertEqual(self.replies(peer, 2)[1].code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.seen, [(1, MANY), (ResponseCode.NO_PERMISSION, 0)])
        self.assertEqual(self.bodies(3), [])
