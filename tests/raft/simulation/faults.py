"""The faults of a simulated world, each of which is repaired later or at the end.

Each seed draws a few kinds of faults and uses only these, because a fault that comes with all
others seldom has its own consequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twistmq.raft.actions import Role
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushType,
    Request,
    VoteRequest,
)

if TYPE_CHECKING:
    from tests.raft.simulation.simulation import Simulation

__all__ = ["Faults"]

#: Kinds of faults of one seed.
_KINDS_MAX: Final = 5


class Faults:
    """Makes faults in a group, and repairs them."""

    def __init__(self, simulation: Simulation, *, durable: bool) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._links = simulation.links
        self._machines = list(simulation.machines.values())
        self._durable = durable
        kinds: list[Callable[[], None]] = [
            self._kill, self._kill, self._stop, self._cut_one, self._cut_off, self._divide,
            self._bridge, self._lose_messages, self._copy_messages, self._slow_link,
            self._reorder, self._skew_clock, self._slow_disk, self._fail_disk, self._transfer,
            self._retain, self._stray, self._wipe, self._kill_all, self._strand,
            self._cut_transferee]
        if durable:
            kinds += [self._lose_power, self._lose_power, self._lose_all_power]
        kinds += self._further_kinds()
        draw = self._world.random
        self._kinds = draw.sample(kinds, 1 + int(draw.random() * _KINDS_MAX))
        self.counts: dict[str, int] = {}
        self._is_over = False
        #: Until this time, a history of several steps goes on.
        self.busy_until_ms = 0

    def _further_kinds(self) -> list[Callable[[], None]]:
        """Kinds of faults that only machines of another level have."""
        return []

    def make_one(self) -> None:
        """Make a fault of a kind of this seed, or repair the links."""
        draw = self._world.random
        if draw.random() < 0.15:
            self._links.repair()
            self._world.note("the links are repaired")
            return
        kind = draw.choice(self._kinds)
        name = kind.__name__[1:]
        self.counts[name] = self.counts.get(name, 0) + 1
        kind()

    def repair_all(self) -> None:
        """Repair everything and start every process."""
        self._is_over = True
        self._links.repair()
        for machine in self._machines:
            machine.disk.latency_ms_max = 2
            machine.set_rate(1.0)
            machine.resume()
            machine.repair_disk()
            machine.start()

    # --- Processes ---

    def _later_ms(self, longest_ms: int) -> int:
        return int(self._world.random.random() ** 2 * longest_ms)

    def _one(self) -> int:
        """A machine; half of the time a leader."""
        draw = self._world.random
        leaders = [place for place, machine in enumerate(self._machines)
                   if machine.role is Role.LEADER]
        if leaders and draw.random() < 0.5:
            return draw.choice(leaders)
        return draw.randrange(len(self._machines))

    def _end(self, place: int, *, lose_power: bool, wipe: bool = False) -> None:
        machine = self._machines[place]
        machine.end(lose_power=lose_power, wipe=wipe)
        self._world.call_later(self._later_ms(8000), machine.start)

    def _kill(self) -> None:
        self._end(self._one(), lose_power=False)

    def _lose_power(self) -> None:
        self._end(self._one(), lose_power=True)

    def _kill_all(self) -> None:
        for place in range(len(self._machines)):
            self._end(place, lose_power=False)

    def _lose_all_power(self) -> None:
        for place in range(len(self._machines)):
            self._end(place, lose_power=True)

    def _wipe(self) -> None:
        place = self._one()
        # A second member that may not vote is outside of what a group can stand.
        if all(machine.has_joined for machine in self._machines):
            self._end(place, lose_power=True, wipe=True)

    def _stop(self) -> None:
        machine = self._machines[self._one()]
        machine.stop()
        self._world.call_later(100 + self._later_ms(15_000), machine.resume)

    def _skew_clock(self) -> None:
        rate = self._world.random.choice((0.5, 0.7, 1.0, 1.5, 2.0))
        self._machines[self._one()].set_rate(rate)

    # --- Links ---

    def _cut(self, senders: list[str], receivers: list[str]) -> None:
        self._world.note(f"cut: {senders} to {receivers}")
        self._links.cuts |= {(sender, receiver) for sender in senders for receiver in receivers
                             if sender != receiver}

    def _names(self) -> list[str]:
        return [machine.name for machine in self._machines]

    def _cut_one(self) -> None:
        self._cut(*([name] for name in self._world.random.sample(self._names(), 2)))

    def _cut_off(self) -> None:
        name = self._machines[self._one()].name
        self._cut([name], self._names())
        self._cut(self._names(), [name])

    def _divide(self) -> None:
        names = self._names()
        self._world.random.shuffle(names)
        middle = 1 + int(self._world.random.random() * (len(names) - 1))
        self._cut(names[:middle], names[middle:])
        self._cut(names[middle:], names[:middle])

    def _bridge(self) -> None:
        """Two halves that only one machine reaches."""
        names = self._names()
        self._world.random.shuffle(names)
        middle = (len(names) - 1) // 2
        self._cut(names[:middle], names[middle + 1:])
        self._cut(names[middle + 1:], names[:middle])

    def _strand(self) -> None:
        """A leader is cut off with a minority, appends entries, and later leads again.

        Answers of the minority may need so long that they arrive in the second lead.
        """
        draw = self._world.random
        leaders = [machine for machine in self._machines if machine.role is Role.LEADER]
        if not leaders or self.busy_until_ms:
            # Once in a seed, which lasts longer for it.
            return
        leader = draw.choice(leaders)
        others = [name for name in self._names() if name != leader.name]
        draw.shuffle(others)
        followers = others[:(len(others) - 2) // 2]
        minority, majority = [leader.name, *followers], others[len(followers):]
        self._cut(minority, majority)
        self._cut(majority, minority)
        for follower in followers:
            if draw.random() < 0.7:
                self._links.slow_ms[follower, leader.name] = draw.choice((0, 7000, 9000, 11_000))
        for _ in range(2 + draw.randrange(4)):
            self._simulation.clients.send("a", leader)
        heal_ms = 7000 + draw.randrange(2500)
        self._world.call_later(heal_ms, self._heal)
        lead_ms = heal_ms + 200 + draw.randrange(2500)
        self._world.call_later(lead_ms, self._give_lead, leader.name)
        self.busy_until_ms = self._world.now_ms + lead_ms + 500

    def _heal(self) -> None:
        self._world.note("the cuts are repaired")
        self._links.cuts.clear()

    def _give_lead(self, name: str) -> None:
        for machine in self._machines:
            if machine.role is Role.LEADER and machine.name != name and not self._is_over:
                machine.transfer(name)

    def _lose_messages(self) -> None:
        self._links.loss = self._world.random.choice((0.02, 0.1, 0.3))

    def _copy_messages(self) -> None:
        self._links.copies = self._world.random.choice((0.05, 0.3))

    def _reorder(self) -> None:
        self._links.delay_ms_max = self._world.random.choice((20, 200, 900))

    def _slow_link(self) -> None:
        pair = tuple(self._world.random.sample(self._names(), 2))
        self._links.slow_ms[pair[0], pair[1]] = self._world.random.choice((50, 1200, 4000))

    # --- Disks ---

    def _slow_disk(self) -> None:
        disk = self._machines[self._one()].disk
        disk.latency_ms_max = self._world.random.choice((20, 300, 3000))

    def _fail_disk(self) -> None:
        machine = self._machines[self._one()]
        machine.fail_disk()
        self._world.call_later(self._later_ms(8000), machine.repair_disk)

    def _retain(self) -> None:
        machine = self._machines[self._one()]
        log = machine.log
        last = min(machine.committed_index, machine.disk.committed_index, log.end_index)
        if machine.is_up and log.begin_index < last:
            self._world.note(f"{machine.name}: retention up to {last}")
            log.drop_before(self._world.random.randint(log.begin_index, last))

    # --- Operators and strangers ---

    def _transfer(self) -> None:
        names = self._names()
        self._machines[self._one()].transfer(self._world.random.choice(names))

    def _cut_transferee(self) -> None:
        """A member gets the lead, and nothing of what it says arrives."""
        draw = self._world.random
        leaders = [machine for machine in self._machines if machine.role is Role.LEADER]
        name = draw.choice(self._names())
        for leader in leaders:
            if leader.name != name:
                leader.transfer(name)
                self._cut([name], self._names())

    def _stray(self) -> None:
        """A request that is not for this member, or not of this group."""
        draw = self._world.random
        machine = self._machines[self._one()]
        if not machine.is_up:
            return
        group, sender, receiver = self._simulation.group, self._names()[0], machine.name
        kind = draw.randrange(3)
        if kind == 0:
            group = "another"
        elif kind == 1:
            receiver = "n9"
        else:
            sender = "n9"
        term = machine.term + draw.randint(0, 3)
        entry = Entry(max(machine.log.end_index, 0), term, b"stray")
        requests: list[Request] = [
            VoteRequest(group, sender, receiver, term, sender, 10_000, term),
            HeartbeatRequest(group, sender, receiver, term, sender),
            PushRequest(group, sender, receiver, term, sender, PushType.TRUNCATE, 0, (entry,)),
            PushRequest(group, sender, receiver, term, sender, PushType.COMMIT, 10_000)]
        self._simulation.ask_astray(machine, draw.choice(requests))
