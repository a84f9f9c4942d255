"""Every hook that a plugin can implement, in the order in which the broker calls them.

A plugin is a class that an entry point of the group ``twistmq`` names. Each broker creates an
object of this class, with the broker as the only argument. Methods marked with
``twistmq.broker.hookimpl`` implement hooks of the same name, and may take any subset of a hook's
arguments. All hooks run on the reactor's thread.

A name server also has plugins: the classes of the group ``twistmq.namesrv``, which are created with
the name server. It calls their hooks ``register_settings``, ``before_request`` and
``after_response``, and the hooks for name servers in the last section of this module. A plugin for
both kinds of server is named in both groups.

Constructor: it runs after the tables are loaded and before the store is loaded. A SettingsError or
a StoreError stops the start; a plugin whose constructor raises anything else is left out with a
notice. If that plugin has ``provide_access_validators``, every request is denied. A class without a
constructor is created without arguments. The hooks under "Declarations" run without a broker: they
are static or class methods.

Order: the plugin that was registered last runs first. Stock plugins are registered before
third-party plugins, both in the order of their names. ``tryfirst``/``trylast`` change the order, as
in pluggy.

Faults: if an implementation raises, or returns a value that the hook does not allow, the fault is
logged with the name of its plugin and counts as an answer of None; the other implementations still
run. An implementation may return a Deferred or a coroutine only if the hook's description allows
it. Access control is the exception: a validator that raises denies the request, and so does a
plugin that cannot supply its validators. A plugin with a hook or an argument that does not exist,
with a wrapper or a generator as a hook, or with an ``async`` hook for which nothing waits, is
logged and left out completely.

Cost: "once" hooks run at the start, "rare" hooks run on events such as a new client, "request"
hooks run for each request, and "batch" hooks run for each batch of messages that are handled
together. No hook is called for each message: a batch hook receives all messages of the batch. A
hook without implementations costs nothing.

Source: design of twistmq; protocol notes section 7 lists the Apache counterparts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from twistmq.broker.plugin.hook_kinds import hookspec

if TYPE_CHECKING:
    import click

    from twistmq.broker.config.settings import Setting, SettingCheck, Settings
    from twistmq.broker.observe.metrics import MetricFamily
    from twistmq.broker.observe.supervisor_pages import BrokerPages, SupervisorPages
    from twistmq.broker.plugin.interfaces import (
        IBroadcastOffsets,
        IConsumerFilters,
        IFilterLanguage,
        ITransactionService,
    )
    from twistmq.broker.plugin.synced_table import SyncedTable
    from twistmq.broker.remoting.interfaces import IAccessValidator, IFlowControl
    from twistmq.broker.remoting.messages import AnyHandler, Reply, Request
    from twistmq.broker.request.client_table import ClientChange
    from twistmq.broker.request.consume_context import ConsumeContext
    from twistmq.broker.request.send_context import SendBatch
    from twistmq.broker.scheduling.periodic import PeriodicTask
    from twistmq.broker.store.inspect.plugin_files import PluginFiles
    from twistmq.broker.store.stored_records import TagsCode
    from twistmq.protocol.bodies import TopicConfigSerializeWrapper
    from twistmq.protocol.errors import BrokerError
    from twistmq.protocol.record import MessageRecord


# --- 1. declarations ---------------------------------------------------------------------


@hookspec(is_declaration=True)
def register_settings() -> Sequence[Setting] | None:
    """Declare settings of the plugin; they are read, checked and documented like the kernel's.

    Called before the settings are read. All answers are joined. A name without a dot must be a
    setting of Apache, whose row names Apache's class as ``source``. A plugin is left out completely
    if it declares a setting that the kernel or an earlier plugin has. Rules that only the plugin
    can check go into ``register_setting_checks``. Cost class: once.
    """


@hookspec(is_declaration=True)
def register_setting_checks() -> Sequence[SettingCheck] | None:
    """Add rules for settings that a start checks, beyond the rules in their rows.

    Called after the settings are read, by a start and by ``twistmq doctor``. A check raises
    SettingsError, or BrokerError for a problem of the host. The error stops the start, or refuses a
    change by a tool, in which case ``settings.running`` contains the settings of the running
    process. If a check raises anything else, the fault is logged and the check counts as passed. A
    check must not block. Cost class: once, and each change of a tool.
    """


@hookspec(is_declaration=True)
def register_commands() -> Sequence[click.Command] | None:
    """Add subcommands to the ``twistmq`` command line.

    Called when the command line needs help texts or a command that is not built in. A built-in
    command keeps its name; if two plugins use the same name, the command of the plugin that is
    called first is used. Cost class: once.
    """


@hookspec(is_declaration=True)
def register_store_files() -> Sequence[PluginFiles] | None:
    """Define how the files that the plugin keeps in a store are checked and listed.

    Called when ``twistmq store`` inspects a store of twistmq or Apache, whether or not a broker
    uses it. There is neither a broker nor settings, and nothing may be changed. If two plugins use
    the same name, the answer of the plugin that is called first is used. Cost class: rare.
    """


@hookspec(is_declaration=True, first_answer=True)
def choose_ledger_folder(settings: Settings) -> str | None:
    """Make the log of the store a ledger, on which a group of brokers agrees, in this folder.

    Called when the store is made. The plugin confirms the entries: until then no message is
    readable. Without a folder the store has an ordinary commit log. A SettingsError stops the
    start. Cost class: once.
    """


@hookspec(is_declaration=True)
def register_supervisor_pages(
    settings: Settings, brokers: BrokerPages
) -> Sequence[SupervisorPages] | None:
    """Serve pages about all brokers of ``twistmq broker --brokers N`` in the supervisor.

    Called once all brokers answer. ``brokers`` returns a page of each broker, from a separate port
    whose setting is an ``inner_port``; the supervisor uses the port of the setting itself. A
    SettingsError stops the start. Cost class: once.
    """


# --- 2. start ------------------------------------------------------------------------------


@hookspec()
def register_tags_codes() -> Mapping[str, TagsCode] | None:
    """Define by topic the number in a record's queue entry, if it is not the hash of the tag.

    Called before the store is loaded, because recovery rebuilds entries: a function must return the
    same number for a record at every call. A SettingsError or a StoreError stops the start. For
    each topic, the first plugin that names it is used. Cost class: once; the returned functions,
    each message of the topic. Source: CommitLog.checkMessageAndReturnSize.
    """


@hookspec()
def register_filter_languages() -> Mapping[str, IFilterLanguage] | None:
    """Add languages for the expressions of subscriptions, by expression type.

    Called before the store is loaded. The kernel provides ``TAG``. For each type, the first plugin
    that names it is used. Cost class: once.
    """


@hookspec(first_answer=True)
def provide_consumer_filters() -> IConsumerFilters | None:
    """Supply the service that keeps the filters of consumer groups.

    Called before the store is loaded, when the languages are known; the service of the plugin
    called first is used. Without this service, the filter of each pull is made from its expression.
    A SettingsError or a StoreError stops the start. Cost class: once; the returned service,
    request. Source: ConsumerFilterManager.
    """


@hookspec(first_answer=True)
def provide_transaction_service() -> ITransactionService | None:
    """Supply the service that accepts half messages.

    Called before the broker listens; the service of the plugin called first is used. Without this
    service, transactional sends are answered with REQUEST_CODE_NOT_SUPPORTED. Cost class: once.
    """


@hookspec(first_answer=True)
def provide_broadcast_offsets() -> IBroadcastOffsets | None:
    """Supply the service that keeps consumer offsets for broadcast groups.

    Called before the broker listens; the service of the plugin called first is used. Without this
    service, clients of such groups pull from the offset in their request. Cost class: once; the
    returned service, request. Source: BroadcastOffsetManager.
    """


@hookspec(first_answer=True)
def provide_flow_control() -> IFlowControl | None:
    """Supply the service that refuses requests when the broker is overloaded.

    Called before the broker listens; the service of the plugin called first is used. Without this
    service, the broker reads later from clients that send too much, so that they wait. Cost class:
    once; the returned service, each read of a socket. Source: BrokerFastFailure,
    NettyRequestProcessor.rejectRequest.
    """


@hookspec()
def claim_properties() -> Collection[str] | None:
    """Return the message properties whose features this plugin provides.

    Some properties request a feature: DELAY requests a delay level, and TIMER_DELAY_SEC,
    TIMER_DELAY_MS and TIMER_DELIVER_MS request a time. A message with such a property is refused if
    no plugin claims it, because an ordinary message would be delivered at once. Half messages are
    handled by ``provide_transaction_service``. Called before the broker listens. Cost class: once.
    Source: HookUtils.handleScheduleMessage.
    """


@hookspec()
def provide_access_validators() -> Sequence[IAccessValidator] | None:
    """Supply validators that each request must pass before any other processing.

    Called before the broker listens. All validators of all plugins must accept a request. They
    check every request, including requests with an unknown code or a header that cannot be read. A
    SettingsError stops the start. If an implementation raises anything else, the broker starts and
    denies every request, because a broker that is configured to check access must not serve
    requests unchecked. With ``aclEnable=true`` or ``authenticationEnabled=true``, and without any
    validator, the broker does not start. A plugin whose validators belong to one of these settings
    names it in its attribute ``access_setting``. If there is only one validator and it provides
    ``IRunValidator``, it may accept the first sends of a read together. Cost class: once; the
    returned validators, request.
    """


@hookspec()
def register_request_handlers() -> Sequence[AnyHandler] | None:
    """Add rows to the table of request handlers.

    Called before the broker listens. Each request code has one handler: the row of a plugin
    replaces the kernel's row, and if two plugins have a row for the code, the plugin called first
    is used. A request is refused before it is read if its header or body is longer than its row
    allows with `header_size_max` and `body_size_max`; the default of both is 64 KiB. Cost class:
    once.
    """


@hookspec()
def wrap_request_handlers(handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler] | None:
    """Wrap rows of the table of request handlers with rows that call the given ones.

    Called when the table is complete, before the broker listens. A returned row replaces the row of
    the same code. It may change the request, call the `handle` (or `handle_batch`, if there is one)
    of the old row with another request, and read the answer. A row for a code without a handler is
    left out. The row of the plugin called first is the outermost one. Cost class: once; the
    returned rows, request.

    - `handlers`: the rows by code, including the wrappers of plugins that are called later.
    """


@hookspec()
def register_periodic_tasks() -> Sequence[PeriodicTask] | None:
    """Add periodic tasks; a task that raises is logged and runs again after its period.

    Called before the broker listens. Cost class: once.
    """


@hookspec(may_wait=True)
def on_start() -> Deferred[None] | None:
    """The store is loaded, and the broker is about to listen. May return a Deferred to wait for.

    A SettingsError stops the start; it means that a setting of the plugin is not valid. A
    StoreError also stops the start; it means that a file of the plugin is not usable. Any other
    failure is logged, as in every hook. Cost class: once.
    """


@hookspec()
def register_synced_tables() -> Sequence[SyncedTable] | None:
    """Return the plugin's tables that a slave copies from its master.

    Called by the replication plugin once the broker has started; without such a plugin, no table is
    copied. Topics, groups and consumer offsets are not among these tables. All answers are joined.
    Cost class: once. Source: SlaveSynchronize.
    """


# --- 3. each request -----------------------------------------------------------------------


@hookspec(first_answer=True)
def before_request(request: Request[Any]) -> Reply | BrokerError | None:
    """Inspect a request before its handler runs; may return a reply or an error instead.

    After the first plugin that answers, no further plugins are called. Cost class: request. Source:
    RPCHook.doBeforeRequest.
    """


@hookspec()
def after_response(request: Request[Any], reply: Reply) -> None:
    """Inspect a request and its reply before the reply is written.

    The reply to a one-way request is not written. Cost class: request. Source:
    RPCHook.doAfterResponse.
    """


# --- 4. each batch of messages -------------------------------------------------------------


@hookspec()
def before_send(batch: SendBatch) -> Mapping[int, BrokerError] | None:
    """Inspect the messages of producers before they are appended.

    :param batch: send requests that are handled together, with their records. They may come from
        several connections; the ``channel`` of a request identifies its connection.
    :returns: None, or the refusals by index into ``batch.requests``.

    Cost class: batch. Source: SendMessageHook.sendMessageBefore.
    """


@hookspec()
def before_append(records: Sequence[MessageRecord]) -> Mapping[int, BrokerError] | None:
    """Check records that any part of the broker is about to append; may change them.

    A plugin may redirect a record by setting ``topic`` and ``queue_id``, and change its
    properties, tags code and keys. It is also called for records that plugins append.

    :returns: None, or the refusals by index into ``records``.

    Cost class: batch. Source: PutMessageHook.
    """


@hookspec()
def on_dispatch(records: Sequence[MessageRecord]) -> None:
    """Records have been entered in the consume queues and the index.

    Records that a start enters again after a crash are not passed to this hook again. A plugin that
    needs each record once saves its position and reads the log from there. Cost class: batch.
    Source: CommitLogDispatcher.
    """


@hookspec()
def on_message_arrival(records: Sequence[MessageRecord]) -> None:
    """Records are now readable; waiting pulls have been woken. Cost class: batch.

    Source: MessageArrivingListener.
    """


@hookspec()
def after_send(batch: SendBatch) -> None:
    """The messages of a batch have been stored or refused, as ``batch.replies`` shows.

    Cost class: batch. Source: SendMessageHook.sendMessageAfter.
    """


@hookspec(first_answer=True)
def before_consume(context: ConsumeContext) -> BrokerError | None:
    """A consumer requests messages; return an error to refuse the request.

    After the first plugin that refuses, no further plugins are called. Cost class: request. Source:
    ConsumeMessageHook.consumeMessageBefore.
    """


@hookspec()
def after_consume(context: ConsumeContext) -> None:
    """Messages are about to be sent to a consumer. Cost class: request.

    Source: ConsumeMessageHook.consumeMessageAfter.
    """


# --- 5. events -----------------------------------------------------------------------------


@hookspec()
def complete_topic_tables(tables: TopicConfigSerializeWrapper, registering: bool) -> None:
    """Add data to the tables of all topics, before they are registered or sent to a tool.

    Cost class: rare.

    - `tables`: the tables to send, without the topics themselves, which follow.
    - `registering`: whether the tables are sent to name servers; otherwise they are the answer to a
      request for all topics.

    Source: BrokerController.registerBrokerAll, AdminBrokerProcessor.getAllTopicConfig.
    """


@hookspec()
def on_client_change(change: ClientChange) -> None:
    """A producer or consumer has connected, left or changed its subscriptions. Cost class: rare.

    Source: ConsumerIdsChangeListener, ProducerChangeListener.
    """


@hookspec()
def on_role_change(role: str, broker_id: int) -> None:
    """The broker's role is now ``role`` (ASYNC_MASTER, SYNC_MASTER or SLAVE). Cost class: rare.

    Also called once at the start. Source: BrokerAttachedPlugin.statusChanged.
    """


@hookspec()
def on_half_message_discarded(record: bytes) -> None:
    """A half message has been checked too often and is discarded. Cost class: rare.

    Called by the transaction service in use, through the broker's ``hooks``.

    :param record: the stored half message.

    Source: AbstractTransactionalMessageCheckListener.resolveDiscardMsg.
    """


@hookspec()
def add_runtime_info() -> Mapping[str, str] | None:
    """Add rows to the runtime table that ``mqadmin brokerStatus`` prints. Cost class: rare.

    Source: BrokerAttachedPlugin.buildRuntimeInfo.
    """


@hookspec()
def collect_metrics() -> Sequence[MetricFamily] | None:
    """Return metrics of the plugin for a scrape.

    Called for each scrape, possibly every few seconds, so it must be quick and must not start to
    count anything. The name of a metric begins with the name of the plugin, or is Apache's. If two
    families have the same name, the family of the plugin that is called first is used. Cost class:
    rare. Source: BrokerMetricsManager.
    """


# --- 6. stop -------------------------------------------------------------------------------


@hookspec(may_wait=True)
def on_stop() -> Deferred[None] | None:
    """The broker no longer listens; the store is still open. May return a Deferred to wait for.

    Cost class: once.
    """


# --- 7. name server ------------------------------------------------------------------------


@hookspec(may_wait=True)
def on_namesrv_start() -> Deferred[None] | None:
    """A name server is about to listen. May return a Deferred to wait for.

    A SettingsError stops the start; any other failure is logged. Under ``twistmq up`` the hook is
    called before the broker starts. Cost class: once.
    """


@hookspec()
def collect_namesrv_metrics() -> Sequence[MetricFamily] | None:
    """Return metrics of a name server for a scrape.

    This hook is the counterpart of ``collect_metrics``. Under ``twistmq up`` these metrics are on
    the page of the broker. Cost class: rare.
    """


@hookspec(may_wait=True)
def on_namesrv_stop() -> Deferred[None] | None:
    """A name server no longer listens. May return a Deferred to wait for.

    Cost class: once.
    """
