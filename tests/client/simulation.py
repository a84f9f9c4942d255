"""A seeded simulation of a consumer group: five members, two brokers, a bad network.

    ClientSimulation(seed=17).run()     # raises SimulationFailed, which lists the steps

Each seed lets members join, leave, die and stop for a while, cuts and delays connections, mixes up
replies, kills brokers and sets clocks, while producers send. Then everything recovers: each message
that a producer knows to be stored must have been handled. At the end all members close in order,
and a new one must not see again anything that was finished.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from tests.client.invariants import Invariants
from tests.client.simulated_member import SimulatedMember
from twistmq.client.base.messages import Message, SendResult
from twistmq.client.roles.parts import build_producer
from twistmq.client.testing import MemoryCluster

__all__ = ["ClientSimulation", "SimulationFailed"]

_GROUP: Final = "g"
_TOPIC: Final = "T"
_MEMBERS_MAX: Final = 5
#: Steps of time: within a request, past a rebalance, a commit, a renewal of locks.
_ELAPSED_MS: Final = (1, 30, 300, 1500, 6000, 21_000)
#: Jumps of a wall clock, ms.
_JUMPS_MS: Final = (-3_600_000, -5000, 700, 90_000, 7_200_000)
#: A member stops for less than brokers keep a lock that it could not renew.
_STOPS_MS: Final = (500, 5000, 25_000)
#: How long recovery may take: retries wait for minutes.
_RECOVERY_MS: Final = 3_600_000


class SimulationFailed(AssertionError):
    """A seed found a fault; the text has its steps and the command that repeats them."""


class ClientSimulation:
    """One run of the simulation.

    :param seed: says everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps: list[str] = []
        self._chance = chance = random.Random(seed)
        self.in_order = bool(seed % 2)
        self.cluster = MemoryCluster(seed, brokers=2)
        self.cluster.create_topic(_TOPIC, chance.choice((1, 2, 4)))
        self.promises = Invariants(self.cluster, self.in_order)
        self.members: list[SimulatedMember] = []
        self._closed: list[SimulatedMember] = []
        self._failing = chance.choice((0.0, 0.0, 0.1))
        self._sent = 0
        self._producer = self.cluster.client()
        self._sender = build_producer(self._producer.core, {})
        self._producer.core.add(self._sender)
        self._weights: dict[Callable[[], None], int] = {
            self._send: 8,
            self._pass_time: 12,
            self._join: 4,
            self._leave: 2,
            self._kill_member: 1,
            self._stop_member: chance.choice((0, 1)),
            self._cut: chance.choice((0, 2)),
            self._delay: chance.choice((0, 1)),
            self._heal_network: 1,
            self._kill_broker: chance.choice((0, 0, 1)),
            self._start_brokers: 2,
            self._jump: chance.choice((0, 1)),
        }

    def note(self, step: str) -> None:
        """Add a line to the steps."""
        self.steps.append(f"{self.cluster.now_ms / 1000:9.3f} s  {step}")

    # --- running

    def run(self, step_count: int = 40) -> None:
        """Do the given number of steps, recover, and close everything.

        :raises SimulationFailed: when a promise was broken or anything failed otherwise.
        """
        logger = logging.getLogger("twistmq.client")
        was_disabled, logger.disabled = logger.disabled, True
        try:
            self._join()
            steps, weights = list(self._weights), list(self._weights.values())
            for _ in range(step_count):
                self._chance.choices(steps, weights)[0]()
            self._recover()
            self._restart()
            self._end()
        except Exception as error:
            raise SimulationFailed(self._report(error)) from error
        finally:
            logger.disabled = was_disabled

    def _report(self, error: Exception) -> str:
        lines = [f"{number:4} {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([
            f"seed {self.seed}: {type(error).__name__}: {error}", *lines,
            f"replay it: python -m tests.long.client_simulation --seed {self.seed}"])

    def _advance(self, milliseconds: float) -> None:
        """Let time pass, and check between."""
        end_ms = self.cluster.now_ms + milliseconds
        while self.cluster.now_ms < end_ms:
            self.cluster.advance(min(250, end_ms - self.cluster.now_ms))
            if self.promises.failures:
                raise self.promises.failures[0]
            for member in list(self.members):
                member.check()
                if member.is_closed:
                    self.members.remove(member)
                    self._closed.append(member)

    # --- steps

    def _send(self) -> None:
        count = self._chance.choice((1, 5, 20))
        self.note(f"send {count} messages from {self._sent} on")
        for _ in range(count):
            body = b"%d" % self._sent
            self._sent += 1
            self._sender.begin(self._sender.prepare(Message(_TOPIC, body)), self._noting(body))

    def _noting(self, body: bytes) -> Callable[[SendResult | Exception], object]:
        def done(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, SendResult):
                self.promises.acknowledged.add(body)

        return done

    def _pass_time(self) -> None:
        milliseconds = self._chance.choice(_ELAPSED_MS)
        self.note(f"{milliseconds} ms pass")
        self._advance(milliseconds)

    def _join(self) -> None:
        if sum(not each.is_closing for each in self.members) < _MEMBERS_MAX:
            member = SimulatedMember(self.cluster, self.promises, _GROUP, _TOPIC, self.in_order,
                                     self._chance, self._fails)
            self.members.append(member)
            self.note(f"{member.name} joins")

    def _fails(self) -> bool:
        return self._chance.random() < self._failing

    def _some(self) -> SimulatedMember | None:
        """Return a member that is not leaving."""
        there = [each for each in self.members if not each.is_closing]
        return self._chance.choice(there) if there else None

    def _leave(self) -> None:
        member = self._some()
        if member is not None:
            self.note(f"{member.name} leaves")
            member.close()

    def _kill_member(self) -> None:
        member = self._some()
        if member is not None:
            self.note(f"{member.name} is killed")
            member.kill()
            self.members.remove(member)

    def _stop_member(self) -> None:
        member = self._some()
        if member is not None:
            milliseconds = self._chance.choice(_STOPS_MS)
            self.note(f"{member.name} stops for {milliseconds} ms")
            member.client.stopped_until_ms = self.cluster.now_ms + milliseconds

    def _cut(self) -> None:
        client = self._chance.choice([self._producer, *(each.client for each in self.members)])
        broker = self._chance.choice([*self.cluster.brokers.values()])
        self.note(f"{client.core.client_id} and {broker.name} are cut")
        client.cut(broker.address)

    def _delay(self) -> None:
        faults = self.cluster.faults
        faults.delay_ms = self._chance.choice((5, 200, 2000))
        faults.reorders = self._chance.random() < 0.5
        self.note(f"delays up to {faults.delay_ms} ms, reorders: {faults.reorders}")

    def _heal_network(self) -> None:
        self.cluster.faults.delay_ms = 0
        self.cluster.faults.reorders = False
        self.note("the network is good")

    def _kill_broker(self) -> None:
        name = self._chance.choice([*self.cluster.brokers])
        if self.cluster.brokers[name].is_up:
            self.note(f"{name} is killed")
            self.cluster.kill_broker(name)

    def _start_brokers(self) -> None:
        for name, broker in self.cluster.brokers.items():
            if not broker.is_up:
                self.note(f"{name} starts")
                self.cluster.start_broker(name)

    def _jump(self) -> None:
        milliseconds = self._chance.choice(_JUMPS_MS)
        member = self._some()
        broker = self._chance.choice([*self.cluster.brokers.values()])
        if member is not None and self._chance.random() < 0.5:
            self.note(f"the clock of {member.name} jumps by {milliseconds} ms")
            member.client.clock.jump_ms += milliseconds
        else:
            self.note(f"the clock of {broker.name} jumps by {milliseconds} ms")
            broker.jump(milliseconds)

    # --- the end

    def _recover(self) -> None:
        """Repair everything; the messages that producers know to be stored must be handled."""
        self._heal_network()
        self._start_brokers()
        self._failing = 0.0
        self._join()
        self._wait_until_handled()

    def _wait_until_handled(self) -> None:
        self.note("recovery")
        end_ms = self.cluster.now_ms + _RECOVERY_MS
        self._advance(4000)
        while self.promises.missing:
            assert self.cluster.now_ms < end_ms, f"{self.promises.missing} were not handled"
            self._advance(5000)

    def _restart(self) -> None:
        """Close all members during work; a new member begins where they ended."""
        # Messages of members that were killed come again meanwhile, and locks of theirs end.
        self._advance(65_000)
        end_ms = self.cluster.now_ms + _RECOVERY_MS
        while not self.promises.is_all_committed:
            assert self.cluster.now_ms < end_ms, "what is finished is not committed"
            self._advance(5000)
        for member in self.members:
            # A result that comes later than 300 ms after the loss of a queue does not count.
            member.handler_ms = min(member.handler_ms, 200)
        self._send()
        self._advance(self._chance.choice((10, 300, 1000)))
        for member in list(self.members):
            if not member.is_closing:
                self.note(f"{member.name} leaves in order")
                member.close(10_000)
                # The others begin to divide its queues, and leave in the middle of that.
                self._advance(self._chance.choice((0, 20, 150)))
        self._advance(26_000)
        assert not self.members, f"{self.members} do not end to close"
        self.promises.never_again = set(self.promises.handled)
        self._join()
        self._wait_until_handled()

    def _end(self) -> None:
        """Close the last one; nothing is left of any that closed."""
        for member in self.members:
            member.close(10_000)
        self._advance(150_000)
        for member in self._closed:
            member.check_closed()
