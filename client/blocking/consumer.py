"""The blocking consumer.

    with Consumer("127.0.0.1:9876", group="billing", topics="orders") as consumer:
        for message in consumer:
            bill(message)

Asking for the next message acknowledges the previous one. ``run`` passes the messages to a function
on several threads instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.feeder import Feeder, Results
from twistmq.client.blocking.member import BlockingMember
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.handler_calls import TAKE, HandlerCalls, check_run, run_steps
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.consumer.turns import Turn
from twistmq.client.roles.consumer import BaseConsumer
from twistmq.client.roles.parts import Parts, Value, parts_of
from twistmq.client.shell.flag import Flag
from twistmq.client.shell.options import CONSUMER, NameServers, lists_options, milliseconds

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import ConsumerArguments

__all__ = ["Consumer"]


@lists_options(CONSUMER)
class Consumer(BlockingMember[Value], BaseConsumer[Value]):
    """A member of a consumer group.

    The constructor joins the group, so that queues may be assigned before a ``with`` block begins.
    A consumer that is not read keeps its queues from the other members until it is closed.

    :param group: the consumer group.
    :param topics: the topics to read: "orders", ["orders", "audits"], or expressions by topic, as
        in ``{"orders": "eu || us", "audits": sql("level > 3")}``.
    :param options: see below.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None, group: str,
        topics: Topics,
        **options: Unpack[ConsumerArguments],
    ) -> None:
        self._join(parts_of(name_servers, client, Client, CONSUMER, options), group, topics)

    def _join(self, parts: Parts[Client], group: str, topics: Topics | None) -> None:
        self._stopped = Flag()
        #: Whether a shared client was closed while this consumer was working.
        self._is_cut_off = False
        super()._join(parts, group, topics)
        #: The time-out of a close that a handler requested; the end of the run carries it out.
        self._close_later: float | None = None
        #: Messages that iterations have finished and that were not reported to the engine yet.
        self._finished: deque[ReceivedMessage[Value]] = deque()
        self.client._core.on_close.append(self._client_closed)
        self.client._loop.before_end.add(self._finish)
        # The iterations of a forked child end: their messages belong to the parent.
        self.client._loop.at_fork.add(self._stopped.set)
        self._handling = HandlerCalls(
            self._member, parts.options.get("undecodable", "retry"),
            Results(self._member, self._post).post,
            acknowledges=parts.options.get("auto_acknowledge", True), lock=threading.Lock())

    # --- iteration

    def __iter__(self) -> Iterator[ReceivedMessage[Value]]:
        """Iterate over messages; asking for the next message acknowledges the previous one.

        A loop that is left early, by ``break`` or by an error, has not acknowledged its last
        message, unless the program called :meth:`acknowledge`. That message is delivered again. The
        same holds when the consumer is closed inside the loop.
        """
        self._check_open()
        line: deque[tuple[AssignedQueue[Value], ReceivedMessage[Value]]] = deque()
        is_over = Flag()
        turn = Turn(self._member, lambda: self._give_back(line))
        turn.begin()
        # A message stays in the line until it is finished: a Ctrl-C may come between any two steps.
        try:
            while not self._stopped.is_set():
                if not line:
                    self._finish()
                    self._take(line, is_over)
                    continue
                assigned, message = line[0]
                if message.lost:
                    self._post(self._handling.release, [message])
                    line.popleft()
                elif not self._handling.is_decodable(assigned, message):
                    line.popleft()
                elif self._handling.acknowledges:
                    yield message
                    if line:
                        self._finished.append(message)
                        line.popleft()
                else:
                    line.popleft()
                    yield message
            self._check_client()
        finally:
            turn.end()
            is_over.set()
            self._finish()
            self._give_back(line)

    def _take(
        self, line: deque[tuple[AssignedQueue[Value], ReceivedMessage[Value]]], is_over: Flag
    ) -> None:
        """Wait for messages, and put some messages of one queue into the line.

        :param line: the line. The client's thread fills it, so that no message gets lost when the
            wait is interrupted.
        :param is_over: whether the iteration has ended.
        """
        async def take() -> bool:
            while not self._stopped.is_set() and not is_over.is_set():
                batch = self._member.take(TAKE)
                if batch is not None:
                    self._handling.take(batch)
                    line.extend((batch.assigned, message) for message in batch.messages)
                    return True
                try:
                    await self._member.ready()
                except Closed:
                    break
            return False

        if not self.client._run(take):
            self._set_stopped()

    def _finish(self) -> None:
        """Report to the engine the messages that iterations have finished."""
        if self.client._loop.is_abandoned:
            # The parent has the same messages, and reports them.
            return
        finished: list[ReceivedMessage[Value]] = []
        # The end of the program and an iteration on another thread may both take messages from it.
        with suppress(IndexError):
            while True:
                finished.append(self._finished.popleft())
        if finished:
            self._post(self._handling.succeed, finished)

    def _give_back(self, line: deque[tuple[AssignedQueue[Value], ReceivedMessage[Value]]]) -> None:
        """Return the messages of a line to the waiting ones, because its iteration ends."""
        messages = [message for _, message in line]
        line.clear()
        if self.client._loop.is_abandoned:
            return
        self._post(self._handling.release, messages)

    # --- handlers

    def run(
        self, handler: Callable[[ReceivedMessage[Value]], object], *, workers: int = 20
    ) -> None:
        """Pass each message to a function on several threads, until :meth:`stop` or an error.

        A message is processed when the handler returns. When the handler raises an error, the
        message is delivered again, as ``Retry(level)`` or ``Dead()`` specify. An exception that is
        not an ``Exception``, such as KeyboardInterrupt, ends the run.
        """
        check_run(handler, workers, 1, is_awaited=False)
        call = self._intercepted(handler)
        self._work(lambda batch: run_steps(self._handling.one_by_one(batch), call),
                   workers, self._handling.size)

    def run_batches(
        self, handler: Callable[[list[ReceivedMessage[Value]]], int | None], *, size: int = 32,
        workers: int = 20,
    ) -> None:
        """Pass lists of messages of one queue to a function on several threads.

        :param handler: returns how many of the first messages it processed, or None for all of
            them. When it raises an error, all messages are delivered again.
        """
        check_run(handler, workers, size, is_awaited=False)
        call = self._intercepted(handler)
        self._work(lambda batch: run_steps(self._handling.as_list(batch), call), workers, size)

    def _intercepted(self, handler: Callable[[Any], object]) -> Callable[[Any], object]:
        return self.client._core.interceptors.wrap_handler(self._member.options.group, handler)

    def _work(
        self, work: Callable[[Batch[Value]], None], workers: int, size: int
    ) -> None:
        """Run workers until the consumer stops; the arguments have been checked."""
        self._check_open()
        lines: SimpleQueue[Batch[Value] | None] = SimpleQueue()
        failures: list[BaseException] = []
        feeder = Feeder(self._member, lines, workers, size)

        def worker() -> None:
            turn = Turn(self._member)
            turn.begin()
            try:
                while (batch := lines.get()) is not None:
                    if feeder.is_needed:
                        self._post(feeder.wake)
                    work(batch)
            except BaseException as error:
                failures.append(error)
                self.stop()
            finally:
                turn.end()

        threads = [threading.Thread(target=worker, name=f"twistmq-worker-{number}", daemon=True)
                   for number in range(workers)]
        for thread in threads:
            thread.start()
        self._post(feeder.start)
        try:
            self._stopped.wait()
        finally:
            self._set_stopped()
            self.client._loop.call_in_loop(feeder.stop)
            for _ in threads:
                lines.put(None)
            for thread in threads:
                thread.join()
            if self._close_later is not None:
                self.close(self._close_later)
        if failures:
            raise failures[0]
        self._check_client()

    def _client_closed(self) -> None:
        """Stop, because the shared client was closed before its consumer."""
        self._is_cut_off = not self._stopped.is_set()
        self._stopped.set()

    def _check_client(self) -> None:
        """Check why the work ended.

        :raises Closed: because the shared client was closed.
        :raises ForkedError: because the process was forked; the messages belong to the parent.
        """
        self.client._loop.check_process()
        if self._is_cut_off:
            raise Closed("the client is closed")

    # --- control

    def _set_stopped(self) -> None:
        super()._set_stopped()
        self._stopped.set()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop reading, wait for handlers, commit and leave; a second call does nothing.

        When a handler of this consumer calls it, it returns at once, and the consumer closes when
        the running handlers have ended. When the loop of an iteration calls it, the consumer
        closes, and the message of the loop is delivered again. In a child of ``fork`` it does
        nothing, because everything belongs to the parent.

        :param timeout_s: how long to wait for handlers.
        :raises RuntimeError: when it is called on the client's own thread.
        """
        timeout_ms = milliseconds(timeout_s)
        if self.client._loop.is_over:
            return
        turns = Turn.running(self._member)
        if any(turn.give_back is None for turn in turns):
            self._close_later = timeout_s
            self.stop()
            return
        self._check_thread()
        self._set_stopped()
        self._finish()
        for turn in turns:
            if turn.give_back is not None:
                turn.give_back()
        with suppress(ValueError):
            self.client._core.on_close.remove(self._client_closed)
        self.client._loop.before_end.discard(self._finish)
        self.client._loop.at_fork.discard(self._stopped.set)
        self._post(self._handling.release_all)
        self._leave(lambda: self._member.close(timeout_ms))
