"""The wall clock of a kernel jumps, and durations remain right."""

from __future__ import annotations

from collections.abc import Iterator

from tests.kernel_case import KernelTestCase
from twistmq.broker.request.client_table import Client
from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import orderly
from twistmq.protocol.bodies import (
    ConsumerData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from twistmq.protocol.codes import RequestCode, ResponseCode

_HOUR_MS = 3_600_000


class ClockJumpTests(KernelTestCase):
    """The clock goes an hour back, or two hours ahead."""

    plugins = (("orderly", orderly.Plugin),)

    def send(self) -> None:
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", self.box.now_ms), b"x")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def after(self, milliseconds: int, *tasks: str) -> None:
        """Let time pass, and run tasks as often as they run in it."""
        for _ in range(milliseconds // 500):
            self.box.now_ms += 500
            for name in tasks:
                self.run_task(name)

    def test_log_queues_index_and_checkpoint_become_durable(self) -> None:
        """Log, queues, index and checkpoint become durable in their intervals."""
        store = self.box.kernel.store
        self.after(11_000, "flush the store")
        self.box.jump_ms = -_HOUR_MS
        self.send()
        self.after(11_000, "flush the store")
        self.assertEqual(store.commit_log.flushed_offset, store.commit_log.max_offset)
        self.after(70_000, "flush the store")
        self.assertEqual(store.upkeep.synced_offset, store.commit_log.max_offset)

    def test_store_times(self) -> None:
        """They stand still after a small step, and follow a large one back."""
        def stored_ms() -> int:
            self.send()
            return self.box.stored("T", 0)[-1].store_timestamp

        first_ms = stored_ms()
        self.box.jump_ms = -1000
        self.assertEqual(stored_ms(), first_ms)
        self.box.now_ms += 1001
        self.assertEqual(stored_ms(), first_ms + 1)
        self.box.jump_ms = -_HOUR_MS
        self.assertEqual(stored_ms(), self.box.now_ms - _HOUR_MS)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint.decode(self.disk.read_file("/store/checkpoint"), "")

    def test_the_checkpoint_is_before_the_message_whose_time_went_back(self) -> None:
        """On disk it is at once before the first message with an earlier store time."""
        self.send()
        self.after(70_000, "flush the store")
        before = self.checkpoint()
        self.assertGreater(min(before.physic_msg_timestamp, before.logics_msg_timestamp), 0)
        self.box.jump_ms = -_HOUR_MS
        self.send()
        stored_ms = self.box.stored("T", 0)[-1].store_timestamp
        lowered = self.checkpoint()
        self.assertLess(lowered.physic_msg_timestamp, stored_ms)
        self.assertLess(lowered.logics_msg_timestamp, stored_ms)
        self.assertLess(lowered.index_msg_timestamp, stored_ms)
        self.after(70_000, "flush the store")
        self.assertEqual(self.checkpoint().logics_msg_timestamp, stored_ms)

    def test_full_disk(self) -> None:
        """If the checkpoint cannot be lowered, no message is stored."""
        self.send()
        self.after(11_000, "flush the store")
        self.box.jump_ms = -_HOUR_MS
        self.disk.room_bytes = 0
        end = self.box.kernel.store.commit_log.max_offset
        reply = self.box.ask(
            RequestCode.SEND_MESSAGE_V2, send_header("T", self.box.now_ms), b"x")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, end)
        self.disk.room_bytes = None
        self.send()
        self.flushLoggedErrors()

    def test_a_pull_waits_as_long_as_it_asked_for(self) -> None:
        """A pull waits for its time-out, whatever the clock does."""
        self.send()
        for jump_ms in (-_HOUR_MS, 2 * _HOUR_MS):
            peer = self.box.peer()
            self.box.send(peer, RequestCode.PULL_MESSAGE, pull_header("T", 1, hold_ms=4000))
            self.box.jump_ms = jump_ms
            self.after(3500, "check waiting pulls")
            self.assertEqual(self.box.late_replies(peer), [])
            self.after(500, "check waiting pulls")
            [reply] = self.box.late_replies(peer)
            self.assertEqual(reply.code, ResponseCode.PULL_NOT_FOUND)

    def test_a_client_is_there_as_long_as_it_is_heard(self) -> None:
        """A client that sends heartbeats is not removed."""
        peer = self.box.peer()
        kernel = self.box.kernel
        kernel.clients.register_consumer(
            ConsumerData("G"), Client("c", peer, "JAVA", 479, kernel.now_ms(),
                                      kernel.steady.awake_ms()), notify=False)
        self.box.jump_ms = 2 * _HOUR_MS
        self.after(60_000, "expire silent clients")
        self.assertTrue(peer.active)
        self.box.jump_ms = -_HOUR_MS
        self.after(61_000, "expire silent clients")
        self.assertFalse(peer.active)

    def test_long_work(self) -> None:
        """Others are served in time."""
        done: list[int] = []

        def work() -> Iterator[None]:
            for step in range(1000):
                self.box.now_ms += 1
                self.box.jump_ms -= 1000
                done.append(step)
                yield

        self.box.kernel.slices.run(work())
        self.assertLess(len(done), 100)

    def test_a_lock_is_its_holders_for_as_long_as_he_may_be_silent(self) -> None:
        """A lock is its holder's for as long as he may be silent."""

        def lock(client_id: str) -> int:
            body = LockBatchRequestBody("g", client_id, mq_set=(MessageQueue("T", "b", 0),))
            reply = self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body.encode_standard())
            return len(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set)

        self.send()
        self.assertEqual(lock("one"), 1)
        self.box.jump_ms = 2 * _HOUR_MS
        self.run_task("forget expired locks")
        self.assertEqual(lock("two"), 0)
        self.box.jump_ms = -_HOUR_MS
        self.after(orderly.LOCK_AGE_MAX_MS + 1000)
        self.run_task("forget expired locks")
        self.assertEqual(self.box.plugin(orderly.Plugin).locks.count, 0)
        self.assertEqual(lock("two"), 1)


del KernelTestCase
