"""The options of reads and writes: each row defines an option for the code and OPTIONS.md.

Names are case-insensitive, because Spark passes them in lower case, and they may have the prefix
``rocketmq.``. An unknown option, an option without a meaning where it is given, and a wrong value
are errors that name the option. ``python -m twistmq.integrations.tables.options >
spark_bridge/OPTIONS.md`` writes the page, and a test compares the page with the rows.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from twistmq.integrations.tables.errors import ShortError
from twistmq.protocol.decimal_text import whole_number

__all__ = ["BATCH_READ", "BATCH_WRITE", "OPTIONS", "STREAM_READ", "STREAM_WRITE", "Option",
           "OptionError", "Options", "option_text", "options_page", "parse_duration", "parse_time"]

#: The places where an option may have a meaning.
BATCH_READ: Final = "read"
STREAM_READ: Final = "readStream"
BATCH_WRITE: Final = "write"
STREAM_WRITE: Final = "writeStream"
_READS: Final = (BATCH_READ, STREAM_READ)
_WRITES: Final = (BATCH_WRITE, STREAM_WRITE)
_ALL: Final = _READS + _WRITES

_PREFIX: Final = "rocketmq."
#: The options that Spark itself adds to a stream.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
_INT64_MAX: Final = (1 << 63) - 1
#: The units of a duration, ms.
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
                    "d": 86_400_000}
#: The longest duration: a hundred years, ms.
_DURATION_MAX_MS: Final = 36_500 * 86_400_000
_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.ASCII)


class OptionError(ShortError, ValueError):
    """An option is unknown, missing, meaningless or wrong, or the thing it names does not exist."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str
    #: "text", "flag", "int", "time", "duration" or "choice", which is one of ``choices``.
    kind: str
    #: The default as text; "" if there is not one.
    default: str
    where: tuple[str, ...]
    meaning: str
    aliases: tuple[str, ...] = ()
    #: The bounds of an int.
    minimum: int = 0
    maximum: int = _INT64_MAX
    choices: tuple[str, ...] = ()
    #: The default on the page, if the page must describe it in words.
    default_shown: str = ""
    #: Whether the value must never be shown.
    is_secret: bool = False


def _text(name: str, where: tuple[str, ...], meaning: str, *, default: str = "",
          aliases: tuple[str, ...] = (), default_shown: str = "",
          is_secret: bool = False) -> Option:
    return Option(name, "text", default, where, meaning, aliases, default_shown=default_shown,
                  is_secret=is_secret)


def _int(name: str, default: str, where: tuple[str, ...], meaning: str, *, minimum: int = 0,
         maximum: int = _INT64_MAX, default_shown: str = "") -> Option:
    return Option(name, "int", default, where, meaning, (), minimum, maximum,
                  default_shown=default_shown)


def _time(name: str, where: tuple[str, ...], meaning: str) -> Option:
    return Option(name, "time", "", where, meaning)


def _flag(name: str, default: str, where: tuple[str, ...], meaning: str) -> Option:
    return Option(name, "flag", default, where, meaning)


def _choice(name: str, choices: tuple[str, ...], where: tuple[str, ...], meaning: str) -> Option:
    return Option(name, "choice", choices[0], where, meaning, choices=choices)


_READ: Final = (BATCH_READ,)
_STREAM: Final = (STREAM_READ,)

