"""Every hook a plugin can implement, in the order the broker calls them.

A plugin is a class named by an entry point of the group ``twistmq``. Each broker makes an object of
it, with the broker as the only argument; methods marked with ``twistmq.broker.hookimpl`` implement
hooks of the same name and may take any subset of a hook's arguments. All hooks run on the reactor's
thread.

A name server has plugins too: those of the group ``twistmq.namesrv``, made with the name server. Of
them it calls ``register_settings``, ``before_request``, ``after_response`` and the hooks of its
own, which are the last here; a plugin for both kinds of server is named in both groups.

Constructor: it runs when the tables are loaded, before the store is. A SettingsError or a
StoreError stops the start; a plugin whose constructor raises anything else is left out with a
notice, and if it has ``provide_access_validators``, every request is denied. A class without a
constructor is made without arguments. The hooks under "Declarations" run without a broker: they are
static or class methods.

Order: the last plugin registered runs first; stock plugins are registered before third-party
ones, both in the order of their names. ``tryfirst``/``trylast`` change that, as in pluggy.

Faults: an implementation that raises, or returns what the hook does not allow, is logged with its
plugin's name and counted as having returned None; the others still run. A Deferred or a coroutine
is allowed only where the hook says that it is waited for. The exception is access:
a validator that raises denies, and so does a plugin that cannot supply its validators. A plugin
with a hook or an argument that does not exist, with a wrapper or a generator as a hook, or with an
``async`` hook that is not waited for, is logged and left out whole.

Cost: "once" hooks run at start; "rare" ones on events such as a client coming; "request" ones for
each request; "batch" ones for each batch of messages that are handled together. Nothing here is
called for each message: a batch hook gets them all. A hook without implementation costs nothing.

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
    """Declare settings of the plugin; they are read, checked and documented as the kernel's are.

    Called before the settings are read. All answers are joined. A name without a dot is Apache's:
    its row names Apache's class as ``source``. A plugin with a setting that the kernel or a plugin
    before it has is left out whole. Rules that only the plugin can check go into
    ``register_setting_checks``. Cost class: once.
    """


@hookspec(is_declaration=True)
def register_setting_checks() -> Sequence[SettingCheck] | None:
    """Say what a start demands of settings, beside what their rows say.

    Called when the settings were read, by a start and by ``twistmq doctor``. A check raises
    SettingsError, or a BrokerError for what there is on the host; that stops the start, or refuses
    the change of a tool, for which ``settings.running`` has what runs. One that raises anything
    else is logged and passes. It must not wait. Cost class: once, and each change of a tool.
    """


@hookspec(is_declaration=True)
def register_commands() -> Sequence[click.Command] | None:
    """Add subcommands to the ``twistmq`` command line.

    Called when the command line is asked for a command it does not have itself, or for help. A
    command of its own keeps its name; of two plugins' with one name the one of the plugin that is
    called first is used. Cost class: once.
    """


@hookspec(is_declaration=True)
def register_store_files() -> Sequence[PluginFiles] | None:
    """Say how files that the plugin keeps in a store are checked and listed.

    Called when ``twistmq store`` looks at a store, its own or Apache's, beside a broker or not:
    there is no broker and there are no settings, and nothing may be changed. Of two with one name
    the plugin's that is called first is used. Cost class: rare.
    """


@hookspec(is_declaration=True)
def register_supervisor_pages(
    settings: Settings, brokers: BrokerPages
) -> Sequence[SupervisorPages] | None:
    """Serve pages over all brokers of ``twistmq broker --brokers N``, in the supervisor's process.

    Called when all brokers answer. ``brokers`` gives a page of each broker, from a port of its own
    whose setting is an ``inner_port``; the supervisor has the port of the setting itself. A
    SettingsError stops the start. Cost class: once.
    """


# --- 2. start ------------------------------------------------------------------------------


@hookspec()
def register_tags_codes() -> Mapping[str, TagsCode] | None:
    """Say, by topic, which number stands in a record's queue entry, where it is not the tag's hash.

    Called before the store is loaded, because recovery makes entries again: a function must give
    the same number for a record whenever it is asked. A SettingsError or a StoreError stops the
    start. The plugin called first that names a topic has it. Cost class: once; what it returns,
    each message of the topic. Source: CommitLog.checkMessageAndReturnSize.
    """


@hookspec()
def register_filter_languages() -> Mapping[str, IFilterLanguage] | None:
    """Add languages a subscription's expression can be written in, by expression type.

    Called before the store is loaded. ``TAG`` is the kernel's own. The plugin called first that
    names a type has it. Cost class: once.
    """


@hookspec(first_answer=True)
def provide_consumer_filters() -> IConsumerFilters | None:
    """Supply what keeps the filters of groups; without one each pull's is made of the expression.

    Called before the store is loaded, when the languages are known; what the plugin called first
    supplies is used. A SettingsError or a StoreError stops the start. Cost class: once; what it
    returns, request. Source: ConsumerFilterManager.
    """


@hookspec(first_answer=True)
def provide_transaction_service() -> ITransactionService | None:
    """Supply the one service that takes half messages.

    Called before the broker listens; the service of the plugin called first is used. Without
    one, transactional sends answer REQUEST_CODE_NOT_SUPPORTED. Cost class: once.
    """


@hookspec(first_answer=True)
def provide_broadcast_offsets() -> IBroadcastOffsets | None:
    """Supply the provider of consumer offsets for broadcast groups.

    Called before the broker listens; what the plugin called first supplies is used. Without one
    such clients pull from where they say. Cost class: once; what it returns, request.
    Source: BroadcastOffsetManager.
    """


@hookspec(first_answer=True)
def provide_flow_control() -> IFlowControl | None:
    """Supply what refuses requests when more come than the broker can serve.

    Called before the broker listens; what the plugin called first supplies is used. Without one
    clients that send too much are read later, and wait. Cost class: once; what it returns, each
    read of a socket. Source: BrokerFastFailure, NettyRequestProcessor.rejectRequest.
    """


@hookspec()
def claim_properties() -> Collection[str] | None:
    """Name the message properties whose features this plugin provides.

    Some properties ask for something: DELAY for a delay level; TIMER_DELAY_SEC, TIMER_DELAY_MS and
    TIMER_DELIVER_MS for a time. A message with one that no plugin claims is refused, because
    storing it as an ordinary one would deliver it at once. Half messages are
    ``provide_transaction_service``'s. Called before the broker listens. Cost class: once.
    Source: HookUtils.handleScheduleMessage.
    """


@hookspec()
def provide_access_validators() -> Sequence[IAccessValidator] | None:
    """Supply validators that each request must pass before anything else looks at it.

    Called before the broker listens. All validators of all plugins must agree. They are asked for
    every request, also for one of an unknown code or with a header that cannot be read. A
    SettingsError stops the start. When an implementation raises anything else, the broker starts
    and every request is denied: it must not serve unguarded what it was told to guard. With
    ``aclEnable=true`` and no validator at all it does not start either. A validator that is alone
    and provides ``IRunValidator`` may let the first sends of a read pass together.
    Cost class: once; what it returns, request.
    """


@hookspec()
def register_request_handlers() -> Sequence[AnyHandler] | None:
    """Add rows to the table of request handlers.

    Called before the broker listens. A code has one handler: a plugin's row replaces the
    kernel's, and of two plugins' rows the one of the plugin called first is used. A request whose
    header or body is longer than its row says, 64 KiB each unless it does, is refused before it is
    read: `header_size_max`, `body_size_max`. Cost class: once.
    """


@hookspec()
def wrap_request_handlers(handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler] | None:
    """Stand before rows of the table of request handlers: return rows that call those given.

    Called when the table is whole, before the broker listens. A row replaces that of its code; it
    may change the request, or have the old row's `handle`, or `handle_batch` where that is there,
    be called with another one, and look at the answer. A row for a code without a handler is left
    out. The plugin called first stands before those of the others. Cost class: once; what it
    returns, request.

    - `handlers`: the rows by code, with what was put before them by plugins called later.
    """


@hookspec()
def register_periodic_tasks() -> Sequence[PeriodicTask] | None:
    """Add tasks that run again and again; one that raises is logged and runs next period.

    Called before the broker listens. Cost class: once.
    """


@hookspec(may_wait=True)
def on_start() -> Deferred[None] | None:
    """The store is loaded, the broker is about to listen. May return a Deferred to be waited for.

    A SettingsError stops the start: what the user asked of the plugin has no meaning. So does a
    StoreError: a file of the plugin's own cannot be used. Any other failure is logged, as in every
    hook. Cost class: once.
    """


@hookspec()
def register_synced_tables() -> Sequence[SyncedTable] | None:
    """Name the plugin's tables that a slave copies from its master.

    Called by a plugin that replicates, once the broker has started; without one nothing is copied.
    Topics, groups and consumer offsets are not among them. All answers are joined.
    Cost class: once. Source: SlaveSynchronize.
    """


# --- 3. each request -----------------------------------------------------------------------


@hookspec(first_answer=True)
def before_request(request: Request[Any]) -> Reply | BrokerError | None:
    """Look at a request before its handler; return a reply or an error to answer it instead.

    Plugins behind the first that answers are not called. Cost class: request.
    Source: RPCHook.doBeforeRequest.
    """


@hookspec()
def after_response(request: Request[Any], reply: Reply) -> None:
    """Look at a request and its reply before the reply is written; that of a one-way is not.

    Cost class: request. Source: RPCHook.doAfterResponse.
    """


# --- 4. each batch of messages -------------------------------------------------------------


@hookspec()
def before_send(batch: SendBatch) -> Mapping[int, BrokerError] | None:
    """Look at messages producers sent, before they are appended.

    :param batch: send requests that are handled together, with the records made of them. They may
        be of several connections: a request's ``channel`` says of which.
    :returns: None, or the refusals by index into ``batch.requests``.

    Cost class: batch. Source: SendMessageHook.sendMessageBefore.
    """


@hookspec()
def before_append(records: Sequence[MessageRecord]) -> Mapping[int, BrokerError] | None:
    """Check records before they are appended, by any part of the broker; may change them.

    A plugin may redirect a record by setting ``topic`` and ``queue_id``, and change its
    properties, tags code and keys. It is also called for records that plugins append.

    :returns: None, or the refusals by index into ``records``.

    Cost class: batch. Source: PutMessageHook.
    """


@hookspec()
def on_dispatch(records: Sequence[MessageRecord]) -> None:
    """Records got their places in consume queues and index.

    Records that a start enters again after a kill are not told again: a plugin that needs each
    record once keeps its position, and reads the log on from there. Cost class: batch.
    Source: CommitLogDispatcher.
    """


@hookspec()
def on_message_arrival(records: Sequence[MessageRecord]) -> None:
    """Records can now be read; waiting pulls were woken. Cost class: batch.

    Source: MessageArrivingListener.
    """


@hookspec()
def after_send(batch: SendBatch) -> None:
    """The messages of a batch were stored or refused; ``batch.replies`` says which.

    Cost class: batch. Source: SendMessageHook.sendMessageAfter.
    """


@hookspec(first_answer=True)
def before_consume(context: ConsumeContext) -> BrokerError | None:
    """A consumer asks for messages; return an error to refuse it.

    Plugins behind the first that refuses are not called. Cost class: request.
    Source: ConsumeMessageHook.consumeMessageBefore.
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

    - `tables`: what is told, without the topics themselves, which follow.
    - `registering`: whether name servers are told, else who asks for all topics.

    Source: BrokerController.registerBrokerAll, AdminBrokerProcessor.getAllTopicConfig.
    """


@hookspec()
def on_client_change(change: ClientChange) -> None:
    """A producer or consumer came, went or changed what it subscribes to. Cost class: rare.

    Source: ConsumerIdsChangeListener, ProducerChangeListener.
    """


@hookspec()
def on_role_change(role: str, broker_id: int) -> None:
    """The broker's role is now ``role`` (ASYNC_MASTER, SYNC_MASTER or SLAVE). Cost class: rare.

    Called once at start too. Source: BrokerAttachedPlugin.statusChanged.
    """


@hookspec()
def on_half_message_discarded(record: bytes) -> None:
    """A half message was checked too often and is given up. Cost class: rare.

    Called by the transaction service in use, through the broker's ``hooks``.

    :param record: the half message as stored.

    Source: AbstractTransactionalMessageCheckListener.resolveDiscardMsg.
    """


@hookspec()
def add_runtime_info() -> Mapping[str, str] | None:
    """Add rows to the runtime table that ``mqadmin brokerStatus`` prints. Cost class: rare.

    Source: BrokerAttachedPlugin.buildRuntimeInfo.
    """


@hookspec()
def collect_metrics() -> Sequence[MetricFamily] | None:
    """Tell metrics of the plugin's own, for a scrape that is being made.

    Called for each scrape, every few seconds perhaps: it must be quick, and count nothing then.
    Names begin with the plugin's, or are Apache's; of two families with one name the plugin's that
    is called first is used. Cost class: rare. Source: BrokerMetricsManager.
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
    """A name server is about to listen. May return a Deferred to be waited for.

    A SettingsError stops the start; any other failure is logged. Under ``twistmq up`` it is called
    before the broker starts. Cost class: once.
    """


@hookspec()
def collect_namesrv_metrics() -> Sequence[MetricFamily] | None:
    """Tell metrics of a name server, for a scrape that is being made.

    As ``collect_metrics`` is for a broker's. Under ``twistmq up`` they are on the broker's page.
    Cost class: rare.
    """


@hookspec(may_wait=True)
def on_namesrv_stop() -> Deferred[None] | None:
    """A name server no longer listens. May return a Deferred to wait for.

    Cost class: once.
    """
