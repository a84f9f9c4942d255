"""A test that attacks live servers while a good client continues to work.

All tests share one name server and one broker, started when the first needs them: what an attack
leaves behind is there for the next.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.hostile.good_client import GoodClient
from tests.hostile.wire import RawConnection
from tests.interop.servers import Servers, rss_anon_kib

__all__ = ["BUG_MARKS", "HostileCase", "MemoryPeak"]

#: What the servers may have grown by when an attack is over, KiB.
GROWTH_MAX_KIB = 48 * 1024
#: What a log line of something that should not happen holds.
BUG_MARKS = ("Traceback", "#critical")
#: The longest wait of the good client beside an attack, seconds. The tests share their cores, and
#: a wait is longer now and then: an attack is repeated until one wait was short.
WAIT_MAX_SECONDS = 0.1
#: The attacks that are made at most.
ATTACKS_MAX = 6
_SETTLE_SECONDS = 60.0


class MemoryPeak:
    """The highest memory use of a process during the block, read every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self.kib = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.kib = max(self.kib, rss_anon_kib(self._pid))
            if self._ended.wait(0.005):
                return


class _Shared:
    """The servers that all tests share."""

    running: Servers | None = None

    @classmethod
    def servers(cls) -> Servers:
        if cls.running is None:
            folder = Path(tempfile.mkdtemp(prefix="twistmq-hostile-"))
            running = Servers(folder, "log.level=debug")
            running.start()

            def end() -> None:
                running.stop()
                shutil.rmtree(folder, ignore_errors=True)

            atexit.register(end)
            cls.running = running
        return cls.running


class HostileCase(SynchronousTestCase):
    """``attacked_broker`` and ``attacked_namesrv`` are addresses; the rest is checked afterwards.

    Checked: the good client had no failure, both servers run, the log holds no traceback, and
    memory is back within ``growth_max_kib`` of where it was.
    """

    growth_max_kib = GROWTH_MAX_KIB

    def make_servers(self) -> Servers:
        """Return the servers to attack; by default those that all tests share."""
        return _Shared.servers()

    def own_servers(self, *settings: str) -> Servers:
        """Start servers for this test, which end with it."""
        folder = Path(tempfile.mkdtemp(prefix="twistmq-hostile-"))
        servers = Servers(folder, *settings)
        self._own.append(servers)
        servers.start()
        return servers

    def setUp(self) -> None:
        self._own: list[Servers] = []
        try:
            self.servers = self.make_servers()
            self.broker = f"127.0.0.1:{self.servers.broker_port}"
            self.namesrv = self.servers.namesrv
            self._logged_before = len(self.servers.log())
            #: Lines that were looked at, by connection.
            self._lines_told: Counter[str] = Counter()
            self.good = self.make_good_client().start()
            self.memory_before_kib = rss_anon_kib(self.servers.pid)
        except BaseException:
            self._end_own()
            raise

    def make_good_client(self) -> GoodClient:
        return GoodClient(self.broker, self.namesrv, servers_pid=self.servers.pid)

    def tearDown(self) -> None:
        # Trial's cleanups are done before this: nothing the good client needs can be one.
        try:
            self.good.wait_for_rounds(20)
            tally = self.good.stop()
            self.assertEqual(tally.failures, [])
            self.assertGreater(tally.operations, 0)
            self.assertNoBug()
            self.assertMemoryReturns()
        finally:
            self._end_own()

    def _end_own(self) -> None:
        for servers in self._own:
            try:
                servers.stop()
            finally:
                shutil.rmtree(servers.data, ignore_errors=True)

    def connect(
        self, address: str | None = None, receive_bytes: int | None = None
    ) -> RawConnection:
        """Return a connection of the attacker, by default to the broker."""
        connection = RawConnection(address or self.broker, receive_bytes)
        self.addCleanup(connection.close)
        return connection

    def assertOthersGoOn(
        self, what: str, attack: Callable[[], object], wait_max_seconds: float = WAIT_MAX_SECONDS
    ) -> None:
        """The good client hardly waits beside an attack and after it.

        Where many processes want a core, a wait is long for that reason alone. It counts as short
        if the servers worked for less than the bound between each request and its answer.
        """
        waits, tally = [], self.good.tally
        for _ in range(ATTACKS_MAX):
            self.good.wait_for_rounds(20)
            tally.slowest_seconds = tally.slowest_work_seconds = 0.0
            attack()
            self.good.wait_for_rounds(20)
            waits.append((tally.slowest_seconds, tally.slowest_work_seconds))
            if min(waits[-1]) < wait_max_seconds:
                return
        self.fail(f"{what}: {waits}")

    # --- the log

    def logged(self, part: str = "") -> list[str]:
        """The log's lines since the test began that hold a text."""
        return [line for line in self.servers.log()[self._logged_before:].splitlines()
                if part in line]

    def assertLoggedOnce(self, connection: RawConnection, what: str = "") -> str:
        """Check that one line reports the behaviour of a connection.

        Connections that follow each other may have the same port: lines count once. The refusal of
        a code that is not served, which tests use as a question, does not count.

        :returns: the line.
        """
        lines = self.logged(f"{connection.name}")[self._lines_told[connection.name]:]
        self._lines_told[connection.name] += len(lines)
        lines = [line for line in lines if "not supported" not in line]
        self.assertEqual(len(lines), 1, msg=f"{what}: {lines}")
        return lines[0]

    def assertNoBug(self) -> None:
        """Check that no log line reports an internal error."""
        lines = self.logged()
        bugs = [index for index, line in enumerate(lines)
                if any(mark in line for mark in BUG_MARKS)]
        self.assertEqual(bugs, [], msg="\n".join(lines[bugs[0]:bugs[0] + 40]) if bugs else "")

    # --- memory

    def assertMemoryReturns(self) -> None:
        """Within seconds the servers have about the memory they had before."""
        bound = self.memory_before_kib + self.growth_max_kib
        deadline = time.monotonic() + _SETTLE_SECONDS
        while (now := rss_anon_kib(self.servers.pid)) > bound:
            self.assertLess(time.monotonic(), deadline,
                            msg=f"{now} KiB of memory, {self.memory_before_kib} before")
            time.sleep(0.1)
