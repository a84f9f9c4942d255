"""A master and a slave with timers; the slave gets bytes of the log and answers."""

from __future__ import annotations

from tests.kernel_case import run_all, run_task
from tests.plugins.logs import copy_log
from tests.plugins.timer.case import SAVE, TURN, TimerTestCase, shrink_wheel
from twistmq.broker.plugin.synced_table import SyncedTable
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import timer
from twistmq.plugins.timer.service import TimerService

__all__ = ["SLAVE", "FollowingCase"]

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


class FollowingCase(TimerTestCase):
    """A master and a slave that gets its log as bytes and its tables as answers."""

    def setUp(self) -> None:
        shrink_wheel(self)
        super().setUp()
        self.slave_disk = FaultyDisk()
        self.slave = KernelBox(self.plugins, {**self.settings, **SLAVE}, self.slave_disk)
        self.addCleanup(lambda: self.slave.stop())
        self.slave.now_ms = self.box.now_ms

    @property
    def slave_service(self) -> TimerService:
        service = self.slave.plugin(timer.Plugin).service
        assert service is not None
        return service

    def copy_log(self) -> None:
        """Give the slave the bytes that it lacks."""
        copy_log(self.slave, self.box)

    def tables(self) -> list[SyncedTable]:
        return list(self.slave.kernel.hooks.collect_synced_tables())

    def copy(self, *, log: bool = True) -> None:
        """Copy the log and the tables, as they are on the master's disk."""
        run_task(self.box, SAVE)
        if log:
            self.copy_log()
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.slave_turn()

    def slave_turn(self, elapsed_ms: int = 0) -> None:
        self.slave.now_ms += elapsed_ms
        run_all(self.slave, TURN)

    def promote(self) -> None:
        """Remove the master and promote the slave."""
        self.slave.kernel.set_role("ASYNC_MASTER", 0)

    def slave_bodies(self) -> list[bytes]:
        return [each.body for each in self.slave.stored("T", 1)]

    def slave_turns(self, elapsed_ms: int) -> None:
        for _ in range(elapsed_ms // 100):
            self.slave_turn(100)
