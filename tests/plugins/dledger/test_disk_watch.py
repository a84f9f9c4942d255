"""Leaders whose disks are full, fail or hang, and the members that lead after them."""

from __future__ import annotations

from typing import ClassVar, cast

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.kernels import KernelGroup, Machine
from twistmq.broker.store.commit_flush import CommitFlush
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.plugins.dledger.storage_driver import HANG_MS, RETRY_MS
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import StoreError

#: Within this time after the fault, another member leads, s.
STEP_SECONDS = 2.0


class DiskCase(SynchronousTestCase):
    """A group on disks that fail on demand; its leader has acknowledged one message."""

    settings: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        self.group = KernelGroup(self, make_disk=FaultyDisk, **self.settings)
        self.leader = self.group.elect()
        self.group.run(1)
        self.assertEqual(self.group.send(self.leader, b"first").code, ResponseCode.SUCCESS)

    @property
    def followers(self) -> list[Machine]:
        return [machine for machine in self.group.alive if machine is not self.leader]

    def disk(self, machine: Machine) -> FaultyDisk:
        return cast(FaultyDisk, machine.disk)

    def end(self, machine: Machine) -> int:
        """Return where the log of a member ends."""
        end: int = machine.kernel.store.commit_log.max_offset
        return end

    def next_leader(self) -> Machine:
        """Wait for another leader, which comes in time and acknowledges a message."""
        self.group.until(lambda: [each for each in self.group.masters if each is not self.leader],
                         "another master", STEP_SECONDS)
        [leader] = self.group.masters
        self.assertEqual(self.group.send(leader, b"second").code, ResponseCode.SUCCESS)
        return leader


class FullDiskTests(DiskCase):
    """Disks without room."""

    def test_a_leader_gives_the_lead_away(self) -> None:
        """It follows when it has room again."""
        self.disk(self.leader).room_bytes = 0
        end = self.end(self.leader)
        self.assertEqual(self.group.send(self.leader, b"refused").code,
                         ResponseCode.SERVICE_NOT_AVAILABLE)
        leader = self.next_leader()
        self.group.run(RETRY_MS / 1000)
        self.assertEqual(self.end(self.leader), end)
        self.assertEqual(self.group.masters, [leader])
        self.disk(self.leader).room_bytes = None
        self.group.until(lambda: self.end(self.leader) == self.end(leader), "its log is whole")
        self.assertEqual(self.group.bodies(self.leader.name), [b"first", b"second"])

    def test_a_leader_above_the_limit_of_usage(self) -> None:
        """The disk still has room for the entries of another leader."""
        self.leader.kernel.store.log_retention.disk_full = True
        leader = self.next_leader()
        self.group.until(lambda: self.end(self.leader) == self.end(leader), "its log is whole")

    def test_a_group_whose_disks_are_all_full_keeps_its_leader(self) -> None:
        """Consumers can read, one line says so, and the first member with room leads."""
        for machine in self.group.alive:
            machine.kernel.store.log_retention.disk_full = True
        with capturedLogs() as events:
            self.group.run(10)
        lines = [text for event in events if "no other member" in (text := str(formatEvent(event)))]
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual(self.group.masters, [self.leader])
        other = self.followers[1]
        other.kernel.store.log_retention.disk_full = False
        self.assertIs(self.next_leader(), other)

    def test_a_follower_catches_up_when_it_has_room(self) -> None:
        """The group goes on without it."""
        follower = self.followers[0]
        self.disk(follower).room_bytes = 0
        for number in range(3):
            self.assertEqual(self.group.send(self.leader, b"%d" % number).code,
                             ResponseCode.SUCCESS)
        self.assertLess(self.end(follower), self.end(self.leader))
        self.disk(follower).room_bytes = None
        self.group.until(lambda: self.end(follower) == self.end(self.leader), "its log is whole")
        self.assertEqual(self.group.masters, [self.leader])


class FailingDiskTests(DiskCase):
    """Disks that fail or hang while sends do not wait for them."""

    def test_a_leader_whose_sync_fails(self) -> None:
        """It gives the lead away, and acknowledges nothing to the next leader."""
        self.disk(self.leader).fail_sync_in = 1
        self.group.until(lambda: self.leader.kernel.store.flush.failure, "the sync fails")
        end = self.end(self.leader)
        leader = self.next_leader()
        self.group.run(3 * RETRY_MS / 1000)
        self.assertEqual((self.group.masters, self.end(self.leader)), ([leader], end))
        self.assertTrue(self.flushLoggedErrors(OSError))

    def test_a_leader_that_nobody_can_replace(self) -> None:
        """It gives up the lead, because it will never take a message again."""
        for machine in self.followers:
            machine.kernel.store.log_retention.disk_full = True
        self.leader.kernel.store.flush.give_up(StoreError("a failed sync"))
        self.group.until(lambda: not self.group.masters, "no master", STEP_SECONDS)

    def test_a_leader_whose_sync_hangs(self) -> None:
        """A sync that has made no progress for some seconds hangs."""
        self.patch(CommitFlush, "is_running", True)
        self.group.run(HANG_MS / 1000 - 1)
        self.assertEqual(self.group.masters, [self.leader])
        self.group.run(1)
        self.next_leader()

    def test_a_sync_that_begins_in_a_rest(self) -> None:
        """Its time without progress counts from the look that ends the rest."""
        watch = self.leader.broker._disk_watch
        assert watch is not None
        # The leader rests now, and looked at its disk some time ago.
        self.group.run(30)
        self.patch(CommitFlush, "is_running", True)
        watch.look()
        self.group.run(HANG_MS / 1000 - 0.3)
        self.assertEqual(self.group.masters, [self.leader])


class SyncedDiskTests(DiskCase):
    """A failing disk while each send waits for it."""

    settings: ClassVar[dict[str, str]] = {"flushDiskType": "SYNC_FLUSH"}

    def test_a_leader_refuses_when_it_knows(self) -> None:
        """In the turn in which a sync fails, the send that waits is answered, and the next one is
        refused. The log is not written again.
        """
        self.disk(self.leader).fail_sync_in = 1
        now_ms = self.group.now_ms()
        reply = self.group.begin_send(self.leader, b"unknown")()
        assert reply is not None
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        end = self.end(self.leader)
        refusal = self.group.begin_send(self.leader, b"refused")()
        assert refusal is not None
        self.assertEqual((refusal.code, self.group.now_ms()),
                         (ResponseCode.SERVICE_NOT_AVAILABLE, now_ms))
        leader = self.group.elect(besides=self.leader.name)
        self.assertEqual(self.group.send(leader, b"second").code, ResponseCode.SUCCESS)
        self.group.run(3 * RETRY_MS / 1000)
        self.assertEqual(self.end(self.leader), end)
        self.assertTrue(self.flushLoggedErrors(OSError))
