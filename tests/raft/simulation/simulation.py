"""One seed of the simulation: a group, its clients, faults, and the time after the faults.

    Simulation(seed).run()

A run makes faults for some seconds of its own time, repairs all of them, and waits until the group
is whole again (rule I18). At the end the history of the clients is checked as well.
"""

from __future__ import annotations

from typing import Final

from tests.history.check import check_history
from tests.raft.simulation.clients import Clients
from tests.raft.simulation.faults import Faults
from tests.raft.simulation.ghosts import Ghosts
from tests.raft.simulation.machine import Machine
from tests.raft.simulation.world import InvariantBroken, Links, World
from twistmq.raft.actions import Role
from twistmq.raft.messages import Request, Response
from twistmq.raft.settings import MemberSettings

__all__ = ["Simulation"]

#: After the faults, the group is whole in this time, in ms.
WHOLE_MS: Final = 30_000
#: In a long run, no member has left a term in this time at the end.
QUIET_MS: Final = 10_000
#: One seed in so many waits for the whole time after the faults.
_LONG: Final = 16
_LOOK_MS: Final = 250
#: The time between two sends of a group without one member, in ms.
_SETTLED_MS: Final = 2000
#: The chance that a majority has to work alone after the faults.
_MAJORITY: Final = 0.25


