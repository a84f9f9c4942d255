"""A file system that is really full: sends are refused, reads continue, and no acknowledged message
is lost.

The store is put on a small tmpfs: see small_disk.py.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from tests.hostile.case import BUG_MARKS
from tests.hostile.small_disk import DISK_SIZE, SmallDiskCase, fill, free
from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing.raw_client import RawClient, pull_header, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.query import ViewMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader

#: What is left of the disk for messages.
_ROOM = 3 * 1024 * 1024
_BODY_SIZE = 10_000
#: Small files, so that the disk is full now within a file and now at the start of one; a small
#: index, every page of which is soon in use. A consume queue is written so seldom that the disk is
#: full before the entries of the last messages, and they need more files than there is room for.
_LOG_FILE_SIZE = 256 * 1024
_SETTINGS = (f"mappedFileSizeCommitLog={_LOG_FILE_SIZE}", "mappedFileSizeConsumeQueue=100",
             "maxHashSlotNum=1000", "maxIndexNum=4000", "flushIntervalConsumeQueue=500",
             "flushConsumeQueueThoroughInterval=500", "flushConsumerOffsetInterval=200")
_TOPIC = "full_topic"
_QUEUES_REFUSED = "consume queues cannot be written"


class FullDiskTests(SmallDiskCase):
    """One broker on one small disk; ``stored`` has the acknowledged messages, by queue offset."""

    def setUp(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.number = 0

    # --- tests

    def test_a_disk_that_fills_and_empties_loses_no_acknowledged_message(self) -> None:
        """Full, and free again, time after time, while the broker runs."""
        self.on_small_disk(self.check_store)

    def check_store(self, disk: Path) -> None:
        logs = disk.parent / "data"
        servers = self.start(logs, f"storePathRootDir={disk / 'store'}")
        filler = disk / "filler"
        fill(disk, filler, _ROOM)
        for times in range(1, 4):
            with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
                self.send_until_refused(client)
                fill(disk, filler, 0)
                self.assertGoesOn(servers, client)
                self.wait_for_refused_queues(servers, times)
                self.assertAllThere(client)
                # Whoever waited for a message gets it as soon as there is room.
                waiting = client.begin(RequestCode.PULL_MESSAGE, pull_header(
                    _TOPIC, len(self.stored), hold_ms=30_000))
                free(filler, _ROOM)
                reply = self.send(client)
                self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
                self.assertEqual(client.reply(waiting).code, ResponseCode.SUCCESS)
                self.assertAllThere(client)
        self.assertIn(_QUEUES_REFUSED, servers.log())
        self.restart(servers, signal.SIGTERM)
        self.restart(servers, signal.SIGKILL)
        self.assertNoBug(servers)

    def test_logs_tables_and_store_on_the_full_disk(self) -> None:
        """The broker may end, but must start again."""
        self.on_small_disk(self.check_everything)

    def check_everything(self, disk: Path) -> None:
        servers = self.start(disk / "data")
        filler = disk / "filler"
        fill(disk, filler, _ROOM)
        for how in (signal.SIGTERM, signal.SIGKILL):
            with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
                self.send_until_refused(client)
                fill(disk, filler, 0)
                self.assertGoesOn(servers, client)
                self.assertAllThere(client)
            servers.stop(how)
            try:
                servers.start()
            except RuntimeError as error:
                # It may need room for a start; then it says so.
                self.assertIn("the disk is full", str(error))
                self.assertNotIn("Traceback", str(error))
            else:
                with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
                    self.assertAllThere(client)
                servers.stop(how)
            free(filler, _ROOM)
            servers.start()
            with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
                self.assertAllThere(client)
                reply = self.send(client)
                self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
        self.restart(servers, signal.SIGTERM)
        self.assertNoBug(servers)

    # --- parts of them

    def start(self, data: Path, *settings: str) -> Servers:
        servers = Servers(data, *_SETTINGS, *settings)
        self.addCleanup(servers.stop)
        servers.start()
        return servers

    def restart(self, servers: Servers, how: signal.Signals) -> None:
        """Restart the servers, and check that every message is present."""
        servers.stop(how)
        servers.start()
        with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
            self.assertAllThere(client)

    def send(self, client: RawClient) -> RemotingCommand:
        """Send one message, and record it if it is acknowledged."""
        self.number += 1
        body = (b"%08d" % self.number).ljust(_BODY_SIZE, b".")
        reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header(
            _TOPIC, 1, keys=f"key{self.number % 100}"), body)
        if reply.code == ResponseCode.SUCCESS:
            self.stored[reply.header(SendMessageResponseHeader).queue_offset] = body
        return reply

    def send_until_refused(self, client: RawClient) -> None:
        """Send until the disk is full, and some more: code 14, said in words."""
        for _ in range(DISK_SIZE // _BODY_SIZE):
            reply = self.send(client)
            if reply.code != ResponseCode.SUCCESS:
                break
        else:
            self.fail("the disk does not get full")
        for _ in range(5):
            self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE, msg=reply.remark)
            self.assertIn("disk is full", reply.remark or "")
            reply = self.send(client)

    def wait_for_refused_queues(self, servers: Servers, times: int) -> None:
        """Wait until the queues could not be written for a number of rounds.

        Where a core is slow, they may have been written before the last bytes were taken.
        """
        with contextlib.suppress(AssertionError):
            wait_until("the queues cannot be written", lambda: (
                servers.log().count(_QUEUES_REFUSED) >= times), 10)

    def assertGoesOn(self, servers: Servers, client: RawClient) -> None:
        """Check that requests are answered on a full disk, also those for a new topic."""
        header = send_header(f"other_topic_{self.number}", 1)
        reply = client.request(RequestCode.SEND_MESSAGE_V2, header, bytes(_BODY_SIZE))
        self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE, msg=reply.remark)
        self.assertEqual(client.max_offset(_TOPIC), len(self.stored))
        with RawClient(f"127.0.0.1:{servers.broker_port}") as other:
            self.assertTrue(other.pull(_TOPIC, len(self.stored) - 1,
                                       group=f"new_group_{self.number}"))
            # What is left of a file behind its last message is a hole.
            for place in range(_LOG_FILE_SIZE - 200, len(self.stored) * _BODY_SIZE, _LOG_FILE_SIZE):
                reply = other.request(RequestCode.VIEW_MESSAGE_BY_ID,
                                      ViewMessageRequestHeader(offset=place))
                self.assertNotEqual(reply.code, ResponseCode.SUCCESS)

    def assertAllThere(self, client: RawClient) -> None:
        """Every message that was acknowledged can be pulled, once, in its place; no other is."""
        found: dict[int, bytes] = {}
        while messages := client.pull(_TOPIC, len(found)):
            for message in messages:
                found[message.queue_offset] = message.body
        self.assertEqual(sorted(found), list(range(len(self.stored))))
        self.assertEqual(found, self.stored)

    def assertNoBug(self, servers: Servers) -> None:
        """Check that no log line reports an internal error."""
        lines = servers.log().splitlines()
        bugs = [index for index, line in enumerate(lines)
                if any(mark in line for mark in BUG_MARKS)]
        self.assertEqual(bugs, [], msg="\n".join(lines[bugs[0]:bugs[0] + 40]) if bugs else "")
