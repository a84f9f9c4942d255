"""Every option of the client, one row for each, and their types.

``Client``, ``Producer`` and ``Consumer`` of all shells take these options as keywords. A producer
or consumer that makes its own client takes the client's options too. The section on options in
``README.md`` is generated from the rows. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from twistmq.client.base.errors import OptionError
from twistmq.client.base.functions import call_fault
from twistmq.client.base.unknown_names import unknown_name
from twistmq.client.shell.constructors import check_arguments

__all__ = [
    "CLIENT",
    "CONSUMER",
    "POP_CONSUMER",
    "PRODUCER",
    "PULL_CONSUMER",
    "NameServers",
    "Option",
    "check_call",
    "check_object",
    "lists_options",
    "milliseconds",
    "option_page",
    "time_out_ms",
    "values_of",
]

#: The addresses of name servers: "host:port;host:port", a list of "host:port",
#: "http://..." of an address server, "dns://host:port", or None for NAMESRV_ADDR.
NameServers = str | Sequence[str] | None

T = TypeVar("T")

_DAY_S: Final = 86_400
#: The longest time that a call can wait, seconds.
_SECONDS_MAX: Final = 365 * _DAY_S


class Option(msgspec.Struct, frozen=True):
    """One option.

    :param kinds: the names of the types that a value may have. For the names in ``_METHODS``, the
        methods of an object count, and its type does not.
    :param element: the kind of each element of a list.
    :param low: the minimum of a number; ``high`` is the maximum.
    :param choices: all texts that are valid values; if empty, any text is valid.
    :param may_be_awaited: whether the shells for event loops take a coroutine function too.
    :param apache: the name of the option in Apache's Java client; empty without a counterpart.
    """

    name: str
    kinds: tuple[str, ...]
    default: Any
    help: str
    apache: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    element: str = ""
    may_be_awaited: bool = False

    def check(self, value: Any) -> None:
        """:raises OptionError: when the value is not valid for the option."""
        if value == self.default and type(value) is type(self.default):
            return
        if self.kinds[0] in _METHODS:
            check_object(f"option {self.name}", value, self.kinds[0],
                         is_awaited=self.may_be_awaited)
            return
        # Types are compared by name, so that a program without TLS, for example, does not load it.
        kinds = {kind.__name__ for kind in type(value).__mro__}
        if isinstance(value, bool):
            kinds.discard("int")
        if kinds.isdisjoint(self.kinds):
            names = " or ".join(self.kinds)
            raise OptionError(f"option {self.name}: {type(value).__name__}, not {names}")
        if self.choices and value not in self.choices:
            choices = ", ".join(repr(choice) for choice in self.choices)
            raise OptionError(f"option {self.name}: {value!r}, not one of {choices}")
        if self.kinds == ("str",) and isinstance(value, str) and not value.isprintable():
            raise OptionError(f"option {self.name}: {value!r} contains characters that are not "
                              "printable")
        # NaN is neither less nor greater than a bound.
        if isinstance(value, int | float) and not (
                (self.low is None or value >= self.low)
                and (self.high is None or value <= self.high)):
            bounds = [f"at least {self.low:g}"] if self.low is not None else []
            bounds += [f"at most {self.high:g}"] if self.high is not None else []
            raise OptionError(f"option {self.name}: {value:g}, not {' and '.join(bounds)}")
        if self.element:
            for each in value:
                check_object(f"option {self.name}", each, self.element)


#: The kinds of objects whose class the program chooses, with the methods that they need.
_METHODS: Final = {
    "function": ("__call__",),
    "Strategy": ("allocate",),
    "Interceptor": ("before_send", "after_send", "before_consume", "after_consume",
                    "before_request"),
}


def check_call(what: str, function: object, *, is_awaited: bool = False) -> None:
    """Check that a call of a function does something.

    :param what: the purpose of the function, which the error names.
    :param is_awaited: whether the client awaits the result.
    :raises OptionError: when it is a generator function, or a coroutine function that the client
        does not await.
    """
    fault = call_fault(function, is_awaited=is_awaited)
    if fault is not None:
        raise OptionError(f"{what} {fault}; give a plain function")


def check_object(what: str, value: object, kind: str, *, is_awaited: bool = False) -> None:
    """Check that an object has the methods of its kind.

    :param what: the purpose of the object, which the error names.
    :param is_awaited: whether the client awaits the result of a function.
    :raises OptionError: when it lacks a method, when it is a class in place of an object, or when a
        call of it would do nothing.
    """
    methods = _METHODS[kind]
    if kind == "function":
        if not callable(value):
            raise OptionError(f"{what}: {type(value).__name__}, not a function")
        check_call(what, value, is_awaited=is_awaited)
    elif isinstance(value, type):
        raise OptionError(f"{what}: the class {value.__name__}, not an object of it; give "
                          f"{value.__name__}()")
    elif not all(callable(getattr(value, method, None)) for method in methods):
        raise OptionError(f"{what}: {type(value).__name__}, not an object with the methods of "
                          f"{kind}: {', '.join(methods)}")
    else:
        for method in methods:
            check_call(f"{what}: {type(value).__name__}.{method}", getattr(value, method))


_NUMBER: Final = ("int", "float")

CLIENT: Final = (
    Option("namespace", ("str",), "", "the namespace of all topics and groups, whose names are "
           "given without it", "namespace"),
    Option("namespace_v2", ("bool",), False,
           "requests carry the namespace in a field of its own, and names stay unchanged; Apache's "
           "brokers ignore it", "namespaceV2"),
    Option("credentials", ("Credentials",), None, "the account with which requests are signed",
           "AclClientRPCHook"),
    Option("tls", ("SSLContext",), None, "the TLS context of all connections; None: no TLS",
           "useTLS"),
    Option("unit", ("str",), "", "the part of the client id after the instance", "unitName"),
    Option("instance", ("str",), "", 'the part of the client id after the address; "": process, '
           "time and random bytes", "instanceName"),
    Option("timeout_s", _NUMBER, 3.0, "the time-out of a request; for a producer: of a send with "
           "all its attempts", "mqClientApiTimeout, sendMsgTimeout", 0.001, _DAY_S),
    Option("connect_timeout_s", _NUMBER, 3.0, "the time-out for making a connection, including TLS",
           "connectTimeoutMillis", 0.001, _DAY_S),
    Option("retries", ("int",), 2, "the number of times that a send, or a request without an "
           "answer, is tried again", "retryTimesWhenSendFailed", 0, 1000),
    Option("retry_wait_s", _NUMBER, 0.2, "the wait before a request is tried again; a send "
           "is tried again at once", "", 0, _DAY_S),
    Option("interceptors", ("tuple", "list"), (), "objects that see each message as it is sent or "
           "consumed; see `Interceptor`", "SendMessageHook, ConsumeMessageHook, RPCHook",
           element="Interceptor"),
)

PRODUCER: Final = (
    Option("group", ("str",), "twistmq_producer", "the producer group", "producerGroup"),
    Option("require_safe", ("bool",), False,
           "raise `NotSafe` when the broker did not wait for a flush or a slave",
           "retryAnotherBrokerWhenNotStoreOK"),
    Option("compress_over", ("int",), 4096, "bodies of at least this size are compressed; 0: none",
           "compressMsgBodyOverHowmuch", 0),
    Option("codec", ("str",), "zlib", "the algorithm that compresses bodies", "compressType",
           choices=("zlib", "lz4", "zstd")),
    Option("in_flight_max", ("int",), 1024, "the maximum number of messages that `send_soon` has "
           "in flight", "backPressureForAsyncSendNum", 1),
    Option("in_flight_bytes_max", ("int",), 64 << 20, "the maximum size of these messages together",
           "backPressureForAsyncSendSize", 1),
    Option("auto_batch", ("bool",), False, "`send_soon` collects messages of a topic into batches",
           "autoBatch"),
    Option("attempt_timeout_s", _NUMBER, None, "the time-out of one attempt of a send while there "
           "are other brokers to try; None: a share of the time", "sendMsgMaxTimeoutPerRequest",
           0.001, _DAY_S),
    Option("await_master", ("bool",), False, "when all masters of a topic are gone, a send waits "
           "for a new one, within its time-out; it may then be stored twice"),
    Option("avoid_slow", ("bool",), False, "avoid slow brokers for a while, and not only brokers "
           "that did not answer", "sendLatencyEnable"),
    Option("latency_table", ("str",), "5.x", "how long a slow broker is avoided: as in Apache's "
           "client 5.x or 4.9", "latencyMax, notAvailableDuration", choices=("5.x", "4.9")),
    Option("encode", ("function",), None, "converts a value to a body; None: bodies are bytes"),
    Option("on_check", ("function",), None,
           "decides the outcome of a transaction when a broker asks: a function of the message "
           "that returns COMMIT, ROLLBACK or UNKNOWN, on a thread; in `aio` and `tx`, also a "
           "coroutine function, in the event loop",
           "TransactionListener.checkLocalTransaction", may_be_awaited=True),
    Option("trace", ("bool",), False, "send traces to the brokers", "enableTrace"),
)

CONSUMER: Final = (
    Option("mode", ("str",), "cluster", "whether the members share the messages or each member "
           "gets all of them",
           "messageModel", choices=("cluster", "broadcast")),
    Option("order", ("str",), None, '"queue": the messages of each queue are handled in order, one '
           "at a time", "MessageListenerOrderly", choices=("queue",)),
    Option("start", ("str", "datetime", *_NUMBER), "last", '"last", "first" or a time (a datetime '
           "or seconds since 1970): where a new group begins; queues that are newer than the group "
           "begin at their first message", "consumeFromWhere"),
    Option("strategy", ("Strategy",), None, "divides the queues among the members; None: AVG",
           "allocateMessageQueueStrategy"),
    Option("max_attempts", ("int",), None, "the number of times that a failed message is tried "
           "again before it becomes a dead letter; None: 16, or unlimited with `order`",
           "maxReconsumeTimes", 0),
    Option("consume_timeout_s", _NUMBER, 900.0, "a message is sent back when its handler takes "
           "longer than this", "consumeTimeout", 0.001, 365 * _DAY_S),
    Option("suspend_s", _NUMBER, 1.0, "the wait before a failed message of an ordered queue is "
           "handled again", "suspendCurrentQueueTimeMillis", 0.01, 30),
    Option("cache_bytes_max", ("int",), 64 << 20,
           "the maximum size of messages that are read and not finished, over all queues", "", 1),
    Option("limits", ("PullLimits",), None, "the limits for each queue: 1,000 messages, 100 MiB, a "
           "span of 2,000", "pullThresholdForQueue, pullThresholdSizeForQueue, "
           "consumeConcurrentlyMaxSpan"),
    Option("pull_count", ("int",), 32, "the number of messages that a pull asks for",
           "pullBatchSize", 1, 1024),
    Option("decode", ("function",), None, "gets the message and returns `message.value`; None: the "
           "value is the body"),
    Option("undecodable", ("str",), "retry", "how to handle a message that cannot be decoded: as a "
           "failed one, as a processed one, or by an error of the loop",
           choices=("retry", "skip", "raise")),
    Option("damaged", ("str",), "skip", "how to handle a stored message that cannot be read, for "
           'example because its CRC is wrong: "skip" leaves it out, logs an error and counts it '
           'in `damaged_count`; "stop" stops reading its queue; "deliver" delivers it, '
           "marked by `message.damage`", choices=("skip", "stop", "deliver")),
    Option("auto_acknowledge", ("bool",), True, "requesting the next message of an iteration "
           "acknowledges the previous one; without it, each message needs `acknowledge`",
           ""),
    Option("on_assigned", ("function",), None, "is called with the queues assigned to this member",
           "MessageQueueListener"),
    Option("on_lost", ("function",), None, "is called with the queues that this member has lost",
           "MessageQueueListener"),
    Option("offset_folder", ("Path", "str"), None, "the folder where a broadcasting consumer keeps "
           "its offsets; None: `~/.rocketmq_offsets`", "rocketmq.client.localOffsetStoreDir"),
    Option("trace", ("bool",), False, "send traces to the brokers", "enableTrace"),
)

#: A consumer that is polled takes some of the options of other consumers.
PULL_CONSUMER: Final = tuple(row for row in CONSUMER if row.name in {
    "start", "strategy", "cache_bytes_max", "limits", "pull_count", "decode", "damaged",
    "on_assigned", "on_lost"})

_POP: Final = (
    Option("start", ("str", "datetime", *_NUMBER), "last", '"last" or "first": where a new group '
           "begins; brokers cannot pop from a time", "consumeFromWhere"),
    Option("invisible_s", _NUMBER, 60.0, "the time for which a popped message is hidden from other "
           "members; it is extended while a handler has the message", "popInvisibleTime", 0.5,
           43_200),
    Option("pop_count", ("int",), 32, "the number of messages that a pop asks for", "popBatchNums",
           1, 32),
    Option("in_flight_max", ("int",), 1000, "the maximum number of messages that are popped and "
           "not finished",
           "popThresholdForQueue", 1),
)
#: A consumer that pops takes some of the options of other consumers, and has further options.
POP_CONSUMER: Final = (*_POP, *(row for row in CONSUMER if row.name in {
    "order", "strategy", "max_attempts", "consume_timeout_s", "suspend_s", "cache_bytes_max",
    "decode", "undecodable", "auto_acknowledge", "on_assigned", "on_lost",
    "trace"}))


def values_of(
    rows: Sequence[Option], arguments: Mapping[str, Any], others: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of options.

    :param arguments: values by name; all other options have their defaults.
    :param others: other names that the same call accepts; the error may suggest one of them.
    :raises OptionError: when a name has no row or a value is not valid for its option.
    """
    rows_by_name = {row.name: row for row in rows}
    for name, value in arguments.items():
        if name not in rows_by_name:
            raise OptionError(unknown_name("option", name, {*rows_by_name, *others}))
        rows_by_name[name].check(value)
    return {name: arguments.get(name, row.default) for name, row in rows_by_name.items()}