class Simulation:
    """A group of members under faults, determined by a seed."""

    group = "g"

    def __init__(self, seed: int, member_count: int = 3) -> None:
        self.seed = seed
        self.world = World(seed)
        draw = self.world.random
        self.links = Links(self.world)
        self.durable = draw.random() < 0.7
        self.ghosts = self._make_ghosts(member_count)
        names = tuple(f"n{number}" for number in range(member_count))
        preferred = (draw.choice(names),) if draw.random() < 0.15 else ()
        is_quick = draw.random() < 0.3
        push_bytes_max = draw.choice((1, 8, 256 * 1024))
        window_count = draw.choice((1, 3, 64))
        parked_bytes_max = draw.choice((64, 1 << 20)) if push_bytes_max <= 8 else 1 << 20
        self.machines: dict[str, Machine] = {}
        for name in names:
            settings = MemberSettings(
                self.group, name, names, preferred, self.durable, is_quick,
                push_bytes_max=push_bytes_max, push_window_count=window_count,
                parked_bytes_max=parked_bytes_max)
            self.machines[name] = self._make_machine(settings)
        for machine in self.machines.values():
            machine.machines = self.machines
        self.clients = Clients(self.world, self.machines, self.ghosts.body_of)
        self.faults = self._make_faults()

    def _make_machine(self, settings: MemberSettings) -> Machine:
        return Machine(self.world, self.links, self.ghosts, settings)

    def _make_ghosts(self, member_count: int) -> Ghosts:
        return Ghosts(member_count, durable=self.durable)

    def _make_faults(self) -> Faults:
        return Faults(self, durable=self.durable)

    def run(self) -> None:
        """Run the seed.

        :raises InvariantBroken: when an invariant does not hold, or a part of the core fails.
        """
        try:
            self._run_all()
        except InvariantBroken:
            raise
        except Exception as error:
            raise InvariantBroken("core", f"{type(error).__name__}: {error}") from error

    def _run_all(self) -> None:
        world, draw = self.world, self.world.random
        for machine in self.machines.values():
            world.call_later(draw.randrange(200), machine.start)
        world.run_until(draw.choice((0, 1000, 4000)))
        end_ms = world.now_ms + draw.choice((3000, 8000, 15_000))
        fault_ms = draw.choice((100, 500, 1500))
        while world.now_ms < max(end_ms, self.faults.busy_until_ms):
            for _ in range(draw.randrange(4)):
                world.run_until(world.now_ms + draw.randrange(100))
                self.clients.run_one()
            world.run_until(world.now_ms + int(draw.random() * 2 * fault_ms))
            self.faults.make_one()
        self._become_whole()
        self._check_end()

    def ask_astray(self, machine: Machine, request: Request) -> None:
        """Pass a request that the member must not obey: rule I20."""
        member = machine.member
        # The member does work that is due in the same turn, which is not obedience.
        is_due = member.next_tick <= machine.local_ms()
        before = member.hard_state, member.role, member.leader, machine.disk.entries[:]
        machine.take_request(_Stranger(), machine.life, 0, request)
        if not is_due and machine.member is member and before != (
                member.hard_state, member.role, member.leader, machine.disk.entries):
            raise InvariantBroken("I20", f"{machine.name} obeys {request}")

    # --- After the faults ---

    def _become_whole(self) -> None:
        """Repair everything; the group has to be whole in time."""
        world = self.world
        world.note("all is repaired")
        self.faults.repair_all()
        if world.random.random() < _MAJORITY:
            self._work_without_one()
        begin_ms = world.now_ms
        while not self._is_whole():
            if world.now_ms - begin_ms > WHOLE_MS:
                raise InvariantBroken("I18", f"{WHOLE_MS} ms after all faults: {self._describe()}")
            world.run_until(world.now_ms + _LOOK_MS)
        self._append_one()
        if self.seed % _LONG == 0:
            world.run_until(max(begin_ms + WHOLE_MS - QUIET_MS, world.now_ms))
            terms = {machine.term for machine in self.machines.values()}
            world.run_until(world.now_ms + QUIET_MS)
            if len(terms) > 1 or terms != {machine.term for machine in self.machines.values()}:
                raise InvariantBroken("I18", f"a term was left without a fault: {terms}, "
                                             f"{self._describe()}")

    def _work_without_one(self) -> None:
        """While one member is down, stopped or cut off, the others accept entries."""
        world, machines = self.world, list(self.machines.values())
        begin_ms = world.now_ms
        while not all(machine.has_joined for machine in machines):
            if world.now_ms - begin_ms > WHOLE_MS:
                raise InvariantBroken("I18", f"a member does not join: {self._describe()}")
            world.run_until(world.now_ms + _LOOK_MS)
        absent = world.random.choice(machines)
        kind = world.random.random()
        if kind < 0.5:
            absent.end()
        elif kind < 0.75:
            absent.stop()
        else:
            self.links.cut_off(absent.name, self.machines)
        self._send_without(absent)
        # A group that gives up again after its election is not whole.
        world.run_until(world.now_ms + _SETTLED_MS)
        self._send_without(absent)
        self.links.repair()
        absent.resume()
        absent.start()

    def _send_without(self, absent: Machine) -> None:
        """A send of the others succeeds."""
        world = self.world
        acknowledged, begin_ms = self.clients.acknowledged, world.now_ms
        while self.clients.acknowledged == acknowledged:
            for machine in self.machines.values():
                if machine.role is Role.LEADER:
                    self.clients.send("a", machine)
            world.run_until(world.now_ms + _LOOK_MS)
            if world.now_ms - begin_ms > WHOLE_MS:
                raise InvariantBroken("I18", f"no send succeeds without {absent.name}: "
                                             f"{self._describe()}")

    def _append_one(self) -> None:
        """A send succeeds, and all members have it."""
        world = self.world
        acknowledged = self.clients.acknowledged
        begin_ms = world.now_ms
        while self.clients.acknowledged == acknowledged or not self._is_whole():
            leaders = [machine for machine in self.machines.values()
                       if machine.role is Role.LEADER]
            if leaders and self.clients.acknowledged == acknowledged:
                self.clients.send("a", leaders[0])
            world.run_until(world.now_ms + _LOOK_MS)
            if world.now_ms - begin_ms > WHOLE_MS:
                raise InvariantBroken("I18", f"no send succeeds: {self._describe()}")

    def _is_whole(self) -> bool:
        machines = list(self.machines.values())
        leaders = [machine for machine in machines if machine.role is Role.LEADER]
        if len(leaders) != 1:
            return False
        end_index = leaders[0].log.end_index
        last = leaders[0].log.entry_at(end_index)
        return all(
            machine.term == leaders[0].term and machine.committed_index == end_index
            and not machine.transfers and not machine.is_wiped
            and machine.log.end_index == end_index and machine.log.entry_at(end_index) == last
            for machine in machines)

    def _describe(self) -> str:
        return "; ".join(
            f"{machine.name} is {machine.role.value} in {machine.term}, ends at "
            f"{machine.log.end_index}, committed {machine.committed_index}"
            f"{', transfers' if machine.transfers else ''}"
            for machine in self.machines.values())

    def _check_end(self) -> None:
        anomalies = check_history(self.clients.history(self.ghosts.committed))
        if anomalies:
            raise InvariantBroken(anomalies[0].rule, anomalies[0].text)


class _Stranger:
    """The sender of a stray request: nothing that is sent to it changes anything."""

    def __init__(self) -> None:
        self.name = "stranger"

    def fail_call(self, life: int, call: int, refused: str) -> None:
        """Its call has failed."""

    def take_response(self, life: int, call: int, response: Response) -> None:
        """It is told an answer."""
