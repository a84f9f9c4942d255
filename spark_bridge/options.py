"""The options of ``format("rocketmq")``: one row here is what code and OPTIONS.md know of one.

Names are looked up without regard to case, as Spark gives them in lower case; ``rocketmq.`` may
stand before each. An unknown option, one without a meaning where it is given, and one with a wrong
value are errors that name it. ``python -m twistmq.spark_bridge.options >
spark_bridge/OPTIONS.md`` writes the page; a test holds the two together.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from twistmq.spark_bridge.errors import ShortError

__all__ = ["BATCH_READ", "BATCH_WRITE", "OPTIONS", "STREAM_READ", "STREAM_WRITE", "Option",
           "OptionError", "Options", "option_text", "options_page", "parse_duration", "parse_time"]

#: Where an option has a meaning.
BATCH_READ: Final = "read"
STREAM_READ: Final = "readStream"
BATCH_WRITE: Final = "write"
STREAM_WRITE: Final = "writeStream"
_READS: Final = (BATCH_READ, STREAM_READ)
_WRITES: Final = (BATCH_WRITE, STREAM_WRITE)
_ALL: Final = _READS + _WRITES

_PREFIX: Final = "rocketmq."
#: The options that Spark itself adds to those of a stream.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
_INT64_MAX: Final = (1 << 63) - 1
#: The units of a duration, ms.
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
                    "d": 86_400_000}
#: The longest duration: a hundred years, ms.
_DURATION_MAX_MS: Final = 36_500 * 86_400_000
_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.ASCII)


class OptionError(ShortError, ValueError):
    """An option is unknown, missing or has no meaning, or what it names is not there."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str
    #: "text", "flag", "int", "time", "duration" or "choice", which is one of ``choices``.
    kind: str
    #: As text; "" without a default.
    default: str
    where: tuple[str, ...]
    meaning: str
    aliases: tuple[str, ...] = ()
    #: Bounds of an int.
    least: int = 0
    most: int = _INT64_MAX
    choices: tuple[str, ...] = ()
    #: How the page shows the default where it is no text.
    default_shown: str = ""
    #: Never shown.
    is_secret: bool = False


def _text(name: str, where: tuple[str, ...], meaning: str, *, default: str = "",
          aliases: tuple[str, ...] = (), default_shown: str = "",
          is_secret: bool = False) -> Option:
    return Option(name, "text", default, where, meaning, aliases, default_shown=default_shown,
                  is_secret=is_secret)


