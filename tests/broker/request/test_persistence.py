"""The times at which tables are saved, and the callers that wait."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, Logger, LogLevel
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.request.persisted_table import SavedTable, Saving
from twistmq.broker.request.persistence import SAVE_PERIOD_MS, TableSaves
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import MemoryDisk


class Table(SavedTable):
    """A table whose text is one number, encoded in several steps."""

    def __init__(self) -> None:
        super().__init__(ConfigFile(MemoryDisk(), "/config/table.json"))
        self.value = 0
        self.steps = 0
        self.saved: list[int] = []
        self.full = False

    def saving(self) -> Saving:
        for _ in range(self.steps):
            yield
        self.dirty = False
        value = self.value

        def save() -> None:
            if self.full:
                raise StoreFull("full")
            self.saved.append(value)

        return save


class TableSavesTests(SynchronousTestCase):
    """The class TableSaves."""

    def setUp(self) -> None:
        self.now_ms = 0
        self.table = Table()
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.slices = Scheduler(self.tick).lane()
        self.saves = TableSaves([self.table], self.slices, self.in_thread, self.tick)

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def in_thread(self, job: Callable[[], None]) -> Deferred[None]:
        """Jobs run when the test asks for it."""
        done: Deferred[None] = Deferred()
        self.jobs.append((job, done))
        return done

    def run_job(self) -> None:
        job, done = self.jobs.pop(0)
        try:
            job()
        except StoreFull:
            done.errback()
        else:
            done.callback(None)

    def test_only_what_changed(self) -> None:
        """Periodic saves are of tables that changed, one at a time."""
        self.saves.step(0)
        self.assertEqual(self.jobs, [])
        self.table.value, self.table.dirty = 1, True
        self.saves.step(0)
        self.table.value, self.table.dirty = 2, True
        self.saves.step(0)
        self.assertEqual(len(self.jobs), 1)
        self.run_job()
        self.saves.step(0)
        self.run_job()
        self.assertEqual(self.table.saved, [1, 2])

    def test_who_waits_shares_the_next_save(self) -> None:
        """For all changes during a save, one more save is made."""
        first = self.saves.save(self.table)
        self.table.value = 5
        others = [self.saves.save(self.table) for _ in range(10)]
        self.run_job()
        self.successResultOf(first)
        for other in others:
            self.assertNoResult(other)
        self.run_job()
        for other in others:
            self.successResultOf(other)
        self.assertEqual(self.table.saved, [0, 5])
        self.assertEqual(self.jobs, [])

    def test_a_failed_save_is_logged_once_and_tried_again(self) -> None:
        """The failure is logged once and ends the waits; the table is saved later."""
        events: list[LogEvent] = []
        self.patch(TableSaves, "log", Logger(observer=events.append))
        self.table.full = True
        waiting = self.saves.save(self.table)
        self.run_job()
        self.successResultOf(waiting)
        self.assertEqual(self.saves.unsaved, [self.table])
        self.assertTrue(self.table.dirty, msg="a stop would not save it")
        for _ in range(5):
            self.saves.step(0)
            self.run_job()
        self.assertEqual([event["log_level"] for event in events], [LogLevel.error])
        self.table.full = False
        self.saves.step(0)
        self.run_job()
        self.assertEqual((self.saves.unsaved, self.table.saved), ([], [0]))

    def test_finish_waits_for_all_saves(self) -> None:
        """It ends after all saves, including one that others wait for."""
        self.table.steps = 100
        waiting = [self.saves.save(self.table), self.saves.save(self.table)]
        self.assertEqual(self.jobs, [])
        finished = self.saves.finish()
        self.run_job()
        self.assertNoResult(finished)
        self.slices.finish()
        self.run_job()
        self.successResultOf(finished)
        for each in waiting:
            self.successResultOf(each)

    def test_long_saves_are_rare(self) -> None:
        """After one that took long the next waits longer."""
        self.assertEqual(self.saves.period_ms(), SAVE_PERIOD_MS)
        self.saves.save(self.table)
        self.now_ms += 2000
        self.run_job()
        self.assertGreater(self.saves.period_ms(), 5000)
