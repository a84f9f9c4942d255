"""The faults by kind: each occurs at a random time, and is recorded if it may lose messages.

Two threads do them, one to each broker name, so that faults of different brokers come together.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.interop.replicas import OurReplica, configure
from tests.interop.servers import wait_until
from tests.spark_bridge.faults.ledger import Outcome, Sent
from tests.spark_bridge.faults.queries import Queries
from tests.spark_bridge.faults.world import PAIR, SOLO, World
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.tools.admin.roles import promote_slave
from twistmq.tools.admin.session import Session

__all__ = ["KINDS", "Faults"]

#: The kinds, and what happens.
KINDS: Final = {
    "restart": "a broker is stopped in order and started again",
    "kill": "a broker is killed and started again",
    "slave": "the master of the pair is killed, and its slave serves until it is back",
    "promote": "the master of the pair is killed, and its slave is made the master",
    "behind": "the same while the slave lacks messages",
    "cut": "a broker is cut off: it takes connections, and does not answer",
    "queues": "a topic gets one more queue",
    "fewer": "a topic is deleted and made again, with fewer messages than before",
    "more": "a topic is deleted and made again, with more messages than before",
    "tail": "a broker loses the end of its log",
    "expire": "messages that no query has read expire while the driver is dead",
    "namesrv": "the name server restarts",
    "driver": "the driver of the queries is killed and started again",
}
#: The kinds that a thread does to its broker, by the broker's name.
_OF: Final = {
    SOLO: ("restart", "kill", "cut", "queues", "fewer", "more", "tail", "expire", "driver"),
    PAIR: ("slave", "promote", "behind", "restart", "cut", "namesrv")}
#: How long a fault waits for streams that begin, seconds.
_STREAMS_SECONDS: Final = 300.0
_FILLER_SIZE, _FILLERS = 20_000, 8


class Faults:
    """Causes faults until it is stopped.

    :param pause_s: the least and the most time between two faults of a thread.
    :param away_s: the least and the most time for which a server is away.
    :param gone_s: how long a topic is gone at most until it is made again.
    """

    def __init__(self, world: World, queries: Queries, seed: int, kinds: tuple[str, ...], *,
                 pause_s: tuple[float, float], away_s: tuple[float, float],
                 gone_s: float) -> None:
        self.world = world
        self.queries = queries
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        #: When the name server was away, Unix seconds.
        self.nameless: list[tuple[float, float]] = []
        self._kinds = kinds
        self._seed = seed
        self._pause_s, self._away_s, self._gone_s = pause_s, away_s, gone_s
        self._stops = threading.Event()

    def kinds_of(self, broker_name: str) -> list[str]:
        """Return the kinds of faults that a broker can have."""
        return [kind for kind in _OF[broker_name] if kind in self._kinds]

    def run(self, seconds: float | None) -> None:
        """Cause faults for some time, or each kind once."""
        threads = [threading.Thread(target=self._lane, args=(name, seconds), daemon=True)
                   for name in _OF]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self._stops.set()

    def _lane(self, broker_name: str, seconds: float | None) -> None:
        chance = random.Random(f"{self._seed}/{broker_name}")
        kinds = self.kinds_of(broker_name)
        end = time.monotonic() + (1e9 if seconds is None else seconds)
        while kinds and time.monotonic() < end:
            # Each kind once, in a new order each time.
            for kind in chance.sample(kinds, len(kinds)):
                if self._stops.wait(chance.uniform(*self._pause_s)) or time.monotonic() > end:
                    return
                # One of four comes while some stream is not there yet.
                if chance.random() < 0.75:
                    self.queries.wait_for_all(_STREAMS_SECONDS)
                try:
                    self._do(kind, broker_name, chance)
                except Exception as error:
                    self.failures.append(f"the fault {kind} of {broker_name}: {error!r}")
                    print(self.failures[-1], flush=True)
                    self._stops.set()
                    return
            if seconds is None:
                return

    def _do(self, kind: str, broker_name: str, chance: random.Random) -> None:
        work: Callable[[str, random.Random], None] = getattr(self, f"do_{kind}")
        begin = time.time()
        work(broker_name, chance)
        self.counts[kind] += 1
        print(f"{time.strftime('%H:%M:%S', time.localtime(begin))} {kind} of {broker_name}, "
              f"{time.time() - begin:.1f} s", flush=True)

    def _away(self, chance: random.Random) -> None:
        """Return the time for which a server is down."""
        self._stops.wait(chance.uniform(*self._away_s))

    # --- brokers

    def do_restart(self, broker_name: str, chance: random.Random) -> None:
        self._end(self.world.master(broker_name), signal.SIGTERM, chance)
        if broker_name == PAIR:
            self.world.wait_for_slave()

    def do_kill(self, broker_name: str, chance: random.Random) -> None:
        self._end(self.world.master(broker_name), signal.SIGKILL, chance)

    def _end(self, broker: OurReplica, how: signal.Signals, chance: random.Random) -> None:
        broker.end(how)
        self._away(chance)
        broker.start()

    def do_slave(self, broker_name: str, chance: random.Random) -> None:
        self.do_kill(broker_name, chance)
        self.world.wait_for_slave()

    def do_cut(self, broker_name: str, chance: random.Random) -> None:
        pid = self.world.master(broker_name).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            self._away(chance)
        finally:
            os.kill(pid, signal.SIGCONT)
        if broker_name == PAIR:
            self.world.wait_for_slave()

    def do_promote(self, broker_name: str, chance: random.Random) -> None:
        self._replace(chance, time.time())

    def do_behind(self, broker_name: str, chance: random.Random) -> None:
        since = time.time()
        slave = self.world.pair[1].pid
        os.kill(slave, signal.SIGSTOP)
        try:
            self._away(chance)
            self._replace(chance, since, slave)
        except BaseException:
            os.kill(slave, signal.SIGCONT)
            raise

    def _replace(self, chance: random.Random, since: float, stopped: int | None = None) -> None:
        """Kill the master, and promote the slave.

        :param since: since when the slave may lack messages.
        :param stopped: the id of the slave's process, if it is cut off.
        """
        world = self.world
        master, slave = world.pair
        master.end(signal.SIGKILL)
        killed = time.time()
        if stopped is not None:
            os.kill(stopped, signal.SIGCONT)
        self._stops.wait(chance.uniform(0, self._away_s[1] / 2))
        with world.names_lock:
            self._patiently("the slave is promoted", lambda: self._promoted(slave))
            # The last sends may have no answer yet.
            with world.senders[PAIR].paused():
                places = {each.place for each in world.ledger.all()
                          if each.place[1] == PAIR and each.outcome is Outcome.UNSAFE
                          and since - 5 <= each.begin_s <= killed}
                world.ledger.lose("promoted", places, lambda sent: False, since)
            world.swap_roles()

    def _promoted(self, slave: OurReplica) -> bool:
        with Session(self.world.namesrv) as session:
            return bool(list(promote_slave(session, broker=slave.address, switch=False,
                                           force=False, dry=False)))

    def _patiently(self, what: str, work: Callable[[], bool]) -> None:
        """Repeat an action until it succeeds."""
        errors: list[str] = []

        def is_done() -> bool:
            try:
                return work()
            except (BrokerError, OSError) as error:
                errors.append(str(error))
                return False

        try:
            wait_until(what, is_done)
        except AssertionError as error:
            raise AssertionError(f"{error}: {errors[-1:]}") from None

    def do_tail(self, broker_name: str, chance: random.Random) -> None:
        world, solo = self.world, self.world.solo
        store, copy = solo.data / "store", solo.data / "copy"
        sender = world.senders[SOLO]
        with sender.paused():
            solo.end()
            shutil.copytree(store, copy)
            solo.start()
            since = time.time()
        self._away(chance)
        with sender.paused():
            until = time.time()
            solo.end(signal.SIGKILL)
            shutil.rmtree(store)
            copy.rename(store)
            solo.start()
            places = world.places(SOLO)
            world.ledger.lose("tail", places, _sent_between(since, until), until)
            world.ledger.new_life(places)

    # --- topics

    def do_queues(self, broker_name: str, chance: random.Random) -> None:
        count = len(self.world.places(SOLO, "grows"))
        self.world.create("grows", SOLO, count + 1)
        self.world.senders[SOLO].places.append(("grows", SOLO, count))

    def do_fewer(self, broker_name: str, chance: random.Random) -> None:
        self._make_again(chance, has_more=False)

    def do_more(self, broker_name: str, chance: random.Random) -> None:
        self._make_again(chance, has_more=True)

    def _make_again(self, chance: random.Random, *, has_more: bool) -> None:
        world, topic = self.world, "made"
        places, sender = world.places(SOLO, topic), world.senders[SOLO]
        with sender.paused(topic):
            ends = world.bounds(places)
            since = time.time()
            world.delete(topic, SOLO)
            world.ledger.lose("deleted", places, lambda sent: True, since)
            if chance.random() < 0.5:
                self._stops.wait(self._gone_s)
            world.ledger.new_life(places)
            world.create(topic, SOLO, len(places))
            for place in places:
                sender.burst(place, ends[place][1] + 5 if has_more else 1)

    def do_expire(self, broker_name: str, chance: random.Random) -> None:
        world, sender = self.world, self.world.senders[SOLO]
        self.queries.kill()
        try:
            self._away(chance)
            sender.fill(_FILLER_SIZE, _FILLERS)
            places = world.places(SOLO)
            with sender.paused():
                ends = world.bounds(places)
                since = time.time()
                sender.fill(_FILLER_SIZE, _FILLERS)
                configure(world.solo.address, fileReservedTime="0")
                with RawClient(world.solo.address, 30) as client:
                    assert not client.request(RequestCode.DELETE_EXPIRED_COMMITLOG).code
                wait_until("messages expire", lambda: all(
                    begin >= ends[place][1]
                    for place, (begin, _) in world.bounds(places).items()))
                configure(world.solo.address, fileReservedTime="72")
                begins = {place: begin for place, (begin, _) in world.bounds(places).items()}
                world.ledger.lose(
                    "expired", places, lambda sent: 0 <= sent.offset < begins[sent.place], since)
        finally:
            self.queries.start()
        self.counts["driver"] += 1

    # --- others

    def do_namesrv(self, broker_name: str, chance: random.Random) -> None:
        world = self.world
        with world.names_lock:
            begin = time.time()
            world.group.namesrv.end(chance.choice((signal.SIGTERM, signal.SIGKILL)))
            self._away(chance)
            world.group.namesrv.start()
            self.nameless.append((begin, time.time()))
            self._patiently("all brokers are registered", self._all_registered)

    def _all_registered(self) -> bool:
        with Session(self.world.namesrv) as session:
            found = {each.address for each in session.all_brokers()}
        return {self.world.master(name).address for name in (SOLO, PAIR)} <= found

    def do_driver(self, broker_name: str, chance: random.Random) -> None:
        self.queries.kill()
        self.queries.start()


def _sent_between(begin_s: float, end_s: float) -> Callable[[Sent], bool]:
    """Whether a message was sent within a time."""
    return lambda sent: begin_s <= sent.begin_s <= end_s
