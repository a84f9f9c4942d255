"""The tables of every broker: topics, groups, offsets, clients, connections and statistics.

Source: BrokerController's managers @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredList

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import LOG_OFFSET_MAX
from twistmq.broker.observe.statistics import BrokerStats
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.request.client_notification import notify_members
from twistmq.broker.request.client_table import ClientChange, ClientTable
from twistmq.broker.request.consumer_offset import ConsumerOffsetTable, LmqConsumerOffsetTable
from twistmq.broker.request.host import Host
from twistmq.broker.request.persisted_table import Persistable
from twistmq.broker.request.persistence import TableSaves
from twistmq.broker.request.subscription_group import SubscriptionGroupTable
from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.broker.scheduling.scheduler import Lane
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig

__all__ = ["Tables"]


class Tables:
    """The tables of one broker.

    :param store: stores the files of the tables, and removes the queues of a deleted topic.
    :param slices: runs long work, such as the encoding of a large table.
    """

    def __init__(
        self, settings: Settings, store: MessageStore, hooks: Hooks, host: Host,
        slices: Lane,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._host = host
        now_ms, steady_ms = host.now_ms, host.steady.now_ms
        #: The live connections.
        self.channels = ChannelTable()
        #: Counts by topic and group.
        self.stats = BrokerStats(steady_ms(), self._is_counted)
        #: Topics: ``table`` by name, ``get``, ``update``.
        self.topic_config = TopicConfigTable(
            settings, store.config_file("topics.json"), now_ms,
            lambda group: group in self.subscription_group.table)
        #: Consumer groups and their settings: ``find``.
        self.subscription_group = SubscriptionGroupTable(
            settings, store.config_file("subscriptionGroup.json"), now_ms,
            self.topic_config.has_room_for_group)
        offsets = store.config_file("consumerOffset.json")
        #: The offset up to which each group has consumed each queue.
        self.consumer_offset = ConsumerOffsetTable(offsets, now_ms)
        if settings.flag("enableLmq"):
            self.consumer_offset = LmqConsumerOffsetTable(
                store.config_file("lmqConsumerOffset.json"), offsets, now_ms)
        #: Decides when tables are saved.
        self.saves = TableSaves((self.subscription_group, self.topic_config), slices,
                                store.in_thread, steady_ms)
        #: Producers and consumers by group.
        self.clients = ClientTable(self._client_changed)
        self.channels.on_lost.append(self.clients.connection_lost)
        #: Called with a topic before it is deleted; each returns the topics that are deleted with
        #: it.
        self.on_topic_deletion: list[Callable[[str], Sequence[str]]] = []
        #: Called with each topic once it is gone.
        self.after_topic_deletion: list[Callable[[str], None]] = []
        #: Called with a deleted group, and whether its offsets were deleted.
        self.on_group_deletion: list[Callable[[str, bool], None]] = []

    def load(self) -> None:
        """Read the files of the tables.

        :raises StoreDamaged: when a file cannot be read; the text names it.
        """
        self.topic_config.load()
        self.consumer_offset.load()
        self.subscription_group.load()

    def persist(self, tables: Sequence[Persistable] | None = None) -> None:
        """Save tables at once, on this thread.

        :param tables: the tables to save; None for all tables.
        """
        for table in tables or (self.consumer_offset, self.subscription_group, self.topic_config):
            self.saves.persist(table)

    @property
    def unsaved(self) -> list[Persistable]:
        """Tables that could not be saved; their saves are tried again."""
        return self.saves.unsaved

    # --- topics

    def topics_changed(self) -> Deferred[None] | None:
        """Save the topics soon and register them with the name servers.

        :returns: a Deferred that fires once the name servers are informed, and never fails; None if
            the broker has no name servers.
        """
        # If a kill removes the topic, messages sent to it cannot be pulled until the next send.
        self.saves.save_if_changed(self.topic_config)
        return self._host.register_soon()

    def save_topics(self) -> Deferred[None] | None:
        """Save the topics now; fires when this is done or failed; None if it is done already."""
        saved = self.saves.save(self.topic_config)
        return None if saved.called else saved

    def topics_saved_and_registered(self) -> Deferred[None] | None:
        """Like :meth:`topics_changed`, but also waits until topics.json is written."""
        return _all([self.save_topics(), self.topics_changed()])

    def registration(self, compressed: bool) -> Callable[[], bytes]:
        """Return the topics in a registration; see :meth:`TopicConfigTable.registration`."""
        tables = self.topic_config.topic_tables()
        self._hooks.complete_topic_tables(tables, registering=True)
        return self.topic_config.registration(compressed, tables)

    def plain_registration(self, compressed: bool) -> Callable[[], bytes]:
        """Return the same without the data that plugins add to the topics."""
        return self.topic_config.registration(compressed)

    def delete_topic(self, topic: str, *, log_end: int | None = None) -> None:
        """Delete a topic with its offsets, statistics and queues.

        :param log_end: see ``TopicConfigTable.delete``; None: the topic is deleted now.
        """
        if log_end is None:
            log_end = self._store.commit_log.max_offset
        topics = [topic]
        for listener in self.on_topic_deletion:
            topics += listener(topic)
        self.consumer_offset.clean_topics(topics)
        for each in topics:
            self.topic_config.delete(each, log_end=log_end)
            self.stats.forget_topic(each)
            self._store.delete_topic(each)
        for after in self.after_topic_deletion:
            for each in topics:
                after(each)

    def replacing_topics(
        self, topics: Mapping[str, TopicConfig], version: DataVersion, *,
        named_before: Collection[str] = (), log_end: int = LOG_OFFSET_MAX,
    ) -> Generator[None, None, None]:
        """Make the topics equal to another broker's, with its data version; yields in between.

        Topics that the other broker does not have are deleted with their offsets and queues; system
        topics are kept.

        :param named_before: topics that the other broker had when it was asked before. Others that
            it does not have may never have been deleted: they were made here by a client, or by an
            earlier master, and the other broker may make them at any time.
        :param log_end: the end of the other broker's log after it had given its topics.
        :raises WireError: when a topic is not valid; nothing is changed then.
        """
        for topic in (yield from self.topic_config.replacing(topics)):
            self.delete_topic(topic, log_end=log_end if topic in named_before else 0)
            yield
        self.topic_config.take_version(version)

    # --- groups

    def replacing_groups(
        self, groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None, version: DataVersion,
    ) -> Generator[None, None, None]:
        """Make the groups equal to another broker's, with its data version; yields in between.

        Groups that the other broker does not have are deleted; their offsets and the system's
        groups are kept.

        :raises WireError: when a group is not valid; nothing is changed then.
        """
        for group in (yield from self.subscription_group.replacing(groups, forbidden)):
            self.delete_group(group, clean_offset=False)
            yield
        self.subscription_group.take_version(version)

    def delete_group(self, group: str, clean_offset: bool) -> None:
        """Delete a group and its statistics.

        :param clean_offset: whether its offsets are deleted too.
        """
        self.subscription_group.delete(group)
        if clean_offset:
            self.consumer_offset.clean_group(group)
        self.stats.forget_group(group)
        for listener in self.on_group_deletion:
            listener(group, clean_offset)

    def _client_changed(self, change: ClientChange) -> None:
        notify_members(self.clients, change)
        self._hooks.client_changed(change)

    def _is_counted(self, key: tuple[str, ...]) -> bool:
        """Whether the topic and the group (if any) in the key of a statistic exist."""
        return self.topic_config.get(key[1]) is not None and (
            len(key) == 2 or self.subscription_group.has(key[2]))


def _all(parts: Sequence[Deferred[None] | None]) -> Deferred[None] | None:
    """Fire when all of the given Deferreds have fired; None if there is no Deferred among them."""
    waiting = [deferred for deferred in parts if deferred is not None]
    if not waiting:
        return None
    done: Deferred[None] = Deferred()
    DeferredList(waiting, consumeErrors=True).addCallback(lambda _: done.callback(None))
    return done
