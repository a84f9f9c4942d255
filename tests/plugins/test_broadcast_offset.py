"""The offsets of clients of broadcast groups that change between proxy and broker."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import broadcast_offset
from twistmq.plugins.broadcast_offset import Plugin
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.topic import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)

MOVED = ResponseCode.PULL_OFFSET_MOVED


class BroadcastOffsetTests(SynchronousTestCase):
    """A topic of twenty messages, and the group g."""

    def setUp(self) -> None:
        self.make()

    def make(self, **settings: str) -> None:
        self.box = KernelBox([("broadcast_offset", broadcast_offset.Plugin)], settings)
        self.addCleanup(self.box.stop)
        for _ in range(20):
            self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x")

    def join(self, client_id: str, model: str = "BROADCASTING", group: str = "g") -> Peer:
        peer = self.box.peer()
        self.box.ask(RequestCode.HEART_BEAT, None, json.dumps({
            "clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
                "messageModel": model, "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}]}).encode(), peer)
        return peer

    def pull(
        self, offset: int, peer: Peer | None = None, proxied: str = "", group: str = "g"
    ) -> tuple[int, int]:
        """Return the code of the response and the offset at which to continue."""
        header = pull_header("T", offset, group=group, max_count=1)
        if proxied:
            header.request_source, header.proxy_froward_client_id = 1, proxied
        reply = self.box.ask(RequestCode.PULL_MESSAGE, header, peer=peer)
        return reply.code, reply.header(PullMessageResponseHeader).next_begin_offset

    def scan(self) -> None:
        [task] = [task for task in self.box.kernel.periodic_tasks if "broadcast" in task.name]
        self.assertEqual(task.period_ms, 5000)
        task.run(self.box.now_ms)
        self.box.kernel.slices.finish()

    def committed(self, group: str = "g@broadcast") -> int:
        return self.box.kernel.consumer_offset.query(group, "T", 0)

    def test_as_it_says(self) -> None:
        """A client that sends an offset is served from there, in both cases."""
        peer = self.join("c")
        self.assertEqual([self.pull(offset, peer) for offset in (3, 4)], [(0, 4), (0, 5)])
        self.assertEqual([self.pull(offset, proxied="d") for offset in (7, 8)], [(0, 8), (0, 9)])

    def test_from_proxy_to_broker(self) -> None:
        """A client that used a proxy is sent to its offset once, and continues from there."""
        peer = self.join("c")
        self.pull(11, proxied="c")
        self.assertEqual(self.pull(2, peer), (MOVED, 11))
        self.assertEqual([self.pull(11, peer), self.pull(12, peer)], [(0, 12), (0, 13)])

    def test_from_broker_to_proxy(self) -> None:
        """A client that moves to a proxy continues where it was, whatever the proxy asks for."""
        peer = self.join("c")
        self.pull(6, peer)
        self.pull(5, peer)
        self.assertEqual(self.pull(15, proxied="c"), (MOVED, 6), msg="it never goes back")
        self.assertEqual(self.pull(6, proxied="c"), (0, 7))

    def test_a_proxy_that_does_not_know(self) -> None:
        """The client's offset comes first, then its group's, and then the queue's beginning."""
        self.assertEqual(self.pull(-1, proxied="new"), (MOVED, 0))
        self.pull(9, proxied="c")
        self.assertEqual(self.pull(-1, proxied="c"), (MOVED, 9))
        self.pull(0, proxied="new")
        self.box.now_ms += 130_000
        self.pull(9, proxied="c")
        self.scan()
        self.assertEqual(self.committed(), 9, msg="the other one is long gone")
        self.assertEqual(self.pull(-1, proxied="newer"), (MOVED, 9))

    def test_a_queue_of_long_ago(self) -> None:
        """A new client of a queue whose beginning is not in memory begins at its end."""
        self.box.kernel.store.reader._in_memory_bytes = -1
        self.assertEqual(self.pull(-1, proxied="c"), (MOVED, 20))

    def test_least_offset(self) -> None:
        """The least of all clients is committed for GROUP@broadcast, and only there."""
        self.pull(9, proxied="a")
        self.pull(4, self.join("b"))
        self.scan()
        self.assertEqual((self.committed(), self.committed("g")), (4, -1))

    def test_a_client_that_is_gone_after_two_minutes(self) -> None:
        """A disconnected client is forgotten after two minutes, a silent one after five."""
        offsets = self.box.plugin(Plugin)._offsets
        assert offsets is not None
        self.pull(9, proxied="gone")
        self.pull(4, self.join("there"))
        for wait_ms, count in ((119_999, 2), (1, 1), (179_999, 1), (1, 0)):
            self.box.now_ms += wait_ms
            self.scan()
            self.assertEqual(offsets.client_count, count, msg=str(wait_ms))
        self.assertEqual(offsets._table, {})
        self.assertEqual(self.pull(-1, proxied="gone"), (MOVED, 4))

    def test_who_shares_queues(self) -> None:
        """Groups without broadcast, and strangers, are not affected."""
        peer = self.join("c", "CLUSTERING", "shared")
        self.assertEqual([self.pull(3, peer, group="shared"), self.pull(3, group="nobody")],
                         [(0, 4)] * 2)
        offsets = self.box.plugin(Plugin)._offsets
        assert offsets is not None
        self.assertEqual(offsets.client_count, 0)

    def test_deleted_topic(self) -> None:
        """Its recorded offsets are not committed again."""
        peer = self.join("c")
        self.pull(11, peer)
        self.scan()
        self.assertEqual(self.committed(), 11)
        self.box.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
        self.scan()
        self.assertEqual(self.committed(), -1)
        offsets = self.box.plugin(Plugin)._offsets
        assert offsets is not None
        self.assertEqual((offsets.client_count, offsets._table), (0, {}))

    def test_deleted_while_it_is_looked_at(self) -> None:
        """A topic that is deleted during a scan has no offset afterwards."""
        for name in ("a", "b"):
            self.pull(11, proxied=name)
        offsets = self.box.plugin(Plugin)._offsets
        assert offsets is not None
        scan = offsets._scan(self.box.now_ms)
        next(scan)
        self.box.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
        self.assertEqual(list(scan), [])
        self.assertEqual((self.committed(), offsets.client_count), (-1, 0))

    def test_deleted_group(self) -> None:
        """The group's recorded offsets are deleted with its committed ones, or kept with them."""
        for clean in (False, True):
            self.pull(11, self.join("c"))
            self.scan()
            self.box.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(
                group_name="g", clean_offset=clean))
            self.scan()
            self.assertEqual(self.committed(), -1 if clean else 11)

    def test_names_that_pulls_bring_are_remembered_up_to_a_number(self) -> None:
        """The number and the length of names from pulls are limited."""
        self.patch(broadcast_offset, "CLIENTS_MAX", 2)
        for name in ("a", "b", "c", "x" * 2000):
            self.assertEqual(self.pull(5, proxied=name), (0, 6))
        offsets = self.box.plugin(Plugin)._offsets
        assert offsets is not None
        self.assertEqual(sorted(offsets._table["T", "g"]), ["a", "b"])

    def test_a_reset_comes_first(self) -> None:
        """The offset of a reset takes precedence over that of the client."""
        peer = self.join("c")
        self.pull(11, proxied="c")
        self.box.kernel.consumer_offset.reset("g", "T", 0, 1)
        self.assertEqual(self.pull(2, peer), (MOVED, 1))

    def test_with_the_setting_off_nothing_is_recorded(self) -> None:
        """With the setting off nothing is recorded."""
        self.make(enableBroadcastOffsetStore="false")
        self.assertIsNone(self.box.kernel.providers.broadcast_offsets)
        self.pull(11, proxied="c")
        self.assertEqual(self.pull(2, self.join("c")), (0, 3))
