"""Builds the cores of producers and consumers from their options, for all shells."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from twistmq.client.base.argument_checks import check_text, check_whole
from twistmq.client.base.codecs import Serialiser, check_codec
from twistmq.client.base.errors import OptionError
from twistmq.client.base.times import unix_ms
from twistmq.client.base.unknown_names import unknown_name
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.producer.fault_tolerance import TABLE_4, TABLE_5
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.client.shell.identity import process_ids
from twistmq.client.shell.options import (
    CLIENT,
    CONSUMER,
    POP_CONSUMER,
    PRODUCER,
    PULL_CONSUMER,
    NameServers,
    Option,
    check_call,
    values_of,
)
from twistmq.protocol.topic_names import group_fault

if TYPE_CHECKING:
    from twistmq.client.core.consumer.flow_control import PullLimits
    from twistmq.client.core.consumer.member import Member
    from twistmq.client.core.consumer.pull_consumer import PullMember
    from twistmq.client.core.consumer.subscriptions import Subscription, Topics
    from twistmq.client.core.pop.pop_consumer import PopMember
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["Parts", "Value", "build_consumer", "build_pop_consumer", "build_producer",
           "build_pull_consumer", "divide", "parts_of"]

C = TypeVar("C")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    #: The type of the values of a consumer, ``Consumer[bytes]``; type checkers need no annotation.
    Value = DefaultTypeVar("Value", default=Any)
else:
    Value = TypeVar("Value")

#: Keywords that are not options: the first set is for all roles, the second is for consumers.
_NAMES: Final = frozenset({"name_servers", "client"})
_CONSUMER_NAMES: Final = _NAMES | {"group", "topics"}
#: The handler time-out, in ms, of a consumer whose handlers have no time limit.
UNTIMED_MS: Final = 10**15


@dataclass(frozen=True, slots=True)
class Parts(Generic[C]):
    """The parts of a producer or consumer, as derived from its arguments.

    :param is_own: whether the client was made for it and is closed together with it.
    :param options: its own options, without the client's options.
    """

    client: C
    is_own: bool
    options: dict[str, Any]


def divide(
    rows: Sequence[Option], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide options into the options of a producer or consumer and the client's options.

    :param rows: the options of the producer or consumer.
    """
    names = {row.name for row in rows}
    mine = {name: value for name, value in arguments.items() if name in names}
    return mine, {name: value for name, value in arguments.items() if name not in names}


def parts_of(
    name_servers: NameServers, client: C | None, kind: type[C], rows: Sequence[Option],
    arguments: Mapping[str, Any], **more: Any,
) -> Parts[C]:
    """Return the given client, or a new one that is made with the client's part of the options.

    :param kind: the shell's class of clients.
    :param rows: the options of the producer or consumer.
    :param more: further arguments of a new client.
    :raises OptionError: when a client is given together with name servers or options of a client.
    """
    mine, others = divide(rows, arguments)
    if isinstance(name_servers, kind):
        if client is not None:
            raise OptionError("give one client to share")
        warnings.warn("pass a client to share as client=..., not in place of the name servers",
                      DeprecationWarning, stacklevel=4)
        name_servers, client = None, name_servers
    if client is None:
        client_names = {row.name for row in CLIENT}
        for name in others:
            if name not in client_names:
                raise OptionError(unknown_name(
                    "option", name, {*client_names, *(row.name for row in rows),
                                     *(_NAMES if rows is PRODUCER else _CONSUMER_NAMES)}))
        return Parts(kind(name_servers, **more, **others), True, mine)  # type: ignore[call-arg]
    if not isinstance(client, kind):
        raise OptionError(f"client is a {type(client).__name__}, not a {kind.__module__}.Client")
    if name_servers is not None:
        raise OptionError("give name_servers or a client to share, not both")
    if rows is PRODUCER and "timeout_s" in others:
        mine["timeout_s"] = others.pop("timeout_s")
    if others:
        raise OptionError(f"{', '.join(sorted(others))}: options of the client, which already "
                          "exists")
    return Parts(client, False, mine)


