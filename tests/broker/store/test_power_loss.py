"""Confirmed data survives a loss of power; the simulation once found each of these cases."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.held_jobs import hold_jobs
from twistmq.broker.errors import StoreFull
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import decode_record

Item = TypeVar("Item")
LOG = "/store/commitlog"


class LoseAll(random.Random):
    """The worst case: all data that was not synced is lost."""

    def random(self) -> float:
        return 0.99

    def choice(self, seq: Sequence[Item]) -> Item:  # type: ignore[override]
        return seq[0]


class PowerLossTests(SynchronousTestCase):
    """A store on a disk that loses data."""

    def setUp(self) -> None:
        self.disk = PowerLossDisk()
        self.box = StoreBox(self.disk, mapped_file_size_commit_log=2000).open()

    def sent(self, count: int, size: int = 10) -> list[bytes]:
        """Send messages; :returns: their bodies."""
        bodies = [bytes([65 + number]) * size for number in range(count)]
        self.box.append(*[message(body=body, keys="k") for body in bodies])
        return bodies

    def flushed(self) -> None:
        """Wait until the log is durable."""
        self.assertIsNone(self.box.store.flush.flushed(self.box.store.commit_log.max_offset))

    def lose(self) -> None:
        """Lose the power, and start again."""
        self.box.store.close()
        self.disk.crash(LoseAll())
        self.box = self.box._again().open()

    def test_first_message(self) -> None:
        """The store's directories and the mark that it runs are as durable as the message."""
        bodies = self.sent(1)
        self.flushed()
        self.box.store.close()
        self.disk.crash(LoseAll())
        self.assertTrue(self.disk.exists("/store/abort"))
        self.assertEqual(self.box._again().open().bodies(), bodies)

    def test_messages_before_a_kill(self) -> None:
        """The files that a killed process wrote are durable when later messages are."""
        bodies = self.sent(20, 300)
        self.box = self.box.after_kill()
        log = self.box.store.commit_log
        self.assertLess(log.flushed_offset, log.max_offset)
        bodies += self.sent(1)
        self.flushed()
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_file_of_a_refused_message(self) -> None:
        """Its name is as durable as the next message in it after a clean stop."""
        self.disk.room_bytes = 50
        self.assertRaises(StoreFull, self.sent, 1)
        self.disk.room_bytes = None
        self.successResultOf(self.box.store.stop())
        self.assertEqual(self.disk.list_directory(LOG), ["0" * 20])
        self.box = self.box._again().open()
        bodies = self.sent(1)
        self.flushed()
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_stop_after_a_sync_failed(self) -> None:
        """The stop is not clean, because no later sync can confirm the messages."""
        self.sent(1)
        self.disk.fail_sync_in = 1
        self.box.step(11_000)
        self.disk.fail_sync_in = None
        self.box.step(11_000, 3)
        self.successResultOf(self.box.store.stop())
        self.assertTrue(self.disk.exists("/store/abort"))
        self.flushLoggedErrors(OSError, StoreError)

    def test_stop_after_a_failed_write(self) -> None:
        """The remains are removed durably, even if no other data must be synced."""
        self.disk.room_bytes = 50
        self.assertRaises(StoreFull, self.sent, 1)
        self.disk.room_bytes = None
        self.successResultOf(self.box.store.stop())
        contents = self.disk._contents(segment_path(LOG, 0))
        self.assertEqual((contents.pending, any(contents.durable)), ([], False))

    def test_entries_before_a_kill(self) -> None:
        """They are synced again before the checkpoint counts them as durable."""
        bodies = self.sent(30, 100)
        self.box.store.queues.write_all()
        self.box = self.box.after_kill()
        for _ in range(4):
            bodies += self.sent(4, 300)
            self.box.step(61_000, 3)
        self.lose()
        self.assertGreater(self.box.store.checkpoint.values.logics_msg_timestamp, 0)
        self.assertEqual(self.box.bodies(), bodies)

    def test_queue_file_of_a_kill(self) -> None:
        """A file that a process created and did not fill has a durable name when it counts."""
        bodies = self.sent(20)
        # Recovery begins behind them, and looks at no entry of this queue.
        for _ in range(2):
            self.box.append(*[message("Other", bytes(300), keys="k") for _ in range(8)])
            self.box.step(61_000, 20)
        self.box.store.close()
        self.disk.allocate(segment_path("/store/consumequeue/TopicTest/0", 400), 400)
        self.box = self.box._again().open()
        for _ in range(3):
            bodies += self.sent(4, 300)
            self.box.step(61_000, 20)
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_a_hole_in_any_file_of_a_queue(self) -> None:
        """The hole need not be in the last three files."""
        bodies = self.sent(26) * 4
        for _ in range(3):
            self.sent(26)
        self.box.store.queues.write_all()
        self.box.store.close()
        file = self.disk.open_file(segment_path("/store/consumequeue/TopicTest/0", 0))
        file.write_at(100, bytes(20))
        self.assertEqual(self.box._again().open().bodies(), bodies)

    def test_entries_of_lost_messages(self) -> None:
        """They are dropped, and do not refer to other messages later."""
        self.sent(2)
        self.flushed()
        self.sent(3, 50)
        self.box.store.queues.write_all()
        self.box.store.queues.sync_job()()
        self.lose()
        self.assertEqual(len(self.box.bodies()), 2)
        bodies = [*self.box.bodies(), *self.sent(9)]
        self.box = self.box.after_kill()
        self.assertEqual(self.box.bodies(), bodies)

    def test_queue_files_that_recovery_removed(self) -> None:
        """They do not reappear after a kill, when the next process would trust them."""
        for other in ((), (message("Other"),)):
            # Without any message that is durable the log has no file.
            if other:
                self.box.append(*other)
                self.flushed()
            self.sent(3)
            self.box.store.queues.write_all()
            self.box.store.queues.sync_job()()
            self.lose()
            self.assertEqual(self.box.bodies(), [])
            self.box = self.box.after_kill()
            self.box.store.close()
            self.disk.crash(LoseAll())
            self.assertEqual(self.disk.list_directory("/store/consumequeue/TopicTest/0"), [])
            self.box = self.box._again().open()

    def test_dies_while_it_cuts_the_log(self) -> None:
        """The remaining files have no gap, and the store opens again."""
        self.sent(20, 300)
        self.box.store.close()
        self.disk.open_file(segment_path(LOG, 2000)).write_at(4, bytes(4))
        for cut in range(1, 30):
            box = self.box._again()
            self.disk.cut_in = cut
            with contextlib.suppress(PowerCut):
                box.open()
            box.store.close()
            self.disk.kill()
        self.assertEqual(len(self.disk.list_directory(LOG)), 1)
        self.assertEqual(len(self.box._again().open().bodies()), 4)

    def test_removed_files_stay_removed(self) -> None:
        """They do not reappear when the log has grown to their positions again."""
        self.sent(20, 300)
        self.flushed()
        self.box.store.close()
        self.disk.open_file(segment_path(LOG, 2000)).write_at(4, bytes(4))
        self.box = self.box._again().open()
        bodies = [*self.box.bodies(), *self.sent(1)]
        self.flushed()
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)
        self.assertEqual(len(self.disk.list_directory(LOG)), 1)

    def test_files_of_another_past(self) -> None:
        """A file that was cut off does not reappear as the next one."""
        self.sent(20, 300)
        self.flushed()
        self.box.store.close()
        self.disk.open_file(segment_path(LOG, 2000)).write_at(4, bytes(4))
        self.box = self.box._again().open()
        bodies = self.box.bodies()
        self.sent(4, 310)
        self.disk.open_file(segment_path(LOG, 0)).sync()
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_stop_after_entries_were_lost(self) -> None:
        """The stop writes them again, is clean, and they survive a loss of power."""
        bodies = self.sent(5)
        self.box.store.queues.write_all()
        self.disk.fail_sync_in = 1
        self.box.store.upkeep.sync_queues(1, 1).addErrback(lambda _: None)
        self.disk.fail_sync_in = None
        self.successResultOf(self.box.store.stop())
        self.assertFalse(self.disk.exists("/store/abort"))
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_stop_while_entries_are_lost(self) -> None:
        """The stop is not clean, so the next start recovers as after a crash."""
        bodies = self.sent(5)
        self.flushed()
        self.box.store.queues.write_all()
        self.disk.fail_sync_in = 1
        self.box.store.upkeep.sync_queues(1, 1).addErrback(lambda _: None)
        self.disk.fail_sync_in = 1
        self.successResultOf(self.box.store.stop())
        self.disk.fail_sync_in = None
        # Its removal is lost with the power, for which a clean stop does not wait.
        self.assertTrue(self.disk.exists("/store/abort"))
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_entries_are_written_again(self) -> None:
        """The entries then survive a loss of power, like the entries of a successful sync."""
        bodies = self.sent(5)
        self.flushed()
        self.disk.fail_sync_in = 1
        self.box.step(61_000, 3)
        self.disk.fail_sync_in = None
        file = self.disk._contents(segment_path("/store/consumequeue/TopicTest/0", 0))
        self.assertTrue(file.dropped)
        self.assertFalse(any(file.durable))
        self.box.step(61_000, 3)
        self.assertEqual((file.dropped, file.durable), (set(), file.data))
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)
        self.flushLoggedErrors(OSError)

    def test_stop_waits_for_the_sync_before(self) -> None:
        """The stop is clean when the sync of the last minute has ended as well."""
        bodies = self.sent(5)
        self.flushed()
        held = hold_jobs(self.box)
        self.box.step(61_000, 2)
        stopped = self.box.store.stop()
        while not stopped.called:
            # The job that was asked for last is the first that is done.
            job, done = held.pop()
            job()
            done.callback(None)
        self.lose()
        self.assertEqual(self.box.bodies(), bodies)

    def test_keys_of_lost_messages(self) -> None:
        """The index is never ahead of the log, whose lost positions get other messages."""
        self.box.store.flush.flush_due = lambda now_ms: None  # type: ignore[method-assign]
        bodies = self.sent(5)
        self.box.step(11_000, 20)
        self.lose()
        self.box.append(message(body=b"later", keys="later"))
        for key, expected in (("k", bodies), ("later", [b"later"])):
            records, _, _ = self.box.store.reader.query("TopicTest", key, 64, 0, 2**62)
            self.assertEqual([decode_record(each).body for each in records], expected)

    def test_keys_after_a_kill(self) -> None:
        """An index file that a killed process made is durable with its name."""
        self.sent(5)
        self.box.step(11_000, 20)
        self.box = self.box.after_kill()
        self.successResultOf(self.box.store.stop())
        self.lose()
        records, _, _ = self.box.store.reader.query("TopicTest", "k", 64, 0, 2**62)
        self.assertEqual(len(records), 5)

    def test_index_file_of_a_kill(self) -> None:
        """A file that a process created and did not sync has a durable name when it counts."""
        self.sent(5)
        self.box.in_thread = lambda job: Deferred()
        self.box.step(11_000, 20)
        self.box = self.box.after_kill()
        self.assertEqual(len(self.disk.list_directory("/store/index")), 1)
        self.successResultOf(self.box.store.stop())
        self.disk.crash(LoseAll())
        self.assertEqual(len(self.disk.list_directory("/store/index")), 1)

    def test_half_messages_have_no_entries(self) -> None:
        """Their queue offset does not count, and drops no entries."""
        bodies = self.sent(5)
        self.box.append(message(body=b"half", sys_flag=4))
        self.box.store.queues.write_all()
        self.box = self.box.after_kill()
        self.assertEqual(self.box.bodies(), bodies)
        self.assertEqual(self.box.store.queues.tail_bytes, 0, "no entry is made again")

    def test_filtered_messages_have_no_entries(self) -> None:
        """The same is true for messages that the filter keeps out of their queues."""
        self.box.store.dispatch.filter = lambda record: record.body != b"out"
        bodies = self.sent(3)
        self.box.append(message(body=b"out"))
        self.box.store.queues.write_all()
        self.box.store.close()
        box = self.box._again()
        box.store.dispatch.filter = lambda record: record.body != b"out"
        self.assertEqual(box.open().bodies(), bodies)
        self.assertEqual(box.store.queues.tail_bytes, 0, "no entry is made again")

    def test_keys_after_a_stop(self) -> None:
        """The last header of the index is durable as well."""
        self.sent(5)
        self.successResultOf(self.box.store.stop())
        self.lose()
        records, _, _ = self.box.store.reader.query("TopicTest", "k", 64, 0, 2**62)
        self.assertEqual(len([decode_record(record) for record in records]), 5)