#: The parameters that all classes have, for their docstrings.
_NAME_SERVERS: Final = (
    ':param name_servers: "host:port;host:port", a list of "host:port", "http://..." of an address',
    '    server, "dns://host:port", or None for the environment variable NAMESRV_ADDR.')
_SHARED_CLIENT: Final = ":param client: a ``Client`` to share, instead of name servers."


def lists_options(rows: Sequence[Option]) -> Callable[[type[T]], type[T]]:
    """Add the options of a class to its docstring, so that ``help`` shows them.

    The parameters that all classes have are added too. The constructor of the class then also
    checks the names of its arguments.

    :param rows: the options of the class, without the options of a client.
    """
    lines = ["", "    Options, with their defaults:", ""]
    for row in rows:
        lines += [f"    {row.name}={row.default!r}", f"        {row.help}"]
    if rows is not CLIENT:
        names = ", ".join(row.name for row in CLIENT)
        lines += ["", "    Without a client to share, also the options of ``Client``:",
                  f"    {names}"]
    text = "\n".join(lines) + "\n    "

    def add(described: type[T]) -> type[T]:
        # With the option -OO, Python leaves the docstrings out.
        if described.__doc__ is not None:
            common = [*_NAME_SERVERS] if rows is CLIENT else [*_NAME_SERVERS, _SHARED_CLIENT]
            # From 3.13 on, Python removes the indentation of docstrings.
            described.__doc__ = re.sub(
                r"^( *)(?=:param )", lambda indent: "".join(
                    f"{indent[1]}{line}\n" for line in common) + indent[1],
                described.__doc__, count=1, flags=re.MULTILINE) + text
        check_arguments(described, {row.name for row in (*rows, *CLIENT)})
        return described

    return add