OPTIONS: Final[tuple[Option, ...]] = (
    # --- servers, topics and queues
    _text("nameServer", _ALL, "the name servers: `host:port;host:port`", aliases=("namesrvAddr",),
          default_shown="environment `NAMESRV_ADDR`"),
    _text("subscribe", _READS, "the topics, separated by commas", aliases=("topic",)),
    _text("subscribePattern", _READS, "a regular expression that must match the whole name of a "
          "topic. It selects system topics, retry topics and dead letters only if it begins like "
          "their names"),
    _text("assign", _READS, 'the queues: `{"orders":{"broker-a":[0,1]}}`'),
    _text("brokers", _READS, "the brokers that have messages of the query, separated by commas: a "
          "new query waits until all of them are registered. Without this option, a query cannot "
          "notice a broker that was away before the query began, because the route does not "
          "contain the queues of such a broker"),
    _text("removedBrokers", _STREAM, "the brokers that were removed from the cluster for good, "
          "separated by commas. While no broker of such a name is registered, the unread messages "
          "in its queues count as lost. Without this option, a query waits for the broker and then "
          "fails. A static topic that was deleted while no query observed it is named by its "
          "logical broker, `__syslo__...`"),
    # --- the start and the end
    _text("startingOffsets", _READS, "earliest, latest (streams only), committed (the offsets of "
          '`group`; earliest if it has no offset) or `{"orders":{"broker-a":{"0":23,"1":-2}}}`, '
          "where -2 means earliest and -1 means latest. A queue that is not named starts at "
          "earliest. Only a new query uses this option; a restarted query continues from its "
          "checkpoint", default_shown="read: earliest; readStream: latest"),
    _time("startingTimestamp", _READS, "read messages stored at this time or later: ms since 1970, "
          "or ISO 8601 (`2026-01-31T12:00:00+01:00`), which is UTC without a zone; takes "
          "precedence over startingOffsetsByTimestamp and startingOffsets"),
    _text("startingOffsetsByTimestamp", _READS, "a time for each queue, "
          '`{"orders":{"broker-a":{"0":1700000000000}}}`, in ms or as text in ISO 8601; takes '
          "precedence over startingOffsets"),
    _choice("startingOffsetsByTimestampStrategy", ("error", "latest"), _READS, "the treatment of a "
            "queue that has no message stored at the time of startingTimestamp or "
            "startingOffsetsByTimestamp, or later: the query fails, or the queue starts at its "
            "end"),
    _text("endingOffsets", _READ, "latest, committed, or JSON as in startingOffsets. The named "
          "offset is excluded. A queue that is not named ends at latest", default="latest"),
    _time("endingTimestamp", _READ, "read messages stored before this time, in the format of "
          "startingTimestamp; takes precedence over endingOffsetsByTimestamp and endingOffsets. A "
          "queue without a message stored at this time or later ends at latest"),
    _text("endingOffsetsByTimestamp", _READ, "a time for each queue, in the format of "
          "startingOffsetsByTimestamp; takes precedence over endingOffsets"),
    _flag("failOnDataLoss", "true", _READS, "whether the query fails if messages of its range no "
          "longer exist. If false, it logs a warning with the queue and the number of skipped "
          "offsets, and reads the remaining ones. Messages of a broker that is away are never "
          "skipped"),
    Option("damaged", "choice", "", _READS, "the treatment of a stored message that cannot be "
           "read, for example because its CRC is wrong: the query fails, the message is skipped "
           "with an error in the log, or its row is delivered with a null `body` and the reason in "
           "the column `damage`",
           choices=("fail", "skip", "deliver"),
           default_shown="failOnDataLoss=true: fail; false: skip"),
    _text("namespace", _ALL, "the namespace of topics and groups, whose names are given without "
          "it"),
    # --- which messages
    _text("subExpression", _READS, "a tag expression, `a || b`, or with subExpressionType=SQL92 "
          "`a > 1 AND b IS NOT NULL`; the broker does not send messages that it excludes. A "
          "broker accepts SQL92 only with its setting enablePropertyFilter=true",
          default="*", aliases=("tags",)),
    _choice("subExpressionType", ("TAG", "SQL92"), _READS, "the language of the expression"),
    _text("columns", _READS, "the columns in their order, separated by commas; see COLUMNS.md",
          default_shown="the default columns"),
    _flag("includeProperties", "true", _READS, "whether there is a column `properties`"),
    _flag("includeBody", "true", _READS, "whether there is a column `body`"),
    _choice("bodyFormat", ("binary", "string"), _READS, "the type of the column `body`"),
    _choice("propertiesAs", ("map", "string"), _READS, "the type of the column `properties`; a "
            "string is a JSON object"),
    _flag("traceView", "false", _READS, "read trace events instead of messages, with the columns "
          "of `format(\"rocketmq_trace\")`"),
    # --- the size of micro-batches and partitions
    _int("maxOffsetsPerTrigger", "", _STREAM, "the largest number of offsets in a micro-batch; "
         "the queues share it in proportion to their backlogs", minimum=1),
    _int("maxBytesPerTrigger", "", _STREAM, "the approximate size of a micro-batch in bytes, "
         "estimated from the messages at its beginning", minimum=1),
    _int("minOffsetsPerTrigger", "", _STREAM, "a micro-batch waits until it has this many offsets, "
         "or until maxTriggerDelay has passed since the last one. The first micro-batch of a run "
         "does not wait, and neither do the micro-batches of `trigger(availableNow=True)`",
         minimum=1),
    Option("maxTriggerDelay", "duration", "15m", _STREAM, "how long minOffsetsPerTrigger may delay "
           "a micro-batch while there are messages to read: a number with the unit ms, s, m, h or "
           "d; without a unit, it is in ms", maximum=_DURATION_MAX_MS),
    _int("minPartitions", "", _READS, "split queues so that there are at least this many "
         "partitions", minimum=1, maximum=100_000),
    _int("maxRecordsPerPartition", "", _READS, "split queues so that no partition has more "
         "offsets than this; a read that needs more than 100,000 partitions is refused",
         minimum=1),
    _int("pullBatchSize", "256", _READS, "the number of messages that a pull requests; by default, "
         "brokers return at most 32, so several pulls are in flight at a time", minimum=1,
         maximum=32_768),
    # --- the group
    _text("group", _ALL, "the group with which messages are pulled or sent; only "
          "commitGroupOffsets changes its offsets",
          default_shown="read: groupIdPrefix; write: spark-rocketmq-sink"),
    _text("groupIdPrefix", _READS, "the group if `group` is not given; its offsets are never used",
          default="spark-rocketmq-source"),
    _flag("commitGroupOffsets", "false", _STREAM, "also commit the offsets of the query to "
          "`group`, one micro-batch late, so that mqadmin shows them; a restart uses the "
          "checkpoint"),
    # --- sending
    _text("topic", _WRITES, "the topic of all rows; takes precedence over the column `topic`"),
    _int("batchSize", "64", _WRITES, "the largest number of messages in one batch; 1 sends each "
         "message alone", minimum=1, maximum=32_768),
    _int("sendWindow", "16", _WRITES, "the largest number of unacknowledged sends",
         minimum=1, maximum=10_000),
    _int("sendTimeoutMs", "3000", _WRITES, "how long a send waits for its response", minimum=1),
    _int("retryTimes", "2", _WRITES, "the smallest number of times that a failed send is repeated, "
         "on another broker if the row does not name a queue"),
    _flag("waitStoreOK", "true", _WRITES, "wait until the broker has flushed a message and, if the "
          "broker replicates synchronously, its slave has the message too. A message is sent again "
          "if that times out: up to retryTimes for the flush, and up to serverWaitMs for a slave "
          "that is away, with pauses that grow to 15 s. If false, do not wait"),
    _int("maxMessageSize", "4194304", _WRITES, "the largest size of a body in bytes, as in the "
         "setting maxMessageSize of the broker", minimum=1, maximum=16_000_000),
    _int("compressThreshold", "", _WRITES, "bodies of at least this many bytes are compressed "
         "(zlib) and sent alone", minimum=1, default_shown="never"),
    _text("idempotenceKey", _WRITES, "the name of a property that each message gets: a row that "
          "is sent twice has the same value, and rows of different jobs have different values. The "
          "value comes from the column `idempotenceKey`. Without such a column, or if it is null, "
          "the value is `job:batchId:partition:row`, and the order of the rows must be "
          "deterministic: after a shuffle, sort within partitions, or use the column. For a "
          "stream, the job is the id of the query, which its checkpoint stores; each `write` has "
          "its own id, also in `foreachBatch`"),
    # --- the connection
    _int("pullTimeoutMs", "3000", _READS, "how long a pull or a look-up waits for its response",
         minimum=1),
    _int("connectTimeoutMs", "3000", _ALL, "how long a connection attempt may take", minimum=1),
    _int("fetchOffset.numRetries", "3", _READS, "the smallest number of times that a failed "
         "look-up or pull is repeated"),
    _int("fetchOffset.retryIntervalMs", "200", _ALL, "the pause before each further try",
         maximum=3_600_000),
    _int("serverWaitMs", "120000", _ALL, "the longest time for which a query waits for a broker or "
         "a name server that does not answer. The query logs one warning that names the server, "
         "and it fails when the time is over. The messages of a server that does not answer never "
         "count as lost. A new batch fails at once if none of its name servers answers; a stream "
         "waits, because it may be a query that starts again. A sink waits at most 40 s for a "
         "topic or a queue that no name server knows",
         maximum=86_400_000),
    _int("deletionCheckMs", "5000", _READS, "the time between two looks at a topic or queue that "
         "its broker does not have; it counts as deleted when the second look confirms this",
         maximum=86_400_000),
    _text("accessKey", _ALL, "the access key of the account that signs requests"),
    _text("secretKey", _ALL, "the secret key of the account", is_secret=True),
    _text("securityToken", _ALL, "the security token of temporary keys", is_secret=True),
    _flag("tls", "false", _ALL, "connect to name servers and brokers with TLS"),
    _text("tls.caFile", _ALL, "a PEM file with the trusted authorities",
          default_shown="the system's"),
    _text("tls.certFile", _ALL, "a PEM file with the certificate of the client"),
    _text("tls.keyFile", _ALL, "a PEM file with the key of the certificate",
          default_shown="in tls.certFile"),
    _text("tls.keyPassword", _ALL, "the password of the key", is_secret=True),
    _flag("tls.verify", "true", _ALL, "whether servers must present a certificate of a trusted "
          "authority"),
    _flag("tls.checkHost", "true", _ALL, "whether the certificate must name the host; Apache's "
          "clients never check this"),
)


