"""Timed messages of pairs of our broker and Apache's, while the slave acts as master.

They take minutes: `python -m tests.long.interop test_acting_timers`.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from typing import ClassVar

from tests.interop.servers import free_port
from tests.interop.test_acting_pair import PATIENCE, ActingCase
from tests.interop.test_replication import COMMON
from tests.plugins.ha.pair import LoneBroker, lone_broker, wait_until
from tests.plugins.ha.test_acting_pair import ACTING
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.record import records_of

#: From one message's time to the next, ms: the last is due when the master is back.
STEP_MS = 4000
COUNT = 30


class TimersCase(ActingCase):
    """Messages become due before the master's end, while it is down, and after its return."""

    settings: ClassVar[dict[str, str]] = {**ACTING, "enableRemoteEscape": "true"}

    def setUp(self) -> None:
        super().setUp()
        self.begin_ms = 0
        self.masters = ExitStack()
        self.stack.enter_context(self.masters)

    def send_timers(self, address: str) -> None:
        """Three messages for each time, the first in five seconds."""
        self.begin_ms = int(time.time() * 1000) + 5000
        with RawClient(address) as client:
            for number in range(COUNT):
                deliver_ms = str(self.begin_ms + number * STEP_MS)
                for letter in "abc":
                    client.send("T", f"{number}{letter}".encode(), queue_id=number % 4,
                                properties={"TIMER_DELIVER_MS": deliver_ms})

    def bodies(self, *addresses: str) -> Counter[bytes]:
        """Return how often each message is in the topic of these brokers."""
        found: Counter[bytes] = Counter()
        for address in addresses:
            with RawClient(address) as client:
                for queue_id in range(8):
                    offset = 0
                    while True:
                        reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                            "T", group="g", queue_id=queue_id, offset=offset))
                        records = list(records_of(reply.body)) if reply.code == 0 else []
                        if not records:
                            break
                        found.update(record.body for record in records)
                        offset += len(records)
        return found

    def come_once(self, master: str, other: str, twice: int = 0) -> None:
        """Each message is delivered once; the last ones follow the master's return.

        :param twice: so many may be of both.

        The slave sends one again that the other broker stored and did not answer in three seconds,
        as on a busy machine.
        """
        wait_until(lambda: len(self.bodies(master, other)) >= 3 * COUNT, "all come",
                   PATIENCE + COUNT * STEP_MS / 1000)
        ours, theirs = self.bodies(master), self.bodies(other)
        self.assertEqual([body for body, count in ours.items() if count > 1], [])
        self.assertLessEqual(len(both := ours.keys() & theirs.keys()), twice, sorted(both))
        self.assertEqual(len(ours.keys() | theirs.keys()), 3 * COUNT)
        self.assertTrue(theirs)

    def left_ms(self, count: int) -> float:
        """Return the time until the next message is due after a number of them."""
        return self.begin_ms + count // 3 * STEP_MS - time.time() * 1000

    def is_quiet(self, master: str, slave: LoneBroker) -> bool:
        """Whether the slave has all messages, and none is due soon."""
        count = len(self.bodies(master))
        return (count >= 6 and count % 3 == 0 and self.left_ms(count) > 1000
                and self.end_of(master) == slave.end)


class OurSlaveTests(TimersCase):
    """Our slave of a master of 5.3.3; messages are stored on another broker of 5.3.3."""

    def long_they_come_once(self) -> None:
        """The returned master delivers none of those that the slave had stored elsewhere."""
        namesrv = self.our_name_server()
        other = f"127.0.0.1:{self.java(namesrv, brokerName='other').broker_port}"
        java, master, slave = self.apaches_master(namesrv)
        wait_until(lambda: self.is_active(other) == "true", "the other is active", PATIENCE)
        self.create(master, other)
        self.wait_for_route(namesrv, {0: master, 1: slave.kernel.broker_address}, 6)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        self.send_timers(master)
        wait_until(lambda: self.is_quiet(master, slave), "some have come", PATIENCE)
        java.stop_one("broker", kill=True)
        wait_until(lambda: slave.kernel.identity.is_acting, "the slave stands in", PATIENCE)
        wait_until(lambda: len(self.bodies(other)) >= 6, "some are stored elsewhere", PATIENCE)
        java.start_broker()
        wait_until(lambda: not slave.kernel.identity.is_acting, "the master is back", PATIENCE)
        self.come_once(master, other)


class OurMasterTests(TimersCase):
    """Our master with a slave of 5.3.3; messages are stored on another broker of ours."""

    def long_they_come_once(self) -> None:
        """Our master uses the check point of Apache's slave, except for the last moment."""
        namesrv = self.our_name_server()
        other = self.lone(namesrv, "other", brokerName="other", totalReplicas="1")
        master = self.masters.enter_context(lone_broker(self.folder / "master/store", {
            **COMMON, **self.settings, "namesrvAddr": namesrv}))
        java = self.java(namesrv, brokerRole="SLAVE", brokerId="1")
        slave = f"127.0.0.1:{java.broker_port}"
        addresses = [each.kernel.broker_address for each in (master, other)]
        # A Java slave copies topics and groups after a minute.
        self.create(*addresses, slave)
        self.wait_for_route(namesrv, {0: addresses[0], 1: slave}, 6)
        self.send_timers(addresses[0])
        wait_until(lambda: self.end_of(slave) == master.end, "the slave has all", PATIENCE)
        wait_until(lambda: self.is_between(addresses[0], slave), "the slave knows of all",
                   PATIENCE)
        again = self.away(namesrv, slave, addresses)
        # Apache's slave goes on until it is told that its master is back.
        self.come_once(*addresses, twice=6)
        self.assertTrue(again.plugin.slaves.links)

    def is_between(self, master: str, slave: str) -> bool:
        """Whether the slave's check point covers the deliveries, and no message is due soon.

        Apache's slave repeats what its master delivered later.
        """
        count = len(self.bodies(master))
        reply = self.ask(slave, RequestCode.GET_TIMER_CHECK_POINT)
        read_ms = TimerCheckpoint.decode(reply.body).last_read_ms if reply.body else 0
        return count > 0 and count % 3 == 0 and self.left_ms(count) > 1000 and (
            read_ms > self.begin_ms + (count // 3 - 1) * STEP_MS)

    def away(
        self, namesrv: str, slave: str, addresses: list[str]
    ) -> LoneBroker:
        """Let the master be away for some time."""
        self.masters.close()
        wait_until(lambda: self.is_active(slave) == "true", "the slave is active", PATIENCE)
        wait_until(lambda: len(self.bodies(addresses[1])) >= 6, "some are stored elsewhere",
                   PATIENCE)
        again = self.lone(namesrv, "master", listenPort=addresses[0].rpartition(":")[2],
                          haListenPort=str(free_port()))
        wait_until(lambda: self.is_active(slave) == "false", "the master is back", PATIENCE)
        return again
