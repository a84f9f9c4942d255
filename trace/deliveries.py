"""Messages that were delivered to a consumer and are not known to be consumed.

A broker does not observe the consumer's listener. It only observes that the offset of the group
passes a message, or that a message is sent back. The time from the delivery to this event is
recorded as the duration of the consumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twistmq.protocol.trace_records import ContextCode, SubAfter

__all__ = ["Deliveries", "Delivery"]

#: Returns the first unconsumed offset for a group, topic and queue id.
OffsetOf = Callable[[str, str, int], int]


@dataclass(slots=True)
class Delivery:
    """One message delivered to one consumer."""

    #: The consumer's address and port.
    host: bytes
    group: str
    request_id: str
    message_id: str
    keys: str | None
    #: Unix ms.
    delivered_ms: int
    #: Whether the message was sent back.
    failed: bool = False

    def ended(self, now_ms: int, code: ContextCode) -> SubAfter:
        """Return the trace record for the end of the consumption."""
        return SubAfter(self.request_id, self.message_id, max(now_ms - self.delivered_ms, 0),
                        code is ContextCode.SUCCESS, self.keys, code, now_ms, self.group)


@dataclass(slots=True)
class _Queue:
    """The deliveries of one queue to a group by queue offset, oldest delivery first."""

    deliveries: dict[int, Delivery] = field(default_factory=dict)
    #: The group's offset at the last check, and whether there were deliveries since then.
    committed: int = -1
    has_new: bool = True


class Deliveries:
    """The deliveries of one broker.

    :param max_count: the number of deliveries that are remembered.
    """

    def __init__(self, max_count: int) -> None:
        self.max_count = max_count
        self.count = 0
        #: (group, topic, queue id) to queue.
        self._queues: dict[tuple[str, str, int], _Queue] = {}
        #: (group, message id) to delivery.
        self._by_message: dict[tuple[str, str], Delivery] = {}

    def add(self, topic: str, queue_id: int, queue_offset: int, delivery: Delivery) -> bool:
        """Remember a delivery, replacing an earlier delivery of the same message.

        :returns: False if there are too many deliveries.
        """
        if self.count >= self.max_count:
            return False
        queue = self._queues.setdefault((delivery.group, topic, queue_id), _Queue())
        old = queue.deliveries.pop(queue_offset, None)
        if old is not None:
            self._removed(old)
        queue.deliveries[queue_offset] = delivery
        queue.has_new = True
        self._by_message[delivery.group, delivery.message_id] = delivery
        self.count += 1
        return True

    def sent_back(self, group: str, message_id: str) -> None:
        """Note that a consumer could not process a message."""
        delivery = self._by_message.get((group, message_id))
        if delivery is not None:
            delivery.failed = True

    def ended(
        self, offset_of: OffsetOf, now_ms: int, timeout_ms: int
    ) -> list[tuple[bytes, SubAfter]]:
        """Remove the deliveries that were consumed, were sent back, or take too long.

        :returns: for each, the consumer's address and port, and the trace record.
        """
        records: list[tuple[bytes, SubAfter]] = []
        for key, queue in list(self._queues.items()):
            outcomes = self._consumed(queue, offset_of(*key))
            outcomes += [(offset, ContextCode.TIME_OUT)
                         for offset in _late(queue, now_ms - timeout_ms)]
            for offset, code in outcomes:
                delivery = queue.deliveries.pop(offset, None)
                if delivery is not None:
                    self._removed(delivery)
                    records.append((delivery.host, delivery.ended(
                        now_ms, ContextCode.FAILED if delivery.failed else code)))
            if not queue.deliveries:
                del self._queues[key]
        return records

    @staticmethod
    def _consumed(queue: _Queue, committed: int) -> list[tuple[int, ContextCode]]:
        if committed == queue.committed and not queue.has_new:
            return []
        queue.committed, queue.has_new = committed, False
        return [(offset, ContextCode.SUCCESS) for offset in queue.deliveries if offset < committed]

    def _removed(self, delivery: Delivery) -> None:
        self.count -= 1
        key = delivery.group, delivery.message_id
        if self._by_message.get(key) is delivery:
            del self._by_message[key]


def _late(queue: _Queue, before_ms: int) -> list[int]:
    """Return the offsets of deliveries before this time, which come first."""
    late: list[int] = []
    for offset, delivery in queue.deliveries.items():
        if delivery.delivered_ms > before_ms:
            break
        late.append(offset)
    return late
