"""The blocking consumer.

    with Consumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        for message in consumer:
            bill(message)

Asking for the next message acknowledges the one before. ``run`` gives messages to a function on
several threads instead.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from twistmq.client.blocking import Client
from twistmq.client.core.consuming import Member
from twistmq.client.core.held import Batch, Held
from twistmq.client.core.replies import reply_to
from twistmq.client.core.subscriptions import Sql, Topics, subscription
from twistmq.client.core.tasks import Future
from twistmq.client.errors import Closed, Undecodable
from twistmq.client.handlers import failure_level
from twistmq.client.messages import MessageQueue, ReceivedMessage, SendResult
from twistmq.client.options import CONSUMER, Where
from twistmq.client.roles import build_consumer, split_arguments

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.arguments import ClientArguments, ConsumerArguments

__all__ = ["Consumer"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How many messages an iterator takes from the client's thread at once.
_TAKE: Final = 64


class Consumer(Generic[T]):
    """A member of a consumer group.

    :param where: the name servers, or a ``Client`` to share.
    :param group: the consumer group.
    :param topics: what it reads: "orders", ["orders", "audits"], or expressions by topic, as
        ``{"orders": "eu || us", "audits": sql("level > 3")}``.
    :param options: see the page of options; those of a client too, when there is none to share.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str, topics: Topics,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        mine, others = split_arguments([row.name for row in CONSUMER], options)
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(
            where, **cast("ClientArguments", others))
        self._undecodable = mine.get("undecodable", "retry")
        self._is_closed = False
        self._stopped = threading.Event()
        try:
            self.member: Member[T] = build_consumer(self.client.core, group, topics, mine)
            self.client.run(self.member.start)
        except BaseException:
            if self._owns_client:
                self.client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- iteration

    def __iter__(self) -> Iterator[ReceivedMessage[T]]:
        """Messages, one after the other; the next one acknowledges the one before.

        Leaving the loop, by ``break`` or an error, lets the last message come again.
        """
        self._check_open()
        taken: deque[tuple[Held[T], ReceivedMessage[T]]] = deque()
        finished: list[tuple[Held[T], ReceivedMessage[T]]] = []
        current: tuple[Held[T], ReceivedMessage[T]] | None = None
        try:
            while not self._stopped.is_set():
                if not taken:
                    self._finish(finished)
                    finished = []
                    taken.extend(self._take())
                    continue
                current = taken.popleft()
                held, message = current
                if message.lost or not self._is_decodable(held, message):
                    current = None
                    continue
                yield message
                finished.append(current)
                current = None
        finally:
            self._finish(finished)
            left = [each for each in (current, *taken) if each is not None]
            self._post(self._release, left)

    def _take(self) -> list[tuple[Held[T], ReceivedMessage[T]]]:
        """Wait for messages and take some of one queue."""
        async def take() -> Batch[T] | None:
            while True:
                batch = self.member.take(_TAKE)
                if batch is not None:
                    return batch
                try:
                    await self.member.ready()
                except Closed:
                    return None

        batch = self.client.run(take)
        if batch is None:
            self._stopped.set()
            return []
        return [(batch.held, message) for message in batch.messages]

    def _is_decodable(self, held: Held[T], message: ReceivedMessage[T]) -> bool:
        """Whether a message has a value; one without is treated as the option says."""
        try:
            _ = message.value
        except Undecodable as error:
            if self._undecodable == "raise":
                raise
            log.warning("%s", error)
            if self._undecodable == "skip":
                self._post(self.member.succeed, held, [message])
            else:
                self._post(self.member.fail, held, [message])
            return False
        return True

    def _finish(self, finished: list[tuple[Held[T], ReceivedMessage[T]]]) -> None:
        if finished:
            self._post(self._succeed, finished)

    def _succeed(self, finished: list[tuple[Held[T], ReceivedMessage[T]]]) -> None:
        for held, messages in _by_queue(finished):
            self.member.succeed(held, messages)

    def _release(self, left: list[tuple[Held[T], ReceivedMessage[T]]]) -> None:
        for held, messages in _by_queue(left):
            self.member.release(held, messages)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        self.client.loop.post(function, *arguments)

    # --- handlers

    def run(
        self, handler: Callable[[ReceivedMessage[T]], object], *, workers: int = 20
    ) -> None:
        """Give each message to a function, on several threads, until :meth:`stop` or an error.

        A handler that returns has processed the message. One that raises has not: the message is
        delivered again, as ``Retry(level)`` or ``Dead()`` say. An exception that is no
        ``Exception``, such as KeyboardInterrupt, ends the run.
        """
        def one(held: Held[T], messages: list[ReceivedMessage[T]]) -> None:
            for index, message in enumerate(messages):
                if self._stopped.is_set() or message.lost:
                    self._post(self.member.release, held, messages[index:])
                    return
                if not self._is_decodable(held, message):
                    continue
                try:
                    handler(message)
                except Exception as error:
                    self._post(self.member.fail, held, [message], failure_level(message, error))
                    if self.member.options.in_order:
                        self._post(self.member.release, held, messages[index + 1:])
                        return
                else:
                    self._post(self.member.succeed, held, [message])

        self._work(one, workers, 1 if self.member.options.in_order is False else _TAKE)

    def run_batches(
        self, handler: Callable[[list[ReceivedMessage[T]]], int | None], *, size: int = 32,
        workers: int = 20,
    ) -> None:
        """Give lists of messages of one queue to a function, on several threads.

        :param handler: returns how many of the first messages it processed; None: all. When it
            raises, all are delivered again.
        """
        def many(held: Held[T], messages: list[ReceivedMessage[T]]) -> None:
            ready = [each for each in messages if self._is_decodable(held, each)]
            if not ready:
                return
            try:
                done = handler(ready)
            except Exception as error:
                self._post(self.member.fail, held, ready, failure_level(ready[0], error))
                return
            count = len(ready) if done is None else max(0, min(done, len(ready)))
            if count:
                self._post(self.member.succeed, held, ready[:count])
            if count < len(ready):
                self._post(self.member.fail, held, ready[count:])

        self._work(many, workers, size)

    def _work(
        self, work: Callable[[Held[T], list[ReceivedMessage[T]]], None], workers: int, size: int
    ) -> None:
        """Run workers until the consumer stops."""
        self._check_open()
        lines: SimpleQueue[Batch[T] | None] = SimpleQueue()
        failures: list[BaseException] = []
        feeder = _Feeder(self.member, lines, workers, size)

        def worker() -> None:
            while (batch := lines.get()) is not None:
                self._post(feeder.taken)
                try:
                    work(batch.held, batch.messages)
                except BaseException as error:
                    failures.append(error)
                    self.stop()
                    return

        threads = [threading.Thread(target=worker, name=f"twistmq-worker-{number}", daemon=True)
                   for number in range(workers)]
        for thread in threads:
            thread.start()
        self._post(feeder.start)
        try:
            self._stopped.wait()
        finally:
            self._stopped.set()
            self.client.loop.run_there(feeder.stop)
            for _ in threads:
                lines.put(None)
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    # --- control

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Pull nothing more, of some queues or of all; what was read is still handed out."""
        self._post(self.member.set_paused, queues, True)

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self._post(self.member.set_paused, queues, False)

    def assigned(self) -> list[MessageQueue]:
        """The queues of this member now."""
        return self.client.loop.run_there(self.member.assigned)

    def commit(self) -> None:
        """Commit now how far the group has come; else it happens each five seconds."""
        self.client.run(self.member.commit)

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression."""
        name = self.client.core.namespace.topic(topic)
        self._post(self.member.subscribe, subscription(name, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._post(self.member.unsubscribe, self.client.core.namespace.topic(topic))

    def reply(self, message: ReceivedMessage[T], body: bytes) -> SendResult:
        """Reply to a message that a producer sent by ``request``.

        It is a method of consumers in all three styles. The message counts as processed as any
        other does.

        :raises OptionError: when the message is not a request.
        :raises RequestRefused: when the producer does not take the reply: it is gone, for example.
        :raises SendFailed: when no broker answers.
        """
        self._check_open()
        return self.client.run(lambda: reply_to(self.member.sender, message, body))

    def stop(self) -> None:
        """End ``run`` and the iteration after the messages that are being handled."""
        self._stopped.set()
        self._post(self.member.wake_all)

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop reading, wait for handlers, commit and leave; a second call does nothing.

        :param timeout_s: how long handlers are waited for.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._stopped.set()
        if not self.client.core.is_closed:
            self.client.run(lambda: self.member.close(timeout_s * 1000))
        if self._owns_client:
            self.client.close()


class _Feeder(Generic[T]):
    """Keeps a line of batches for workers, in the client's thread."""

    def __init__(
        self, member: Member[T], lines: SimpleQueue[Batch[T] | None], workers: int, size: int
    ) -> None:
        self._member = member
        self._lines = lines
        self._most = workers
        self._size = size
        #: Batches in the line.
        self._count = 0
        self._room: Future[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to feed."""
        self._member.tasks.spawn(self._feed(), "feeder of handlers")

    def taken(self) -> None:
        """A worker took a batch."""
        self._count -= 1
        if self._room is not None:
            self._room.set_result(None)

    def stop(self) -> None:
        """Feed no more; what is in the line waits again."""
        self._is_stopped = True
        if self._room is not None:
            self._room.set_result(None)
        while not self._lines.empty():
            batch = self._lines.get()
            if batch is not None:
                self._member.release(batch.held, batch.messages)

    async def _feed(self) -> None:
        while not self._is_stopped:
            if self._count >= self._most:
                self._room = Future()
                await self._room
                continue
            batch = self._member.take(self._size)
            if batch is not None:
                self._count += 1
                self._lines.put(batch)
                continue
            try:
                await self._member.ready()
            except Closed:
                return


def _by_queue(
    pairs: list[tuple[Held[T], ReceivedMessage[T]]],
) -> list[tuple[Held[T], list[ReceivedMessage[T]]]]:
    """Messages of neighbours of one queue together."""
    found: list[tuple[Held[T], list[ReceivedMessage[T]]]] = []
    for held, message in pairs:
        if found and found[-1][0] is held:
            found[-1][1].append(message)
        else:
            found.append((held, [message]))
    return found
