"""Clients of a simulated group, and the history of what they saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.history.records import Entry as LogEntry
from tests.history.records import FinalLog, History, Outcome, Read, Send
from twistmq.raft.actions import Role
from twistmq.raft.messages import Entry

if TYPE_CHECKING:
    from tests.raft.simulation.machine import Machine
    from tests.raft.simulation.world import World

__all__ = ["Clients"]

_QUEUE = "q"
#: The chance that a client sends a body again whose outcome it does not know, and that it asks
#: another machine than a leader.
_AGAIN = 0.3
_ASTRAY = 0.15


class Clients:
    """Two clients that append and read, each one operation after the other."""

    def __init__(self, world: World, machines: dict[str, Machine],
                 body_of: Callable[[Entry], bytes]) -> None:
        """:param body_of: returns what a client has sent as an entry; empty: a barrier."""
        self._world = world
        self._body_of = body_of
        self._machines = list(machines.values())
        self._sends: list[Send] = []
        self._reads: list[tuple[str, Machine, int, int, bool, int, list[Entry]]] = []
        self._bodies = 0
        #: Bodies that are sent again.
        self._again: list[bytes] = []
        self.acknowledged = 0

    def run_one(self) -> None:
        """Append or read, at a leader if there is one."""
        draw = self._world.random
        leaders = [machine for machine in self._machines if machine.role is Role.LEADER]
        machine = draw.choice(leaders if leaders and draw.random() > _ASTRAY else self._machines)
        client = draw.choice("ab")
        if draw.random() < 0.25:
            self._read(client, machine)
        else:
            self.send(client, machine)

    def send(self, client: str, machine: Machine) -> None:
        """Append one to three bodies."""
        world, draw = self._world, self._world.random
        if self._again and draw.random() < _AGAIN:
            bodies: tuple[bytes, ...] = (self._again.pop(0),)
        else:
            count = 1 if draw.random() < 0.7 else 3
            bodies = tuple(b"%d" % (self._bodies + place) for place in range(count))
            self._bodies += count
        begin = world.now_ms

        def note(outcome: Outcome, first: int) -> None:
            for place, body in enumerate(bodies):
                self._sends.append(Send(
                    client, machine.name, _QUEUE, body.decode(), begin, world.now_ms, outcome,
                    first + place if first >= 0 else -1))
            world.note(f"{client}: {bodies} at {machine.name}: {outcome.value}")

        def end(is_committed: bool, first: int) -> None:
            # Some answers are lost on their way to the client.
            if is_committed and draw.random() > 0.05:
                self.acknowledged += 1
                note(Outcome.OK, first)
            else:
                note(Outcome.UNKNOWN, -1)
                self._again += bodies

        if draw.random() < 0.3 and machine.append_directly(bodies, end):
            return
        machine.propose(bodies, end, lambda: note(Outcome.REFUSED, -1))

    def _read(self, client: str, machine: Machine) -> None:
        if not machine.is_up or machine.committed_index < 0:
            return
        log = machine.log
        if log.begin_index > 0:
            # The offsets of a log without its beginning are not known.
            return
        entries = machine.disk.entries[:machine.committed_index + 1]
        self._reads.append((client, machine, machine.life, machine.term,
                            machine.established_term == machine.term, self._world.now_ms, entries))

    def history(self, committed: list[Entry]) -> History:
        """What the clients saw, and the log of each machine as it was at the end."""
        offsets: list[int] = []
        count = 0
        for entry in committed:
            offsets.append(count)
            count += bool(self._body_of(entry))
        sends = [send if send.outcome is not Outcome.OK else Send(
            send.client, send.node, send.queue, send.body, send.begin, send.end, send.outcome,
            send.place, offsets[send.place]) for send in self._sends]
        return History(sends, [self._history_read(*read) for read in self._reads], logs={
            machine.name: self._final_log(machine, offsets) for machine in self._machines})

    def _history_read(self, client: str, machine: Machine, life: int, term: int, leads: bool,
                      time_ms: int, entries: list[Entry]) -> Read:
        bodies = [body.decode() for body in map(self._body_of, entries) if body]
        start = max(len(bodies) - 4, 0)
        return Read(client, machine.name, _QUEUE, time_ms, time_ms, start,
                    tuple(enumerate(bodies))[start:], 0, len(bodies), term, leads, life)

    def _final_log(self, machine: Machine, offsets: list[int]) -> FinalLog:
        entries = machine.disk.entries
        bodies = [(entry.index, self._body_of(entry)) for entry in entries
                  if entry.index < len(offsets)]
        return FinalLog([LogEntry(index, _QUEUE, offsets[index], body.decode())
                         for index, body in bodies if body],
                        entries[0].index if entries else 0)
