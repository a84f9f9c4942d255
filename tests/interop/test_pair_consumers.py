"""Consumers of a pair: their reads are moved to the slave, or their master is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.interop.clients import (
    HERE,
    client_home,
    go_missing,
    go_program,
    python_client_missing,
    python_with,
)
from tests.interop.contents import pipelined
from tests.interop.java_process import JavaProcess, LineProcess
from tests.interop.ports import free_port
from tests.interop.servers import MAIN
from tests.interop.test_replication import COMMON, PairCase
from tests.plugins.ha.pair import LOCAL, wait_until
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.get_message import GetMessageResult
from twistmq.broker.testing import RawClient, running_broker
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError

JAVA, GO, PYTHON, IDLE = "MoveJava", "MoveGo", "MovePython", "MoveIdle"
MEMBERS = (JAVA, GO, PYTHON)
QUEUES = 4
#: Messages that are consumed before the master dies, and behind it.
EARLY, BACKLOG = 40, 200
#: Consumers ask for routes every 30 s; a busy machine is slower.
MOVE_SECONDS = 35.0
#: Messages of each member that a slave lacks, and how often it may be asked for those of a queue.
BEHIND, PULLS_MAX = 5000, 5.0
#: The members that ask for them.
LAGGING = (JAVA, GO)
PATIENCE_SECONDS = 120.0
#: The client of PyPI asks a dead master again at once, all the time, under the lock that it needs
#: to ask for routes: "GetTransport ... get timed_mutex timeout" in its log. A round of questions
#: that finds the lock taken is lost, and the next comes so many seconds later.
ROUND_SECONDS = 30.0
PYTHON_SECONDS = 600.0
#: Its log, below its home, and its lines of a question for a route and of the answer.
LOGS = "logs/rocketmq-cpp/*"
QUESTION, ANSWER = (f"updateTopicRouteInfoFromNameServer {word}" for word in ("start:", "has data"))


class Members:
    """A consumer of each kind, each with its own group and topic."""

    def __init__(self, stack: ExitStack, namesrv: str, names: tuple[str, ...] = MEMBERS) -> None:
        home = stack.enter_context(client_home())
        self._stack, self._namesrv, self._home = stack, namesrv, home
        self.processes = {name: self._start(name) for name in names}
        for process in self.processes.values():
            process.wait_for("started")

    def _start(self, name: str) -> LineProcess:
        process: LineProcess
        if name == JAVA:
            process = JavaProcess("5.3.3", "GroupMember", self._namesrv, JAVA, IDLE, "1")
        elif name == GO:
            process = LineProcess([str(go_program("go_member")), self._namesrv, GO, "1"])
        else:
            process = LineProcess([
                "env", f"HOME={self._home}", "PYTHONIOENCODING=utf-8",
                str(python_with("rocketmq==0.4.4")), str(HERE / "python_member.py"),
                self._namesrv, PYTHON])
        self._stack.callback(process.close)
        return process

    def bodies(self, name: str) -> Counter[str]:
        """The messages that a member has consumed, with how often."""
        return Counter(line.split(" ")[-1] for line in self.processes[name].told("end"))

    def last_ms(self, name: str) -> int:
        """Return the time of the last message, Unix ms."""
        return int(self.processes[name].told("end")[-1].split(" ")[2])

    def lost_rounds(self) -> int:
        """Return how often the client of PyPI got no answer to a request for its route."""
        lost, is_open = 0, False
        for path in sorted(self._home.glob(LOGS)):
            with path.open(errors="replace") as lines:
                for line in lines:
                    if QUESTION in line:
                        lost += is_open
                        is_open = f"{QUESTION}{PYTHON}[" in line
                    elif ANSWER in line:
                        is_open = False
        return lost

    def have(self, bodies: set[str]) -> None:
        """Wait until each has consumed these messages, none of them more than once."""
        for name, process in self.processes.items():
            try:
                wait_until(lambda name=name: bodies <= self.bodies(name).keys(),
                           f"{name} has consumed {len(bodies)}",
                           PYTHON_SECONDS if name == PYTHON else PATIENCE_SECONDS)
            except AssertionError as error:
                lacks = sorted(bodies - self.bodies(name).keys())
                told = "\n".join(process.lines[-20:])
                raise AssertionError(f"{error}; it lacks {len(lacks)}: {lacks}\n{told}") from None
            assert set(self.bodies(name).values()) == {1}, (name, self.bodies(name))


def send(address: str, first: int, count: int) -> set[str]:
    """Send numbered messages to the topic of each member; :returns: their bodies."""
    bodies = [f"m{number}" for number in range(first, first + count)]
    with RawClient(address) as client:
        for topic in MEMBERS:
            for number, body in enumerate(bodies):
                client.send(topic, body.encode(), queue_id=number % QUEUES)
    return set(bodies)


def send_many(address: str, first: int, count: int) -> set[str]:
    """Send numbered messages to the topics of ``LAGGING``, many at once; :returns: their bodies."""
    bodies = [f"m{number}" for number in range(first, first + count)]
    requests = [
        (RequestCode.SEND_MESSAGE_V2, send_header(topic, 1_700_000_000_000, queue_id=at % QUEUES),
         body.encode()) for topic in LAGGING for at, body in enumerate(bodies)]
    with RawClient(address, PATIENCE_SECONDS) as client:
        assert {reply.code for reply in pipelined(client, requests)} == {0}
    return set(bodies)


def figure(address: str, name: str) -> int:
    """Return a number that a broker reports."""
    with RawClient(address) as client:
        reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(float(KVTable.decode(reply.body).table[name]))


class ConsumersCase(PairCase):
    """Members of all kinds."""

    timeout = 900

    def setUp(self) -> None:
        super().setUp()
        for reason in (go_missing(), python_client_missing()):
            if reason:
                raise SkipTest(reason)


class _Alone:
    """Our broker in its own process, which can be killed."""

    def __init__(self, data: Path, namesrv: str) -> None:
        self.port = free_port()
        settings = {**LOCAL, **COMMON, "storePathRootDir": str(data), "namesrvAddr": namesrv,
                    "listenPort": str(self.port), "haListenPort": str(free_port())}
        self._command = [sys.executable, "-c", MAIN, "broker",
                         *(f"{name}={value}" for name, value in settings.items())]
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class DeadMasterCase(ConsumersCase):
    """A master of ours that can be killed, and a slave of ours."""

    def start_pair(self) -> None:
        """A name server that outlives the master, the master, and its slave."""
        beside = self.stack.enter_context(running_broker({**LOCAL, "brokerName": "beside"}))
        self.namesrv = beside.namesrv_address
        self.master = _Alone(self.folder / "master", self.namesrv)
        self.stack.callback(self.master.kill)
        self.address = self.master.address
        wait_until(lambda: self.is_up(self.address), "the master answers", PATIENCE_SECONDS)
        self.start_slave()

    @staticmethod
    def is_up(address: str) -> bool:
        try:
            return PairCase.end_of(address) >= 0
        except (BrokerError, OSError):
            return False

    def start_slave(self) -> None:
        self.slave = slave = self.our_slave(self.namesrv)
        self.slave_address = slave.address
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave follows", 60)

    def kill_master(self) -> None:
        self.master.kill()

    def committed(self, name: str) -> int:
        """Up to where a member has committed at the slave, all queues together."""
        query = self.slave.kernel.consumer_offset.query
        offsets = self.slave.thread.call(lambda: [
            query(name, name, queue_id) for queue_id in range(QUEUES)])
        return sum(max(0, each) for each in offsets)


class DeadMasterTests(DeadMasterCase):
    """Our master dies; consumers go on with its slave, which is ours."""

    def test_consumers_go_on_with_the_slave(self) -> None:
        """They consume the backlog once and commit at the slave; no message is skipped."""
        self.start_pair()
        sent = send(self.address, 0, EARLY)
        members = Members(self.stack, self.namesrv)
        members.have(sent)
        for process in members.processes.values():
            process.pause()
        sent |= send(self.address, EARLY, BACKLOG)
        end = self.end_of(self.address)
        wait_until(lambda: self.end_of(self.slave_address) == end, "the slave has all", 60)
        lost = members.lost_rounds()
        self.kill_master()
        died_ms = time.time_ns() // 1_000_000
        for process in members.processes.values():
            process.resume()
        members.have(sent)
        # The Go client commits at masters only.
        for name in (JAVA, PYTHON):
            wait_until(lambda name=name: self.committed(name) == len(sent),
                       f"{name} has committed at the slave", PATIENCE_SECONDS)
        seconds = {name: (members.last_ms(name) - died_ms) / 1000 for name in MEMBERS}
        lost = members.lost_rounds() - lost
        print(f"{type(self).__name__}: the backlog was consumed so long after the kill, s: "
              f"{seconds}; {PYTHON} lost {lost} rounds")
        seconds[PYTHON] -= lost * ROUND_SECONDS
        self.assertLess(max(seconds.values()), MOVE_SECONDS + PATIENCE_SECONDS / 2)


class DeadJavaMasterTests(DeadMasterTests):
    """The master is Apache's, and our slave continues for it."""

    def start_pair(self) -> None:
        self.java = self.java_master()
        self.namesrv = self.java.namesrv_address
        self.address = f"127.0.0.1:{self.java.broker_port}"
        self.start_slave()

    def kill_master(self) -> None:
        self.java.stop_one("broker", kill=True)


