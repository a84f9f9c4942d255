"""Queue choice: to which queue of a topic a message is sent.

Without a wish of the caller the queues take turns, from a start that differs from sender to sender.
The turn continues over topics' sends and over retries, and queues of brokers that failed within the
same send are passed over. A message with a sharding key goes to the queue that Java's client would
choose, so that producers of both kinds keep the order of one key.

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

#: Topics whose turns are remembered. A sender to more topics starts some of them again.
_TOPICS_MAX: Final = 10_000


class Choice(Protocol):
    """A rule that chooses the queue of an attempt."""

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """Choose a queue.

        :param queues: all of a topic that can be written to, one at least.
        :param failed: names of brokers at which the same send failed before.
        :param now_ms: steady clock.
        """


class RoundRobin:
    """The queues of each topic in turn.

    :param start: a random number, so that many senders do not begin with the same queue.
    :param faults: slow and dead brokers to avoid; None: only those that failed in the same send.
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
        """The next turn of a broker that is available, else of a reachable one, else of any."""
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
    """Any queue.

    :param randrange: ``random.randrange``, or one of a test.
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
    """The queues of brokers ``room@name`` in some rooms in turn; all, where there are no such.

    :param rooms: the rooms to prefer.
    :param start: as of :class:`RoundRobin`.
    """

    def __init__(self, rooms: Collection[str], start: int = 0) -> None:
        self._rooms = frozenset(rooms)
        self._turns = RoundRobin(start)
        #: The last list of queues with those near, of which a topic's route makes one list.
        self._last: tuple[Sequence[MessageQueue], Sequence[MessageQueue]] = ((), ())

    def choose(
        self, queues: Sequence[MessageQueue], failed: Collection[str] = (), now_ms: float = 0
    ) -> MessageQueue:
        """See :class:`Choice`."""
        known, near = self._last
        if known is not queues:
            near = [queue for queue in queues
                    if queue.broker_name.partition("@")[0] in self._rooms
                    and "@" in queue.broker_name] or queues
            self._last = queues, near
        if failed and all(queue.broker_name in failed for queue in near):
            near = queues
        return self._turns.choose(near, failed, now_ms)


def by_hash(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """The queue of a sharding key, the same as that of Java's client."""
    # Java's remainder has the sign of the hash, and its absolute value is taken after it: that is
    # the remainder of the absolute value, here where it does not overflow.
    return queues[abs(java_string_hash(sharding_key)) % len(queues)]
