"""A slave whose disk is full acknowledges nothing, and continues when there is room again."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.case import BUG_MARKS
from tests.hostile.small_disk import SmallDiskCase, fill, free
from tests.interop.load import Load
from tests.interop.replicas import (
    Group,
    OurReplica,
    bodies,
    configure,
    end_of,
    same_log,
    slaves_of,
)
from tests.interop.servers import wait_until
from twistmq.protocol.codes import ResponseCode

_MIB = 1024 * 1024
#: Left on the disk for messages at first, and given back later.
_ROOM, _MORE = 3 * _MIB, 8 * _MIB
_FILES = {"mappedFileSizeCommitLog": str(256 * 1024), "mappedFileSizeConsumeQueue": "2000",
          "maxHashSlotNum": "1000", "maxIndexNum": "4000", "maxMessageSize": "100000",
          "diskMaxUsedSpaceRatio": "99"}


class FullSlaveTests(SmallDiskCase):
    """The disk of the master has room."""

    timeout = 300

    def test_a_slave_of_a_synchronous_master(self) -> None:
        """Sends are answered with 12 while its disk is full, and with 0 afterwards."""
        self.on_small_disk(lambda disk: self.check(disk, "SYNC_MASTER"))

    def test_a_slave_of_an_asynchronous_master(self) -> None:
        """All sends are answered with code 0."""
        self.on_small_disk(lambda disk: self.check(disk, "ASYNC_MASTER"))

    def check(self, disk: Path, role: str) -> None:
        with Group(disk.parent / "data") as group:
            master = group.ours("master", **_FILES, brokerRole=role, inSyncReplicas="2",
                                slaveTimeout="500")
            slave = group.ours("slave", **_FILES, brokerRole="SLAVE", brokerId="1",
                               storePathRootDir=str(disk / "store"))
            master.start()
            slave.start()
            wait_until("the slave is there", lambda: slaves_of(master.address).in_sync_slave_nums)
            self.fill_and_free(master, slave, disk, role)

    def fill_and_free(
        self, master: OurReplica, slave: OurReplica, disk: Path, role: str
    ) -> None:
        filler = disk / "filler"
        is_waiting = role == "SYNC_MASTER"
        fill(disk, filler, _ROOM)
        with Load(master.address, window=8, size_max=4000) as load:
            wait_until("the slave says that its disk is full", lambda: (
                "the disk is full" in slave.log()), 120)
            if is_waiting:
                load.wait_for(20, ResponseCode.FLUSH_SLAVE_TIMEOUT)
            wait_until("the master goes on", lambda: (
                end_of(master.address) > end_of(slave.address) + 64 * 1024))
        self.assertEqual(load.failures, [])
        if is_waiting:
            # The disk is full still: what was answered with 0 is on it.
            kept = bodies(slave.log_folder)
            self.assertEqual([body for body in load.acknowledged if body not in kept], [])
        self.assertEqual(bool(load.count(ResponseCode.FLUSH_SLAVE_TIMEOUT)), is_waiting)
        self.assertEqual(set(load.counts) - {ResponseCode.SUCCESS,
                                             ResponseCode.FLUSH_SLAVE_TIMEOUT}, set())
        free(filler, _MORE)
        same_log(master, [slave])
        # Where no send may be late, a stall of the machine is none.
        configure(master.address, slaveTimeout="20000")
        with Load(master.address, 1) as load:
            load.wait_for(100)
        self.assertEqual(load.count(ResponseCode.FLUSH_SLAVE_TIMEOUT), 0)
        same_log(master, [slave])
        for replica in (master, slave):
            self.assertEqual([line for line in replica.log().splitlines()
                              if any(mark in line for mark in BUG_MARKS)], [])
