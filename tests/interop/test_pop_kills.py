"""A broker is killed in every state of popped messages, and the next one continues.

Each test brings a broker's process into a state, kills it with SIGKILL, starts another, and has the
group consume until all has come: nothing is lost, what was acknowledged comes again at most once,
what was not no oftener than a kill lets it.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.popper import Popper
from tests.interop.servers import Servers, wait_until
from tests.plugins.pop.case import Popped
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from twistmq.protocol.json_dialect import decode

COUNT = 40
TOPIC = "Popped"
RETRY_TOPIC = "%RETRY%popper_Popped"
#: Consumer offsets are saved seldom, or at once.
SAVED_NEVER = "flushConsumerOffsetInterval=3600000"
SAVED_SOON = "flushConsumerOffsetInterval=20"
REVIVED_SOON = "reviveInterval=20"


class Broker:
    """A running broker and its consumer."""

    def __init__(self, client: RawClient, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self.popper = Popper(client, TOPIC, "broker-kill")
        self.acked: set[bytes] = set()

    def send(self) -> None:
        for number in range(COUNT):
            self.client.send(TOPIC, b"%d" % number, queue_id=number % 4)

    def pop_all(self, invisible_ms: int) -> list[Popped]:
        found: list[Popped] = []
        while popped := self.popper.pop(invisible_ms=invisible_ms):
            found += popped
        assert len(found) == COUNT, len(found)
        return found

    def ack(self, *messages: Popped) -> None:
        self.popper.ack(*messages)
        self.acked |= {each.body for each in messages}

    def offsets(self) -> list[int]:
        """Return the committed offsets of the group."""
        offsets = []
        for queue_id in range(4):
            reply = self.client.request(
                RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                    consumer_group="popper", topic=TOPIC, queue_id=queue_id))
            offsets.append(reply.header(QueryConsumerOffsetResponseHeader).offset
                           if reply.code == ResponseCode.SUCCESS else -1)
        return offsets

    def wait_for_offsets(self) -> None:
        """Wait until they have come to the end and are saved."""
        wait_until("the offsets follow", lambda: self.offsets() == [COUNT // 4] * 4)
        wait_until("they are saved", lambda: self._saved_offsets() == [COUNT // 4] * 4)

    def _saved_offsets(self) -> list[int]:
        file = self._folder / "store/config/consumerOffset.json"
        if not file.exists():
            return []
        table = decode(file.read_bytes())["offsetTable"].get(f"{TOPIC}@popper", {})
        return [int(table[queue_id]) for queue_id in sorted(table)]


class KillTests(SynchronousTestCase):
    """Each test kills the broker in another state."""

    def kill_in(self, state: Callable[[Broker], object], *settings: str) -> Broker:
        """Bring a broker into a state, kill it, and let the group consume the rest.

        :returns: the next broker, whose consumer has everything that was not acknowledged.
        """
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        broker, servers = self.start(folder.name, *settings)
        broker.send()
        state(broker)
        servers.stop(signal.SIGKILL)
        following, _ = self.start(folder.name, SAVED_SOON, REVIVED_SOON)
        following.acked = broker.acked
        # A topic is saved soon after it is made, not before.
        following.client.send(TOPIC, b"new")
        wanted = {b"%d" % number for number in range(COUNT)} - broker.acked
        following.popper.consume_until(wanted | {b"new"}, 120)
        return following

    def start(self, folder: str, *settings: str) -> tuple[Broker, Servers]:
        servers = Servers(Path(folder), "brokerName=broker-kill", *settings)
        servers.start()
        self.addCleanup(servers.stop)
        client = RawClient(f"127.0.0.1:{servers.broker_port}")
        self.addCleanup(client.close)
        return Broker(client, Path(folder)), servers

    def assert_came(self, broker: Broker, open_most: int, acked_most: int) -> None:
        """Check that the second broker delivers no message more often than expected."""
        broker.popper.consume_for(6)
        for body, count in broker.popper.came.items():
            most = acked_most if body in broker.acked else open_most
            self.assertLessEqual(count, most, msg=f"{body!r} of {broker.popper.came}")

    def long_popped(self) -> None:
        """Nothing is acknowledged, the offsets are saved: all messages are
        delivered again, once.
        """
        def state(broker: Broker) -> None:
            broker.pop_all(5000)
            broker.wait_for_offsets()

        self.assert_came(self.kill_in(state, SAVED_SOON), 2, 0)

    def test_popped_not_saved(self) -> None:
        """No offset is saved: all are delivered by offset, and again by check point."""
        self.assert_came(self.kill_in(lambda broker: broker.pop_all(5000), SAVED_NEVER), 2, 0)

    def test_acknowledged_in_memory(self) -> None:
        """Half is acknowledged in memory only, so all messages are delivered again."""
        def state(broker: Broker) -> None:
            broker.ack(*broker.pop_all(60_000)[::2])

        broker = self.kill_in(state, SAVED_NEVER, "enablePopBufferMerge=true")
        self.assert_came(broker, 1, 1)

    def long_acknowledged_in_memory_and_saved(self) -> None:
        """All is acknowledged in memory only, and offsets are saved: nothing is delivered again."""
        def state(broker: Broker) -> None:
            broker.ack(*broker.pop_all(60_000))
            broker.wait_for_offsets()

        broker = self.kill_in(state, SAVED_SOON, "enablePopBufferMerge=true")
        broker.popper.consume_for(2)
        self.assertLessEqual(sum(broker.popper.came.values()), 1 + COUNT)
        self.assert_came(broker, 1, 1)

    def test_acknowledged_in_the_log(self) -> None:
        """Half is acknowledged in the log, and offsets are saved: the other half is delivered
        again.
        """
        def state(broker: Broker) -> None:
            broker.ack(*broker.pop_all(5000)[::2])
            broker.wait_for_offsets()

        broker = self.kill_in(state, SAVED_SOON)
        self.assert_came(broker, 2, 1)

    def long_hidden(self) -> None:
        """All are hidden for another time, and some of them are acknowledged."""
        def state(broker: Broker) -> None:
            hidden = [broker.popper.hide(each, 3000)
                      for each in broker.pop_all(60_000)]
            broker.ack(*hidden[::2])
            broker.wait_for_offsets()

        self.assert_came(self.kill_in(state, SAVED_SOON), 2, 1)

    def test_while_reviving(self) -> None:
        """Some are stored again, but the progress is not saved."""
        def state(broker: Broker) -> None:
            broker.pop_all(4000)
            wait_until("some are stored again",
                       lambda: broker.client.max_offset(RETRY_TOPIC) > 0)

        broker = self.kill_in(state, SAVED_NEVER, REVIVED_SOON)
        # By its offset, by its check point, and by what was stored again before.
        self.assert_came(broker, 3, 0)

    def long_in_order(self) -> None:
        """An ordered group continues in order at its first unacknowledged message."""
        def state(broker: Broker) -> None:
            order = Popper(broker.client, TOPIC, "broker-kill", "order", order=True)
            popped = order.pop(4, 3000, queue_id=0)
            order.ack(popped[0])
            broker.ack(*broker.pop_all(60_000))
            broker.wait_for_offsets()

        broker = self.kill_in(state, SAVED_SOON)
        order = Popper(broker.client, TOPIC, "broker-kill", "order", order=True)
        bodies = [each.body for each in order.pop(32, 60_000, queue_id=0)]
        self.assertIn(bodies[0], (b"0", b"4"))
        self.assertEqual(bodies, [b"%d" % number for number in range(int(bodies[0]), COUNT, 4)
                                  ] + [b"new"] * (len(bodies) - (COUNT - int(bodies[0])) // 4))
