"""Pops with Apache's client, and over stores that both brokers open."""

from __future__ import annotations

from collections import Counter

from tests.interop import clients
from tests.interop.clients import JavaTestCase
from tests.interop.exchange import Exchange
from tests.interop.peer import Peer
from tests.interop.popper import Popper
from tests.interop.servers import free_port, servers, wait_until
from tests.plugins.pop.case import Popped
from twistmq.broker.testing import RawClient

#: The revive topic is looked at more often than each second.
ROUND_SETTINGS = {"reviveInterval": "100"}


class RoundTests(JavaTestCase):
    """Push consumers that pop, receipts, order, retries: one Java program."""

    def round(self, namesrv: str) -> None:
        output = clients.java_program(self.version, "PopRound", namesrv)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_java_client_5_3_3_pops_from_our_broker(self) -> None:
        """Client 5.3.3 is used."""
        pairs = [f"{name}={value}" for name, value in ROUND_SETTINGS.items()]
        with servers(self.folder, *pairs) as running:
            self.round(running.namesrv)

    def test_java_client_5_5_0_pops_from_our_broker(self) -> None:
        """Client 5.5.0 is used."""
        self.version = "5.5.0"
        self.test_java_client_5_3_3_pops_from_our_broker()

    def long_apaches(self) -> None:
        """The program passes the same checks with Apache's broker."""
        peer = Peer(self.folder, self.version, free_port(), free_port(), "512m",
                    settings=dict(ROUND_SETTINGS))
        peer.start()
        self.addCleanup(peer.stop, kill=True)
        self.round(peer.namesrv_address)

COUNT = 48
TOPIC = "HandOverPops"
GROUP = "popper"


class HandOverTests(JavaTestCase):
    """The store changes brokers while messages are popped, in both directions."""

    def setUp(self) -> None:
        super().setUp()
        self.exchange = Exchange(self.folder, free_port(), self.version,
                                 ROUND_SETTINGS | {"enablePopBatchAck": "true"})
        self.open: set[bytes] = set()
        self.acked: set[bytes] = set()
        #: Acknowledged by the broker after the one that gave them out.
        self.assigned_queues: list[Popped] = []
        self.order: list[Popped] = []
        #: How often each came to the broker before.
        self.copies: Counter[bytes] = Counter()

    def leave(self, client: RawClient, prefix: bytes) -> None:
        """Pop messages, and acknowledge, hide or leave them."""
        popper = Popper(client, TOPIC, "broker-peer", GROUP)
        bodies = [b"%b-%d" % (prefix, number) for number in range(COUNT)]
        for number, body in enumerate(bodies):
            client.send(TOPIC, body, queue_id=number % 4)
            client.send(f"{TOPIC}-order", body, queue_id=0)
        found: list[Popped] = []

        def pop_some() -> bool:
            found.extend(popper.pop(8, 15_000))
            return len(found) >= COUNT

        wait_until("all are popped", pop_some)
        parts = [found[begin::6] for begin in range(6)]
        popper.ack(*parts[0])
        popper.ack_together(*parts[1])
        popper.ack(*[popper.hide(each, 30_000) for each in parts[2]])
        for each in parts[3]:
            popper.hide(each, 4000)
        # parts[4] is left alone, parts[5] is acknowledged at the other broker.
        self.assigned_queues = [popper.hide(each, 300_000) for each in parts[5]]
        self.acked |= {each.body for part in parts[:3] for each in part}
        self.open |= {each.body for part in parts[3:5] for each in part}
        order = Popper(client, f"{TOPIC}-order", "broker-peer", "order", order=True)
        self.order = order.pop(6, 300_000, queue_id=0)
        order.ack(*self.order[:2])
        # Both brokers save what groups in order have popped each ten seconds, and at a stop.

    def finish(self, client: RawClient, acked_most: int, open_most: int, killed: bool) -> None:
        """The group continues: open messages are delivered, and acknowledged ones are not."""
        popper = Popper(client, TOPIC, "broker-peer", GROUP)
        popper.ack(*self.assigned_queues)
        self.acked |= {each.body for each in self.assigned_queues}
        popper.consume_until(self.open, 120)
        popper.consume_for(3)
        for body, count in popper.came.items():
            most = acked_most if body in self.acked else open_most
            if killed:
                # A kill may forget that a copy was acknowledged, of each that came.
                most += self.copies[body]
            self.assertLessEqual(count, most, msg=f"{body!r} of {popper.came}")
        order = Popper(client, f"{TOPIC}-order", "broker-peer", "order", order=True)
        if not killed:
            self.assertEqual(order.pop(6, 60_000, queue_id=0), [], msg="the queue is closed")
            order.ack(*self.order[2:])
        following = order.pop(6, 60_000, queue_id=0)
        least = 0 if killed else 6
        number = int(following[0].body.partition(b"-")[2])
        self.assertIn(number, range(7))
        self.assertGreaterEqual(number, least)
        self.assertEqual([each.body for each in following],
                         [b"%b-%d" % (following[0].body.partition(b"-")[0], number + index)
                          for index in range(6)])
        order.ack(*following)
        while rest := order.pop(32, 60_000, queue_id=0):
            order.ack(*rest)
        self.acked |= self.open
        self.open = set()
        self.copies = popper.came

    def test_there_and_back(self) -> None:
        """The brokers are stopped, and no message is delivered twice."""
        self.exchange.ours(lambda client: self.leave(client, b"ours"))

        def go_on(client: RawClient) -> None:
            self.finish(client, 0, 1, killed=False)
            self.leave(client, b"apaches")

        self.exchange.apache(go_on)
        self.exchange.ours(lambda client: self.finish(client, 0, 1, killed=False))

    def long_killed(self) -> None:
        """The brokers are killed, so a message may be repeated by its offset and by its time."""
        self.exchange.ours(lambda client: self.leave(client, b"ours"), kill=True)

        def go_on(client: RawClient) -> None:
            client.send(TOPIC, b"new")
            client.send(f"{TOPIC}-order", b"ours-48")
            self.finish(client, 1, 3, killed=True)
            self.leave(client, b"apaches")

        self.exchange.apache(go_on, kill=True)
        self.exchange.ours(lambda client: self.finish(client, 1, 3, killed=True))
