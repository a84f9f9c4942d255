"""Every option of the client, a row each, and their types.

``Client``, ``Producer`` and ``Consumer`` of all shells take these as keywords. A producer or
consumer that makes its own client takes the client's options too. The page of options in
``README.md`` is made from the rows. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from twistmq.client.base.errors import OptionError
from twistmq.client.base.unknown_names import unknown_name

__all__ = [
    "CLIENT",
    "CONSUMER",
    "POP_CONSUMER",
    "PRODUCER",
    "PULL_CONSUMER",
    "NameServers",
    "Option",
    "milliseconds",
    "option_page",
    "values_of",
]

#: The addresses of name servers: "host:port;host:port", a list of "host:port",
#: "http://..." of an address server, "dns://host:port", or None for NAMESRV_ADDR.
NameServers = str | Sequence[str] | None

_DAY_S: Final = 86_400


class Option(msgspec.Struct, frozen=True):
    """One option.

    :param kinds: names of the types that its values have.
    :param low: the least value of a number, and ``high`` the greatest.
    :param choices: all values that a text may have; empty: any.
    :param apache: the name that Apache's Java client has for it; "" without one.
    """

    name: str
    kinds: tuple[str, ...]
    default: Any
    help: str
    apache: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """:raises OptionError: when it is not a value of the option."""
        if value == self.default and type(value) is type(self.default):
            return
        # By name, so that a program that uses no TLS, for one, does not load it.
        kinds = {kind.__name__ for kind in type(value).__mro__}
        if isinstance(value, bool):
            kinds.discard("int")
        if kinds.isdisjoint(self.kinds):
            names = " or ".join(self.kinds)
            raise OptionError(f"option {self.name}: {type(value).__name__}, not {names}")
        if self.choices and value not in self.choices:
            known = ", ".join(repr(choice) for choice in self.choices)
            raise OptionError(f"option {self.name}: {value!r}, not one of {known}")
        if isinstance(value, int | float) and (
                (self.low is not None and value < self.low)
                or (self.high is not None and value > self.high)):
            bounds = [f"at least {self.low:g}"] if self.low is not None else []
            bounds += [f"at most {self.high:g}"] if self.high is not None else []
            raise OptionError(f"option {self.name}: {value:g}, not {' and '.join(bounds)}")


_NUMBER: Final = ("int", "float")

CLIENT: Final = (
    Option("namespace", ("str",), "", "of all topics and groups, which are named without it",
           "namespace"),
    Option("namespace_v2", ("bool",), False,
           "requests say the namespace, and names stay as they are: Apache's brokers ignore it",
           "namespaceV2"),
    Option("credentials", ("Credentials",), None, "the account that requests are signed with",
           "AclClientRPCHook"),
    Option("tls", ("SSLContext",), None, "the TLS context of all connections; None: plain ones",
           "useTLS"),
    Option("unit", ("str",), "", "behind the instance in the client id", "unitName"),
    Option("instance", ("str",), "", 'in the client id; "": process, time and random bytes',
           "instanceName"),
    Option("timeout_s", _NUMBER, 3.0, "bound on a request; of a producer: on all attempts of a "
           "send together", "mqClientApiTimeout, sendMsgTimeout", 0.001, _DAY_S),
    Option("connect_timeout_s", _NUMBER, 3.0, "bound on making a connection, TLS included",
           "connectTimeoutMillis", 0.001, _DAY_S),
    Option("retries", ("int",), 2, "how often a request without an answer, or a send, is tried "
           "again", "retryTimesWhenSendFailed", 0, 1000),
    Option("retry_wait_s", _NUMBER, 0.2, "the wait before a request is tried again", "", 0, _DAY_S),
    Option("interceptors", ("tuple", "list"), (), "objects that see messages on their way; see "
           "`Interceptor`", "SendMessageHook, ConsumeMessageHook, RPCHook"),
)

PRODUCER: Final = (
    Option("group", ("str",), "twistmq_producer", "the producer group", "producerGroup"),
    Option("require_safe", ("bool",), False,
           "raise `NotSafe` when a flush or a slave was not waited for",
           "retryAnotherBrokerWhenNotStoreOK"),
    Option("compress_over", ("int",), 4096, "bodies of so many bytes are compressed; 0: none",
           "compressMsgBodyOverHowmuch", 0),
    Option("codec", ("str",), "zlib", "how bodies are compressed", "compressType",
           choices=("zlib", "lz4", "zstd")),
    Option("in_flight_max", ("int",), 1024, "messages that `send_soon` has under way at most",
           "backPressureForAsyncSendNum", 1),
    Option("in_flight_bytes_max", ("int",), 64 << 20, "bytes of them at most",
           "backPressureForAsyncSendSize", 1),
    Option("auto_batch", ("bool",), False, "`send_soon` puts messages of a topic into batches",
           "autoBatch"),
    Option("attempt_timeout_s", _NUMBER, None, "bound on an attempt of a send while other brokers "
           "are left to try; None: a share of the time", "sendMsgMaxTimeoutPerRequest", 0.001,
           _DAY_S),
    Option("avoid_slow", ("bool",), False, "leave out slow brokers for a while, not only those "
           "that gave no answer", "sendLatencyEnable"),
    Option("latency_table", ("str",), "5.x", "how long a slow broker is left out: as Apache's "
           "client of 5.x, or of 4.9", "latencyMax, notAvailableDuration", choices=("5.x", "4.9")),
    Option("encode", ("object",), None, "makes the body of a value; None: bodies are bytes"),
    Option("on_check", ("object",), None, "decides about a transaction that a broker asks about",
           "TransactionListener.checkLocalTransaction"),
    Option("trace", ("bool",), False, "send traces to the brokers", "enableTrace"),
)

CONSUMER: Final = (
    Option("mode", ("str",), "cluster", "whether the members share the messages or each gets all",
           "messageModel", choices=("cluster", "broadcast")),
    Option("order", ("str",), None, '"queue": the messages of a queue are handled in order, one '
           "after the other", "MessageListenerOrderly", choices=("queue",)),
    Option("start", ("str", "datetime"), "last", '"last", "first" or a time: where a new group '
           "begins; queues that are younger than the group begin at their first message",
           "consumeFromWhere"),
    Option("strategy", ("object",), None, "divides the queues among the members; None: AVG",
           "allocateMessageQueueStrategy"),
    Option("max_attempts", ("int",), None, "a message that failed is tried again so often at most, "
           "and then is dead; None: 16, or without end in order", "maxReconsumeTimes", 0),
    Option("consume_timeout_s", _NUMBER, 900.0, "a message is sent back when its handler takes "
           "longer", "consumeTimeout", 0.001, 365 * _DAY_S),
    Option("suspend_s", _NUMBER, 1.0, "the wait before a failed message of an order comes again",
           "suspendCurrentQueueTimeMillis", 0.01, 30),
    Option("cache_bytes_max", ("int",), 64 << 20,
           "bytes that are read and not finished, over all queues", "", 1),
    Option("limits", ("PullLimits",), None, "bounds for each queue: 1,000 messages, 100 MiB, a "
           "span of 2,000", "pullThresholdForQueue, pullThresholdSizeForQueue, "
           "consumeConcurrentlyMaxSpan"),
    Option("pull_count", ("int",), 32, "messages that a pull asks for", "pullBatchSize", 1, 1024),
    Option("decode", ("object",), None, "makes `message.value`; None: it is the body"),
    Option("undecodable", ("str",), "retry", "what becomes of a message that cannot be decoded",
           choices=("retry", "skip", "raise")),
    Option("damaged", ("str",), "skip", 'what becomes of a message that is stored and cannot be '
           'read, as its CRC is wrong: "skip" leaves it out with an error in the log and counts it '
           'in `damaged_count`; "stop" reads no further in its queue; "deliver" hands it over, '
           "marked by `message.damage`", choices=("skip", "stop", "deliver")),
    Option("auto_acknowledge", ("bool",), True, "asking an iteration for its next message "
           "acknowledges the one before; without it each message needs `acknowledge`",
           ""),
    Option("on_assigned", ("object",), None, "is called with the queues that this member got",
           "MessageQueueListener"),
    Option("on_lost", ("object",), None, "is called with the queues that this member lost",
           "MessageQueueListener"),
    Option("offset_folder", ("Path", "str"), None, "where a broadcasting consumer keeps its "
           "offsets; None: `~/.rocketmq_offsets`", "rocketmq.client.localOffsetStoreDir"),
    Option("trace", ("bool",), False, "send traces to the brokers", "enableTrace"),
)

#: A consumer that is polled takes some of them.
PULL_CONSUMER: Final = tuple(row for row in CONSUMER if row.name in {
    "start", "strategy", "cache_bytes_max", "limits", "pull_count", "decode", "damaged",
    "on_assigned", "on_lost"})

_POP: Final = (
    Option("invisible_s", _NUMBER, 60.0, "a popped message is hidden from other members for so "
           "long; for longer while a handler has it", "popInvisibleTime", 0.5, 43_200),
    Option("pop_count", ("int",), 32, "messages that a pop asks for", "popBatchNums", 1, 32),
    Option("in_flight_max", ("int",), 1000, "messages that are popped and not finished",
           "popThresholdForQueue", 1),
)
#: One that pops takes some of a consumer's, and has some of its own.
POP_CONSUMER: Final = (*_POP, *(row for row in CONSUMER if row.name in {
    "order", "start", "strategy", "max_attempts", "consume_timeout_s", "suspend_s",
    "cache_bytes_max", "decode", "undecodable", "auto_acknowledge", "on_assigned", "on_lost",
    "trace"}))


def values_of(
    rows: Sequence[Option], given: Mapping[str, Any], others: Collection[str] = ()
) -> dict[str, Any]:
    """The values of options.

    :param given: by name; the other options have their defaults.
    :param others: further names that the same call takes, for the text about an unknown one.
    :raises OptionError: for a name without a row, or a value that is not one of the option's.
    """
    known = {row.name: row for row in rows}
    for name, value in given.items():
        if name not in known:
            raise OptionError(unknown_name("option", name, {*known, *others}))
        known[name].check(value)
    return {name: given.get(name, row.default) for name, row in known.items()}


def milliseconds(timeout_s: float | None, default_ms: float) -> float:
    """The time-out of one call, ms.

    :param timeout_s: as the program gives it; None: the default.
    :raises OptionError: when it is no number of at least 0.
    """
    if timeout_s is None:
        return default_ms
    if not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise OptionError(f"timeout_s is {timeout_s!r}: give seconds, a number of at least 0")
    return timeout_s * 1000


def option_page() -> str:
    """The options as Markdown, a table for each of client, producer and consumer."""
    lines = []
    for title, rows in (("Every client", CLIENT), ("A producer", PRODUCER),
                        ("A consumer", CONSUMER), ("A consumer that pops", _POP)):
        lines += [f"### {title}", "", "| option | default | meaning | in Apache's Java client |",
                  "| --- | --- | --- | --- |"]
        lines += [f"| `{row.name}` | `{row.default!r}` | {row.help} | {row.apache} |"
                  for row in rows]
        lines.append("")
    names = ", ".join(f"`{row.name}`" for row in PULL_CONSUMER)
    lines += [f"A `PullConsumer` takes {names} of a consumer's.", ""]
    names = ", ".join(f"`{row.name}`" for row in POP_CONSUMER if row in CONSUMER)
    lines += [f"A `PopConsumer` takes {names} of a consumer's; `start` is no time. It "
              "leaves damaged messages to the retries of their broker, and counts them in "
              "`damaged_count`.", ""]
    return "\n".join(lines)