def _lookup(where: str) -> dict[str, Option]:
    """Return options by each of their names in lower case, preferring options that
    are valid here.
    """
    by_name: dict[str, Option] = {}
    for is_here in (False, True):
        for option in OPTIONS:
            if (where in option.where) == is_here:
                for name in (*option.aliases, option.name):
                    by_name[name.lower()] = option
    return by_name


def option_text(given: Mapping[str, str], name: str) -> str:
    """Return the text of an option before the options are checked; "" if it is not given."""
    lower_name = name.lower()
    for key, value in given.items():
        if key.lower().removeprefix(_PREFIX) == lower_name:
            return value.strip()
    return ""


class Options:
    """The checked options; an option that was not given has its default.

    :param given: the names and texts that Spark passes.
    :param where: BATCH_READ, STREAM_READ, BATCH_WRITE or STREAM_WRITE.
    :raises OptionError: when an option is wrong.
    """

    def __init__(self, given: Mapping[str, str], where: str) -> None:
        self.where = where
        self._options_by_name = {option.name: option for option in OPTIONS if where in option.where}
        self._values: dict[str, str] = {}
        lookup = _lookup(where)
        for key, value in given.items():
            name = key.lower().removeprefix(_PREFIX)
            if name in _SPARKS_OWN:
                continue
            option = lookup.get(name)
            if option is None:
                raise OptionError(f"option {key}: there is no such option{_like(name, lookup)}")
            if where not in option.where:
                raise OptionError(f"option {option.name}: it has no meaning in {where}, only in "
                                  + ", ".join(option.where))
            before = self._values.get(option.name)
            if before is not None and before != value:
                raise OptionError(f"option {option.name}: given twice, with different values")
            self._values[option.name] = value
            _check(option, value)

    def is_given(self, name: str) -> bool:
        """Whether the option was given, so that its default is not used."""
        return bool(self._values.get(name, "").strip())

    def text(self, name: str) -> str:
        """Return the value of an option, or its default; "" if it has neither."""
        value = self._values.get(name, "").strip()
        return value or self._options_by_name[name].default

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def integer(self, name: str) -> int:
        """Return the value of an option with a default as a number."""
        return int(self.text(name))

    def integer_or_none(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text else None

    def duration_ms(self, name: str) -> int:
        """Return the value of an option with a default as a duration, ms."""
        return parse_duration(name, self.text(name))

    def time_ms_or_none(self, name: str) -> int | None:
        """Return the value of an option as a time, Unix ms; None if it was not given."""
        text = self.text(name)
        return parse_time(name, text) if text else None

    def name_servers(self) -> str:
        """Return the name servers.

        :raises OptionError: when neither the option nor the environment names them.
        """
        text = self.text("nameServer") or os.environ.get("NAMESRV_ADDR", "")
        if not text:
            raise OptionError("option nameServer: missing, as in "
                              '.option("nameServer", "127.0.0.1:9876")')
        return text

    def __repr__(self) -> str:
        shown = {name: "***" if self._options_by_name[name].is_secret else value
                 for name, value in self._values.items()}
        return f"Options({shown!r}, {self.where!r})"


def parse_time(name: str, text: str) -> int:
    """Read a time.

    :param name: the name of the option, which error texts contain.
    :param text: ms since 1970, or ISO 8601, which is UTC without a zone.
    :returns: Unix ms.
    :raises OptionError: when the text is neither, or the time is before 1970.
    """
    number = whole_number(text.removeprefix("-"))
    if number is not None:
        time_ms = -number if text.startswith("-") else number
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(
                f"option {name}: {text!r} is neither ms since 1970 nor ISO 8601") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        time_ms = round(moment.timestamp() * 1000)
    if not 0 <= time_ms <= _INT64_MAX:
        raise OptionError(f"option {name}: {text!r} is not within 1970 and the largest number "
                          f"of ms, {_INT64_MAX}")
    return time_ms


def time_text(time_ms: int) -> str:
    """Format a time for errors: ms, and ISO 8601 up to the year 9999, where Python's times end."""
    text = f"{time_ms} ms since 1970"
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return f"{text} ({moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z)"


def parse_duration(name: str, text: str) -> int:
    """Read a duration.

    :param name: the name of the option, which error texts contain.
    :param text: a number and a unit, such as "15m", as Spark writes durations.
    :returns: the duration, ms.
    :raises OptionError: when the text is not a duration or is too long.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionError(f"option {name}: {text!r} is not a duration such as 500ms, 30s, 15m, 2h "
                          "or 1d")
    ms = int(match[1]) * _UNITS_MS[match[2]]
    if ms > _DURATION_MAX_MS:
        raise OptionError(f"option {name}: {text!r} is longer than a hundred years")
    return ms


def _check(option: Option, value: str) -> None:
    """Check a value; :raises OptionError: when it does not have the kind of its option."""
    text = value.strip()
    if not text:
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        # The value is not shown: it may be a secret.
        raise OptionError(f"option {option.name}: it contains half a character of UTF-16, which "
                          "cannot be sent") from None
    if option.kind == "flag" and text.lower() not in ("true", "false"):
        raise OptionError(f"option {option.name}: {text!r} is neither true nor false")
    if option.kind == "choice" and text.lower() not in [one.lower() for one in option.choices]:
        raise OptionError(f"option {option.name}: {text!r} is not one of "
                          + ", ".join(option.choices))
    if option.kind == "time":
        parse_time(option.name, text)
    if option.kind == "duration":
        parse_duration(option.name, text)
    if option.kind == "int":
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"option {option.name}: {text!r} is not a whole number") from None
        if not option.minimum <= number <= option.maximum:
            raise OptionError(f"option {option.name}: {number} is not within {option.minimum} to "
                              f"{option.maximum}")


#: Options of the format ``kafka``, in lower case, and the options that replace them here. A name
#: that ends with "." stands for all names that begin with it.
_KAFKA_NAMES: Final = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "group",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
    "includeheaders": "includeProperties",
    "kafka.default.api.timeout.ms": "serverWaitMs",
    "kafka.delivery.timeout.ms": "serverWaitMs",
    "kafka.security.protocol": "tls",
    "kafka.ssl.": "tls",
    "kafka.sasl.": "accessKey",
}


def _like(name: str, lookup: Mapping[str, Option]) -> str:
    """Return a hint at the option that the user may have meant."""
    for kafka_name, ours in _KAFKA_NAMES.items():
        if name == kafka_name or (kafka_name.endswith(".") and name.startswith(kafka_name)):
            return f"; {ours} takes its place"
    close = difflib.get_close_matches(name, list(lookup), 1)
    return f"; {lookup[close[0]].name} is one" if close else ""


_HEAD: Final = """\
# Options of `format("rocketmq")`

Written by `python -m twistmq.integrations.tables.options` from the rows in
`integrations/tables/options.py`. Names are case-insensitive, and they may have the prefix
`rocketmq.`. A read needs exactly one of the options `subscribe`, `subscribePattern` and `assign`.

| option | default | where | meaning |
| --- | --- | --- | --- |
"""


def options_page() -> str:
    """Generate the page of all options."""
    lines = []
    for option in OPTIONS:
        name = " or ".join(f"`{one}`" for one in (option.name, *option.aliases))
        default = option.default_shown or (f"`{option.default}`" if option.default else "")
        where = "all" if option.where == _ALL else ", ".join(option.where)
        meaning = option.meaning
        if option.choices:
            meaning += ": " + " or ".join(option.choices)
        lines.append("| " + " | ".join(
            cell.replace("|", "\\|") for cell in (name, default, where, meaning)) + " |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    print(options_page(), end="")
