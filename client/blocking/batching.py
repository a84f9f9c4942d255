"""Automatic batches of the blocking producer: the threads that send fill them.

A message of ``send_soon`` goes into its batch on the caller's thread. The client's thread is told
of a batch, not of a message. It makes the request, and the unique ids of messages that have no
property of their own: those wait as their bodies. All futures of a batch share its outcome.

The room of the producer and the batches have one lock. A signal handler may send in the middle of a
send of its thread: its message goes alone, and the client's thread does not wait for that thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Final

from twistmq.client.base.messages import Message, SendResult
from twistmq.client.blocking.futures import Outcomes, SharedFuture
from twistmq.client.blocking.thread_room import ThreadRoom
from twistmq.client.core.producer.batcher import AGAIN_MS, BatchSender, results_of
from twistmq.client.core.producer.batches import Accumulator, Batch, BatchKey
from twistmq.client.core.producer.outgoing import Outgoing
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import MessageQueue

__all__ = ["ThreadBatching"]

#: A message that waits: prepared, or the body of a plain one.
Item = bytes | Outgoing
#: Topics whose plain messages are known.
_TOPICS_MAX: Final = 4096


class ThreadBatching(BatchSender[Item]):
    """The batches of a producer, filled by threads.

    :param sender: its core.
    :param room: its room for messages under way.
    :param post: calls a function in the engine.
    """

    def __init__(
        self, sender: Sender, room: ThreadRoom, post: Callable[..., object]
    ) -> None:
        self._client = sender.client
        super().__init__(self._client.tasks, Accumulator())
        self._lock = room.lock
        #: The thread that is in the middle of filling a batch; 0: none is.
        self._filler = 0
        self._sender = sender
        self._room = room
        self._post = post
        self._timeout_s = sender.options.timeout_ms / 1000
        #: Whether the engine is to send what is due, and has not begun.
        self._is_posted = False
        self._body_max = sender.preparer.plain_size_max
        #: By topic: the key of its plain messages, and their bytes beside the body.
        self._plain: dict[str, tuple[BatchKey, int]] = {}

    def add_plain(self, topic: str, body: bytes) -> ThreadFuture[SendResult] | None:
        """Let a message of a topic and a body wait for others.

        :returns: None when :meth:`add` has to take it, once it is prepared.
        :raises Full: when there is no room within the producer's time-out.
        """
        known = self._plain.get(topic)
        if known is None or not 0 < len(body) <= self._body_max:
            return None
        key, more = known
        return self._add(key, body, len(body) + more)

    def add(
        self, message: Message, ready: Outgoing, queue: MessageQueue | None
    ) -> ThreadFuture[SendResult] | None:
        """Let a message wait for others.

        :param ready: the message, prepared.
        :returns: None when it has to go alone.
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
            # The thread waits in a signal handler.
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
        """Begin a batch, or make one full; :returns: None when there is no room for another."""
        client, accumulator = self._client, self._accumulator
        if client.is_closed or not accumulator.has_room:
            return None
        full = accumulator.add(key, item, size, client.tasks.clock.monotonic_ms())
        # An open batch is never full: else the message is in the last of those that are.
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
        # Before they are taken: what is full later is posted again.
        self._is_posted = False
        super().send_due()

    def send(self, batch: Batch[Item]) -> None:
        """Send a batch, and end all its futures at once."""
        key, count = batch.key, len(batch.items)
        outcomes: Outcomes[SendResult] = batch.shared

        def done(outcome: SendResult | Exception) -> None:
            if not self._room.enter():
                self._client.tasks.later(AGAIN_MS, done, outcome)
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
        # The request has the bodies now.
        batch.items.clear()
        self._sender.begin(request, done, key.queue)