def time_out_ms(timeout_s: float | None, default_ms: float) -> float:
    """Return the time-out of one call in ms.

    :param timeout_s: the program's argument; with None, the default applies.
    :raises OptionError: when it is not a number from 0 to a year.
    """
    return default_ms if timeout_s is None else milliseconds(timeout_s)


def milliseconds(seconds: float, name: str = "timeout_s") -> float:
    """Return a time that a program gave to a call, in ms.

    :param name: the name of the argument, which the error contains.
    :raises OptionError: when it is not a number from 0 to a year.
    """
    if (not isinstance(seconds, int | float) or isinstance(seconds, bool)
            or not 0 <= seconds <= _SECONDS_MAX):
        raise OptionError(f"{name} is {seconds!r}: give seconds, a number from 0 to {_SECONDS_MAX}")
    return seconds * 1000


def option_page() -> str:
    """Return the options as Markdown, with one table for each kind of object."""
    lines = []
    for title, rows in (("Every client", CLIENT), ("A producer", PRODUCER),
                        ("A consumer", CONSUMER), ("A consumer that pops", _POP)):
        lines += [f"### {title}", "", "| option | default | meaning | in Apache's Java client |",
                  "| --- | --- | --- | --- |"]
        lines += [f"| `{row.name}` | `{row.default!r}` | {row.help} | {row.apache} |"
                  for row in rows]
        lines.append("")
    names = ", ".join(f"`{row.name}`" for row in PULL_CONSUMER)
    lines += [f"A `PullConsumer` takes these options of a consumer: {names}.", ""]
    names = ", ".join(f"`{row.name}`" for row in POP_CONSUMER if row in CONSUMER)
    lines += [f"A `PopConsumer` takes these options of a consumer: {names}. It leaves "
              "damaged messages to the retries of their broker, and leaves them out with `order`; "
              "it counts them in `damaged_count`.", ""]
    return "\n".join(lines)
