"""Two brokers with static topics that send requests to each other, without sockets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import admin
from twistmq.plugins.static_topic import plugin
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from twistmq.plugins.static_topic.table import QueueMappings
from twistmq.protocol.bodies import BrokerData, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingTimeout
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import records_of

__all__ = ["TOPIC", "A", "B", "ClusterCase", "item", "part_lists"]

A, B, TOPIC = "broker-a", "broker-b", "S"


def item(gen: int, bname: str, queue_id: int, logic_offset: int, **fields: int
         ) -> LogicQueueMappingItem:
    """Return a part of a logical queue."""
    return LogicQueueMappingItem(gen, queue_id, bname, logic_offset, **fields)


def part_lists(*lists: list[LogicQueueMappingItem]) -> dict[int, list[LogicQueueMappingItem]]:
    """Return the parts of each queue."""
    return dict(enumerate(lists))


class ClusterCase(SynchronousTestCase):
    """Has ``boxes`` by broker name; ``asked`` has the requests from one broker to the other."""

    #: More plugins, and settings.
    plugins: Collection[tuple[str, object]] = ()
    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        #: Brokers that do not answer.
        self.silent: set[str] = set()
        #: Brokers that name servers were asked for.
        self.found: list[str] = []
        self.boxes = {name: self.start(name) for name in (A, B)}

    def start(self, name: str, disk: Any = None) -> KernelBox:
        """Start a broker that finds the other one."""
        box = KernelBox([("admin", admin.Plugin), ("static_topic", plugin.Plugin), *self.plugins],
                        {"brokerName": name, **self.settings}, disk)
        box.host.has_name_servers = True
        box.host.ask_server = self.ask_server
        box.host.find_route = self.find_route
        box.host.find_broker = self.find_broker
        self.addCleanup(box.stop)
        return box

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Stand in for RemotingClient.invoke; the address is the name of a broker."""
        if address in self.silent:
            raise RemotingTimeout("no reply")
        peer = self.boxes[address].peer()
        reply = self.boxes[address].send(peer, code, header, body)
        assert reply is not None, "the reply waits"
        assert header is not None
        self.asked.append((address, code, {
            name: getattr(header, name) for name in header.__struct_fields__}))
        return reply

    async def find_route(self, topic: str) -> TopicRouteData:
        """Return a route with both brokers."""
        return TopicRouteData(broker_datas=[
            BrokerData("C", name, {0: name}) for name in self.boxes])

    async def find_broker(self, broker_name: str) -> str | None:
        """Return the name as the address."""
        self.found.append(broker_name)
        return broker_name if broker_name in self.boxes else None

    def mappings(self, name: str = A) -> QueueMappings:
        return self.boxes[name].plugin(plugin.Plugin).mappings

    # --- requests

    def update(
        self, name: str, hosted: dict[int, list[LogicQueueMappingItem]], *, epoch: int = 1,
        queues: int = 4, total: int = 4, force: bool = False, topic: str = TOPIC,
        body: bytes | None = None,
    ) -> RemotingCommand:
        """Send the request 513."""
        detail = TopicQueueMappingDetail(topic=topic, total_queues=total, bname=name, epoch=epoch,
                                         hosted_queues=hosted)
        return self.boxes[name].ask(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopicRequestHeader(
                topic=topic, default_topic="TBW102", read_queue_nums=queues,
                write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG", force=force),
            detail.encode() if body is None else body)

    def updated(self, name: str, *lists: list[LogicQueueMappingItem], epoch: int = 1) -> None:
        """Send the request 513, which must succeed."""
        reply = self.update(name, part_lists(*lists), epoch=epoch)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def ask(
        self, code: int, header: CommandHeader, name: str = A, **extra: str
    ) -> RemotingCommand:
        """Send any request whose response does not wait."""
        box = self.boxes[name]
        reply = box.send(box.peer(), code, header, extra_fields=extra)
        assert reply is not None, "the reply waits"
        return reply

    def send(self, body: bytes, queue_id: int = 0, name: str = A, **extra: str) -> tuple[int, int]:
        """Send a message; :returns: queue and offset of the answer."""
        box = self.boxes[name]
        reply = box.send(box.peer(), RequestCode.SEND_MESSAGE_V2,
                         send_header(TOPIC, box.now_ms, queue_id=queue_id), body,
                         extra_fields=extra)
        assert reply is not None
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        header = reply.header(SendMessageResponseHeader)
        return header.queue_id, header.queue_offset

    def pull(
        self, offset: int, queue_id: int = 0, name: str = A, *, peer: Peer | None = None,
        hold_ms: int = 0, **extra: str
    ) -> RemotingCommand | None:
        """Pull; None: the reply waits."""
        box = self.boxes[name]
        return box.send(peer or box.peer(), RequestCode.PULL_MESSAGE,
                        pull_header(TOPIC, offset, queue_id=queue_id, hold_ms=hold_ms),
                        extra_fields=extra)

    def pulled(
        self, offset: int, queue_id: int = 0, name: str = A, **extra: str
    ) -> tuple[int, PullMessageResponseHeader, list[bytes]]:
        """Return the code, the header and the bodies of a pull, with the offsets
        that clients see.
        """
        reply = self.pull(offset, queue_id, name, **extra)
        assert reply is not None, "the reply waits"
        return self.taken_apart(reply, offset)

    def taken_apart(
        self, reply: RemotingCommand, offset: int
    ) -> tuple[int, PullMessageResponseHeader, list[bytes]]:
        header = reply.header(PullMessageResponseHeader)
        messages = records_of(reply.body)
        self.assertEqual([each.queue_offset + (header.offset_delta or 0) for each in messages],
                         list(range(offset, offset + len(messages))))
        return reply.code, header, [each.body for each in messages]
