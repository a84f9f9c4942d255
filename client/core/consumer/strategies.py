"""Rebalance strategies: the rules by which the members of a group divide the queues of a topic.

Each member computes its own share from the same lists, so all members must sort them as Java does:
text by its UTF-16 units, and queues by topic, broker and id. Members that run other languages or
releases agree with this one only if the result is identical to Java's for every queue.

Source: AllocateMessageQueueStrategy and its classes, ConsistentHashRouter, RebalanceImpl @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5
from typing import Final, Protocol

from twistmq.client.base.argument_checks import check_whole
from twistmq.client.base.errors import OptionError
from twistmq.protocol.bodies import MessageQueue

__all__ = ["STRATEGIES", "Averagely", "AveragelyByCircle", "Configured", "ConsistentHash",
           "MachineRoom", "MachineRoomNearby", "Strategy", "share", "sorted_members",
           "sorted_queues"]

#: The number of positions of each member on the ring of CONSISTENT_HASH.
VIRTUAL_NODES: Final = 10


class Strategy(Protocol):
    """A rule that divides queues among members."""

    @property
    def name(self) -> str:
        """The name that members report to each other and to the broker."""

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member; it is one of the members.
        :param queues: the queues of one topic, sorted by :func:`sorted_queues`.
        :param members: client ids, sorted by :func:`sorted_members`; an id may occur twice.
        """


def _utf16(text: str) -> bytes:
    """Return a key that sorts text as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _utf16(queue.topic), _utf16(queue.broker_name), queue.queue_id


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in Java's order."""
    return sorted(queues, key=_queue_key)


def sorted_members(members: Iterable[str]) -> list[str]:
    """Return client ids in Java's order."""
    return sorted(members, key=_utf16)


