"""A channel of kombu: declarations, routes of messages, and the decisions of consumers.

kombu has base classes for transports that are not AMQP. They keep declarations, bindings and
unacknowledged messages in the memory of one process, and call a few methods to store and fetch
messages. This channel overrides these methods, and also the ones in which that memory would be
wrong: other processes have their own bindings, so an exchange is a topic of the broker
(``topology``), and the broker itself delivers the messages of a dead worker again, so nothing has
to be restored by this process.
"""

from __future__ import annotations

import os
import re
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from kombu.transport import virtual
from kombu.transport.virtual import exchange as virtual_exchange

from twistmq.integrations.celery.deliveries import Delivery
from twistmq.integrations.celery.envelopes import Envelope
from twistmq.integrations.celery.sources import READY_MAX, Source

if TYPE_CHECKING:
    from twistmq.integrations.celery.transport import Transport

__all__ = ["Channel", "QoS"]


class QoS(virtual.QoS):
    """The messages that a channel has handed out and that are not finished."""

    def ack(self, delivery_tag: str) -> None:
        """Finish a message."""
        super().ack(delivery_tag)
        self.channel.finish(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Put a message back into its queue, or send it to the dead letters."""
        super().ack(delivery_tag)
        if requeue:
            self.channel.requeue(delivery_tag)
        else:
            self.channel.bury(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Put all messages back into their queues; :returns: an empty list of errors."""
        for tag in self._take_all():
            self.channel.requeue(tag)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Make all messages visible to other consumers, when the channel closes."""
        self._on_collect.cancel()
        for tag in self._take_all():
            self.channel.give_back(tag)

    def _take_all(self) -> list[str]:
        self._flush()
        tags = list(self._delivered)
        self._delivered.clear()
        return tags

    @property
    def unfinished_count(self) -> int:
        """The number of messages that are not finished."""
        return len(self._delivered) - len(self._dirty)


class DirectExchange(virtual_exchange.DirectExchange):
    """Routes by the exact routing key."""

    def deliver(self, message: Envelope, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Send a message to the queues that are bound by its routing key."""
        self.channel.put_direct(exchange, message, routing_key)


class TopicExchange(virtual_exchange.TopicExchange):
    """Routes by patterns, which consumers compare."""

    def deliver(self, message: Envelope, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Send a message to the exchange's topic."""
        self.channel._put_fanout(exchange, message, routing_key)


class Channel(virtual.Channel):
    """A channel; its ``connection`` is the transport."""

    QoS = QoS
    supports_fanout = True
    #: The encoding of bytes; texts are sent unchanged, see ``encode_body``.
    body_encoding = "base64"
    exchange_types: ClassVar[dict[str, Any]] = {
        "direct": DirectExchange, "topic": TopicExchange,
        "fanout": virtual_exchange.FanoutExchange}

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        #: The process that has the connection; a forked child must not use it.
        self._process = os.getpid()
        self._transport = connection
        self._deliveries: dict[str, Delivery] = {}
        self._no_ack_queues: set[str] = set()

    # --- declarations

    def _new_queue(
        self, queue: str, auto_delete: bool = False, exclusive: bool = False, **kwargs: Any
    ) -> None:
        self._transport.topology.declare(queue, is_lasting=not (auto_delete or exclusive))

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self._transport.topology.has_queue(queue)

    def _queue_bind(
        self, exchange: str, routing_key: str, pattern: str | None, queue: str
    ) -> None:
        kind = self.state.exchanges[exchange]["type"]
        if kind == "direct":
            pattern = f"^{re.escape(routing_key)}$"
        self._transport.topology.bind(queue, exchange, pattern or "", is_routed=kind != "direct")

    def _size(self, queue: str) -> int:
        return self._transport.topology.size(queue)

    def _purge(self, queue: str) -> int:
        return self._transport.topology.purge(queue)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        self._transport.topology.delete(queue)

    # --- messages to queues and exchanges

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Encode bytes as ``encoding``; a text stays as it is."""
        if isinstance(body, str):
            return body, "utf-8"
        return super().encode_body(body, encoding)  # type: ignore[no-any-return]

    def _put(self, queue: str, message: Envelope, **kwargs: Any) -> None:
        self._transport.topology.send_to_queue(queue, message)

    def _put_fanout(
        self, exchange: str, message: Envelope, routing_key: str, **kwargs: Any
    ) -> None:
        self._transport.topology.send_to_exchange(exchange, message)

    def put_direct(self, exchange: str, message: Envelope, routing_key: str) -> None:
        """Send a message to the lasting queues that are bound with a routing key.

        Queues of other processes read the topic of the exchange, to which the message goes if this
        process knows no lasting queue for it, or if the exchange does not last.
        """
        queues = self._lookup(exchange, routing_key)
        lasting = [queue for queue in queues if self._transport.topology.is_lasting(queue)]
        for queue in lasting:
            self._put(queue, message)
        is_durable = self.state.exchanges.get(exchange, {}).get("durable", True)
        if len(lasting) < len(queues) or not lasting or not is_durable:
            self._put_fanout(exchange, message, routing_key)

    # --- messages to consumers

    def free_count(self, source: Source) -> int:
        """Return how many messages a queue may receive now, by the prefetch limit."""
        if self.closed:
            return 0
        limit = self.qos.prefetch_count
        sources = self._transport.sources_of(self)
        ready = sum(each.ready_count for each in sources)
        if not limit:
            return max(READY_MAX - ready, 0)
        room: int = limit - self.qos.unfinished_count - ready
        return max(room // max(len(sources), 1), 1) if room > 0 else 0

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Consume from a queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack_queues.add(queue)
        self._transport.attach(queue, self)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self._no_ack_queues.discard(queue)
            self._transport.detach(queue)

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """Set the largest number of messages that are handed out and not finished."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self._transport.wake(self)

    def deliver(self, delivery: Delivery) -> None:
        """Pass a message to its consumer."""
        self._deliveries[delivery.tag] = delivery
        if delivery.queue in self._no_ack_queues:
            self.finish(delivery.tag)
        self._transport._deliver(delivery.envelope, delivery.queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return one message, or None if none is ready."""
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            self.finish(message.delivery_tag)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> Envelope:
        delivery = self._transport.receive_now(queue)
        if delivery is None:
            raise Empty
        self._deliveries[delivery.tag] = delivery
        return delivery.envelope

    # --- decisions about messages

    def finish(self, tag: str) -> None:
        """Acknowledge a message."""
        delivery = self._deliveries.pop(tag, None)
        if delivery is not None:
            self._transport.holder.acknowledge(delivery)
            self._transport.wake(self)

    def requeue(self, tag: str) -> None:
        """Send a message to its queue once more, and acknowledge it."""
        delivery = self._deliveries.get(tag)
        if delivery is not None:
            self._transport.topology.send_again(delivery)
            self.finish(tag)

    def bury(self, tag: str) -> None:
        """Send a message to the dead letters."""
        delivery = self._deliveries.pop(tag, None)
        if delivery is not None:
            self._transport.holder.bury(delivery)
            self._transport.wake(self)

    def give_back(self, tag: str) -> None:
        """Make a message visible to all consumers of its queue."""
        delivery = self._deliveries.pop(tag, None)
        if delivery is not None and self._process == os.getpid():
            self._transport.holder.give_back(delivery)

    def after_reply_message_received(self, queue: str) -> None:
        """Forget the queue of a reply."""
        self.queue_delete(queue)
