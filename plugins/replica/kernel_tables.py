"""The broker's own tables as a slave copies them: topics, groups, consumer offsets.

Topics and groups become equal to the master's, including the data version. Offsets are replaced
where the master has some. Filter data and accounts are not copied, because no request returns them.

Source: SlaveSynchronize.syncTopicConfig, syncSubscriptionGroupConfig, syncConsumerOffset @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from twisted.internet.defer import Deferred

from twistmq.broker.api import RequestCode
from twistmq.broker.api.bodies import (
    DataVersion,
    LmqConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from twistmq.broker.api.requests import SyncedTable
from twistmq.plugins.replica.ask import decode_body

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.replica.commits import Commits

__all__ = ["KernelTable", "kernel_tables", "offsets_of"]

#: A body with a data version.
B = TypeVar("B", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)

#: The time between two copies, ms. Apache's slaves copy every 10 s (4.9.4) or every 60 s (5.3.3).
_COPY_PERIOD_MS: Final = 3000
#: The only queue of a light topic. Source: MixAll.LMQ_QUEUE_ID.
_LIGHT_QUEUE_ID: Final = 0


@dataclass(frozen=True, slots=True)
class KernelTable:
    """A table, and whether it is still as it was copied.

    :param begin: called before the first copy of each master.
    :param note_end: called before each copy with an end of the master's log, which its log reached
        after it had given its table.
    """

    table: SyncedTable
    is_current: Callable[[], bool]
    begin: Callable[[], None] = lambda: None
    note_end: Callable[[int], None] = lambda end: None


class _Versioned(Generic[B]):
    """A table with a data version, which becomes equal to the master's.

    :param kind: the type of the body.
    :param replacing: replaces the table by the one in a body, in slices.
    :param save: saves the table if it changed.
    :param version: returns the data version of the table.
    """

    def __init__(
        self, broker: Broker, kind: type[B],
        replacing: Callable[[B], Generator[None, None, object]],
        save: Callable[[], object], version: Callable[[], DataVersion],
    ) -> None:
        self._broker = broker
        # A body that arrives has to be decoded within a turn of the reactor.
        kind.prepare()
        self._kind: type[B] = kind
        self._replacing: Callable[[B], Generator[None, None, object]] = replacing
        self._save, self._version = save, version
        #: The version that was copied last.
        self._copied: DataVersion | None = None

    def take(self, body: bytes) -> Deferred[None]:
        """See SyncedTable."""
        return Deferred.fromCoroutine(self._take(body))

    async def _take(self, body: bytes) -> None:
        wrapper = await decode_body(self._broker, self._kind, body)
        await _take_over(self._broker, self._replacing(wrapper))
        self._save()
        self._copied = wrapper.data_version

    def is_current(self) -> bool:
        """Whether the table is still as it was copied."""
        return self._version() == self._copied


class _Topics(_Versioned[TopicConfigSerializeWrapper]):
    """The topics of a slave.

    A topic counts as deleted only when this master had it and has it no longer. A topic that a
    client made here, or that is known from an earlier master, is removed without a trace: this
    master may make it a moment later, and messages may then wait for it. The master may also make a
    deleted topic again, which messages show that are in the log after the deletion.
    """

    def __init__(self, broker: Broker) -> None:
        topics = broker.topic_config
        super().__init__(
            broker, TopicConfigSerializeWrapper, self._replacing_topics,
            lambda: broker.topics_changed() if topics.dirty else None, lambda: topics.data_version)
        #: The topics that this master had at the last copy.
        self._named: set[str] = set()
        #: The end of the master's log after it had given its topics.
        self._log_end = 0

    def begin(self) -> None:
        """Forget the topics of a previous master, whose last copy may still be under way."""
        self._named = set()

    def note_end(self, end: int) -> None:
        """Note the end of the master's log; see ``KernelTable``."""
        self._log_end = end

    def _replacing_topics(
        self, wrapper: TopicConfigSerializeWrapper
    ) -> Generator[None, None, None]:
        table, named = wrapper.topic_config_table, self._named
        yield from self._broker.replacing_topics(
            table, wrapper.data_version, named_before=named, log_end=self._log_end)
        named.clear()
        named.update(table)


def _groups(broker: Broker) -> _Versioned[SubscriptionGroupWrapper]:
    """Make the table of consumer groups on a slave."""
    groups = broker.subscription_group
    return _Versioned(
        broker, SubscriptionGroupWrapper,
        lambda wrapper: broker.replacing_groups(
            wrapper.subscription_group_table, wrapper.forbidden_table, wrapper.data_version),
        lambda: broker.saves.save_if_changed(groups), lambda: groups.data_version)


class _Offsets:
    """The consumer offsets of a slave.

    :param commits: commits at this slave that the master does not have yet.
    """

    def __init__(self, broker: Broker, commits: Commits) -> None:
        LmqConsumerOffsetSerializeWrapper.prepare()
        self._broker, self._commits = broker, commits

    def take(self, body: bytes) -> Deferred[None]:
        """See SyncedTable."""
        return Deferred.fromCoroutine(self._take(body))

    async def _take(self, body: bytes) -> None:
        wrapper = await decode_body(self._broker, LmqConsumerOffsetSerializeWrapper, body)
        table, offsets = self._broker.consumer_offset, offsets_of(wrapper)
        await self._commits.join(offsets)
        await _take_over(self._broker, table.merging(offsets, larger_wins=False))
        # A table of 4.9.4 has no version.
        if wrapper.data_version is not None and self._broker.is_slave:
            table.take_version(wrapper.data_version)

    def is_current(self) -> bool:
        """Whether every offset that was committed here is known to the master."""
        return not self._commits.has_kept


async def _take_over(broker: Broker, steps: Generator[None, None, object]) -> None:
    """Apply a copied table in slices, as long as this broker is a slave.

    A broker may become a master between two slices. What its clients change from then on is newer
    than the copy, so the rest of the copy is dropped.
    """
    if broker.is_slave:
        await broker.slices.run(steps, is_wanted=lambda: broker.is_slave)


def offsets_of(body: LmqConsumerOffsetSerializeWrapper) -> dict[str, dict[int, int]]:
    """Return all offsets of a broker, also for light queues, by "topic@group" and queue."""
    return {**body.offset_table, **{
        key: {_LIGHT_QUEUE_ID: offset} for key, offset in body.lmq_offset_table.items()}}


def kernel_tables(broker: Broker, commits: Commits) -> list[KernelTable]:
    """Make the tables, in the order in which they are copied."""
    topics, groups, offsets = _Topics(broker), _groups(broker), _Offsets(broker, commits)
    return [
        KernelTable(SyncedTable("topics", RequestCode.GET_ALL_TOPIC_CONFIG, topics.take,
                                _COPY_PERIOD_MS, vip=True),
                    topics.is_current, topics.begin, topics.note_end),
        KernelTable(SyncedTable("groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                                groups.take, _COPY_PERIOD_MS), groups.is_current),
        KernelTable(SyncedTable("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET,
                                offsets.take, _COPY_PERIOD_MS, follows_log=True),
                    offsets.is_current),
    ]
