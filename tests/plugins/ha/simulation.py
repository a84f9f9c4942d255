"""A seeded simulation of a master and its slave, whose disks forget what was not synced.

    PairSimulation(seed=17).run()       # raises PairFailed, which lists the steps

Both are kernels with the plugin, on disks of their own, under SYNC_FLUSH; the slave reports what is
on its disk, and each send waits for it. Bytes between them come in parts, and late. Each seed lets
machines lose their power and processes die, both at once or one of them, also in the middle of
what they do. A message that was acknowledged must be in the log of both after each start, before
they speak to each other again and after it; at the end both logs are the same.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.plugins import admin, ha
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingError, StoreError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.record import encode_record

__all__ = ["PairFailed", "PairSimulation"]

_PLUGINS: Final = (("admin", admin.Plugin), ("ha", ha.Plugin))
_HA_PORT: Final = 10912
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": "4096", "maxMessageSize": "2000", "flushDiskType": "SYNC_FLUSH",
    "haListenPort": str(_HA_PORT), "inSyncReplicas": "2"}
_ROLES: Final = {
    "master": {"brokerRole": "SYNC_MASTER"},
    "slave": {"brokerRole": "SLAVE", "brokerId": "1", "ha.report_flushed": "true",
              "ha.resync": "true", "haMasterAddress": f"10.0.0.1:{_HA_PORT}"}}
_BODY_SIZES: Final = (0, 20, 300, 1200)
_ELAPSED_MS: Final = (0, 1, 100, 600, 4000)
#: Changes of a disk after which a process dies that is told to die soon.
_DEATHS: Final = (1, 2, 3, 5, 8, 13, 21)
#: Rounds in which a pair that nothing disturbs has to come to the same log.
_ROUNDS_MAX: Final = 400


class PairFailed(AssertionError):
    """A seed found a fault; the text has the steps and the command that repeats them."""


class _Transport:
    """One end of a connection; the simulation delivers its bytes."""

    def __init__(self) -> None:
        self.unsent = bytearray()
        self.is_aborted = False
        self._producer: Any = None

    def write(self, data: bytes) -> None:
        self.unsent += data

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert not streaming
        self._producer = producer

    def taken(self, size: int) -> bytes:
        """Take bytes from the front; the producer is asked for more when none remain."""
        data = bytes(self.unsent[:size])
        del self.unsent[:size]
        if not self.unsent and self._producer is not None and not self.is_aborted:
            self._producer.resumeProducing()
        return data

    def abortConnection(self) -> None:
        self.is_aborted = True


class _Wire:
    """The connection of a slave to its master."""

    def __init__(self, slave: IProtocol, master: IProtocol) -> None:
        self.ends: dict[str, tuple[Any, _Transport]] = {
            "slave": (slave, _Transport()), "master": (master, _Transport())}

    def open(self) -> None:
        """Tell both ends that they are connected."""
        for protocol, transport in list(self.ends.values()):
            protocol.makeConnection(transport)

    def deliver(self, whose: str, size: int) -> int:
        """Deliver some bytes of one end to the other; :returns: their number."""
        other = "master" if whose == "slave" else "slave"
        data = self.ends[whose][1].taken(size)
        if data:
            self.ends[other][0].dataReceived(data)
        return len(data)

    @property
    def is_aborted(self) -> bool:
        return any(transport.is_aborted for _, transport in self.ends.values())

    def close(self, alive: Mapping[str, object]) -> None:
        """Tell the ends whose processes are alive that the connection is lost."""
        for name, (protocol, _) in self.ends.items():
            if name in alive:
                protocol.connectionLost(Failure(ConnectionDone()))


class _Machine:
    """One broker of the pair, and its disk."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.disk = PowerLossDisk()
        self._chance = chance
        self._jobs: list[tuple[Callable[[], None], Deferred[None]]] = []
        self._runs = False
        #: Whether its threads do nothing by themselves.
        self.holds = False
        self._due: dict[object, int] = {}

    def starts(
        self, now_ms: int, settings: Mapping[str, str], prepare: Callable[[KernelBox], None]
    ) -> bool:
        """Start; :returns: whether it did not die meanwhile."""
        with contextlib.suppress(PowerCut):
            self._start(now_ms, settings, prepare)
        return not self.disk.is_cut

    def _start(
        self, now_ms: int, settings: Mapping[str, str], prepare: Callable[[KernelBox], None]
    ) -> None:
        self._jobs, self._runs = [], False
        clock = [now_ms]
        self.box = KernelBox(_PLUGINS, {**_SETTINGS, **_ROLES[self.name], **settings}, self.disk,
                             lambda: clock[0], self._in_thread)
        self.clock = clock
        self.disk.now_ms = lambda: clock[0]
        prepare(self.box)
        self._runs = True
        self._due = {task: now_ms + task.first_ms for task in self.box.kernel.periodic_tasks}

    @property
    def plugin(self) -> ha.Plugin:
        return self.box.plugin(ha.Plugin)

    def _in_thread(self, job: Callable[[], None]) -> Deferred[None]:
        """Run a job at once while it starts, later when it runs."""
        done: Deferred[None] = Deferred()
        self._jobs.append((job, done))
        if not self._runs or (not self.holds and self._chance.random() < 0.3):
            self.run_job(len(self._jobs) - 1)
        return done

    def run_job(self, number: int | None = None) -> bool:
        """Run one of the jobs for threads; :returns: whether there was one."""
        if not self._jobs:
            return False
        job, done = self._jobs.pop(
            self._chance.randrange(len(self._jobs)) if number is None else number)
        try:
            job()
        except (StoreError, OSError) as error:
            done.errback(Failure(error))
        else:
            done.callback(None)
        return True

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass, and run the tasks that are due."""
        self.clock[0] += elapsed_ms
        for task in self.box.kernel.periodic_tasks:
            if self._due[task] <= self.clock[0]:
                period = task.period_ms
                self._due[task] = self.clock[0] + (period() if callable(period) else period)
                waiting = task.run(self.clock[0])
                if waiting is not None:
                    waiting.addErrback(self._task_failed)

    def _task_failed(self, failure: Failure) -> None:
        """Ignore an error of a task that was caused by the end of one of the machines."""
        failure.trap(BrokerError, OSError, PowerCut)

    def end(self, loses_power: bool) -> None:
        """End the process or the machine."""
        self.box.kernel.store.close()
        if loses_power or self.disk.has_dropped:
            self.disk.crash(self._chance)
        else:
            self.disk.kill()


class PairSimulation:
    """One run of the simulation.

    :param seed: says everything.
    :param settings: that differ, of both brokers.
    """

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.steps: list[str] = []
        self.machines = {name: _Machine(name, self.chance) for name in _ROLES}
        #: The machines that run.
        self.alive: dict[str, _Machine] = {}
        #: By place in the log: the messages that were acknowledged.
        self.acknowledged: dict[int, bytes] = {}
        self._settings = settings or {}
        self._wire: _Wire | None = None
        self._numbers = count()
        self._now_ms = 1_700_000_000_000
        self._weights: dict[Callable[[], None], int] = {
            self._send: 12, self._deliver: 12, self._job: 10, self._pass_time: 8, self._arm: 2,
            self._pass_second: 6, self._end_both: 3, self._end_one: 1, self._unplug: 2}

    # --- running

    def run(self, step_count: int = 80) -> None:
        """Do the given number of steps, then leave the pair alone and compare the logs.

        :raises PairFailed: when a promise was broken.
        """
        try:
            self._start()
            steps, weights = list(self._weights), list(self._weights.values())
            for _ in range(step_count):
                self._do(self.chance.choices(steps, weights)[0])
            self._settle()
        except (Exception, PowerCut) as error:
            lines = [f"{number:4}  {step}" for number, step in enumerate(self.steps, 1)]
            raise PairFailed("\n".join([
                f"seed {self.seed}: {type(error).__name__}: {error}", *lines,
                f"replay it: python -m tests.long.replication_simulation --seed {self.seed}",
            ])) from error

    def start(self) -> None:
        """Start both, and let the slave follow its master."""
        self._start()
        for _ in range(_ROUNDS_MAX):
            self._do(self._pass_second)
            if self._is_settled():
                return

    def _do(self, step: Callable[[], None]) -> None:
        """Do a step; machines that died in it start again, both or that one."""
        try:
            step()
        except PowerCut:
            self.steps.append("a process dies in it")
        dead = [name for name, machine in self.alive.items() if machine.disk.is_cut]
        if dead:
            self._end(list(self.alive) if self.chance.random() < 0.7 else dead)
        if self._wire is not None and self._wire.is_aborted:
            self._unplug()

    def _start(self) -> None:
        """Start the machines that do not run, in any order, and compare their data."""
        names = [name for name in self.machines if name not in self.alive]
        self.chance.shuffle(names)
        for name in names:
            machine = self.machines[name]
            while not machine.starts(self._now_ms, self._settings, self._prepare):
                self.steps.append(f"{name} dies while it starts")
                machine.disk.crash(self.chance)
            self.alive[name] = machine
            self.steps.append(f"{name} starts, its log ends at {self._log_end(name)}")
            self._check(name)

    def _log_end(self, name: str) -> int:
        return self.machines[name].box.kernel.store.commit_log.max_offset

    def _check(self, name: str) -> None:
        """:raises AssertionError: when a machine lacks a message that was acknowledged."""
        store = self.machines[name].box.kernel.store
        for place, data in self.acknowledged.items():
            assert store.look_message(place) == data, f"{name} lost the message at {place}"

    # --- the network

    def _prepare(self, box: KernelBox) -> None:
        """Give a kernel its network."""
        box.host.ask_server = self._ask  # type: ignore[method-assign]
        box.host.connect_stream = self._connect  # type: ignore[assignment, method-assign]

    async def _ask(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        master = self.alive.get("master")
        if master is None:
            raise RemotingError("the master does not run")
        return master.box.ask(code, header, body)

    def _connect(
        self, factory: IProtocolFactory, address: str, timeout_ms: int, *, encrypted: bool = False
    ) -> Deferred[Protocol]:
        made: Deferred[Protocol] = Deferred()
        port = IPv4Address("TCP", "10.0.0.2", 1)
        protocol = factory.buildProtocol(port)
        master = self.alive.get("master")
        other = None if master is None else master.box.host.streams[_HA_PORT].buildProtocol(port)
        if other is None or protocol is None:
            made.errback(RemotingError("the master does not run"))
            return made
        self._unplug()
        self._wire = _Wire(protocol, other)
        self.steps.append("the slave connects")
        self._wire.open()
        made.callback(protocol)  # type: ignore[arg-type]
        return made

    def _unplug(self) -> None:
        """Lose the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            self.steps.append("the connection is lost")
            wire.close(self.alive)

    def _deliver(self) -> None:
        """Deliver some bytes."""
        if self._wire is not None:
            whose = self.chance.choice(list(self._wire.ends))
            size = self._wire.deliver(whose, self.chance.choice((1, 100, 1000, 5000, 100_000)))
            if size:
                self.steps.append(f"{size} bytes of the {whose} arrive")

    # --- sends, threads, time

    def _send(self) -> None:
        """Send messages, and record those that are acknowledged."""
        master = self.alive.get("master")
        if master is None:
            return
        kernel = master.box.kernel
        records = [message("T", b"%d:" % next(self._numbers)
                           + self.chance.randbytes(self.chance.choice(_BODY_SIZES)))
                   for _ in range(self.chance.choice((1, 1, 2, 4)))]
        try:
            kernel.append(records)
        except StoreError as error:
            self.steps.append(f"{len(records)} messages are refused: {error}")
            return
        sent = {each.physical_offset: encode_record(each) for each in records}
        self.steps.append(f"{len(records)} messages are sent, to {records[-1].next_offset}")
        waiting = kernel.acknowledgement.wait(records[-1].next_offset)
        assert waiting is not None, "no send may be acknowledged at once"
        waiting.addCallbacks(lambda code: self._answered(machine=master, code=code, sent=sent),
                             lambda failure: None)

    def _answered(self, machine: _Machine, code: ResponseCode, sent: dict[int, bytes]) -> None:
        if code == ResponseCode.SUCCESS and not machine.disk.is_cut:
            self.acknowledged.update(sent)
            self.steps.append(f"acknowledged: {', '.join(map(str, sent))}")

    def _job(self) -> None:
        if self.alive:
            self.chance.choice(list(self.alive.values())).run_job()

    def _pass_time(self) -> None:
        elapsed_ms = self.chance.choice(_ELAPSED_MS)
        self._now_ms += elapsed_ms
        self.steps.append(f"{elapsed_ms} ms pass")
        for machine in list(self.alive.values()):
            machine.pass_time(elapsed_ms)

    # --- ends

    def _arm(self) -> None:
        """Let a process die soon, in the middle of something."""
        name = self.chance.choice(list(self.machines))
        self.machines[name].disk.cut_in = self.chance.choice(_DEATHS)
        self.steps.append(f"{name} will die soon")

    def _end_both(self) -> None:
        self._end(list(self.alive))

    def _end_one(self) -> None:
        self._end([self.chance.choice(list(self.alive))])

    def _end(self, names: list[str]) -> None:
        """Kill machines, and start them again."""
        for name in names:
            loses_power = self.chance.random() < 0.8
            self.steps.append(f"{name} {'loses its power' if loses_power else 'is killed'}")
            self.alive.pop(name).end(loses_power)
            if self.chance.random() < 0.1:
                self._arm()
        self._unplug()
        self._start()

    # --- the end

    def _settle(self) -> None:
        """Let the pair become idle, and compare the logs."""
        for machine in self.machines.values():
            machine.disk.cut_in = None
        for _ in range(_ROUNDS_MAX):
            self._do(self._pass_second)
            if self._is_settled():
                break
        assert self._is_settled(), "the slave does not come to the end of the master's log"
        before = len(self.acknowledged)
        self._send()
        for _ in range(3):
            self._do(self._pass_second)
        assert len(self.acknowledged) > before, "a send to the settled pair is not acknowledged"
        logs = [self._log(name) for name in self.machines]
        assert logs[0] == logs[1], "the logs differ"
        for name in self.machines:
            self._check(name)

    def _pass_second(self) -> None:
        """Deliver all bytes, run all jobs, and let a second pass."""
        self._now_ms += 1000
        for machine in self.alive.values():
            machine.pass_time(1000)
        self.exchange()

    def exchange(self, held: str = "") -> None:
        """Deliver all bytes and run the jobs of all but one machine, until nothing changes."""
        moves = True
        while moves:
            moves = sum(machine.run_job() for name, machine in self.alive.items()
                        if name != held) > 0
            if self._wire is not None and not self._wire.is_aborted:
                for whose in ("slave", "master"):
                    moves = self._wire.deliver(whose, 100_000) > 0 or moves

    def _is_settled(self) -> bool:
        return self._wire is not None and self._log_end("slave") == self._log_end("master")

    def _log(self, name: str) -> bytes:
        """Return all bytes of a log."""
        store = self.machines[name].box.kernel.store
        parts, at = [], store.commit_log.min_offset
        while data := store.raw.read(at, 4096):
            parts.append(data)
            at += len(data)
        return b"".join(parts)
