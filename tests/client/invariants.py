"""The promises of a consumer group, checked while its members run.

The checks look at what handlers see and at what members send: which messages were acknowledged to
producers, handled and finished, and which offsets were committed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.testing import MemoryClient, MemoryCluster
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command
from twistmq.protocol.flags import PULL_COMMIT_OFFSET
from twistmq.protocol.frame import FrameDecoder

__all__ = ["Invariants", "PromiseBroken"]

#: For so long after a broker was killed two members may believe that they have a lock of it, ms:
#: it forgets its locks, and members believe in theirs for 30 s.
_LOCKS_FORGOTTEN_MS: Final = 60_000
_LOOKED_AT: Final = (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE,
                     RequestCode.QUERY_CONSUMER_OFFSET)


class PromiseBroken(AssertionError):
    """A promise does not hold."""


@dataclass
class _Queue:
    """The messages of one queue."""

    finished: set[int] = field(default_factory=set)
    #: Everything below it is finished.
    low: int = 0
    #: The members that handle messages of it now, by client id, and since when, ms.
    handling: dict[str, float] = field(default_factory=dict)
    #: The last commit of each member since it asked where the queue begins.
    committed: dict[str, int] = field(default_factory=dict)
    #: The last commit of any member.
    last_commit: int = 0


class Invariants:
    """The promises of one group in one cluster."""

    def __init__(self, cluster: MemoryCluster, in_order: bool) -> None:
        self._cluster = cluster
        self._in_order = in_order
        self.queues: defaultdict[MessageQueue, _Queue] = defaultdict(_Queue)
        #: Messages that producers know to be stored, and those that were handled, by body.
        self.acknowledged: set[bytes] = set()
        self.handled: set[bytes] = set()
        #: Bodies that were finished before everything closed: none of them may come again.
        self.never_again: set[bytes] = set()
        #: Handlings of messages that were finished before.
        self.repeats = 0
        #: Errors of tasks, in which nothing else would raise them.
        self.failures: list[Exception] = []

    # --- handlers

    def begin(self, client: MemoryClient, message: ReceivedMessage[Any]) -> None:
        """Note the begin of a handler."""
        if message.body in self.never_again:
            raise PromiseBroken(f"{message!r} was finished before all closed, and comes again")
        queue = self.queues[message.queue]
        self.repeats += message.offset in queue.finished
        if self._in_order:
            self._check_order(message, queue)
            self._check_lock(client, message, queue)
        queue.handling[client.core.client_id] = self._cluster.now_ms

    def _check_order(self, message: ReceivedMessage[Any], queue: _Queue) -> None:
        if message.offset > queue.low:
            raise PromiseBroken(f"{message!r} is handled before offset {queue.low} is finished")

    def _check_lock(
        self, client: MemoryClient, message: ReceivedMessage[Any], queue: _Queue
    ) -> None:
        others = set(queue.handling)
        forgotten_ms = self._forgotten_ms(message.queue.broker_name)
        now_ms = 1_700_000_000_000 + self._cluster.now_ms
        if others and (forgotten_ms is None or now_ms - forgotten_ms > _LOCKS_FORGOTTEN_MS):
            raise PromiseBroken(f"{client.core.client_id} handles {message!r} while {others} "
                                "handle one of the same queue")

    def _forgotten_ms(self, broker_name: str) -> int | None:
        """Return when a broker last forgot its locks, in Unix ms; None: never."""
        return self._cluster.brokers[broker_name].killed_ms

    def end(self, client: MemoryClient, message: ReceivedMessage[Any], is_finished: bool) -> None:
        """A handler ended, and finished the message or not."""
        self.queues[message.queue].handling.pop(client.core.client_id, None)
        if is_finished:
            self.handled.add(message.body)
            self.finish(message)

    def finish(self, message: ReceivedMessage[Any]) -> None:
        """A message is finished, or a copy of it is stored for a later attempt."""
        queue = self.queues[message.queue]
        queue.finished.add(message.offset)
        while queue.low in queue.finished:
            queue.low += 1

    def gone(self, client: MemoryClient) -> None:
        """Note that a member was killed with its handlers."""
        for queue in self.queues.values():
            queue.handling.pop(client.core.client_id, None)

    # --- commits

    def watch(self, client: MemoryClient) -> None:
        """Watch the commits of a client."""
        client.on_write.append(
            lambda address, data: self._wrote(client.core.client_id, address, data))

    def _wrote(self, client_id: str, address: str, data: bytes) -> None:
        names = [each.name for each in self._cluster.brokers.values() if each.address == address]
        if not names:
            return
        for frame in FrameDecoder().feed(data):
            command = decode_command(frame)
            if command.is_response or command.code not in _LOOKED_AT:
                continue
            fields = command.fields()
            queue = MessageQueue(fields["topic"], names[0], int(fields["queueId"]))
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                self.queues[queue].committed.pop(client_id, None)
            elif (command.code == RequestCode.UPDATE_CONSUMER_OFFSET
                    or int(fields["sysFlag"]) & PULL_COMMIT_OFFSET):
                self._check_commit(client_id, queue, int(fields["commitOffset"]))

    def _check_commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        state = self.queues[queue]
        if offset > state.low:
            raise PromiseBroken(f"{client_id} commits {offset} of {queue}, where {state.low} is "
                                "not finished")
        if offset < state.committed.get(client_id, 0):
            raise PromiseBroken(f"{client_id} commits {offset} of {queue} after "
                                f"{state.committed[client_id]}")
        state.committed[client_id] = state.last_commit = offset

    # --- the end

    @property
    def missing(self) -> set[bytes]:
        """Return messages that producers know to be stored and that were not handled."""
        return self.acknowledged - self.handled

    @property
    def is_all_committed(self) -> bool:
        """Whether everything that was handled is finished and committed."""
        return all(state.last_commit == state.low == len(state.finished)
                   and not state.handling for state in self.queues.values())
