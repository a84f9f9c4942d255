"""A master and its slave are killed and restarted under load; lost messages are counted.

Each function takes a pair by the letter that the acceptance list gives it, does its round so often,
and returns an :class:`Outcome`; an empty list of problems is a success.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.interop.load import Load
from tests.interop.replicas import Group, Replica, bodies, same_log, slaves_of
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode

__all__ = ["PAIRS", "Outcome", "kill_master", "kill_slave", "pair_of", "restart"]

#: Master and slave of each pair: "ours", or a version of Apache's broker.
PAIRS: Final = {"A": ("ours", "ours"), "B": ("5.3.3", "ours"), "C": ("ours", "5.3.3"),
                "D": ("4.9.4", "ours"), "E": ("ours", "4.9.4")}
#: The answers to a send that no slave has. A master of 4.9.4 gives either.
ALONE: Final = (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
#: From the answer that is waited for to the kill, seconds: anywhere in the work.
_MOMENT: Final = (0.0, 0.5)
#: Answers with 0 before a kill and after it.
_ENOUGH: Final = 300


@dataclass
class Outcome:
    """The result of some rounds."""

    rounds: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    #: From each start of a broker, when it listens, to the next answer with 0, seconds.
    back_seconds: list[float] = field(default_factory=list)
    #: Where the logs end.
    end: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, load: Load) -> None:
        """Count the answers of a load."""
        self.answers.update(load.counts)
        self.problems += load.failures

    def compare(self, where: str, expected: set[bytes], found: Counter[bytes]) -> None:
        """Record the messages that a log lacks or has twice."""
        missing = expected - found.keys()
        if missing:
            self.problems.append(f"{where} lacks {len(missing)}: {sorted(missing)[:5]}")
        twice = [body for body, count in found.items() if count > 1]
        if twice:
            self.problems.append(f"{where} has {len(twice)} twice: {sorted(twice)[:5]}")

    def __str__(self) -> str:
        alone = sum(self.answers[code] for code in ALONE)
        back = sorted(self.back_seconds) or [0.0]
        return (f"{self.rounds} rounds: {self.answers[0]:,} sends answered with 0, {alone:,} with "
                f"11 or 12; 0 came again after {back[len(back) // 2]:.1f} s, at most "
                f"{back[-1]:.1f} s; the logs end at {self.end:,}; {len(self.problems)} problems")


def pair_of(group: Group, letter: str, **master: str) -> tuple[Replica, Replica]:
    """Start a SYNC_MASTER that waits for one slave, and the slave.

    :param master: more settings of the master.
    """
    def make(name: str, kind: str, **settings: str) -> Replica:
        if kind == "ours":
            return group.ours(name, **settings)
        return group.apache(name, kind, **settings)

    kinds = PAIRS[letter]
    # A broker of 4.9.4 has no inSyncReplicas, and waits for a slave without it.
    wanted = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", **master}
    first = make("master", kinds[0], **wanted)
    second = make("slave", kinds[1], brokerRole="SLAVE", brokerId="1")
    first.start()
    second.start()
    return first, second


def _again(
    folder: Path, letter: str, rounds: int, seconds: float,
    one: Callable[[Outcome, Replica, Replica, Callable[[], Load], random.Random], None],
    seed: int = 1, **master: str,
) -> Outcome:
    """Make rounds with one pair.

    :param seconds: after which there are no more.
    """
    deadline, outcome, chance = time.monotonic() + seconds, Outcome(), random.Random(seed)
    with Group(folder) as group:
        first, second = pair_of(group, letter, **master)
        while (outcome.rounds < rounds and time.monotonic() < deadline
               and not outcome.problems):
            one(outcome, first, second,
                lambda: Load(first.address, outcome.rounds, size_max=1000), chance)
            outcome.rounds += 1
        outcome.compare("the slave", set(), bodies(second.log_folder))
    return outcome


def _wait_a_moment(chance: random.Random) -> None:
    """Wait for a random time before a kill."""
    threading.Event().wait(chance.uniform(*_MOMENT))


def _send_one(address: str) -> int:
    """Send a message of no load; :returns: the code of its answer."""
    with RawClient(address, 60) as client:
        header = send_header("T", 1_700_000_000_000)
        return client.request(RequestCode.SEND_MESSAGE_V2, header, b"alone").code


def _tells_of_slaves(address: str) -> bool:
    """Whether a master reports its slaves; Apache's does so from release 5 on."""
    with RawClient(address, 60) as client:
        return client.request(
            RequestCode.GET_BROKER_HA_STATUS).code == ResponseCode.SUCCESS