def build_producer(
    core: ClientCore, arguments: Mapping[str, Any], *, awaits: bool = False
) -> Sender:
    """Build the core of a producer.

    :param arguments: its options; they contain ``timeout_s``, the time-out of a send, if it
        differs from the client's.
    :param awaits: whether the shell awaits ``on_check`` if it is a coroutine function.
    """
    own = dict(arguments)
    timeout_s = own.pop("timeout_s", core.options.timeout_ms / 1000)
    values_of(CLIENT, {"timeout_s": timeout_s})
    values = values_of(PRODUCER, own)
    options = ProducerOptions(
        group=values["group"], timeout_ms=timeout_s * 1000, retries=core.options.retries,
        require_safe=values["require_safe"], compress_over=values["compress_over"],
        codec=values["codec"], in_flight_max=values["in_flight_max"],
        in_flight_bytes_max=values["in_flight_bytes_max"], auto_batch=values["auto_batch"],
        attempt_timeout_ms=(None if values["attempt_timeout_s"] is None
                            else values["attempt_timeout_s"] * 1000),
        avoid_slow=values["avoid_slow"],
        latencies=TABLE_4 if values["latency_table"] == "4.9" else TABLE_5,
        await_master=values["await_master"])
    fault = group_fault(options.group)
    if fault is not None:
        raise OptionError(f"group {options.group!r}: {fault}")
    if options.compress_over:
        check_codec(options.codec)
    encode = values["encode"]
    sender = Sender(core, options, process_ids(core.client_id),
                    encode.encode if isinstance(encode, Serialiser) else encode)
    if values["trace"]:
        sender.trace = _trace(core, options.group)
    if values["on_check"] is not None:
        if not awaits:
            check_call("option on_check", values["on_check"])
        # Imported here, because few producers need it.
        from twistmq.client.core.producer.transactions import Checks

        sender.checks = Checks(sender, values["on_check"])
    return sender


def build_consumer(
    core: ClientCore, group: str, topics: Topics, arguments: Mapping[str, Any]
) -> Member[Any]:
    """Build the core of a consumer."""
    # Imported here, because a producer needs none of these modules.
    from twistmq.client.core.consumer.assigned_queues import MemberOptions
    from twistmq.client.core.consumer.broker_requests import serve_tools
    from twistmq.client.core.consumer.flow_control import PullLimits
    from twistmq.client.core.consumer.push_consumer import push_member
    from twistmq.client.core.consumer.strategies import Averagely
    from twistmq.client.shell.offset_file import OffsetFile

    check_text(group, "group")
    values = values_of(CONSUMER, arguments)
    subscriptions = _required_subscriptions(core, topics)
    start = _start(values["start"])
    broadcast = values["mode"] == "broadcast"
    options = MemberOptions(
        group=group, is_broadcast=broadcast, in_order=values["order"] == "queue", start=start,
        strategy=values["strategy"] or Averagely(), max_attempts=values["max_attempts"],
        consume_timeout_ms=values["consume_timeout_s"] * 1000,
        suspend_ms=values["suspend_s"] * 1000, cache_bytes_max=values["cache_bytes_max"],
        limits=_limits(values["limits"] or PullLimits()), pull_count=values["pull_count"],
        damaged=values["damaged"])
    sender = Sender(core, ProducerOptions(group="CLIENT_INNER_PRODUCER"),
                    process_ids(core.client_id))
    file = OffsetFile(core.client_id, group, values["offset_folder"]) if broadcast else None
    member: Member[Any] = push_member(
        core, options, subscriptions, sender, decode=values["decode"], file=file,
        trace=_trace(core, group) if values["trace"] else None)
    _listen(member, values)
    serve_tools(core)
    return member


def build_pull_consumer(
    core: ClientCore, group: str, topics: Topics | None, arguments: Mapping[str, Any]
) -> PullMember[Any]:
    """Build the core of a consumer that is polled."""
    # Imported here, because few programs need it.
    from twistmq.client.core.consumer.assigned_queues import MemberOptions
    from twistmq.client.core.consumer.broker_requests import serve_tools
    from twistmq.client.core.consumer.flow_control import PullLimits
    from twistmq.client.core.consumer.pull_consumer import PullMember
    from twistmq.client.core.consumer.strategies import Averagely

    check_text(group, "group")
    values = values_of(PULL_CONSUMER, arguments)
    options = MemberOptions(
        group=group, start=_start(values["start"]), strategy=values["strategy"] or Averagely(),
        consume_timeout_ms=UNTIMED_MS, cache_bytes_max=values["cache_bytes_max"],
        limits=_limits(values["limits"] or PullLimits()), pull_count=values["pull_count"],
        damaged=values["damaged"])
    # This member sends nothing, but each member has a sender.
    sender = Sender(core, ProducerOptions(group="CLIENT_INNER_PRODUCER"),
                    process_ids(core.client_id))
    subscriptions = {} if topics is None else _subscriptions_of(core, topics)
    pull: PullMember[Any] = PullMember(
        core, options, subscriptions, sender, decode=values["decode"])
    _listen(pull.member, values)
    serve_tools(core)
    return pull


