"""A master with slaves that hang or read slowly, with several slaves, and with strangers.

Each function runs a group of processes under load and returns a :class:`Strain`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop.load import Load
from tests.interop.replicas import Group, Replica, end_of, same_log, slaves_of
from tests.interop.servers import rss_anon_kib, wait_until
from tests.interop.turn import cpu_seconds

__all__ = ["GROWTH_MAX_KIB", "SLOW_BYTES", "Strain", "four_slaves", "open_sockets",
           "probe", "slow_peer", "soak", "stall"]

#: What a slave that reads nothing may cost its master, KiB.
GROWTH_MAX_KIB: Final = 4 * 1024
#: What a slow peer reads in a second.
SLOW_BYTES: Final = 100 * 1024
_HEAD: Final = struct.Struct(">qi")
#: Connections that have not reported are closed beyond 64; a few more are just being closed.
_DESCRIPTORS_MAX: Final = 200
#: Sockets that a master may have open beside those it had.
_SPARE: Final = 8


@dataclass
class Strain:
    """The measured figures by name, and the faults."""

    figures: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def demand(self, name: str, value: float, most: float) -> None:
        """Keep a figure, and record a fault if it exceeds a limit."""
        self.figures[name] = value
        if value > most:
            self.problems.append(f"{name} is {value:.2f}, above {most:.2f}")

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:,.2f}" for name, value in self.figures.items())
        return f"{figures}; {len(self.problems)} problems"


class Watch:
    """The maximum of a figure during the block, read every few hundredths of a second."""

    def __init__(self, figure: Callable[[], float]) -> None:
        self.most = figure()
        self._figure = figure
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.most = max(self.most, self._figure())


def _count(master: Replica) -> int:
    """Return the number of slaves that a master reports."""
    return len(slaves_of(master.address).ha_connection_info)


def _memory(replica: Replica) -> Watch:
    """Watch the most anonymous memory that a broker has, KiB.

    The highest of one time is compared with the highest of another: while the message index is
    written, every ten seconds, a broker has ten MiB more, with a slave or without one.
    """
    return Watch(lambda: rss_anon_kib(replica.pid))


def _measure(load: Load, master: Replica, seconds: float) -> tuple[float, float]:
    """Answers a second, and seconds of the master's processor time for each."""
    begin, before = cpu_seconds(master.pid), load.count()
    rate = load.rate(seconds)
    return rate, (cpu_seconds(master.pid) - begin) / (load.count() - before)


def stall(folder: Path, seconds: float, load_options: dict[str, int] | None = None) -> Strain:
    """Stop the slave of an ASYNC_MASTER by a signal, and let it go on.

    :param seconds: for each of two measurements of the rate, before and after the link is closed.
    :param load_options: of the load; None: many small messages.
    """
    strain = Strain()
    with Group(folder) as group:
        master = group.ours("master")
        slave = group.ours("slave", brokerRole="SLAVE", brokerId="1")
        master.start()
        slave.start()
        with Load(master.address, **(load_options or {"size_max": 1000})) as load:
            wait_until("the slave is there", lambda: _count(master) == 1)
            with _memory(master) as before:
                rate, cost = _measure(load, master, seconds)
            begin, at = time.monotonic(), end_of(master.address)
            os.kill(slave.pid, signal.SIGSTOP)
            try:
                with _memory(master) as memory:
                    wait_until("the link is closed", lambda: not _count(master), 120)
                    strain.figures["closed after s"] = time.monotonic() - begin
                    strain.figures["KiB it was sent"] = (end_of(master.address) - at) / 1024
                    stalled_rate, stalled_cost = _measure(load, master, seconds)
            finally:
                os.kill(slave.pid, signal.SIGCONT)
        strain.problems += load.failures
        strain.figures |= {
            "rate, of the one before": stalled_rate / rate, "KiB more": memory.most - before.most,
            # Other work of the machine changes the rate; the time of the processor tells more.
            "processor time a message, of that before": stalled_cost / cost}
        same_log(master, [slave])
    return strain


