"""The master removed the next bytes of a slave that was away; both are processes."""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.load import Load
from tests.interop.ports import free_port
from tests.interop.replicas import Group, OurReplica, end_of, same_log
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode

FILE_SIZE = 64 * 1024
#: A slave is not healthy so long after its master, at the latest; and what a busy machine adds.
UNHEALTHY_SECONDS, SPARE_SECONDS = 30, 30


class RemovedRangeTests(SynchronousTestCase):
    """A master that keeps no old file, and a slave with a page of its health."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        group = Group(Path(folder.name))
        group.__enter__()
        self.addCleanup(group.__exit__, None, None, None)
        common = {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "30000"}
        self.pages = free_port()
        self.master = group.ours("master", **common, fileReservedTime="0",
                                 deleteCommitLogFilesInterval="0")
        self.slave = group.ours(
            "slave", **common, brokerRole="SLAVE", brokerId="1", metricsExporterType="PROM",
            metricsPromExporterPort=str(self.pages), metricsPromExporterHost="127.0.0.1")

    def health(self) -> tuple[int, Any]:
        """Status and reasons of the slave's health page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}/health") as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    @staticmethod
    def begin_of(replica: OurReplica) -> int:
        """Return the beginning of the log of a broker."""
        with RawClient(replica.address) as client:
            reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(KVTable.decode(reply.body).table["commitLogMinOffset"])

    def remove_old_files(self, place: int) -> None:
        """Let the master remove all files but the last, which begins after an offset."""
        last = end_of(self.master.address) // FILE_SIZE * FILE_SIZE
        self.assertGreater(last, place)

        def is_removed() -> bool:
            with RawClient(self.master.address) as client:
                client.request(RequestCode.DELETE_EXPIRED_COMMITLOG)
            return self.begin_of(self.master) == last

        wait_until("the master removes its files", is_removed, 120)

    def test_a_slave_whose_next_bytes_were_removed(self) -> None:
        """Its health names both positions; with ha.resync it starts again by itself."""
        self.master.start()
        self.slave.start()
        with Load(self.master.address, 0) as load:
            load.wait_for(200)
        end = same_log(self.master, [self.slave])
        self.assertEqual(self.health()[0], 200)
        self.slave.end()
        with Load(self.master.address, 1) as load:
            load.wait_for(600)
        self.remove_old_files(end)
        kept = {path.name: path.read_bytes() for path in self.slave.log_folder.glob("0*")}
        begin = self.begin_of(self.master)
        self.slave.start()
        wait_until("it is not healthy", lambda: self.health()[0] == 503,
                   UNHEALTHY_SECONDS + SPARE_SECONDS)
        text = json.dumps(self.health()[1])
        self.assertIn(f"the log ends at {end}, but the master's log begins later, at {begin}", text)
        self.assertEqual(self.slave.log().count(f"begins later, at {begin}"), 1)
        self.assertEqual(end_of(self.slave.address), end)
        self.slave.end()
        self.assertEqual({path.name: path.read_bytes() for path in self.slave.log_folder.glob(
            "0*")}, kept)
        self.slave.settings["ha.resync"] = "true"
        self.slave.start()
        same_log(self.master, [self.slave])
        self.assertEqual(self.begin_of(self.slave), self.begin_of(self.master))
        wait_until("it is healthy", lambda: self.health()[0] == 200)
