"""A kernel with the pop plugin and the timer, a clock, and a disk that can fail."""

from __future__ import annotations

import base64
import json

from tests.kernel_case import KernelTestCase
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import records_of, send_header
from twistmq.plugins import pop, timer
from twistmq.plugins.pop.names import REVIVE_GROUP, Receipt, pop_retry_topic, real_topic
from twistmq.plugins.pop.service import PopService
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from twistmq.protocol.record import StoredMessage

TIMER_TURN = "enter and deliver timed messages"
REVIVE = "revive popped messages"
TICK = "end waiting pops and write check points"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
RETRY_TOPIC = pop_retry_topic("T", "g", False)
INVISIBLE_MS = 5000


class Popped:
    """A popped message, with the fields that its acknowledgement needs."""

    def __init__(self, message: StoredMessage, receipt: str, topic: str) -> None:
        self.message = message
        self.body = message.body
        self.receipt = receipt
        #: The real one.
        self.topic = topic
        parts = receipt.split(" ")
        self.queue_id, self.offset = int(parts[6]), int(parts[7])

    def __repr__(self) -> str:
        return f"Popped({self.body!r}, {self.receipt!r})"


def popped_of(
    reply: RemotingCommand, topic: str = "T", group: str = "g", broker_name: str = "broker-a"
) -> list[Popped]:
    """Return the messages of a response as a client reads them."""
    if reply.code != ResponseCode.SUCCESS:
        return []
    header = reply.header(PopMessageResponseHeader)
    assert header.start_offset_info is not None and header.msg_offset_info is not None
    starts = {tuple(each.split(" ")[:2]): int(each.split(" ")[2])
              for each in header.start_offset_info.split(";")}
    offsets = {tuple(each.split(" ")[:2]): [int(one) for one in each.split(" ")[2].split(",")]
               for each in header.msg_offset_info.split(";")}
    assert starts.keys() == offsets.keys()
    messages = []
    for message in records_of(reply.body):
        receipt = message.properties_map().get("POP_CK")
        if receipt is None:
            key = ("1" if message.topic.startswith("%RETRY%") else "0", str(message.queue_id))
            assert message.queue_offset in offsets[key]
            receipt = Receipt(starts[key], header.pop_time, header.invisible_time,
                              header.revive_qid, broker_name).text(
                message.topic, message.queue_id, message.queue_offset)
        messages.append(Popped(message, receipt, real_topic(topic, group, receipt.split(" ")[4])))
    return messages


