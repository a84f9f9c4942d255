"""Nodes in memory, on one clock, elect a leader, replicate entries and fail over."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.loopback import NAMES, Loopback
from twistmq.plugins.dledger.node import NodeStopped
from twistmq.plugins.dledger.storage_driver import HANG_MS, RETRY_MS
from twistmq.raft.actions import Complained, Role
from twistmq.raft.messages import HeartbeatRequest, ResponseCode


class NodeTests(SynchronousTestCase):
    """A group of three nodes."""

    def test_a_new_group_elects_one_leader(self) -> None:
        """One member accepts proposals, and the others know it."""
        group = Loopback(self)
        leader = group.elect()
        group.run(3)
        self.assertEqual([machine.accepts for machine in group.machines.values()].count(True), 1)
        for machine in group.machines.values():
            self.assertEqual(machine.roles[-1][2], leader.name)
            self.assertIsNotNone(machine.state)

    def test_entries_are_committed_everywhere(self) -> None:
        """An entry that the leader's broker appends is pushed in the same turn, and committed."""
        group = Loopback(self)
        leader = group.elect()
        index = group.append(leader, b"a", b"b")
        self.assertLess(leader.committed, index)
        group.run(0.02)
        self.assertEqual(leader.committed, index)
        group.run(1.5)
        for name in NAMES:
            self.assertEqual(group.bodies(name), [b"a", b"b"])
            self.assertEqual(group.machines[name].committed, index)

    def test_another_member_takes_over_when_the_leader_dies(self) -> None:
        """With quick fail-over, the closed port is enough; the old leader follows later."""
        group = Loopback(self, quick_failover=True)
        old = group.elect()
        group.append(old, b"a")
        group.run(0.02)
        group.kill(old.name)
        began = group.clock.seconds()
        self.assertFalse(old.accepts)
        new = group.elect(besides=old.name)
        self.assertLess(group.clock.seconds() - began, 2.5)
        group.append(new, b"b")
        group.start(old.name)
        group.run(5)
        self.assertEqual([group.bodies(name) for name in NAMES], [[b"a", b"b"]] * 3)
        self.assertEqual(group.leader(), new)

    def test_without_quick_failover_heartbeats_decide(self) -> None:
        """The followers elect a leader after three missing heartbeats."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        group.kill(old.name)
        began = group.clock.seconds()
        group.elect(besides=old.name)
        self.assertGreater(group.clock.seconds() - began, 4)

    def test_a_leader_without_a_majority_stops_accepting_work(self) -> None:
        """The leader steps down; its entry is replaced when it hears of the new leader."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        others = [name for name in NAMES if name != old.name]
        group.cut = {pair for name in others for pair in ((old.name, name), (name, old.name))}
        group.append(old, b"lost")
        new = group.elect(besides=old.name)
        group.run(1)
        self.assertFalse(old.accepts)
        group.append(new, b"kept")
        group.cut.clear()
        group.run(10)
        self.assertEqual(group.bodies(old.name), [b"kept"])

    def test_work_is_refused_before_the_other_actions_of_a_turn(self) -> None:
        """A leader that receives a higher term tells its listener before anything
        else, and once.
        """
        group = Loopback(self)
        leader = group.elect()
        order: list[str] = []
        leader.lead_lost = lambda: order.append("lost")  # type: ignore[method-assign]
        leader.role_changed = (  # type: ignore[method-assign]
            lambda role, term, name: order.append(role.value))
        other = next(name for name in NAMES if name != leader.name)
        assert leader.node is not None
        leader.node.answer_request(
            HeartbeatRequest("g", other, leader.name, leader.node.member.term + 5, other))
        self.assertEqual(order[:2], ["lost", "follower"])
        self.assertEqual(order.count("lost"), 1)

    def test_a_lead_is_transferred(self) -> None:
        """The Deferred of the transfer fires when the other member leads."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        target = next(name for name in NAMES if name != old.name)
        assert old.node is not None
        ended = old.node.transfer_lead(target)
        self.assertEqual(group.elect(besides=old.name).name, target)
        group.run(0.1)
        self.assertEqual(self.successResultOf(ended), ResponseCode.SUCCESS)

    def test_a_node_that_stops_fails_what_waits(self) -> None:
        """Open requests fail, transfers end, and no timer remains."""
        group = Loopback(self)
        leader = group.elect()
        node = leader.node
        assert node is not None
        for name in NAMES:
            group.kill(name)
        with self.assertRaises(NodeStopped):
            self.failureResultOf(node.answer_request(
                HeartbeatRequest("g", "n1", "n0", 1, "n1"))).raiseException()
        self.assertEqual(self.successResultOf(node.transfer_lead("n1")), ResponseCode.NOT_LEADER)
        group.run(4)
        self.assertEqual(group.clock.getDelayedCalls(), [])

    def test_a_complaint_that_repeats_is_written_once_a_minute(self) -> None:
        """Its numbers may differ; the next line tells how many were left out."""
        group = Loopback(self)
        leader = group.elect()
        node = leader.node
        assert node is not None
        with capturedLogs() as events:
            for index in range(5):
                node._carry_out(Complained("n1", f"the entry {index} does not fit"))
            node._carry_out(Complained("n1", "something else"))
            group.run(61)
            node._carry_out(Complained("n1", "the entry 9 does not fit"))
        lines = [str(formatEvent(event)) for event in events if "peer" in event]
        self.assertEqual(lines, [
            "the entry 0 does not fit", "something else",
            "the entry 9 does not fit (4 more since the last line)"])

    def test_a_fault_of_the_state_machine_stops_the_node(self) -> None:
        """The listener gets the error, and the group continues without this member."""
        group = Loopback(self)
        leader = group.elect()
        assert leader.node is not None

        def fail(event: object, now_ms: int, draw: float) -> list[object]:
            raise AssertionError("a wrong state")

        leader.node.member.handle_event = fail  # type: ignore[assignment,method-assign]
        group.run(2.1)
        self.assertEqual(len(self.flushLoggedErrors(AssertionError)), 1)
        self.assertTrue(leader.failed)
        self.assertFalse(leader.node.is_running)
        self.assertFalse(leader.accepts)
        group.elect(besides=leader.name)


class StorageTests(SynchronousTestCase):
    """Saves, syncs, and disks that fail or hang."""

    def test_only_the_last_of_several_states_is_saved(self) -> None:
        """While a save runs, later states replace each other."""
        group = Loopback(self)
        leader = group.elect()
        follower = next(m for m in group.machines.values() if m is not leader)
        follower.is_slow = True
        saves, term = follower.saves, leader.roles[-1][1]
        assert follower.node is not None
        for higher in range(1, 6):
            follower.node.answer_request(HeartbeatRequest(
                "g", leader.name, follower.name, term + higher, leader.name))
        self.assertEqual(follower.saves, saves + 1)
        follower.end_held()
        self.assertEqual(follower.saves, saves + 2)
        follower.end_held()
        assert follower.state is not None
        self.assertEqual(follower.state.term, follower.node.member.term)

    def test_a_leader_whose_disk_hangs_gives_up_the_lead(self) -> None:
        """Another member leads, and the old leader follows it when its disk answers again."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        old.is_slow = True
        group.append(old, b"a")
        group.run(HANG_MS / 1000 + 0.1)
        self.assertFalse(old.accepts)
        new = group.elect(besides=old.name)
        group.append(new, b"b")
        old.is_slow = False
        old.end_held()
        group.run(2 * RETRY_MS / 1000 + 8)
        assert old.node is not None
        self.assertEqual(old.node.member.storage_failure, "")
        self.assertEqual(group.bodies(old.name), group.bodies(new.name))
        self.assertEqual(old.roles[-1][0], Role.FOLLOWER)

    def test_a_leader_refuses_as_soon_as_its_disk_counts_as_hanging(self) -> None:
        """The limit is 5 s from the begin of the sync, and at most a tick later it refuses."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        refused: list[int] = []
        self.patch(old, "lead_lost", lambda: refused.append(group.now_ms()))
        old.is_slow = True
        group.append(old, b"a")
        began_ms = group.now_ms()
        group.run(HANG_MS / 1000 + 1)
        self.assertEqual(len(refused), 1)
        self.assertLessEqual(0, refused[0] - began_ms - HANG_MS)
        self.assertLess(refused[0] - began_ms - HANG_MS, 100)

    def test_the_lead_is_not_given_to_a_member_with_a_full_disk(self) -> None:
        """It refuses the lead, although it appends the entries of a leader."""
        group = Loopback(self)
        leader = group.elect()
        group.run(1)
        other = next(machine for machine in group.machines.values() if machine is not leader)
        other.disk_fault = "the disk is full"
        assert leader.node is not None
        ended = leader.node.transfer_lead(other.name)
        group.run(0.1)
        self.assertEqual(self.successResultOf(ended), ResponseCode.TAKE_LEADERSHIP_FAILED)
        self.assertTrue(leader.accepts)
        other.disk_fault = ""
        leader.node.transfer_lead(other.name)
        self.assertIs(group.elect(besides=leader.name), other)

    def test_a_leader_whose_sync_fails_gives_up_the_lead_at_once(self) -> None:
        """The member does not become a candidate while its storage reports a fault."""
        group = Loopback(self)
        old = group.elect()
        group.run(1)
        old.is_slow, old.disk_fault = True, "it is broken"
        group.append(old, b"a")
        old.end_held(OSError("broken"))
        self.assertFalse(old.accepts)
        old.is_slow = False
        group.elect(besides=old.name)
        group.run(3 * RETRY_MS / 1000)
        assert old.node is not None
        self.assertIn("broken", old.node.member.storage_failure)

    def test_a_vote_that_cannot_be_saved_is_not_given(self) -> None:
        """The member votes again when its disk works again."""
        group = Loopback(self)
        leader = group.elect()
        group.run(1)
        voter = next(m for m in group.machines.values() if m is not leader)
        third = next(m for m in group.machines.values() if m not in (leader, voter))
        voter.is_slow = True
        group.kill(leader.name)
        for _ in range(12):
            group.run(1)
            voter.end_held(OSError("full"))
        self.assertFalse(third.accepts or voter.accepts)
        voter.is_slow = False
        group.elect(seconds=40, besides=leader.name)