class LaggingSlaveTests(DeadMasterCase):
    """Our master is killed while our slave lacks many consumed messages."""

    def test_consumers_of_a_slave_that_lags(self) -> None:
        """They stay there and ask seldom; when the master returns, they miss nothing."""
        self.start_pair()
        sent = send(self.address, 0, EARLY)
        members = Members(self.stack, self.namesrv, LAGGING)
        members.have(sent)
        end = self.end_of(self.address)
        wait_until(lambda: self.slave.end == end, "the slave has all", 60)
        self.slave.thread.call(self.slave.plugin.follower.stop)
        sent |= send_many(self.address, EARLY, BEHIND)
        members.have(sent)
        self.kill_master()
        self.check_pulls()
        self.assertEqual(self.slave.end, end)
        self.master.start()
        wait_until(lambda: self.is_up(self.address), "the master answers", PATIENCE_SECONDS)
        self.slave.thread.call(self.slave.plugin.follower.start)
        sent |= send(self.address, EARLY + BEHIND, EARLY)
        members.have(sent)
        end = self.end_of(self.address)
        wait_until(lambda: self.slave.end == end, "the slave has all", PATIENCE_SECONDS)

    def check_pulls(self) -> None:
        """Check that no queue is pulled more often than permitted while the slave
        has no messages.
        """
        reads: Counter[tuple[str, int]] = Counter()
        store = self.slave.kernel.store
        get_message = store.get_message

        def counted(topic: str, queue_id: int, *others: Any) -> GetMessageResult:
            reads[topic, queue_id] += 1
            return get_message(topic, queue_id, *others)

        self.patch(store, "get_message", counted)

        def all_read(times: int) -> bool:
            return all(reads[topic, queue_id] >= times
                       for topic in LAGGING for queue_id in range(QUEUES))

        wait_until(lambda: all_read(5), "each queue is read at the slave", PATIENCE_SECONDS)
        before, began = reads.copy(), time.monotonic()
        wait_until(lambda: all_read(25), "and again", PATIENCE_SECONDS)
        seconds = time.monotonic() - began
        most = max((reads - before).values()) / seconds
        print(f"a queue was read {most:.2f} times a second at most, in {seconds:.1f} s")
        self.assertLess(most, PULLS_MAX)


