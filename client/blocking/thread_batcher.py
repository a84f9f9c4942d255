"""Automatic batches of the blocking producer: the sending threads fill the batches.

``send_soon`` puts a message into its batch on the caller's thread. The client's thread is notified
once per batch and not once per message. It makes the request, and it also makes the unique ids of
messages without properties, because such messages wait in the batch as bare bodies. All futures of
a batch share its outcome.

One lock protects both the producer's room and the batches. A signal handler may call ``send_soon``
while it interrupts a ``send_soon`` of the same thread. In that case its message is sent in a
request without other messages, and the client's thread does not wait for the interrupted thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Final

from twistmq.client.base.messages import Message, SendResult
from twistmq.client.blocking.futures import Outcomes, SharedFuture
from twistmq.client.blocking.thread_in_flight_limit import ThreadInFlightLimit
from twistmq.client.core.producer.batcher import AGAIN_MS, BatchSender, results_of
from twistmq.client.core.producer.batches import Accumulator, Batch, BatchKey
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import MessageQueue

__all__ = ["ThreadBatcher"]

#: A message that waits in a batch: a prepared message, or the body of a plain message.
Item = bytes | OutgoingMessage
#: The maximum number of topics for which the key of plain messages is remembered.
_TOPICS_MAX: Final = 4096


class ThreadBatcher(BatchSender[Item]):
    """The batches of a producer, which its threads fill.

    :param sender: the core of the producer.
    :param room: the producer's room for messages in flight.
    :param post: calls a function in the engine.
    """

    def __init__(
        self, sender: Sender, room: ThreadInFlightLimit, post: Callable[..., object]
    ) -> None:
        self._client = sender.client
        super().__init__(self._client.tasks, Accumulator())
        self._lock = room.lock
        #: The thread that is filling a batch at the moment; 0 when no thread is.
        self._filler = 0
        self._sender = sender
        self._room = room
        self._post = post
        self._timeout_s = sender.options.timeout_ms / 1000
        #: Whether the engine has been asked to send the due batches and has not started yet.
        self._is_posted = False
        self._body_max = sender.preparer.plain_size_max
        #: For each topic, the key of its plain messages and the bytes they need besides the body.
        self._plain: dict[str, tuple[BatchKey, int]] = {}

    def add_plain(self, topic: str, body: bytes) -> ThreadFuture[SendResult] | None:
        """Add a plain message, given by its topic and body, to a batch.

        :returns: None when the caller has to prepare the message and pass it to :meth:`add`.
        :raises Full: when there is no room within the producer's time-out.
        """
        template = self._plain.get(topic)
        if template is None or not 0 < len(body) <= self._body_max:
            return None
        key, extra_bytes = template
        return self._add(key, body, len(body) + extra_bytes)

    def add(
        self, message: Message, ready: OutgoingMessage, queue: MessageQueue | None
    ) -> ThreadFuture[SendResult] | None:
        """Add a message to a batch.

        :param ready: the prepared form of the message.
        :returns: None when the message has to be sent in its own request.
        :raises Full: when there is no room within the producer's time-out.
        """
        if not ready.may_be_batched:
            return None
        key = BatchKey(ready.topic, ready.waits, ready.tag, queue)
        if queue is None and ready.waits and self._sender.preparer.is_plain(message):
            if len(self._plain) >= _TOPICS_MAX:
                self._plain.clear()
            self._plain[message.topic] = key, ready.size - len(ready.body)
        return self._add(key, ready, ready.size)

    @property
    def is_interrupted(self) -> bool:
        """Whether the caller is a signal handler that interrupted the filling of a batch."""
        return self._filler == threading.get_ident()

    def enter(self) -> bool:
        """See ``BatchSender``; called on the client's own thread."""
        if not self._room.enter():
            return False
        if self._filler:
            # The interrupted thread cannot continue until its signal handler returns.
            self._lock.release()
            return False
        return True

    def leave(self) -> None:
        """See ``BatchSender``."""
        self._lock.release()

    def _add(self, key: BatchKey, item: Item, size: int) -> ThreadFuture[SendResult] | None:
        room = self._room
        with self._lock:
            if self._filler:
                return None
            if not room.fits(size):
                room.wait_for(size, self._timeout_s)
            self._filler = threading.get_ident()
            try:
                return self._fill(key, item, size)
            finally:
                self._filler = 0

    def _fill(self, key: BatchKey, item: Item, size: int) -> ThreadFuture[SendResult] | None:
        room, accumulator = self._room, self._accumulator
        batch = accumulator.fits(key, size)
        if batch is None:
            batch = self._begin(key, item, size)
            if batch is None:
                return None
        else:
            batch.items.append(item)
            batch.byte_count += size
            accumulator.byte_count += size
        room.count += 1
        room.bytes += size
        return SharedFuture(batch.shared, len(batch.items) - 1)

    def _begin(self, key: BatchKey, item: Item, size: int) -> Batch[Item] | None:
        """Begin a batch, or make one full; :returns: None without room for another batch."""
        client, accumulator = self._client, self._accumulator
        if client.is_closed or not accumulator.has_room:
            return None
        full = accumulator.add(key, item, size, client.tasks.clock.monotonic_ms())
        # An open batch is never full. If no open batch fits, the message is in the last full one.
        batch = accumulator.fits(key, 0) or full[-1]
        self._full += full
        if (full or not self._is_planned) and not self._is_posted:
            self._is_posted = True
            self._post(self.send_due)
        if batch.shared is None:
            batch.shared = Outcomes()
        return batch

    def send_due(self) -> None:
        """Send the batches that are full or due; called in the engine."""
        # The flag is reset first, so that a batch that becomes full after this is posted again.
        self._is_posted = False
        super().send_due()

    def send(self, batch: Batch[Item]) -> None:
        """Send a batch, and finish all its futures at the same time."""
        key, count = batch.key, len(batch.items)
        outcomes: Outcomes[SendResult] = batch.shared

        def done(outcome: SendResult | Exception) -> None:
            if not self._room.enter():
                self._client.tasks.call_later(AGAIN_MS, done, outcome)
                return
            try:
                self._accumulator.ended(batch)
                self._room.give_some(count, batch.byte_count)
            finally:
                self._lock.release()
            if isinstance(outcome, Exception):
                self._room.failed(outcomes, count, outcome)
                outcomes.finish(tuple, outcome)
            else:
                outcomes.finish(lambda: results_of(outcome, ids))

        request, ids = self._sender.preparer.join(key.topic, batch.items, key.waits)
        # The request holds the bodies from now on.
        batch.items.clear()
        self._sender.begin(request, done, key.queue)
