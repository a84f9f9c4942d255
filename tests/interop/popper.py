"""A pop consumer with one connection, which shows the messages of a broker and their times.

It knows its messages by what their receipts say, so that it can acknowledge what another broker
over the same store gave out.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter

from tests.plugins.pop.case import Popped, popped_of
from twistmq.broker.testing import RawClient
from twistmq.plugins.pop.names import Receipt
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
)

__all__ = ["Popper"]


class Popper:
    """A member of one group."""

    def __init__(
        self, client: RawClient, topic: str, broker_name: str, group: str = "popper",
        order: bool = False,
    ) -> None:
        self.client = client
        self.topic = topic
        self.group = group
        self._broker_name = broker_name
        self._order = order
        #: How often each body came.
        self.came: Counter[bytes] = Counter()

    def pop(self, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0,
            queue_id: int = -1) -> list[Popped]:
        """Return messages, or none."""
        reply = self.client.request(RequestCode.POP_MESSAGE, PopMessageRequestHeader(
            consumer_group=self.group, topic=self.topic, queue_id=queue_id, max_msg_nums=count,
            invisible_time=invisible_ms, poll_time=poll_ms, init_mode=0, exp_type="TAG", exp="*",
            born_time=time.time_ns() // 1_000_000, order=self._order),
            timeout_s=self.client.timeout_s + poll_ms / 1000)
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), (
            reply.code, reply.remark)
        found = popped_of(reply, self.topic, self.group, self._broker_name)
        self.came.update(each.body for each in found)
        return found

    def ack(self, *messages: Popped) -> None:
        """Acknowledge messages, one by one."""
        for popped in messages:
            reply = self.client.request(RequestCode.ACK_MESSAGE, AckMessageRequestHeader(
                consumer_group=self.group, topic=popped.topic, queue_id=popped.queue_id,
                extra_info=popped.receipt, offset=popped.offset))
            assert reply.code == ResponseCode.SUCCESS, (popped, reply.code, reply.remark)

    def ack_together(self, *messages: Popped) -> None:
        """Acknowledge messages by one request."""
        acks = []
        for popped in messages:
            receipt = Receipt.parse(popped.receipt)
            bits = 1 << popped.offset - receipt.start_offset
            acks.append({
                "c": self.group, "t": self.topic, "r": popped.receipt.split(" ")[4],
                "so": receipt.start_offset, "q": popped.queue_id, "rq": receipt.revive_queue,
                "pt": receipt.pop_time, "it": receipt.invisible_time,
                "b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")
                                      ).decode()})
        reply = self.client.request(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps({
            "brokerName": self._broker_name, "acks": acks}).encode())
        assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)

    def hide(self, popped: Popped, invisible_ms: int) -> Popped:
        """Hide a message for another time; :returns: it with its new receipt."""
        reply = self.client.request(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader(
                consumer_group=self.group, topic=popped.topic, queue_id=popped.queue_id,
                extra_info=popped.receipt, offset=popped.offset, invisible_time=invisible_ms))
        assert reply.code == ResponseCode.SUCCESS, (popped, reply.code, reply.remark)
        header = reply.header(ChangeInvisibleTimeResponseHeader)
        return Popped(popped.message, Receipt(
            popped.offset, header.pop_time, header.invisible_time, header.revive_qid,
            self._broker_name).text(popped.topic, popped.queue_id, popped.offset), popped.topic)

    def consume_until(self, bodies: set[bytes], seconds: float) -> None:
        """Pop and acknowledge until each of these has come; :raises AssertionError: if not."""
        deadline = time.monotonic() + seconds
        while not bodies <= self.came.keys():
            assert time.monotonic() < deadline, f"these do not come: {bodies - self.came.keys()}"
            self.ack(*self.pop(poll_ms=300))

    def consume_for(self, seconds: float) -> None:
        """Pop and acknowledge the remaining messages."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.ack(*self.pop(poll_ms=300))