class _SmallMemory(RealDisk):
    """A machine with a megabyte: messages a few kilobytes back are not in memory."""

    def physical_memory_bytes(self) -> int:
        return 1 << 20


class DivertedTests(ConsumersCase):
    """Our master sends consumers that are behind to its slave."""

    def read_at_slave(self, *, allowed: bool) -> int:
        """Let members catch up; :returns: how many messages the slave gave them."""
        master = self.stack.enter_context(running_broker(
            {**LOCAL, **COMMON, "accessMessageInMemoryMaxRatio": "2",
             "slaveReadEnable": str(allowed).lower()},
            data=self.folder / "master", io=_SmallMemory()))
        slave = self.our_slave(master.namesrv_address)
        address = f"127.0.0.1:{slave.service.port}"
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave follows", 60)
        sent = send(master.broker_address, 0, EARLY)
        members = Members(self.stack, master.namesrv_address, (JAVA, GO))
        members.have(sent)
        for process in members.processes.values():
            process.pause()
        sent |= send(master.broker_address, EARLY, 4 * BACKLOG)
        wait_until(lambda: slave.end == self.end_of(master.broker_address), "it has all", 60)
        before = figure(address, "msgGetTotalTodayNow")
        for process in members.processes.values():
            process.resume()
        members.have(sent)
        given = figure(address, "msgGetTotalTodayNow") - before
        # They are back: what comes now, the master gives them.
        now = figure(master.broker_address, "msgGetTotalTodayNow")
        last = send(master.broker_address, EARLY + 4 * BACKLOG, 1)
        members.have(sent | last)
        self.assertGreaterEqual(figure(master.broker_address, "msgGetTotalTodayNow") - now, 1)
        plugin = slave.kernel.hooks.find(ha.Plugin)
        assert plugin is not None and plugin.follower.is_connected
        return given

    def test_they_move_and_come_back(self) -> None:
        """No message is missed or consumed twice."""
        self.assertGreater(self.read_at_slave(allowed=True), 0)

    def test_they_stay_where_it_is_off(self) -> None:
        """Without slaveReadEnable the slave gets no pull."""
        self.assertEqual(self.read_at_slave(allowed=False), 0)


