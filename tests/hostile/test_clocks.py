"""Servers whose wall clock jumps, or that are suspended: nothing hangs or is lost."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.hostile.case import HostileCase
from tests.interop.servers import MAIN, Servers, wait_until
from twistmq.broker.testing.raw_client import RawClient, pull_header
from twistmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)

#: Reads by how many seconds the wall clock is wrong from a file when it gets a signal.
_JUMPS = """
import os, signal, sys, time
wrong, real, real_ns = [0], time.time, time.time_ns
time.time = lambda: real() + wrong[0]
time.time_ns = lambda: real_ns() + wrong[0] * 1_000_000_000
def jump(*_):
    path = sys.argv[sys.argv.index("--data") + 1] + "/jump"
    wrong[0] = int(open(path).read())
    os.remove(path)
signal.signal(signal.SIGRTMIN, jump)
"""
_HOUR = 3600
#: How long a process is stopped, seconds: longer than what is silence in these tests.
_STOPPED_SECONDS = 7.0
_SILENT_SECONDS = 4


class JumpingServers(Servers):
    """Servers whose wall clock the test sets."""

    program = _JUMPS + MAIN

    def jump(self, seconds: int) -> None:
        """Let the wall clock be wrong by so much."""
        path = self.data / "jump"
        path.write_text(str(seconds))
        os.kill(self.pid, signal.SIGRTMIN)
        wait_until("the clock jumps", lambda: not path.exists())


class WallClockTests(HostileCase):
    """The wall clock is set while the good client works."""

    servers: JumpingServers

    def make_servers(self) -> Servers:
        servers = JumpingServers(
            Path(tempfile.mkdtemp(prefix="twistmq-hostile-")), "scanNotActiveBrokerInterval=500")
        self._own.append(servers)
        servers.start()
        return servers

    def client(self, address: str | None = None) -> RawClient:
        client = RawClient(address or self.broker)
        self.addCleanup(client.close)
        return client

    def locked(self, client_id: str) -> int:
        """Return how many locks of one queue a client gets."""
        body = LockBatchRequestBody("g", client_id, mq_set=(MessageQueue("T", "b", 0),))
        reply = self.client().request(
            RequestCode.LOCK_BATCH_MQ, None, body.encode_standard())
        return len(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set)

    def has_route(self, topic: str) -> bool:
        reply = self.client(self.namesrv).request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        return reply.code == ResponseCode.SUCCESS

    def test_a_pull_that_waits_is_answered_in_its_time(self) -> None:
        """Its response is in time, and periodic work continues."""
        client = self.client()
        client.send("T", b"x")
        begin = time.monotonic()
        waiting = client.begin(RequestCode.PULL_MESSAGE, pull_header("T", 1, hold_ms=2000))
        self.servers.jump(-_HOUR)
        self.assertEqual(client.reply(waiting).code, ResponseCode.PULL_NOT_FOUND)
        self.assertLess(time.monotonic() - begin, 30)
        checkpoint = self.servers.data / "store/config/topics.json"
        before = checkpoint.stat().st_mtime_ns
        client.send("U", b"x")
        wait_until("a new topic is saved", lambda: checkpoint.stat().st_mtime_ns != before, 15)

    def test_no_broker_is_given_up(self) -> None:
        """No broker is removed, and each lock belongs to its holder."""
        self.client().send("T", b"x")
        wait_until("the topic is known", lambda: self.has_route("T"), 15)
        self.assertEqual(self.locked("one"), 1)
        self.servers.jump(2 * _HOUR)
        self.assertEqual(self.locked("two"), 0)
        # Several scans of the name server come to pass.
        end = time.monotonic() + 2
        while time.monotonic() < end:
            self.assertTrue(self.has_route("T"))
            time.sleep(0.05)


class StoppedProcessTests(SynchronousTestCase):
    """The process is suspended for a while."""

    def test_input_that_came_meanwhile_is_read_before_silence_counts(self) -> None:
        """Only afterwards a connection or a broker can count as silent."""
        folder = Path(tempfile.mkdtemp(prefix="twistmq-hostile-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        servers = Servers(folder, "scanNotActiveBrokerInterval=500",
                          f"serverChannelMaxIdleTimeSeconds={_SILENT_SECONDS}")
        self.addCleanup(servers.stop)
        servers.start()
        begin = time.monotonic()
        names = {"broker_name": "other", "broker_addr": "10.0.0.1:10911", "cluster_name": "C"}
        # Connections are looked at while the process is stopped, ten seconds after its start.
        time.sleep(10 - _STOPPED_SECONDS / 2)
        client = RawClient(f"127.0.0.1:{servers.broker_port}")
        self.addCleanup(client.close)
        brokers = RawClient(servers.namesrv)
        self.addCleanup(brokers.close)
        reply = brokers.request(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader(
            ha_server_addr="", broker_id=0, heartbeat_timeout_millis=_SILENT_SECONDS * 1000,
            **names))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        client.max_offset("T")
        os.kill(servers.pid, signal.SIGSTOP)
        try:
            asked = client.begin(RequestCode.PULL_MESSAGE, pull_header("none"))
            beat = brokers.begin(
                RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader(**names))
            time.sleep(max(_STOPPED_SECONDS, begin + 11 - time.monotonic()))
        finally:
            os.kill(servers.pid, signal.SIGCONT)
        self.assertEqual(client.reply(asked).code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(brokers.reply(beat).code, ResponseCode.SUCCESS)
        self.assertNotIn("no heartbeat from the broker", servers.log())
        # A broker that is silent while the name server runs is given up.
        wait_until("the broker is given up",
                   lambda: "no heartbeat from the broker" in servers.log(), 15)
