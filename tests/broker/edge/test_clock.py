"""The clocks and limits of the process."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from textwrap import dedent
from unittest import mock, skipUnless

from twisted.internet.epollreactor import EPollReactor as new_reactor
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge.boot import StartRefused
from twistmq.broker.edge.clock import (
    connections_max,
    monotonic,
    monotonic_ms,
    now_ms,
    raise_open_files_limit,
    use_monotonic,
)


class ClockTests(SynchronousTestCase):
    """The time."""

    def test_unix_milliseconds_and_seconds_that_never_jump(self) -> None:
        """Unix milliseconds, and seconds that never jump."""
        self.assertApproximates(now_ms() / 1000, time.time(), 60)
        self.assertLessEqual(monotonic(), monotonic())

    def test_a_reactors_timers_go_by_it(self) -> None:
        """The timers of a reactor use the clock, including those that exist already."""
        reactor = new_reactor()
        self.addCleanup(reactor._poller.close)
        self.addCleanup(reactor.waker.connectionLost, None)
        calls = [reactor.callLater(5, int), reactor.callLater(50, int)]
        for _ in range(2):
            use_monotonic(reactor)
        self.assertIs(reactor.seconds, monotonic)
        calls.append(reactor.callLater(500, int))
        for call, seconds in zip(calls, (5, 50, 500), strict=True):
            self.assertApproximates(call.getTime() - monotonic(), seconds, 4)
        calls[0].reset(5000)
        self.assertApproximates(calls[0].getTime() - monotonic(), 5000, 4)
        self.assertApproximates(monotonic_ms() / 1000, monotonic(), 4)


class OpenFilesLimitTests(SynchronousTestCase):
    """RLIMIT_NOFILE is raised at start, so that many clients and topics work."""

    def raised(self, soft: int, hard: int, error: Exception | None = None) -> tuple[int, bool]:
        """Return (the new limit, whether it was requested) for these limits of a system."""
        with mock.patch.object(resource, "getrlimit", return_value=(soft, hard)), \
                mock.patch.object(resource, "setrlimit", side_effect=error) as setrlimit:
            return raise_open_files_limit(), setrlimit.called

    def test_raised_to_the_hard_limit(self) -> None:
        """The hard limit is requested, unless it is in force already."""
        self.assertEqual(self.raised(1024, 65536), (65536, True))
        self.assertEqual(self.raised(65536, 65536), (65536, False))

    def test_a_system_that_does_not_allow_it_is_no_error(self) -> None:
        """A system that does not permit it causes no error."""
        self.assertEqual(self.raised(1024, 65536, PermissionError()), (1024, True))
        self.assertEqual(self.raised(1024, 65536, ValueError()), (1024, True))

    def test_less_than_the_hard_limit(self) -> None:
        """If the hard limit is not permitted, smaller limits are tried."""
        def refuse(what: int, limits: tuple[int, int]) -> None:
            if limits[0] > 70_000:
                raise ValueError("current limit exceeds maximum limit")

        with mock.patch.object(resource, "getrlimit", return_value=(256, 2**63 - 1)), \
                mock.patch.object(resource, "setrlimit", side_effect=refuse) as setrlimit:
            self.assertEqual(raise_open_files_limit(), 65_536)
        self.assertEqual(setrlimit.call_args.args[1], (65_536, 2**63 - 1))

    def test_too_low_a_limit_of_open_files_refuses_the_start(self) -> None:
        """The error says how many open files a server needs."""
        for limits in ((256, 256), (511, 511)):
            error = self.assertRaises(StartRefused, self.raised, *limits)
            self.assertIn(f"only {limits[1]} files may be open, a server needs 512", str(error))
        self.assertEqual(self.raised(256, 512), (512, True))
        self.assertRaises(StartRefused, self.raised, 256, 1024, PermissionError())

    def test_the_least_that_is_taken_leaves_room_for_clients(self) -> None:
        """The smallest accepted limit leaves room for clients."""
        for limit, expected in ((512, 128), (20_000, 9872), (resource.RLIM_INFINITY, 1_032_064)):
            with mock.patch.object(resource, "getrlimit", return_value=(limit, limit)):
                self.assertEqual(connections_max(), expected)

    def test_the_soft_limit_of_open_files_becomes_the_hard_one(self) -> None:
        """On this system the soft limit becomes the hard one."""
        limit = raise_open_files_limit()
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], limit)


@skipUnless(platform.libc_ver()[0] == "glibc", "the C library is another one")
class LargeBlocksTests(SynchronousTestCase):
    """Large blocks of memory go back to the system when they are free."""

    def test_blocks_that_grow_side_by_side_leave_no_holes(self) -> None:
        """Twenty buffers that grow to ten megabytes use no more memory than their length."""
        program = dedent("""
            from twistmq.broker.edge.clock import give_back_large_blocks

            def resident():
                with open("/proc/self/statm") as file:
                    return int(file.read().split()[1]) * 4096

            give_back_large_blocks()
            before = resident()
            for _ in range(3):
                buffers = [bytearray() for _ in range(20)]
                for _ in range(160):
                    for buffer in buffers:
                        buffer += bytes(65_536)
            print((resident() - before) / sum(map(len, buffers)))
            del buffer, buffers
            print((resident() - before) / 2**20)
        """)
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                 check=True).stdout.split()
        # 1.36 with holes, 1.08 to 1.22 without them.
        self.assertLess(float(printed[0]), 1.3)
        self.assertLess(float(printed[1]), 12)