def share(
    strategy: Strategy, member: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> list[MessageQueue]:
    """Return the queues of one member, from lists in any order.

    The share is empty if the broker does not know the member yet, or if the topic has no queues.
    """
    in_order = sorted_members(members)
    if member not in in_order:
        return []
    all_queues = sorted_queues(queues)
    return strategy.allocate(member, all_queues, in_order) if all_queues else []


class Averagely:
    """AVG: each member gets a block of adjacent queues; the first members may get one more.

    It is the default of the option ``strategy``. All members of a group need the same strategy;
    ``name`` is what Apache's clients call it.
    """

    name: Final = "AVG"

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member.
        :param queues: all queues of a topic, sorted.
        :param members: the client ids of all members, sorted.
        """
        index = members.index(member)
        quota, remainder = divmod(len(queues), len(members))
        begin = index * quota + min(index, remainder)
        return list(queues[begin:begin + quota + (index < remainder)])


class AveragelyByCircle:
    """AVG_BY_CIRCLE: the members get queues in turn; ``name`` is what Apache's clients call it."""

    name: Final = "AVG_BY_CIRCLE"

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member.
        :param queues: all queues of a topic, sorted.
        :param members: the client ids of all members, sorted.
        """
        return list(queues[members.index(member)::len(members)])


def _hash(key: str) -> int:
    """Return a position on the ring: the first four bytes of the MD5 of the UTF-8 key."""
    # Java encodes half a surrogate pair as "?".
    digest = md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


class ConsistentHash:
    """CONSISTENT_HASH: queues and members are on a ring; each queue belongs to the next member.

    When a member comes or goes, few queues change their member. ``name`` is what Apache's clients
    call the strategy.

    :param virtual_nodes: the number of positions that each member has on the ring.
    """

    name: Final = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        check_whole(virtual_nodes, "virtual_nodes")
        self._virtual_nodes = virtual_nodes
        #: The members of the last call, their positions in order, and the owner of each.
        self._last: tuple[tuple[str, ...], list[int], list[str]] = ((), [], [])

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member.
        :param queues: all queues of a topic, sorted.
        :param members: the client ids of all members, sorted.
        """
        last = self._last
        if last[0] != tuple(members):
            ring = self._ring(members)
            positions = sorted(ring)
            self._last = last = (tuple(members), positions,
                                 [ring[position] for position in positions])
        _, positions, owners = last
        if not positions:
            return []
        own_queues = []
        for queue in queues:
            at = bisect_left(positions, _hash(
                f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                f"queueId={queue.queue_id}]"))
            if owners[at % len(positions)] == member:
                own_queues.append(queue)
        return own_queues

    def _ring(self, members: Sequence[str]) -> dict[int, str]:
        """Return the members by their positions; if two are equal, the later member wins."""
        ring: dict[int, str] = {}
        seen = set[str]()
        for member in members:
            # A member that is listed twice has separate positions for each time.
            first = sum(owner == member for owner in ring.values()) if member in seen else 0
            seen.add(member)
            for number in range(first, first + self._virtual_nodes):
                ring[_hash(f"{member}-{number}")] = member
        return ring


def _room_of_broker(broker: str) -> str | None:
    """Return the room of a broker named ``room@name``; None if its name has another form."""
    parts = broker.split("@")
    # Java's split leaves out empty parts at the end.
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


class MachineRoom:
    """MACHINE_ROOM: divides only the queues of brokers ``room@name`` in the given rooms.

    ``name`` is what Apache's clients call the strategy.

    :param rooms: the rooms whose brokers are consumed.
    """

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        if isinstance(rooms, str) or not isinstance(rooms, Iterable):
            raise OptionError(f"rooms are {rooms!r}: give a list of names")
        self._rooms = frozenset(rooms)

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member.
        :param queues: all queues of a topic, sorted.
        :param members: the client ids of all members, sorted.
        """
        index = members.index(member)
        near = [queue for queue in queues if _room_of_broker(queue.broker_name) in self._rooms]
        quota, remainder = divmod(len(near), len(members))
        own_queues = near[index * quota:(index + 1) * quota]
        if index < remainder:
            own_queues.append(near[quota * len(members) + index])
        return own_queues


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: queues go to members in their room, or to all if it has no member.

    ``name`` is what Apache's clients call the strategy, followed by the name of the inner one.

    :param inner: divides the queues of one room.
    :param room_of_queue: returns the room of a queue's broker.
    :param room_of_member: returns the room of a client, given its id.
    """

    def __init__(
        self, inner: Strategy, room_of_queue: Callable[[MessageQueue], str],
        room_of_member: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._room_of_queue = room_of_queue
        self._room_of_member = room_of_member
        self.name: Final = f"MACHINE_ROOM_NEARBY-{inner.name}"

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member, given all queues of a topic and all client ids.

        :raises ValueError: when the room of a queue or member is "".
        """
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_required(self._room_of_queue(queue), queue), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for each in members:
            members_of.setdefault(_required(self._room_of_member(each), each), []).append(each)
        own = self._room_of_member(member)
        own_queues: list[MessageQueue] = []
        if own in queues_of:
            own_queues += self._inner.allocate(member, queues_of.pop(own), members_of[own])
        for room in sorted(queues_of, key=_utf16):
            if room not in members_of:
                own_queues += self._inner.allocate(member, queues_of[room], members)
        return own_queues


def _required(room: str, owner: object) -> str:
    if not room:
        raise ValueError(f"{owner} is in no machine room")
    return room


class Configured:
    """CONFIG: always the same queues, independent of the members.

    ``name`` is what Apache's clients call the strategy.

    :param queues: the queues of this member.
    """

    name: Final = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        if not isinstance(queues, Iterable):
            raise OptionError(f"queues are {queues!r}: give a list of queues")
        self._queues = tuple(queues)
        for queue in self._queues:
            if not isinstance(queue, MessageQueue):
                raise OptionError(f"queues contain {queue!r}: give objects of MessageQueue")

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        :param member: the client id of the member.
        :param queues: all queues of a topic, sorted.
        :param members: the client ids of all members, sorted.
        """
        return list(self._queues)


#: The strategies that need no configuration, by name.
STRATEGIES: Final[dict[str, Strategy]] = {
    strategy.name: strategy for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash())}
