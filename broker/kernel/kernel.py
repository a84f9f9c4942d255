"""The kernel: identity, host, store, tables, providers and dispatcher of one broker.

The kernel does not know features by name and imports no plugin, so that each feature can be added,
replaced or left out without a change here. It does not use a reactor either, so that tests can run
a whole broker step by step with their own clock and disk. Time, other servers and ports come from
its :class:`Host`; periodic work is a list of tasks, which the edge runs; connections are channels.

Source: BrokerController @5.3.3, without the parts that are plugins here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from twistmq.broker.config.identity import Identity
from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.errors import SettingsError
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.long_answers import LongAnswers
from twistmq.broker.remoting.messages import AnyHandler, Request
from twistmq.broker.request.acknowledgement import Acknowledgement
from twistmq.broker.request.appender import Appender
from twistmq.broker.request.client_requests import ClientRequests
from twistmq.broker.request.host import Host
from twistmq.broker.request.message_access import require_readable
from twistmq.broker.request.offset_requests import OffsetRequests
from twistmq.broker.request.periodic_tasks import periodic_tasks
from twistmq.broker.request.providers import Providers
from twistmq.broker.request.pull import PullRequests
from twistmq.broker.request.pull_hold import PullHold
from twistmq.broker.request.query_requests import QueryRequests
from twistmq.broker.request.send import SendRequests
from twistmq.broker.request.tables import Tables
from twistmq.broker.request.topic_requests import TopicRequests
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import MessageRecord, StoredMessage

if TYPE_CHECKING:
    from twistmq.broker.client.name_servers import Registered
    from twistmq.broker.plugin.interfaces import ITransactionService
    from twistmq.broker.plugin.protocols import Broker
    from twistmq.broker.request.appender import Escape

__all__ = ["Kernel"]


class Kernel:
    """One broker.

    :param settings: read once, here; changes are passed to the parts that keep a value.
    :param store: the store, not loaded yet.
    :param hooks: the plugins in use.
    :param host: the clocks, other servers and ports.
    """

    log = Logger()

    def __init__(self, settings: Settings, store: MessageStore, hooks: Hooks, host: Host) -> None:
        self.settings = settings
        self.store = store
        self.hooks = hooks
        self.host = host
        steady_ms = host.steady.now_ms
        self.identity = Identity(settings, host.now_ms())
        #: Gives slices to long work, which uses at most half of the time of the reactor.
        self.background = Scheduler(steady_ms)
        #: Gives slices to work for which clients wait, after other connections have had their turn.
        self.foreground = Scheduler(steady_ms, lambda run: host.run_soon(run))
        #: Runs long work that must be completed, in slices.
        self.slices = self.background.lane()
        #: Runs slow replies in slices; a reply is dropped when its client disconnects.
        self.long_answers = LongAnswers(self.background)
        self.tables = Tables(settings, store, hooks, host, self.slices)
        self.providers = Providers()
        self.dispatcher = Dispatcher({}, hooks)
        self.appender = Appender(store, hooks, Acknowledgement(store, steady_ms))
        self.pull_hold = PullHold(host, store, self.foreground)
        self.tables.after_topic_deletion.append(self.pull_hold.topic_deleted)
        self.periodic_tasks: list[PeriodicTask] = []
        self.random = random.Random()
        #: The number of times that this broker stepped down.
        self._step_downs = 0
        # The names for plugins; see plugin.protocols.Broker.
        self.now_ms = host.now_ms
        self.steady = host.steady
        self.started_ms = self.identity.started_ms
        self.broker_name = self.identity.broker_name
        self.cluster_name = self.identity.cluster_name
        self.unique_ids = self.identity.unique_ids
        self.channels = self.tables.channels
        self.clients = self.tables.clients
        self.stats = self.tables.stats
        self.saves = self.tables.saves
        self.topic_config = self.tables.topic_config
        self.subscription_group = self.tables.subscription_group
        self.consumer_offset = self.tables.consumer_offset
        self.on_topic_deletion = self.tables.on_topic_deletion
        self.on_group_deletion = self.tables.on_group_deletion
        self.topics_changed = self.tables.topics_changed
        self.topics_saved_and_registered = self.tables.topics_saved_and_registered
        self.persist = self.tables.persist
        self.replacing_topics = self.tables.replacing_topics
        self.replacing_groups = self.tables.replacing_groups
        self.filters = self.providers.filters
        self.send_forbidden_topics = self.providers.send_forbidden_topics
        self.acknowledgement = self.appender.acknowledgement
        self.append = self.appender.append
        self.require_access = self.dispatcher.require_access
        self.may_publish = self.dispatcher.may_publish
        #: Stores records on other masters while this slave stands in for its own master; None: it
        #: cannot do so.
        self.escape: Escape | None = None
        #: Called with the answers of the name servers to each registration; there is at least one
        #: answer.
        self.on_registered: list[Callable[[Sequence[Registered]], None]] = []
        #: Figures of the process by name, for metrics; each is a function that is called on
        #: reading.
        self.figures: dict[str, Callable[[], float]] = {
            **host.figures, "held_pulls": lambda: self.pull_hold.count}
        #: Health checks by name; each returns the fault, or an empty text.
        self.health_checks: dict[str, Callable[[], str]] = {
            "store": self._store_fault, "tables": self._tables_fault, **host.health_checks}
        settings.on_change.append(self._settings_changed)
        store.dispatch.on_dispatch.append(self._dispatched)
        store.dispatch.on_arrival.append(self._arrived)
        store.log_cut.on_cut.append(self.pull_hold.log_cut)

    @property
    def broker_address(self) -> str:
        return self.identity.broker_address

    @property
    def store_host(self) -> bytes:
        return self.identity.store_host

    @property
    def broker_id(self) -> int:
        return self.identity.broker_id

    @property
    def role(self) -> str:
        return self.identity.role

    @property
    def is_slave(self) -> bool:
        return self.identity.is_slave

    @property
    def transaction_service(self) -> ITransactionService | None:
        return self.providers.transaction_service

    @property
    def claimed_properties(self) -> frozenset[str]:
        return self.providers.claimed_properties

    @property
    def delivers(self) -> bool:
        """Whether the broker delivers due messages now."""
        return self.identity.delivers and not (self.is_slave and self.escape is None)

    def use_escape(self, escape: Escape | None) -> None:
        """Implement the method of the protocol ``Broker``."""
        self.escape = escape

    # --- life

    async def start(self) -> None:
        """Load the saved tables, recover the store, and start the plugins.

        :raises StoreError: when a file is missing or damaged; the text names it.
        :raises SettingsError: when a plugin finds that one of its settings is not valid.
        """
        self.tables.load()
        self.hooks.make_plugins(self)
        tags_codes = self.hooks.collect_tags_codes()
        self.providers.add_languages(self.hooks)
        self.store.load(self.topic_config.is_batch_topic, tags_codes)
        try:
            await self._start()
        except Exception:
            await self.hooks.stop()
            await self.store.stop()
            raise

    async def _start(self) -> None:
        """Run the part of a start after which the store has to be closed in case of failure."""
        self.topic_config.make_again(
            self.store.queues.ids_by_topic(), self.store.queues.has_batch_queues,
            is_slave=self.is_slave)
        self.store.start()
        self.providers.resolve(self.hooks)
        validators = self.hooks.collect_access_validators()
        if self.settings.access_setting and not validators:
            raise SettingsError(f"{self.settings.access_setting}=true, but no plugin that is in "
                                "use checks requests")
        self.dispatcher.serve(self.handler_table(), validators)
        self.periodic_tasks = [
            *periodic_tasks(self.settings, self.host, self.store, self.tables, self.pull_hold,
                            self.acknowledgement, self.background),
            *self.hooks.collect_periodic_tasks()]
        self.set_role(self.role, self.broker_id)
        await self.hooks.start()

    async def stop(self) -> None:
        """Stop the plugins, save the tables, then flush and close the store."""
        self.pull_hold.release_all()
        await self.hooks.stop()
        await self.saves.finish()
        self.persist()
        await self.store.stop()

    def handler_table(self) -> dict[int, AnyHandler]:
        """Return the kernel's handlers by code; handlers of plugins replace or wrap them."""
        settings, store, hooks, host = self.settings, self.store, self.hooks, self.host
        identity, tables, providers = self.identity, self.tables, self.providers
        parts = (
            SendRequests(settings, identity, tables, providers, hooks, self.appender,
                         self.foreground, self.random),
            PullRequests(settings, identity, host, tables, providers, hooks, store,
                         self.pull_hold),
            OffsetRequests(store, tables, self.long_answers),
            ClientRequests(settings, host, tables, providers.filters, self.slices,
                           self.dispatcher),
            TopicRequests(identity, tables, hooks, self.slices),
            QueryRequests(settings, store, self.dispatcher, self.long_answers))
        rows = {row.code: row for part in parts for row in part.handlers()}
        rows |= self.hooks.collect_request_handlers()
        return self.hooks.wrap_request_handlers(rows)

    # --- health

    def _store_fault(self) -> str:
        """Return why messages from senders are refused, or on a slave messages from its master."""
        return self.store.fault(takes_messages=not self.is_slave)

    def _tables_fault(self) -> str:
        names = ", ".join(type(table).__name__ for table in self.tables.unsaved)
        return f"cannot be saved: {names}" if names else ""

    # --- role

    def set_role(self, role: str, broker_id: int) -> None:
        """Become master or slave; a slave refuses writes.

        :param role: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        :raises StoreError: for a master whose log ends with an incomplete record (see
            :meth:`change_role`) or whose disk failed.
        """
        store, end = self.store, self.store.commit_log.max_offset
        if role != "SLAVE":
            store.require_sound()
            if store.raw.whole_offset != end:
                raise StoreError(f"the commit log ends at {end} with half a record")
        self.identity.set_role(role, broker_id)
        store.writable = not self.is_slave
        self.hooks.role_changed(self.role, self.broker_id)

    async def change_role(self, role: str, broker_id: int) -> None:
        """Become master or slave while the broker runs, and notify the name servers.

        A slave first removes an incomplete record from the end of its log and makes the whole log
        readable. A master first stops accepting messages and flushes the existing ones.

        :param role: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        :raises StoreError: when the disk fails, and the role stays the same; or when the broker
            stepped down during the change, and it stays a slave.
        """
        store, step_downs = self.store, self._step_downs

        def require_same() -> None:
            if self._step_downs != step_downs:
                raise StoreError(f"the broker stepped down before it was {role}")

        if role == "SLAVE":
            was_writable, store.writable = store.writable, False
            try:
                flushed = store.flush.flushed(store.commit_log.max_offset)
                if flushed is not None:
                    await flushed
            except StoreError:
                require_same()
                store.writable = was_writable
                raise
            require_same()
        elif self.is_slave:
            await store.log_cut.cut_tail()
            require_same()
            await self.foreground.lane().run(_dispatching(store))
            require_same()
            self.topic_config.make_again(
                store.queues.ids_by_topic(), store.queues.has_batch_queues, of_lost_master=True,
                last_message=store.queues.last_message)
        self.set_role(role, broker_id)
        registered = self.topics_changed()
        if registered is not None:
            await registered

    def step_down(self, broker_id: int) -> None:
        """Become a slave at once, because another broker may be master already.

        In contrast to :meth:`change_role`, this does not wait for a flush, so that it also works
        when the disk hangs or fails. A change of role that is under way fails. The caller notifies
        the name servers by ``topics_changed``.

        :param broker_id: the id as a slave.
        """
        self._step_downs += 1
        self.set_role("SLAVE", broker_id)

    def registered(self, answers: Sequence[Registered]) -> None:
        """Process the answers of name servers to a registration.

        The answers contain the ordered topics and the master of this broker.
        """
        if not self.is_slave:
            # A slave keeps the topics of its master unchanged.
            self.topic_config.update_order_topics(answers[0].order_topics)
        for listener in self.on_registered:
            try:
                listener(answers)
            except Exception:
                self.log.failure("{listener} failed with the answers to a registration",
                                 listener=listener)

    # --- messages

    def require_readable(
        self, request: Request[Any], message: StoredMessage, groups: Collection[str] = ()
    ) -> None:
        """Check that a request may read a message, including one that is still to be delivered.

        :raises BrokerError: when the message's current or future topic is not readable.
        """
        require_readable(self.dispatcher, request, message, groups)

    def _dispatched(self, records: Sequence[MessageRecord]) -> None:
        if self.hooks.on_dispatch:
            self.hooks.dispatched(records)

    def _arrived(self, records: Sequence[MessageRecord]) -> None:
        self.pull_hold.arrived(records)
        if self.hooks.on_message_arrival:
            self.hooks.arrived(records)

    # --- events

    def _settings_changed(self, changes: Mapping[str, SettingValue]) -> None:
        """Pass changes to the parts that keep the values of settings."""
        self.store.change_settings(self.settings.store_settings())
        self.acknowledgement.timeout_ms = self.store.settings.sync_flush_timeout_ms
        if "brokerPermission" in changes:
            self.topic_config.permissions_changed()


def _dispatching(store: MessageStore) -> Generator[None, None, None]:
    """Make all confirmed messages readable; the generator yields where it can pause."""
    while store.dispatch.step():
        yield


if TYPE_CHECKING:
    # Here mypy reports a member that plugins may use and that the kernel no longer has.
    def _broker(kernel: Kernel) -> Broker:
        return kernel
