"""Files of a running broker that are deleted or cut: no more messages are acknowledged."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.hostile.case import BUG_MARKS
from tests.interop.servers import Servers, wait_until
from twistmq.broker.edge.boot import EXIT_FAILED
from twistmq.broker.testing.raw_client import RawClient, pull_header, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode

_TOPIC = "gone_topic"
_SECONDS = 60.0


class GoneFilesTests(SynchronousTestCase):
    """``twistmq up`` with a thousand bytes of messages."""

    def check(self, change: Callable[[Path], object], why: str, next_start: str) -> None:
        """Change the store: sends are refused within seconds, and the stop and the start give the
        reason.

        :param next_start: part of why that is refused; empty: it is a store like a new one.
        """
        folder = Path(tempfile.mkdtemp(prefix="twistmq-gone-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        servers = Servers(folder / "data", "mappedFileSizeCommitLog=65536")
        self.addCleanup(servers.stop)
        servers.start()
        store = folder / "data" / "store"
        with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
            for _ in range(10):
                self.assertEqual(self.send(client)[0], ResponseCode.SUCCESS)
            # The checkpoint then tells of them.
            wait_until("the log is flushed", (store / "checkpoint").exists)
            change(store)
            deadline = time.monotonic() + _SECONDS
            while (answer := self.send(client))[0] == ResponseCode.SUCCESS:
                self.assertLess(time.monotonic(), deadline, "sends are acknowledged on")
                time.sleep(0.05)
            self.assertEqual(answer[0], ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertIn(why, answer[1])
            for offset in (0, 5, 9):
                reply = client.request(RequestCode.PULL_MESSAGE, pull_header(_TOPIC, offset))
                if "cut" in why:
                    self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
                    self.assertIn(why, reply.remark or "")
                else:
                    self.assertEqual(reply.code, ResponseCode.SUCCESS)
        log = servers.log()
        self.assertEqual(len([line for line in log.splitlines() if why in line]), 1, log)
        self.assertEqual(servers.stop(), EXIT_FAILED)
        log = servers.log()
        for mark in BUG_MARKS:
            self.assertNotIn(mark, log)
        if next_start:
            error = self.assertRaises(RuntimeError, servers.start)
            self.assertIn(next_start, str(error))
        else:
            servers.start()

    def send(self, client: RawClient) -> tuple[int, str]:
        reply = client.request(
            RequestCode.SEND_MESSAGE_V2, send_header(_TOPIC, 0, keys="key"), bytes(100))
        return reply.code, reply.remark or ""

    def test_log_file_is_removed(self) -> None:
        """Messages in it can still be pulled while the broker runs."""
        self.check(lambda store: next((store / "commitlog").iterdir()).unlink(),
                   "was removed, renamed or replaced", "has no file")

    def test_log_file_is_cut(self) -> None:
        """The file is cut to nothing; the next start does not take it for a new file."""
        self.check(lambda store: os.truncate(next((store / "commitlog").iterdir()), 0),
                   "was cut to ", "commitlog/")

    def test_log_folder_is_renamed(self) -> None:
        """The next start does not begin a new log."""
        self.check(lambda store: (store / "commitlog").rename(store / "log"),
                   "commitlog was removed, renamed or replaced", "has no file")

    def test_store_is_removed(self) -> None:
        """With all that would tell the next start of it."""
        self.check(shutil.rmtree, "store was removed, renamed or replaced", "")