def _int(name: str, default: str, where: tuple[str, ...], meaning: str, *, least: int = 0,
         most: int = _INT64_MAX, default_shown: str = "") -> Option:
    return Option(name, "int", default, where, meaning, (), least, most,
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
    # --- where
    _text("nameServer", _ALL, "name servers: `host:port;host:port`", aliases=("namesrvAddr",),
          default_shown="environment `NAMESRV_ADDR`"),
    _text("subscribe", _READS, "topics, with commas", aliases=("topic",)),
    _text("subscribePattern", _READS, "topics whose whole name matches this regular expression; "
          "system topics, retry topics and dead letters only where the expression begins like "
          "their names"),
    _text("assign", _READS, 'queues: `{"orders":{"broker-a":[0,1]}}`'),
    _text("brokers", _READS, "brokers that have messages of the query, with commas: a new query "
          "waits until all of them are registered. Without it a read of a topic cannot know of a "
          "broker that was away before it began, because the broker's queues are not in the route"),
    _text("removedBrokers", _STREAM, "brokers that were removed from the cluster for good, with "
          "commas: while none of that name is registered, what a query had not read of its queues "
          "is lost. Without it a query waits for such a broker, and then fails. A static topic "
          "that was deleted while no query saw it is named by its logical broker, `__syslo__...`"),
    # --- from where to where
    _text("startingOffsets", _READS, "earliest, latest (streams only), committed (the offsets of "
          '`group`; earliest if it has no offset) or `{"orders":{"broker-a":{"0":23,"1":-2}}}`, '
          "-2 for earliest, -1 for latest; a queue that is not named starts at earliest. It is "
          "used for a new query only: a restarted query continues from its checkpoint",
          default_shown="read: earliest; readStream: latest"),
    _time("startingTimestamp", _READS, "messages stored at this time or later: ms since 1970, or "
          "ISO 8601 (`2026-01-31T12:00:00+01:00`), which is UTC without a zone; wins over "
          "startingOffsetsByTimestamp and startingOffsets"),
    _text("startingOffsetsByTimestamp", _READS, "a time for each queue, "
          '`{"orders":{"broker-a":{"0":1700000000000}}}`, in ms or as text in ISO 8601; wins over '
          "startingOffsets"),
    _choice("startingOffsetsByTimestampStrategy", ("error", "latest"), _READS, "what becomes of a "
            "queue that has no message stored at the time of startingTimestamp or "
            "startingOffsetsByTimestamp, or later: the query fails, or the queue starts at its "
            "end"),
    _text("endingOffsets", _READ, "latest, committed, or JSON as in startingOffsets; the "
          "named offset is excluded; a queue that is not named ends at latest", default="latest"),
    _time("endingTimestamp", _READ, "messages stored before this time, as in startingTimestamp; "
          "wins over endingOffsetsByTimestamp and endingOffsets. A queue without a message of this "
          "time or later ends at latest"),
    _text("endingOffsetsByTimestamp", _READ, "a time for each queue, as in "
          "startingOffsetsByTimestamp; wins over endingOffsets"),
    _flag("failOnDataLoss", "true", _READS, "fail if messages of the range no longer exist; "
          "false: log a warning with the queue and the number of offsets that are skipped, and "
          "read the remaining ones. Messages of a broker that is away are never skipped"),
    Option("damaged", "choice", "", _READS, "what becomes of a message that is stored and cannot "
           "be read, because its CRC is wrong, for example: the query fails, the message is "
           "skipped with an error in the log, or its row is delivered with a null `body` and the "
           "reason in the column `damage`",
           choices=("fail", "skip", "deliver"),
           default_shown="failOnDataLoss=true: fail; false: skip"),
    _text("namespace", _ALL, "topics and groups are those of this namespace; their names are given "
          "without it"),
    # --- which messages
    _text("subExpression", _READS, "a tag expression, `a || b`, or with subExpressionType=SQL92 "
          "`a > 1 AND b IS NOT NULL`; the broker leaves the rest out", default="*",
          aliases=("tags",)),
    _choice("subExpressionType", ("TAG", "SQL92"), _READS, "the expression's language"),
    _text("columns", _READS, "columns and their order, with commas; see COLUMNS.md",
          default_shown="the default columns"),
    _flag("includeProperties", "true", _READS, "whether there is a column `properties`"),
    _flag("includeBody", "true", _READS, "whether there is a column `body`"),
    _choice("bodyFormat", ("binary", "string"), _READS, "the type of the column `body`"),
    _choice("propertiesAs", ("map", "string"), _READS, "the type of the column `properties`; a "
            "string is a JSON object"),
    _flag("traceView", "false", _READS, "trace events instead of messages: the columns of "
          "`format(\"rocketmq_trace\")`"),
    _flag("pushDownPredicate", "false", _READ, "use filters on topic, brokerName, queueId, "
          "queueOffset, storeTimestamp and tags to pull less; needs "
          "`spark.sql.python.filterPushdown.enabled=true`"),
    # --- how much at a time
    _int("maxOffsetsPerTrigger", "", _STREAM, "offsets of a micro-batch, shared among the "
         "queues by their backlog", least=1),
    _int("maxBytesPerTrigger", "", _STREAM, "approximate bytes of a micro-batch, estimated "
         "from the messages at its beginning", least=1),
    _int("minOffsetsPerTrigger", "", _STREAM, "a micro-batch waits until it has so many offsets, "
         "or until maxTriggerDelay has passed since the last one. The first micro-batch of a run "
         "does not wait, and those of `trigger(availableNow=True)` do not", least=1),
    Option("maxTriggerDelay", "duration", "15m", _STREAM, "how long minOffsetsPerTrigger may delay "
           "a micro-batch while there is something to read: a number with the unit ms, s, m, h or "
           "d, or without one in ms", most=_DURATION_MAX_MS),
    _int("minPartitions", "", _READS, "split queues so that there are at least this many "
         "partitions", least=1, most=100_000),
    _int("maxRecordsPerPartition", "", _READS, "split queues so that no partition has more "
         "offsets; a read that needs more than 100,000 partitions is refused", least=1),
    _int("pullBatchSize", "256", _READS, "messages a pull asks for; brokers give 32 at most by "
         "their default, so several pulls are under way at a time", least=1, most=32_768),
    # --- the group
    _text("group", _ALL, "the group messages are pulled or sent by; its offsets are changed by "
          "commitGroupOffsets only",
          default_shown="read: groupIdPrefix; write: spark-rocketmq-sink"),
    _text("groupIdPrefix", _READS, "the group if `group` is not given; its offsets are never used",
          default="spark-rocketmq-source"),
    _flag("commitGroupOffsets", "false", _STREAM, "also commit the query's offsets to "
          "`group`, one micro-batch late, so that mqadmin shows them; a restart uses the "
          "checkpoint"),
    # --- sending
    _text("topic", _WRITES, "the topic of all rows; wins over the column `topic`"),
    _int("batchSize", "64", _WRITES, "messages sent as one batch at most; 1 sends each alone",
         least=1, most=32_768),
    _int("sendWindow", "16", _WRITES, "sends that may be under way without an acknowledgement",
         least=1, most=10_000),
    _int("sendTimeoutMs", "3000", _WRITES, "how long a send waits for its answer", least=1),
    _int("retryTimes", "2", _WRITES, "how often a send is tried again at least, on another broker "
         "if the row names no queue"),
    _flag("waitStoreOK", "true", _WRITES, "wait until the broker has flushed a message, and its "
          "slave has it where the broker promises that, and send it again if that timed out: up to "
          "retryTimes for the flush, up to serverWaitMs for a slave that is away, with pauses that "
          "grow to 15 s; false: do not wait"),
    _int("maxMessageSize", "4194304", _WRITES, "bytes of a body at most, as the broker's setting "
         "maxMessageSize", least=1, most=16_000_000),
    _int("compressThreshold", "", _WRITES, "bodies of at least this many bytes are compressed "
         "(zlib) and sent alone", least=1, default_shown="never"),
    _text("idempotenceKey", _WRITES, "the name of a property that each message gets: a row that "
          "is sent twice has the same value, and rows of different jobs have different ones. The "
          "value is the column `idempotenceKey`. Without such a column, or where it is null, it is "
          "`job:batchId:partition:row`, and the order of the rows must be deterministic: after a "
          "shuffle, sort within partitions, or use the column. The job is the id of a stream's "
          "query, which its checkpoint keeps; each `write` has its own, also in `foreachBatch`"),
    # --- the connection
    _int("pullTimeoutMs", "3000", _READS, "how long a pull or a look-up waits for its answer",
         least=1),
    _int("connectTimeoutMs", "3000", _ALL, "how long connecting may take", least=1),
    _int("fetchOffset.numRetries", "3", _READS, "how often a look-up or a pull is tried again at "
         "least"),
    _int("fetchOffset.retryIntervalMs", "200", _ALL, "the pause before each further try",
         most=3_600_000),
    _int("serverWaitMs", "120000", _ALL, "the longest time for which a query waits for a broker or "
         "a name server that does not answer. The query logs one warning that names the server, "
         "and it fails when the time is over. The messages of a server that does not answer never "
         "count as lost. A new query fails at once if none of its name servers answers. A sink "
         "waits at most 40 s for a topic that no name server knows",
         most=86_400_000),
    _int("deletionCheckMs", "5000", _READS, "a topic or queue that its broker says it does not "
         "have counts as deleted when a second look, so much later, shows the same",
         most=86_400_000),
    _text("accessKey", _ALL, "the access key of the account that signs requests"),
    _text("secretKey", _ALL, "its secret key", is_secret=True),
    _text("securityToken", _ALL, "the security token of temporary keys", is_secret=True),
    _flag("tls", "false", _ALL, "connect by TLS, to name servers and brokers"),
    _text("tls.caFile", _ALL, "a PEM file with the trusted authorities",
          default_shown="the system's"),
    _text("tls.certFile", _ALL, "a PEM file with the client's certificate"),
    _text("tls.keyFile", _ALL, "a PEM file with its key", default_shown="in tls.certFile"),
    _text("tls.keyPassword", _ALL, "the key's password", is_secret=True),
    _flag("tls.verify", "true", _ALL, "whether servers must show a certificate of a trusted "
          "authority"),
    _flag("tls.checkHost", "true", _ALL, "whether the certificate must name the host; Apache's "
          "clients never check this"),
)