class _SlowPeer(threading.Thread):
    """A slave that reads so many bytes a second, and reports them as one does.

    :param port: haListenPort of the master.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._socket = socket.socket()
        # Before it connects: the system takes little in for it.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self._socket.connect(("127.0.0.1", port))
        self._stops = threading.Event()
        self.read_bytes = 0
        self.error = ""

    def run(self) -> None:
        try:
            self._follow()
        except OSError as error:
            if not self._stops.is_set():
                self.error = repr(error)

    def _follow(self) -> None:
        buffer = bytearray()
        self._socket.sendall(bytes(8))
        reported = 0.0
        while not self._stops.wait(0.1):
            data = self._socket.recv(SLOW_BYTES // 10)
            if not data:
                raise OSError("the master closed the connection")
            self.read_bytes += len(data)
            buffer += data
            end = 0
            while len(buffer) >= _HEAD.size:
                offset, size = _HEAD.unpack_from(buffer)
                if len(buffer) < _HEAD.size + size:
                    break
                end = offset + size
                del buffer[:_HEAD.size + size]
            if end and time.monotonic() - reported > 1:
                reported = time.monotonic()
                self._socket.sendall(end.to_bytes(8, "big"))

    def end(self) -> None:
        self._stops.set()
        self.join()
        self._socket.close()


def slow_peer(folder: Path, seconds: float, kib_max: int = GROWTH_MAX_KIB) -> Strain:
    """Let a peer read slowly beside a slave of a SYNC_MASTER, whose sends wait for the slave."""
    strain = Strain()
    with Group(folder) as group:
        master = group.ours("master", brokerRole="SYNC_MASTER", inSyncReplicas="2")
        slave = group.ours("slave", brokerRole="SLAVE", brokerId="1")
        master.start()
        slave.start()
        with Load(master.address, size_max=1000) as load:
            wait_until("the slave is there", lambda: _count(master) == 1)
            load.wait_for(100)
            late = load.count(12)
            with _memory(master) as before:
                rate = load.rate(seconds)
            peer = _SlowPeer(master.port + 1)
            peer.start()
            try:
                with _memory(master) as memory:
                    strain.figures["rate, of the one before"] = load.rate(seconds) / rate
                strain.figures["slaves"] = _count(master)
                behind = max(row.diff for row in slaves_of(master.address).ha_connection_info)
            finally:
                peer.end()
        strain.problems += load.failures + [each for each in [peer.error] if each]
        strain.demand("KiB more", memory.most - before.most, kib_max)
        strain.demand("late sends", load.count(12) - late, 0)
        strain.figures |= {"the peer is behind, bytes": behind,
                           "it read in a second": peer.read_bytes / seconds}
        same_log(master, [slave])
    return strain


def soak(folder: Path, seconds: float, kib_max: int = GROWTH_MAX_KIB) -> Strain:
    """Let a SYNC_MASTER and its slave work for long: nothing of either may grow.

    :param seconds: in four parts; the most memory of the last is compared with that of the first.
    """
    strain = Strain()
    with Group(folder) as group:
        master = group.ours("master", brokerRole="SYNC_MASTER", inSyncReplicas="2")
        slave = group.ours("slave", brokerRole="SLAVE", brokerId="1")
        pair = {"master": master, "slave": slave}
        master.start()
        slave.start()
        with Load(master.address, senders=2, window=4, size_max=1000, pause=0.004) as load:
            wait_until("the slave is there", lambda: _count(master) == 1)
            load.wait_for(100)
            late, sent = load.count(12), load.count()
            sockets = {name: open_sockets(each.pid) for name, each in pair.items()}
            parts = []
            with Watch(load.silence) as silence:
                for _ in range(4):
                    with _memory(master) as of_master, _memory(slave) as of_slave:
                        load.rate(seconds / 4)
                    parts.append({"master": of_master.most, "slave": of_slave.most})
            strain.figures["messages"] = load.count() - sent
            for name, each in pair.items():
                strain.figures[f"MiB of the {name}"] = parts[-1][name] / 1024
                strain.demand(f"KiB more, {name}", parts[-1][name] - parts[0][name], kib_max)
                strain.demand(f"sockets more, {name}",
                              open_sockets(each.pid) - sockets[name], _SPARE)
        strain.demand("late sends", load.count(12) - late, 0)
        strain.figures["the longest wait for an answer, s"] = silence.most
        strain.problems += load.failures
        same_log(master, [slave])
    return strain


#: What each slave may cost its master more, in % of the cost of a message without slaves, and the
#: messages from which on that is compared.
_MORE_MAX: Final = 15
COUNTED_MIN: Final = 10_000


def four_slaves(folder: Path, messages: int) -> Strain:
    """Give an ASYNC_MASTER four slaves one by one, two of them Apache's.

    :param messages: sent with each number of slaves; the processor time of the master is counted.
    """
    strain = Strain()
    with Group(folder) as group:
        master = group.ours("master")
        slaves: list[Replica] = [group.ours(f"ours{number}", brokerRole="SLAVE", brokerId=number)
                                 for number in "12"]
        slaves += [group.apache(version, version, brokerRole="SLAVE", brokerId=number)
                   for version, number in (("5.3.3", "3"), ("4.9.4", "4"))]
        master.start()
        costs = []
        for number in range(len(slaves) + 1):
            if number:
                slaves[number - 1].start()
                wait_until("the slave is there", lambda count=number: _count(master) == count, 120)
            begin = cpu_seconds(master.pid)
            with Load(master.address, number, size_max=1000) as load:
                load.wait_for(messages, seconds=600)
            same_log(master, slaves[:number])
            costs.append((cpu_seconds(master.pid) - begin) / load.count())
            strain.problems += load.failures
        status = slaves_of(master.address)
        if status.in_sync_slave_nums != len(slaves):
            strain.problems.append(f"haStatus shows {status.in_sync_slave_nums}")
        strain.figures["µs a message alone"] = costs[0] * 1e6
        # The system counts processor time in steps of 10 ms, and a few hundred messages may cost
        # the master less than one step. Only the cost of many messages can be compared.
        if messages >= COUNTED_MIN:
            more = (costs[-1] / costs[0] - 1) / len(slaves) * 100
            strain.figures["% more for each slave"] = more
            if more > _MORE_MAX:
                strain.problems.append(
                    f"each slave costs {more:.1f} % more, {_MORE_MAX} are allowed")
    return strain


def probe(
    folder: Path, seconds: float, a_second: int = 1000, idle: int = 1000,
    kib_max: int = GROWTH_MAX_KIB,
) -> Strain:
    """Connect to the port for slaves and close, so often; some connections stay and say nothing.

    :param seconds: at least; it takes longer where the machine cannot do so many a second.
    """
    strain = Strain()
    with Group(folder) as group:
        master = group.ours("master", brokerRole="SYNC_MASTER", inSyncReplicas="2")
        slave = group.ours("slave", brokerRole="SLAVE", brokerId="1")
        master.start()
        slave.start()
        with Load(master.address, senders=1, window=1) as load:
            wait_until("the slave is there", lambda: _count(master) == 1)
            load.wait_for(100)
            # Those that were sent before the slave was there.
            late = load.count(12)
            [link] = slaves_of(master.address).ha_connection_info
            # Memory for so many is taken once.
            files = _descriptors(master)
            _connect_often(master.port + 1, idle, idle, a_second)
            wait_until("they are closed", lambda: _descriptors(master) <= files + _SPARE, 300)
            kib = rss_anon_kib(master.pid)
            with Watch(lambda: _descriptors(master)) as descriptors, Watch(
                    load.silence) as silence:
                strain.figures["probes a second"] = _connect_often(
                    master.port + 1, int(a_second * seconds), idle, a_second)
            [after] = slaves_of(master.address).ha_connection_info
            wait_until("they are closed", lambda: _descriptors(master) <= files + _SPARE, 300)
        strain.problems += load.failures
        if after.addr != link.addr or load.count(12) > late or set(load.counts) - {0, 12}:
            strain.problems.append(f"the slave lost its link, or was late: {load.counts}")
        strain.figures["the slave's lag at most, s"] = silence.most
        strain.demand("descriptors", descriptors.most, files + _DESCRIPTORS_MAX)
        strain.demand("KiB more", rss_anon_kib(master.pid) - kib, kib_max)
        same_log(master, [slave])
    return strain


def _connect_often(port: int, count: int, idle: int, a_second: int) -> float:
    """Connect and close so often, while so many other connections say nothing.

    :returns: how many it was a second.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        begin = time.monotonic()
        for number in range(count):
            socket.create_connection(("127.0.0.1", port), 60).close()
            ahead = begin + number / a_second - time.monotonic()
            if ahead > 0:
                threading.Event().wait(ahead)
        return count / (time.monotonic() - begin)


def _descriptors(replica: Replica) -> int:
    """Return the number of open sockets of a broker; the files of its log become more."""
    return open_sockets(replica.pid)


def open_sockets(pid: int) -> int:
    """Return the number of open sockets of a process."""
    folder, count = f"/proc/{pid}/fd", 0
    for name in os.listdir(folder):
        # It may have been closed since.
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
    return count