class PopTestCase(KernelTestCase):
    """A test with a kernel that has only the two plugins."""

    plugins = (("pop", pop.Plugin), ("timer", timer.Plugin))

    def start(self, **settings: str) -> KernelBox:
        box = super().start(**settings)
        # Whether retries come first is chance.
        box.kernel.random.seed(1)
        return box

    @property
    def service(self) -> PopService:
        return self.box.plugin(pop.Plugin).service

    # --- messages

    def send(self, body: bytes, topic: str = "T", queue_id: int = 0, tag: str | None = None,
             **properties: str) -> None:
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            topic, self.box.now_ms, queue_id=queue_id, tag=tag, properties=properties), body)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def send_some(self, count: int, queues: int = 2) -> list[bytes]:
        bodies = [b"%d" % number for number in range(count)]
        for number, body in enumerate(bodies):
            self.send(body, queue_id=number % queues)
        return bodies

    def pop_header(
        self, queue_id: int = -1, *, count: int = 32, invisible_ms: int = INVISIBLE_MS,
        poll_ms: int = 0, order: bool = False, group: str = "g", topic: str = "T", init: int = 0,
        expression: str = "*", attempt: str | None = None,
    ) -> PopMessageRequestHeader:
        return PopMessageRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, max_msg_nums=count,
            invisible_time=invisible_ms, poll_time=poll_ms, born_time=self.box.now_ms,
            init_mode=init, exp_type="TAG", exp=expression, order=order, attempt_id=attempt)

    def ask_pop(self, queue_id: int = -1, **how: object) -> RemotingCommand:
        header = self.pop_header(queue_id, **how)  # type: ignore[arg-type]
        return self.box.ask(RequestCode.POP_MESSAGE, header)

    def pop(self, queue_id: int = -1, **how: object) -> list[Popped]:
        reply = self.ask_pop(queue_id, **how)
        self.assertIn(reply.code, (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT),
                      msg=reply.remark)
        return popped_of(reply, str(how.get("topic", "T")), str(how.get("group", "g")))

    def wait_pop(self, peer: Peer, poll_ms: int = 10_000, queue_id: int = -1,
                 **how: object) -> None:
        """Send a pop that must wait."""
        header = self.pop_header(queue_id, poll_ms=poll_ms, **how)  # type: ignore[arg-type]
        self.assertIsNone(self.box.send(peer, RequestCode.POP_MESSAGE, header))

    def ack_header(self, popped: Popped, group: str = "g") -> AckMessageRequestHeader:
        return AckMessageRequestHeader(
            consumer_group=group, topic=popped.topic, queue_id=popped.queue_id,
            extra_info=popped.receipt, offset=popped.offset)

    def ask_ack(self, popped: Popped, group: str = "g") -> RemotingCommand:
        return self.box.ask(RequestCode.ACK_MESSAGE, self.ack_header(popped, group))

    def ack(self, *messages: Popped, group: str = "g") -> None:
        for popped in messages:
            reply = self.ask_ack(popped, group)
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def ask_batch_ack(self, *messages: Popped, group: str = "g") -> RemotingCommand:
        """Acknowledge several messages of one check point."""
        receipt = Receipt.parse(messages[0].receipt)
        bits = sum(1 << popped.offset - receipt.start_offset for popped in messages)
        return self.box.ask(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps({
            "brokerName": "broker-a", "acks": [{
                "c": group, "t": "T", "r": messages[0].receipt.split(" ")[4],
                "so": receipt.start_offset, "q": messages[0].queue_id,
                "rq": receipt.revive_queue, "pt": receipt.pop_time, "it": receipt.invisible_time,
                "b": base64.b64encode(bits.to_bytes(100, "little")).decode()}]}).encode())

    def change_header(
        self, popped: Popped, invisible_ms: int, group: str = "g"
    ) -> ChangeInvisibleTimeRequestHeader:
        return ChangeInvisibleTimeRequestHeader(
            consumer_group=group, topic=popped.topic, queue_id=popped.queue_id,
            extra_info=popped.receipt, offset=popped.offset, invisible_time=invisible_ms)

    def hide(self, popped: Popped, invisible_ms: int, group: str = "g") -> Popped:
        """Hide a message for another time; :returns: the same message with its new receipt."""
        reply = self.box.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                             self.change_header(popped, invisible_ms, group))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        header = reply.header(ChangeInvisibleTimeResponseHeader)
        return Popped(popped.message, Receipt(
            popped.offset, header.pop_time, header.invisible_time, header.revive_qid,
            "broker-a").text(popped.topic, popped.queue_id, popped.offset), popped.topic)

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        return self.box.stored(topic, queue_id)

    def retries(self, topic: str = RETRY_TOPIC) -> list[bytes]:
        return [message.body for message in self.stored(topic)]

    def offset(self, queue_id: int = 0, topic: str = "T", group: str = "g") -> int:
        return self.box.kernel.consumer_offset.query(group, topic, queue_id)

    def revived_to(self) -> dict[int, int]:
        """Return the committed offsets of the revive group."""
        return self.box.kernel.consumer_offset.table.get(f"{REVIVE_TOPIC}@{REVIVE_GROUP}", {})

    # --- time

    def turn(self) -> None:
        """Do all work that is due."""
        self.run_all(TIMER_TURN)
        self.run_all(REVIVE)
        self.box.kernel.store.flush_step(self.box.now_ms)
        self.run_task(TICK)

    def pass_time(self, elapsed_ms: int, step_ms: int = 500) -> None:
        """Let time pass as a broker does."""
        for _ in range(elapsed_ms // step_ms):
            self.box.now_ms += step_ms
            self.turn()