def _lookup(where: str) -> dict[str, Option]:
    """Options by each of their names, in lower case; an option valid here wins over others."""
    found: dict[str, Option] = {}
    for is_here in (False, True):
        for option in OPTIONS:
            if (where in option.where) == is_here:
                for name in (*option.aliases, option.name):
                    found[name.lower()] = option
    return found


def option_text(given: Mapping[str, str], name: str) -> str:
    """The text of an option before the options are checked; "" if it is not given."""
    wanted = name.lower()
    for key, value in given.items():
        if key.lower().removeprefix(_PREFIX) == wanted:
            return value.strip()
    return ""


class Options:
    """The checked options; an option that was not given has its default.

    :param given: names and texts, as Spark hands them over.
    :param where: BATCH_READ, STREAM_READ, BATCH_WRITE or STREAM_WRITE.
    :raises OptionError: when one is wrong.
    """

    def __init__(self, given: Mapping[str, str], where: str) -> None:
        self.where = where
        self._known = {option.name: option for option in OPTIONS if where in option.where}
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
        """Whether there is a value, its default's aside."""
        return bool(self._values.get(name, "").strip())

    def text(self, name: str) -> str:
        """The value, or its default; "" for none."""
        value = self._values.get(name, "").strip()
        return value or self._known[name].default

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def integer(self, name: str) -> int:
        """The number; the option must have a default."""
        return int(self.text(name))

    def integer_or_none(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text else None

    def duration_ms(self, name: str) -> int:
        """The duration, ms; the option must have a default."""
        return parse_duration(name, self.text(name))

    def time_ms_or_none(self, name: str) -> int | None:
        """The time, Unix ms."""
        text = self.text(name)
        return parse_time(name, text) if text else None

    def name_servers(self) -> str:
        """The name servers; :raises OptionError: when neither option nor environment says."""
        text = self.text("nameServer") or os.environ.get("NAMESRV_ADDR", "")
        if not text:
            raise OptionError("option nameServer: missing, as in "
                              '.option("nameServer", "127.0.0.1:9876")')
        return text

    def __repr__(self) -> str:
        shown = {name: "***" if self._known[name].is_secret else value
                 for name, value in self._values.items()}
        return f"Options({shown!r}, {self.where!r})"


def parse_time(name: str, text: str) -> int:
    """Read a time.

    :param name: of the option, for the error.
    :param text: ms since 1970, or ISO 8601, which is UTC without a zone.
    :returns: Unix ms.
    :raises OptionError: when it is neither, or before 1970.
    """
    if text.isascii() and text.removeprefix("-").isdecimal():
        found = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(
                f"option {name}: {text!r} is neither ms since 1970 nor ISO 8601") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = round(moment.timestamp() * 1000)
    if not 0 <= found <= _INT64_MAX:
        raise OptionError(f"option {name}: {text!r} is not within 1970 and the largest number "
                          f"of ms, {_INT64_MAX}")
    return found


def time_text(time_ms: int) -> str:
    """A time as errors show it: ms, and ISO 8601 up to the year 9999, where Python's times end."""
    text = f"{time_ms} ms since 1970"
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return f"{text} ({moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z)"


def parse_duration(name: str, text: str) -> int:
    """Read a duration.

    :param name: of the option, for the error.
    :param text: a number and a unit, such as "15m", as Spark writes durations.
    :returns: ms.
    :raises OptionError: when it is none, or is too long.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise OptionError(f"option {name}: {text!r} is not a duration such as 500ms, 30s, 15m, 2h "
                          "or 1d")
    ms = int(found[1]) * _UNITS_MS[found[2]]
    if ms > _DURATION_MAX_MS:
        raise OptionError(f"option {name}: {text!r} is longer than a hundred years")
    return ms


def _check(option: Option, value: str) -> None:
    """:raises OptionError: when a value is not of its option's kind."""
    text = value.strip()
    if not text:
        return
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
        if not option.least <= number <= option.most:
            raise OptionError(f"option {option.name}: {number} is not within {option.least} to "
                              f"{option.most}")


def _like(name: str, lookup: Mapping[str, Option]) -> str:
    """A hint at the option that may have been meant."""
    close = difflib.get_close_matches(name, list(lookup), 1)
    return f"; {lookup[close[0]].name} is one" if close else ""


_HEAD: Final = """\
# Options of `format("rocketmq")`

Written by `python -m twistmq.spark_bridge.options` from the rows in `spark_bridge/options.py`.
Names are the same in upper and lower case, and `rocketmq.` may stand before them. Of `subscribe`,
`subscribePattern` and `assign` a read needs exactly one.

| option | default | where | meaning |
| --- | --- | --- | --- |
"""


def options_page() -> str:
    """The page of all options."""
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
