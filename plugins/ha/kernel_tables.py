"""The kernel's tables as a slave copies them: topics, groups, consumer offsets.

Topics and groups become those of the master, with its data version. Offsets are the master's where
it has some. Filter data and accounts are not copied: no request gives them.

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
from twistmq.plugins.ha.ask import decode_body

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.commits import Commits

__all__ = ["KernelTable", "kernel_tables", "offsets_of"]

#: A body with a data version.
B = TypeVar("B", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)

#: From one copy to the next, ms. Apache's slaves of 4.9.4 copy every 10 s, those of 5.3.3 every 60.
_COPY_PERIOD_MS: Final = 3000
#: The only queue of a light topic. Source: MixAll.LMQ_QUEUE_ID.
_LIGHT_QUEUE_ID: Final = 0


@dataclass(frozen=True, slots=True)
class KernelTable:
    """A table, and whether it is still as it was copied."""

    table: SyncedTable
    is_current: Callable[[], bool]


class _Versioned(Generic[B]):
    """A table with a data version, which becomes that of the master.

    :param kind: of the body.
    :param replacing: makes the table that of a body, in slices.
    :param save: saves the table if it changed.
    :param version: the data version of the table.
    """

    def __init__(
        self, broker: Broker, kind: type[B],
        replacing: Callable[[B], Generator[None, None, object]],
        save: Callable[[], object], version: Callable[[], DataVersion],
    ) -> None:
        self._broker = broker
        self._kind: type[B] = kind
        self._replacing: Callable[[B], Generator[None, None, object]] = replacing
        self._save, self._version = save, version
        self._copied: DataVersion | None = None

    def take(self, body: bytes) -> Deferred[None]:
        """See SyncedTable."""
        return Deferred.fromCoroutine(self._take(body))

    async def _take(self, body: bytes) -> None:
        theirs = await decode_body(self._broker, self._kind, body)
        await self._broker.slices.run(self._replacing(theirs))
        self._save()
        self._copied = theirs.data_version

    def is_current(self) -> bool:
        """Whether the table still is as it was copied."""
        return self._version() == self._copied


def _topics(broker: Broker) -> _Versioned[TopicConfigSerializeWrapper]:
    """The topics of a slave."""
    topics = broker.topic_config
    return _Versioned(
        broker, TopicConfigSerializeWrapper,
        lambda theirs: broker.replacing_topics(theirs.topic_config_table, theirs.data_version),
        lambda: broker.topics_changed() if topics.dirty else None, lambda: topics.data_version)


def _groups(broker: Broker) -> _Versioned[SubscriptionGroupWrapper]:
    """The groups of a slave."""
    groups = broker.subscription_group
    return _Versioned(
        broker, SubscriptionGroupWrapper,
        lambda theirs: broker.replacing_groups(
            theirs.subscription_group_table, theirs.forbidden_table, theirs.data_version),
        lambda: broker.saves.save_if_changed(groups), lambda: groups.data_version)


class _Offsets:
    """The consumer offsets of a slave.

    :param commits: those at this slave that the master does not have.
    """

    def __init__(self, broker: Broker, commits: Commits) -> None:
        self._broker, self._commits = broker, commits

    def take(self, body: bytes) -> Deferred[None]:
        """See SyncedTable."""
        return Deferred.fromCoroutine(self._take(body))

    async def _take(self, body: bytes) -> None:
        theirs = await decode_body(self._broker, LmqConsumerOffsetSerializeWrapper, body)
        table, offsets = self._broker.consumer_offset, offsets_of(theirs)
        await self._commits.join(offsets)
        if not self._broker.is_slave:
            # It became a master meanwhile: what came since then is its own.
            return
        await self._broker.slices.run(table.merging(offsets, larger_wins=False))
        # 4.9.4 has no version.
        if theirs.data_version is not None:
            table.take_version(theirs.data_version)

    def is_current(self) -> bool:
        """Whether nothing was committed here that the master does not have."""
        return not self._commits.has_kept


def offsets_of(body: LmqConsumerOffsetSerializeWrapper) -> dict[str, dict[int, int]]:
    """All offsets of a broker, those of light queues as well, by "topic@group" and queue."""
    return {**body.offset_table, **{
        key: {_LIGHT_QUEUE_ID: offset} for key, offset in body.lmq_offset_table.items()}}


def kernel_tables(broker: Broker, commits: Commits) -> list[KernelTable]:
    """The tables, in the order in which they are copied."""
    topics, groups, offsets = _topics(broker), _groups(broker), _Offsets(broker, commits)
    return [
        KernelTable(SyncedTable("topics", RequestCode.GET_ALL_TOPIC_CONFIG, topics.take,
                                _COPY_PERIOD_MS, vip=True), topics.is_current),
        KernelTable(SyncedTable("groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                                groups.take, _COPY_PERIOD_MS), groups.is_current),
        KernelTable(SyncedTable("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET,
                                offsets.take, _COPY_PERIOD_MS, follows_log=True),
                    offsets.is_current),
    ]
