"""Groups of which some members are the double of Apache's, beside ours.

    simulation = MixedSimulation(seed, java_count=1)
    simulation.run()
    simulation.apaches_fault

The rules hold for our members. Those that speak of the whole group cannot hold where Apache's
faults are in their way (see ``java_member.py``):

* A leader of Apache's calls entries of older terms committed, which a later leader may replace.
  From that moment until they are committed by Raft's rule, a broken rule on committed entries is
  Apache's fault (J2), and the seed ends there.
* After the faults, a leader of Apache's may leave a member behind for ever (J3, J4). It is then
  killed, so that another member leads; the group has to be whole when a member of ours leads.

A machine of Apache's is killed where others lose their power or their disk: its entries and votes
are not synced, so a group that contains it does not promise anything then.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from tests.raft.simulation.disk import Disk
from tests.raft.simulation.java_member import JavaMember
from tests.raft.simulation.machine import Machine
from tests.raft.simulation.simulation import _LOOK_MS, WHOLE_MS, Simulation
from tests.raft.simulation.world import InvariantBroken
from twistmq.raft.actions import Committed, Role, SaveHardState
from twistmq.raft.messages import Entry, Request
from twistmq.raft.settings import MemberSettings

__all__ = ["JavaMachine", "MixedSimulation"]

#: The rules that speak of committed entries.
_OF_COMMITTED: Final = ("I4", "I5", "I6", "I9", "I12", "I18")
#: A leader of Apache's that has not made its group whole in this time is killed.
_PATIENCE_MS: Final = 12_000
#: Kills of leaders of Apache's after the faults, at most.
_KILLS_MAX: Final = 6


class _PageCache(Disk):
    """A disk whose machine never loses its power."""

    def change(self) -> None:
        """No earlier state comes back."""

    @property
    def synced(self) -> list[Entry]:
        """The entries."""
        return self.entries

    def kill(self, draw: random.Random) -> None:
        """All that was written stays."""

    def sync_all(self) -> None:
        """There is nothing to do."""


class JavaMachine(Machine):
    """A machine with the double of Apache's member."""

    is_java = True

    def _make_disk(self) -> Disk:
        return _PageCache()

    def _make_member(self) -> Any:
        return JavaMember(self.settings, self.log, self.disk.hard_state, self.disk.committed_index)

    @property
    def has_joined(self) -> bool:
        """Apache's members always vote."""
        return True

    def end(self, *, lose_power: bool = False, wipe: bool = False) -> None:
        """Kill the process; its disk is kept."""
        super().end()

    def fail_disk(self) -> None:
        """The disk of this machine does not fail."""

    def _save(self, action: SaveHardState) -> None:
        self.disk.hard_state = action.state

    def _add_entry(self, entry: Entry, previous_term: int | None) -> None:
        self.ghosts.note_entry(self, entry, None)

    def _cut_log(self, end_index: int) -> None:
        """It may be cut anywhere."""

    def _commit(self, action: Committed) -> None:
        if self.role is Role.LEADER:
            self.ghosts.trust_java(self, action.index)
        self.committed_index = max(self.committed_index, action.index)
        if self.world.random.random() < 0.2:
            self.disk.committed_index = action.index
        if self.role is Role.LEADER:
            self._acknowledge()


class MixedSimulation(Simulation):
    """A group of three of which one or two members are Apache's."""

    def __init__(self, seed: int, java_count: int = 1) -> None:
        self._java_names = {f"n{number}" for number in range(3 - java_count, 3)}
        #: The fault of Apache's that has ended the seed before its end; empty: none.
        self.apaches_fault = ""
        #: Kills of leaders of Apache's that left a member behind.
        self.kills = 0
        super().__init__(seed)

    def _make_machine(self, settings: MemberSettings) -> Machine:
        # A leader of Apache's pushes up to 1,000 entries, and repeats one a second of those that a
        # follower has no room for.
        settings = replace(settings, parked_bytes_max=1 << 20)
        kind = JavaMachine if settings.member_id in self._java_names else Machine
        return kind(self.world, self.links, self.ghosts, settings)

    def run(self) -> None:
        """Run the seed.

        :raises InvariantBroken: when a rule is broken, and not by a fault of Apache's.
        """
        try:
            super().run()
        except InvariantBroken as broken:
            is_of_committed = broken.rule in _OF_COMMITTED or broken.rule.startswith("H")
            if self.ghosts.doubtful_index < 0 or not is_of_committed:
                raise
            self.apaches_fault = f"J2: {broken}"

    def ask_astray(self, machine: Machine, request: Request) -> None:
        """Apache's members obey some stray requests."""
        if not machine.is_java:
            super().ask_astray(machine, request)

    def _become_whole(self) -> None:
        self.world.note("all is repaired")
        self.faults.repair_all()
        begin_ms = self.world.now_ms
        while not self._is_whole():
            leaders = [machine for machine in self.machines.values()
                       if machine.role is Role.LEADER]
            now_ms = self.world.now_ms
            if (leaders and all(machine.is_java for machine in leaders)
                    and now_ms - begin_ms > _PATIENCE_MS and self.kills < _KILLS_MAX):
                for machine in leaders:
                    machine.end()
                    self.world.call_later(8000, machine.start)
                self.kills += 1
                begin_ms = now_ms
            if now_ms - begin_ms > WHOLE_MS:
                raise InvariantBroken("I18", f"{WHOLE_MS} ms after all faults: {self._describe()}")
            self.world.run_until(now_ms + _LOOK_MS)
            if self.world.random.random() < 0.1:
                # A leader of Apache's has no barrier, without which a wiped member cannot join.
                for machine in leaders:
                    self.clients.send("a", machine)
        self._append_one()

    def _is_whole(self) -> bool:
        leaders = [machine for machine in self.machines.values() if machine.role is Role.LEADER]
        if any(machine.log.end_index < 0 for machine in leaders):
            # A leader of Apache's has nothing to push before the first entry.
            return len(leaders) == 1 and all(
                machine.term == leaders[0].term and machine.log.end_index < 0
                for machine in self.machines.values())
        return super()._is_whole()