def build_pop_consumer(
    core: ClientCore, group: str, topics: Topics, arguments: Mapping[str, Any]
) -> PopMember[Any]:
    """Build the core of a consumer that pops."""
    # Imported here, because few programs need it.
    from twistmq.client.core.consumer.assigned_queues import PopOptions
    from twistmq.client.core.consumer.broker_requests import serve_tools
    from twistmq.client.core.consumer.strategies import Averagely
    from twistmq.client.core.pop.pop_consumer import PopMember

    check_text(group, "group")
    values = values_of(POP_CONSUMER, arguments)
    start = values["start"]
    if start not in ("last", "first"):
        raise OptionError(f"option start: {start!r}, not 'last' or 'first'; brokers cannot pop "
                          "from a time")
    options = PopOptions(
        group=group, in_order=values["order"] == "queue", start=start,
        strategy=values["strategy"] or Averagely(), max_attempts=values["max_attempts"],
        consume_timeout_ms=values["consume_timeout_s"] * 1000,
        suspend_ms=values["suspend_s"] * 1000, cache_bytes_max=values["cache_bytes_max"],
        pull_count=values["pop_count"], invisible_ms=values["invisible_s"] * 1000,
        in_flight_max=values["in_flight_max"])
    # The sender sends the replies to requests.
    sender = Sender(core, ProducerOptions(group="CLIENT_INNER_PRODUCER"),
                    process_ids(core.client_id))
    pop: PopMember[Any] = PopMember(
        core, options, _required_subscriptions(core, topics), sender, decode=values["decode"],
        trace=_trace(core, group) if values["trace"] else None)
    _listen(pop.member, values)
    serve_tools(core)
    return pop


def _required_subscriptions(core: ClientCore, topics: Topics) -> dict[str, Subscription]:
    """Like ``_subscriptions_of``; :raises OptionError: when there is no topic."""
    subscriptions = _subscriptions_of(core, topics)
    if not subscriptions:
        raise OptionError("a consumer reads at least one topic")
    return subscriptions


def _subscriptions_of(core: ClientCore, topics: Topics) -> dict[str, Subscription]:
    """Return the subscriptions of a consumer, by the topic's name at brokers."""
    from twistmq.client.core.consumer.subscriptions import subscription, subscriptions

    entries = [subscription(core.namespace.topic(topic), expression)
               for topic, expression in subscriptions(topics).items()]
    return {each.topic: each for each in entries}


def _limits(limits: PullLimits) -> PullLimits:
    """Return the option ``limits``; :raises OptionError: when a limit is not a whole number."""
    for name in ("count", "byte_count", "span"):
        check_whole(getattr(limits, name), f"option limits: {name}", 1)
    for name in ("topic_count", "topic_byte_count"):
        check_whole(getattr(limits, name), f"option limits: {name}", -1)
    return limits


def _start(start: Any) -> str | int:
    """Return the option ``start``: "last", "first" or Unix ms."""
    if not isinstance(start, str):
        return unix_ms(start, "option start")
    if start not in ("last", "first"):
        raise OptionError(f"option start: {start!r}, not 'last', 'first', a datetime or seconds "
                          "since 1970")
    return start


def _listen(member: Member[Any], values: Mapping[str, Any]) -> None:
    for name, listeners in (("on_assigned", member.listeners.on_assigned),
                            ("on_lost", member.listeners.on_lost)):
        if values[name] is not None:
            listeners.append(values[name])


def _trace(core: ClientCore, group: str) -> Trace:
    """Return the trace of a producer or consumer."""
    # Imported here, because few programs need it.
    from twistmq.client.core.producer.tracer import TRACE_GROUP, Trace

    # Readers of traces, including our broker, do not have to decompress.
    options = ProducerOptions(group=f"{TRACE_GROUP}-{group}", compress_over=0)
    sender = Sender(core, options, process_ids(core.client_id))
    return Trace(core, sender, sender.preparer, group)
