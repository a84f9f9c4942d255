"""The simulation is effective: with each of these mutations of the store, some seed fails."""

from __future__ import annotations

import gc
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store import checkpoint, dispatch, message_store, store_recovery
from twistmq.broker.store.batch_queue import BatchQueue
from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.entry_check import EntryCheck
from twistmq.broker.store.index_file import IndexFile
from twistmq.broker.store.queue_files import QueueFiles
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery import start_after_crash
from twistmq.broker.store.store_recovery import StoreRecovery
from twistmq.broker.testing.simulation import Simulation, SimulationFailed

#: Seeds in which each has to be found: several times those that it took.
SEED_COUNT = 2000


def nothing(*args: object) -> None:
    """The replacement of a function in a mutation."""


class MutationTests(SynchronousTestCase):
    """One test for each mutation."""

    def assert_found(self, target: object, name: str, mutation: Any) -> None:
        """Some seed fails while a part of the store is replaced."""
        self.patch(target, name, mutation)
        try:
            with self.assertRaises(SimulationFailed):
                for seed in range(SEED_COUNT):
                    Simulation(seed).run()
        finally:
            # Errors that the store logs about a failing disk do not fail the test.
            gc.collect()
            self.flushLoggedErrors()

    def test_log_is_not_cut(self) -> None:
        """Data after the first torn record remains, and is found again later."""
        self.assert_found(CommitLog, "truncate", nothing)

    def test_nothing_is_dispatched_again(self) -> None:
        """Messages after the checkpoint are missing in queues and index."""
        self.assert_found(StoreRecovery, "_enter", nothing)

    def test_checkpoint_without_margin(self) -> None:
        """Its times are used without the margin."""
        self.assert_found(checkpoint, "CHECKPOINT_MARGIN_MS", 0)

    def test_a_clock_that_goes_back(self) -> None:
        """The checkpoint keeps its later times."""
        self.assert_found(CheckpointFile, "lower", nothing)

    def test_start_a_file_too_late(self) -> None:
        """Recovery begins one file too late."""
        def late(commit_log: CommitLog, *args: Any) -> int:
            if not commit_log.starts:
                return 0
            start = start_after_crash(commit_log, *args)
            return min(commit_log.next_file_start(start), commit_log.starts[-1])

        self.assert_found(store_recovery, "start_after_crash", late)

    def test_torn_records_are_believed(self) -> None:
        """A right CRC of the body suffices."""
        self.assert_found(store_recovery, "without_torn", lambda messages, *args: messages)

    def test_a_kill_is_trusted(self) -> None:
        """The writes of the killed process count as durable."""
        self.assert_found(CommitLog, "limit_flushed", nothing)

    def test_entries_are_trusted(self) -> None:
        """An entry that has the right form counts as the message's."""
        self.assert_found(EntryCheck, "check", nothing)

    def test_failed_syncs_are_forgotten(self) -> None:
        """A later successful sync counts for data of a failed one."""
        self.assert_found(QueueTable, "rewrite", nothing)

    def test_light_entries_are_forgotten(self) -> None:
        """Recovery looks at a message's own entry alone."""
        self.assert_found(dispatch, "light_entries", lambda topic, properties: [])

    def test_batch_entries_are_trusted(self) -> None:
        """An entry of a batch queue that has the right form counts as the message's."""
        is_right = EntryCheck._is_entry_right

        def believe(check: EntryCheck, queue: ConsumeQueue, *args: Any) -> bool:
            return isinstance(queue, BatchQueue) or is_right(check, queue, *args)

        self.assert_found(EntryCheck, "_is_entry_right", believe)

    def test_names_are_trusted(self) -> None:
        """The names of new queues' files are not synced."""
        self.assert_found(QueueFiles, "_mark_directories", nothing)

    def test_directories_are_trusted(self) -> None:
        """The directories that the log needs are not synced."""
        self.assert_found(message_store, "sync_parents", nothing)

    def test_slots_ahead_are_kept(self) -> None:
        """Slots of the index that a crash left ahead of the header remain."""
        self.assert_found(IndexFile, "repair", nothing)
