"""Queue choice: selects the queue of a topic to which a message is sent.

If the caller does not choose a queue, the queues take turns, from a random start that differs
between senders. The turns continue over the sends of a topic and over retries, and queues of
brokers that failed within the same send are skipped. A message with a sharding key goes to the
queue that Java's client would choose, so that producers of both kinds keep the order of one key.

Source: TopicPublishInfo.selectOneMessageQueue, MQFaultStrategy, SelectMessageQueueByHash,
SelectMessageQueueByRandom, SelectMessageQueueByMachineRoom @5.3.3. Differs from Apache: the choice
by machine room, which has no result there, takes turns over the queues of the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from twistmq.client.core.producer.fault_tolerance import Faults
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.properties import java_string_hash

__all__ = ["Choice", "MachineRoomChoice", "RandomChoice", "RoundRobin", "by_hash"]

#: The number of topics whose turns are remembered. With more topics, some turns start again.
_TOPICS_MAX: Final = 10_000


class Choice(Protocol):
    """A rule that chooses the queue of an attempt."""

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """Choose a queue.

        :param queues: all queues of a topic that allow writing, at least one.
        :param failed: names of brokers at which the same send failed before.
        :param now_ms: the time by the monotonic clock.
        """


class RoundRobin:
    """Takes the queues of each topic in turn.

    :param start: a random number, so that senders do not all begin with the same queue.
    :param faults: the slow and dead brokers to avoid; with None, only brokers at which the same
        send failed are avoided.
    """

    def __init__(self, start: int = 0, faults: Faults | None = None) -> None:
        self._start = start
        self._faults = faults
        #: The number of the next turn, by topic.
        self._turns: dict[str, int] = {}

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """See :class:`Choice`."""
        topic = queues[0].topic
        turns = self._turns
        turn = turns.get(topic)
        if turn is None:
            if len(turns) >= _TOPICS_MAX:
                turns.clear()
            turn = self._start
        if failed or (self._faults is not None and self._faults.is_active):
            turn = self._good_turn(queues, turn, failed, now_ms)
        turns[topic] = turn + 1
        return queues[turn % len(queues)]

    def _good_turn(
        self, queues: Sequence[MessageQueue], turn: int, failed: Collection[str], now_ms: float
    ) -> int:
        """Return the next turn whose broker is available, else a reachable one, else any."""
        faults, count = self._faults, len(queues)
        reachable = None
        for at in range(turn, turn + count):
            broker = queues[at % count].broker_name
            if broker in failed:
                continue
            if faults is None or faults.is_available(broker, now_ms):
                return at
            if reachable is None and faults.is_reachable(broker):
                reachable = at
        return turn if reachable is None else reachable


class RandomChoice:
    """Chooses a queue at random.

    :param randrange: ``random.randrange``, or a function that replaces it in a test.
    """

    def __init__(self, randrange: Callable[[int], int]) -> None:
        self._randrange = randrange

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """See :class:`Choice`."""
        if failed:
            queues = [queue for queue in queues if queue.broker_name not in failed] or queues
        return queues[self._randrange(len(queues))]


class MachineRoomChoice:
    """Takes queues of brokers ``room@name`` in the given rooms in turn, or all if there are none.

    :param rooms: the preferred rooms.
    :param start: as for :class:`RoundRobin`.
    """

    def __init__(self, rooms: Collection[str], start: int = 0) -> None:
        self._rooms = frozenset(rooms)
        self._turns = RoundRobin(start)
        #: The last list of queues and its near queues; the route of a topic has a fixed list.
        self._last: tuple[Sequence[MessageQueue], Sequence[MessageQueue]] = ((), ())

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """See :class:`Choice`."""
        last_queues, near = self._last
        if last_queues is not queues:
            near = [queue for queue in queues
                    if queue.broker_name.partition("@")[0] in self._rooms
                    and "@" in queue.broker_name] or queues
            self._last = queues, near
        if failed and all(queue.broker_name in failed for queue in near):
            near = queues
        return self._turns.choose(near, failed, now_ms)


def by_hash(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """Return the queue of a sharding key, the same queue as in Java's client."""
    # Java computes the remainder, which has the sign of the hash, and then its absolute value. This
    # equals the remainder of the absolute value, which cannot overflow in Python.
    return queues[abs(java_string_hash(sharding_key)) % len(queues)]