def kill_slave(folder: Path, letter: str, kills: int, seconds: float = 1e9) -> Outcome:
    """Kill the slave: nothing is lost on the master, the slave has all again, sends get 0 again."""
    def one(outcome: Outcome, master: Replica, slave: Replica, make: Callable[[], Load],
            chance: random.Random) -> None:
        begin = outcome.end
        with make() as load:
            load.wait_for(_ENOUGH)
            _wait_a_moment(chance)
            slave.end(signal.SIGKILL)
            load.wait_for_any(ALONE)
            if _tells_of_slaves(master.address):
                wait_until("the slave is gone",
                           lambda: not slaves_of(master.address).in_sync_slave_nums)
                code = _send_one(master.address)
                if code not in ALONE:
                    outcome.problems.append(
                        f"a send that began without a slave was answered {code}")
            slave.start()
            outcome.back_seconds.append(load.wait_for(1))
            load.wait_for(_ENOUGH)
        outcome.add(load)
        outcome.end = same_log(master, [slave])
        outcome.compare("the master", set(load.answers), bodies(master.log_folder, begin))

    return _again(folder, letter, kills, seconds, one, slaveTimeout="1000")


def kill_master(folder: Path, letter: str, kills: int, seconds: float = 1e9) -> Outcome:
    """Kill the master: the slave has all that was acknowledged; the logs are the same again."""
    def one(outcome: Outcome, master: Replica, slave: Replica, make: Callable[[], Load],
            chance: random.Random) -> None:
        begin = outcome.end
        with make() as load:
            load.wait_for(_ENOUGH)
            _wait_a_moment(chance)
            master.end(signal.SIGKILL)
        outcome.add(load)
        outcome.compare("the slave", load.acknowledged, bodies(slave.log_folder, begin))
        master.start()
        outcome.end = same_log(master, [slave])
        outcome.compare("the master", load.acknowledged, bodies(master.log_folder, begin))

    return _again(folder, letter, kills, seconds, one)


def restart(folder: Path, restarts: int, seconds: float = 1e9, seed: int = 1) -> Outcome:
    """Restart both, in any order, and at times the name server last: all is the same again."""
    deadline, outcome, chance = time.monotonic() + seconds, Outcome(), random.Random(seed)
    with Group(folder) as group:
        master, slave = pair_of(group, "A")
        while (outcome.rounds < restarts and time.monotonic() < deadline
               and not outcome.problems):
            begin = outcome.end
            with Load(master.address, outcome.rounds, size_max=1000) as load:
                load.wait_for(_ENOUGH)
                _restart_once(group, master, slave, outcome.rounds, chance)
                outcome.back_seconds.append(load.wait_for(1))
                load.wait_for(_ENOUGH)
            outcome.add(load)
            outcome.rounds += 1
            outcome.end = same_log(master, [slave])
            for name, replica in (("master", master), ("slave", slave)):
                outcome.compare(f"the {name}", load.acknowledged,
                                bodies(replica.log_folder, begin))
    return outcome


def _restart_once(
    group: Group, master: Replica, slave: Replica, number: int, chance: random.Random
) -> None:
    """Stop both and start them: in turn the slave, the master or the name server is the first."""
    _wait_a_moment(chance)
    brokers = [master, slave]
    for broker in chance.sample(brokers, 2):
        broker.end(chance.choice((signal.SIGTERM, signal.SIGKILL)))
    is_last = number % 3 == 2
    if is_last:
        group.namesrv.end()
    for broker in brokers if number % 3 == 1 else reversed(brokers):
        broker.start()
    if is_last:
        group.namesrv.start()
