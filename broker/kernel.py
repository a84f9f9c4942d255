"""The kernel: the store, the tables every broker has, the handler table, and the hooks.

It knows no feature by name and imports no plugin. It has no reactor either: time comes from
``now_ms``, periodic work is a list of tasks the edge runs, connections are channels.

Source: BrokerController @5.3.3, without what is a plugin here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.errors import BrokerError, SettingsError, StoreError
from twistmq.broker.observe.statistics import BrokerStats
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.host_address import resolved
from twistmq.broker.remoting.messages import AnyHandler, Request
from twistmq.broker.request.acknowledgement import Acknowledgement
from twistmq.broker.request.client_requests import ClientRequests
from twistmq.broker.request.client_table import ClientChange, ClientTable
from twistmq.broker.request.consumer_offset import ConsumerOffsetTable, LmqConsumerOffsetTable
from twistmq.broker.request.filters import FilterLanguages
from twistmq.broker.request.long_answers import LongAnswers
from twistmq.broker.request.offset_requests import OffsetRequests
from twistmq.broker.request.periodic_tasks import periodic_tasks
from twistmq.broker.request.persisted_table import Persistable
from twistmq.broker.request.persistence import TableSaves
from twistmq.broker.request.pull import PullRequests
from twistmq.broker.request.pull_hold import PullHold
from twistmq.broker.request.query_requests import QueryRequests
from twistmq.broker.request.send import SendRequests
from twistmq.broker.request.sliced_work import SlicedWork
from twistmq.broker.request.subscription_group import SubscriptionGroupTable
from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.broker.request.topic_requests import TopicRequests
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.steady_clock import SteadyClock
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.topic_names import SEND_FORBIDDEN_TOPICS
from twistmq.broker.wire.message_id import UniqueIdMaker
from twistmq.broker.wire.properties import REAL_TOPIC
from twistmq.broker.wire.record import MessageRecord, StoredMessage, host_bytes

if TYPE_CHECKING:
    from twistmq.broker.interfaces import (
        AskServer,
        IBroadcastOffsets,
        IFlowControl,
        ITransactionService,
        ServeHttp,
    )
    from twistmq.broker.namesrv.requests import NameServer
    from twistmq.broker.wire.bodies import TopicRouteData

__all__ = ["MASTER_ID", "Kernel"]

#: The broker id of a master; a slave's is greater. Source: MixAll.MASTER_ID.
MASTER_ID = 0


class Kernel:
    """One broker.

    :param settings: read once here, and the name of a host resolved; live changes go through the
        objects' own attributes.
    :param store: not yet loaded.
    :param hooks: the plugins in use.
    :param now_ms: the clock, Unix ms.
    :param steady: the clock for durations; None: ``now_ms``, where no clock jumps.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, store: MessageStore, hooks: Hooks, now_ms: Callable[[], int],
        steady: SteadyClock | None = None,
    ) -> None:
        #: ``settings.int("mine.rate")``, ``.text``, ``.flag``, ``.names``, ``.number``.
        self.settings = settings
        #: Reads: ``get_message``, ``look_message``, ``max_offset_in_queue``; see IMessageStore.
        self.store = store
        self.hooks = hooks
        #: The clock, Unix ms: call it. It may jump: durations go by ``steady``.
        self.now_ms = now_ms
        #: For durations: ``now_ms()``, and ``awake_ms()`` for the silence of peers.
        self.steady = steady or SteadyClock(now_ms)
        steady_ms = self.steady.now_ms
        self.random = random.Random()
        self._ip = resolved(settings, "brokerIP1")
        self.unique_ids = UniqueIdMaker(
            host_bytes(self._ip, 0)[:-4], os.getpid(), self.random.getrandbits(31))
        self.started_ms = now_ms()
        #: As routes have it.
        self.broker_name = settings.text("brokerName")
        #: The cluster's name.
        self.cluster_name = settings.text("brokerClusterName")
        self.broker_id = settings.int("brokerId")
        #: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        self.role = settings.text("brokerRole")
        #: "host:port" that clients are told.
        self.broker_address = ""
        self.store_host = b""
        self.set_port(settings.int("listenPort"))
        #: The live connections.
        self.channels = ChannelTable()
        #: What is counted by topic and group.
        self.stats = BrokerStats(steady_ms())
        #: Topics: ``table`` by name, ``get``, ``update``.
        self.topic_config = TopicConfigTable(settings, store.config_file("topics.json"), now_ms)
        store.is_batch_topic = self.topic_config.is_batch_topic
        #: Consumer groups and their settings: ``find``.
        self.subscription_group = SubscriptionGroupTable(
            settings, store.config_file("subscriptionGroup.json"), now_ms)
        self.topic_config.is_group = lambda group: group in self.subscription_group.table
        self.subscription_group.has_room_for_topics = self.topic_config.has_room_for_group
        self.stats.is_known = self._is_counted
        offsets = store.config_file("consumerOffset.json")
        #: How far each group has read each queue.
        self.consumer_offset = ConsumerOffsetTable(offsets, now_ms)
        if settings.flag("enableLmq"):
            self.consumer_offset = LmqConsumerOffsetTable(
                store.config_file("lmqConsumerOffset.json"), offsets, now_ms)
        self._tables: tuple[Persistable, ...] = (
            self.consumer_offset, self.subscription_group, self.topic_config)
        #: Work that may take long and has to be done is done here.
        self.slices = SlicedWork(steady_ms)
        #: Answers that may take long are made here, while somebody waits for them.
        self.long_answers = LongAnswers(steady_ms)
        #: When the tables are saved.
        self.saves = TableSaves((self.subscription_group, self.topic_config), self.slices,
                                store.in_thread, steady_ms)
        #: Producers and consumers by group.
        self.clients = ClientTable(self._client_changed)
        self.channels.on_lost.append(self.clients.connection_lost)
        #: ``wait(record.next_offset)`` until a record is as safe as the settings demand.
        self.acknowledgement = Acknowledgement(store, steady_ms)
        self.filters = FilterLanguages()
        self.pull_hold = PullHold(self)
        self._client_requests = ClientRequests(self)
        #: Called when the topics changed, so that name servers are told at once.
        self.on_topic_change: list[Callable[[], Deferred[None] | None]] = []
        #: Called with a topic that is being deleted, before anything of it is; each names the
        #: topics that go with it.
        self.on_topic_deletion: list[Callable[[str], Sequence[str]]] = []
        #: Called with a group that was deleted, and whether its offsets were.
        self.on_group_deletion: list[Callable[[str, bool], None]] = []
        #: Calls a function when others had their turn; None: there are no others, as in tests.
        self.run_soon: Callable[[Callable[[], None]], object] | None = None
        #: Serves a resource of twisted.web on a port of its own; None: there is no network.
        self.serve_http: ServeHttp | None = None
        #: The name server in the same process; None: there is none.
        self.name_server: NameServer | None = None
        #: Figures of the process by name, for whoever watches it; each is asked when it is wanted.
        self.figures: dict[str, Callable[[], float]] = {
            "held_pulls": lambda: self.pull_hold.count}
        #: What must hold for the broker to be of use, by name; each says what is wrong, if it is.
        self.health_checks: dict[str, Callable[[], str]] = {
            "store": self._store_fault, "tables": self._tables_fault}
        #: Asks the name servers where a topic is; gives None when they know of none, fails with
        #: BrokerError when none answers. None: there are no name servers.
        self.find_route: Callable[[str], Coroutine[Any, Any, TopicRouteData | None]] | None = None
        #: Asks the name servers for the address of the master of a broker name; gives and fails as
        #: ``find_route``.
        self.find_broker: Callable[[str], Coroutine[Any, Any, str | None]] | None = None
        #: Sends another server a request and gives its reply; fails with RemotingError. None: there
        #: is no network.
        self.ask_server: AskServer | None = None
        #: Topics no client may send to; a plugin that gives meaning to a topic adds it.
        self.send_forbidden_topics = set(SEND_FORBIDDEN_TOPICS)
        self.transaction_service: ITransactionService | None = None
        #: Knows where each client of a broadcast group is; None: nobody does.
        self.broadcast_offsets: IBroadcastOffsets | None = None
        #: Refuses what more comes of than can be served; None: nobody does.
        self.flow_control: IFlowControl | None = None
        #: Message properties whose features plugins provide.
        self.claimed_properties: frozenset[str] = frozenset()
        self.periodic_tasks: list[PeriodicTask] = []
        self.dispatcher = Dispatcher({}, hooks)
        settings.on_change.append(self._settings_changed)
        store.on_dispatch.append(self._dispatched)
        store.on_arrival.append(self._arrived)

    def set_port(self, port: int) -> None:
        """Say which port clients are told; done again when a port of 0 became a real one."""
        self.broker_address = f"{self.settings.text('brokerIP1').strip()}:{port}"
        self.store_host = host_bytes(self._ip, port)

    # --- life

    async def start(self) -> None:
        """Load what was saved, recover the store, let plugins start.

        :raises StoreError: when a file is missing or damaged; the text names it.
        :raises SettingsError: when a plugin finds no meaning in a setting of its own.
        """
        self.topic_config.load()
        self.consumer_offset.load()
        self.subscription_group.load()
        self.hooks.make_plugins(self)
        self.store.tags_codes = self.hooks.collect_tags_codes()
        self.filters.add_languages(self.hooks.collect_filter_languages())
        self.filters.consumer_filters = self.hooks.consumer_filters()
        self.store.load()
        try:
            await self._start()
        except Exception:
            await self.hooks.stop()
            await self.store.stop()
            raise

    async def _start(self) -> None:
        """The part of a start that has a store to close when it fails."""
        self.topic_config.make_again(self.store.queues(), self.store.has_batch_queues)
        self.store.start()
        self.transaction_service = self.hooks.transaction_service()
        self.flow_control = self.hooks.flow_control()
        self.broadcast_offsets = self.hooks.broadcast_offsets()
        self.claimed_properties = self.hooks.claimed_properties()
        validators = self.hooks.collect_access_validators()
        if self.settings.flag("aclEnable") and not validators:
            raise SettingsError("aclEnable=true, but no plugin that is in use checks requests")
        self.dispatcher = Dispatcher(self.handler_table(), self.hooks, validators)
        self.periodic_tasks = [
            *periodic_tasks(self), *self.hooks.collect_periodic_tasks()]
        self.set_role(self.role, self.broker_id)
        await self.hooks.start()

    async def stop(self) -> None:
        """Let plugins stop, save the tables, flush and close the store."""
        self.pull_hold.release_all()
        await self.hooks.stop()
        await self.saves.finish()
        self.persist()
        await self.store.stop()

    def persist(self, tables: Sequence[Persistable] | None = None) -> None:
        """Save tables now, on this thread.

        :param tables: None: all.
        """
        for table in self._tables if tables is None else tables:
            self.saves.persist(table)

    @property
    def unsaved(self) -> list[Persistable]:
        """Tables that could not be saved and will be tried again."""
        return self.saves.unsaved

    def handler_table(self) -> dict[int, AnyHandler]:
        """The kernel's rows, the plugins' instead of them, and what plugins put before them."""
        parts = (SendRequests(self), PullRequests(self), OffsetRequests(self),
                 self._client_requests, TopicRequests(self), QueryRequests(self))
        rows = {row.code: row for part in parts for row in part.handlers()}
        rows |= self.hooks.collect_request_handlers()
        return self.hooks.wrap_request_handlers(rows)

    # --- health

    def _store_fault(self) -> str:
        """Why messages are refused; a slave refuses them by its nature."""
        return "" if self.is_slave else self.store.refuses_why()

    def _tables_fault(self) -> str:
        names = ", ".join(type(table).__name__ for table in self.unsaved)
        return f"cannot be saved: {names}" if names else ""

    # --- role

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"

    def set_role(self, role: str, broker_id: int) -> None:
        """Become master or slave; a slave refuses writes.

        :param role: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        """
        self.role = role
        self.broker_id = broker_id if role == "SLAVE" else MASTER_ID
        self.store.writable = not self.is_slave
        self.hooks.role_changed(self.role, self.broker_id)

    # --- messages

    def append(
        self, records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records to the store: the one way in, for the kernel and for plugins.

        ``before_append`` hooks run first. The records' places are filled in by the store. Use
        ``acknowledgement.wait`` to wait until they are as safe as the settings demand.

        :param owners: a number for each record; records of one number are stored all or none.
            None: each record is its own.
        :returns: the refusals by index into ``records``; empty when all were appended.
        """
        refusals: dict[int, BrokerError] = {}
        left = records
        if self.hooks.before_append:
            refusals = _of_whole_owners(self.hooks.refuse_append(records), owners)
            if refusals:
                left = [r for index, r in enumerate(records) if index not in refusals]
        if not left:
            return refusals
        try:
            self.store.append(left)
        except StoreError as error:
            indexes = [index for index in range(len(records)) if index not in refusals]
            refusals |= self._append_apart(records, indexes, owners, error)
        return refusals

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask whether a request may touch what its handler sees it does.

        For what no header says: the topic of a message that is named by its place.

        :param publishes: topics that it writes to, or where it ends or deletes a message.
        :param consumes: topics whose messages it reads.
        :param groups: consumer groups that it acts for.
        :raises BrokerError: when a validator that provides IResourceValidator refuses it.
        """
        self.dispatcher.require_access(request, publishes, consumes, groups)

    def require_readable(
        self, request: Request[Any], message: StoredMessage, groups: Collection[str] = ()
    ) -> None:
        """The same for a message that is read by its place, also where it waits to be delivered.

        :raises BrokerError: when its topic, or the one it will have, may not be read.
        """
        topics = {message.topic}
        if REAL_TOPIC in message.properties:
            topics.add(message.properties_map().get(REAL_TOPIC, message.topic))
            if len(topics) > 1:
                # The broker alone writes to these, and all topics' messages wait there.
                topics -= SEND_FORBIDDEN_TOPICS
        self.require_access(request, consumes=topics, groups=groups)

    def _append_apart(
        self, records: Sequence[MessageRecord], indexes: Sequence[int],
        owners: Sequence[int] | None, error: StoreError,
    ) -> dict[int, BrokerError]:
        """A batch was refused as a whole: one bad record must not take the others with it."""
        groups: dict[int, list[int]] = {}
        for index in indexes:
            groups.setdefault(index if owners is None else owners[index], []).append(index)
        if len(groups) == 1 or error.retriable:
            return dict.fromkeys(indexes, error)
        refusals: dict[int, BrokerError] = {}
        for group in groups.values():
            try:
                self.store.append([records[index] for index in group])
            except StoreError as group_error:
                refusals |= dict.fromkeys(group, group_error)
        return refusals

    def _dispatched(self, records: Sequence[MessageRecord]) -> None:
        if self.hooks.on_dispatch:
            self.hooks.dispatched(records)

    def _arrived(self, records: Sequence[MessageRecord]) -> None:
        self.pull_hold.arrived(records)
        if self.hooks.on_message_arrival:
            self.hooks.arrived(records)

    # --- events

    def _settings_changed(self, changes: Mapping[str, SettingValue]) -> None:
        """Hand changes on to those that do not ask for settings each time."""
        self.store.change_settings(self.settings.store_settings())
        self.acknowledgement.timeout_ms = self.store.settings.sync_flush_timeout_ms
        if "brokerPermission" in changes:
            self.topic_config.permissions_changed()

    def _is_counted(self, key: tuple[str, ...]) -> bool:
        """Whether there are the topic and the group that statistics name, as (table, these)."""
        return self.topic_config.get(key[1]) is not None and (
            len(key) == 2 or self.subscription_group.has(key[2]))

    def _client_changed(self, change: ClientChange) -> None:
        self._client_requests.client_changed(change)
        self.hooks.client_changed(change)

    def topics_changed(self) -> Deferred[None] | None:
        """Topics or their settings changed: they are saved soon, and the name servers told.

        :returns: a Deferred that fires once the name servers were told; None when nobody is to
            be told. It never fails.
        """
        # What is sent to a topic that a kill forgets cannot be pulled until somebody sends again.
        self.saves.save_if_changed(self.topic_config)
        return _all([listener() for listener in self.on_topic_change])

    def delete_topic(self, topic: str) -> None:
        """Forget a topic, its offsets and figures, and remove its queues."""
        topics = [topic]
        for listener in self.on_topic_deletion:
            topics += listener(topic)
        self.consumer_offset.clean_topics(topics)
        for each in topics:
            self.topic_config.delete(each)
            self.stats.forget_topic(each)
            self.store.delete_topic(each)

    def delete_group(self, group: str, clean_offset: bool) -> None:
        """Forget a group and its figures, with its offsets or without."""
        self.subscription_group.delete(group)
        if clean_offset:
            self.consumer_offset.clean_group(group)
        self.stats.forget_group(group)
        for listener in self.on_group_deletion:
            listener(group, clean_offset)

    def registration(self, compressed: bool) -> Callable[[], bytes]:
        """All topics as name servers are told of them; see TopicConfigTable.registration."""
        tables = self.topic_config.told_tables()
        self.hooks.complete_topic_tables(tables, registering=True)
        return self.topic_config.registration(compressed, tables)

    def topics_saved_and_told(self) -> Deferred[None] | None:
        """The same for who waits until the topics are saved as well."""
        return _all([self.save_topics(), self.topics_changed()])

    def save_topics(self) -> Deferred[None] | None:
        """Save the topics now; fires when that is done, or could not be; None when it is."""
        saved = self.saves.save(self.topic_config)
        return None if saved.called else saved


def _all(parts: Sequence[Deferred[None] | None]) -> Deferred[None] | None:
    """Fires when all did that there are; None when there is none."""
    waiting = [deferred for deferred in parts if deferred is not None]
    if not waiting:
        return None
    done: Deferred[None] = Deferred()
    DeferredList(waiting, consumeErrors=True).addCallback(lambda _: done.callback(None))
    return done


def _of_whole_owners(
    refusals: dict[int, BrokerError], owners: Sequence[int] | None
) -> dict[int, BrokerError]:
    """Refuse with a record all others of its owner."""
    if not refusals or owners is None:
        return refusals
    errors = {owners[index]: error for index, error in refusals.items()}
    return {index: errors[owner] for index, owner in enumerate(owners) if owner in errors}
