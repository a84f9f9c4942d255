"""Message properties, as clients send them and the store keeps them, and the hashes of them.

A property string is ``name \\x01 value \\x02`` repeated; clients of 4.9 omit the last separator.
Parsing drops pairs with an empty name or value, as Apache's decoder does.
This is a leaf module of the hot path. It uses only the standard library, and it is typed so that
mypyc can compile it.

Source: MessageConst, MessageDecoder, MessageExtBrokerInner @5.3.3; String.hashCode of Java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Only mypyc uses this import: a machine integer makes a compiled hash six times as fast.
    from mypy_extensions import i64

__all__ = [
    "KEY_SEPARATOR",
    "NAME_VALUE_SEPARATOR",
    "PROPERTY_SEPARATOR",
    "format_properties",
    "index_keys",
    "java_hash_joined",
    "java_string_hash",
    "pair_count",
    "parse_properties",
    "pick_marks",
    "pick_properties",
    "tags_code",
    "with_property",
]

#: Separates a property's name from its value.
NAME_VALUE_SEPARATOR: Final = "\x01"
#: Ends each pair.
PROPERTY_SEPARATOR: Final = "\x02"
#: Separates two keys of KEYS.
KEY_SEPARATOR: Final = " "

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
#: A whole number from 0; the queue with this number holds the message. Since 5.5.0.
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"


def parse_properties(text: str) -> dict[str, str]:
    """Split a property string; a name that occurs twice keeps its last value.

    :param text: ``name \\x01 value \\x02`` repeated, the last separator optional.
    """
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def pick_marks(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The pattern with which ``pick_properties`` finds names."""
    return tuple([(name, f"\x02{name}\x01") for name in names])


def pick_properties(text: str, marks: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The properties with certain names, if finding them is cheaper than splitting the string.

    :param text: as for ``parse_properties``. The result may contain other properties as well.
    :param marks: the result of ``pick_marks``.
    """
    properties: dict[str, str] = {}
    for name, mark in marks:
        at = text.rfind(mark)
        if at >= 0:
            begin = at + len(mark)
        elif text.startswith(mark[1:]):
            begin = len(mark) - 1
        else:
            continue
        end = text.find("\x02", begin)
        value = text[begin:] if end < 0 else text[begin:end]
        if not value:
            # An earlier pair with the same name may have a value.
            return parse_properties(text)
        properties[name] = value
    return properties


def pair_count(text: str) -> int:
    """Count the pairs that the separators of a property string form, complete or not."""
    if not text:
        return 0
    return text.count("\x02") + (0 if text.endswith("\x02") else 1)


def format_properties(properties: dict[str, str]) -> str:
    """Join properties into one string, in the order of the dict; a separator ends each pair."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def with_property(text: str, name: str, value: str) -> str:
    """Set one property in a property string; it replaces all properties of that name."""
    pairs = [pair for pair in text.split("\x02")
             if pair and not pair.startswith(name + "\x01")]
    pairs.append(f"{name}\x01{value}")
    return "\x02".join(pairs) + "\x02"


def index_keys(properties: dict[str, str]) -> list[str]:
    """List the index keys of a message: UNIQ_KEY, then each key of KEYS that is not empty."""
    keys: list[str] = []
    unique = properties.get("UNIQ_KEY")
    if unique is not None:
        keys.append(unique)
    text = properties.get("KEYS")
    if text is not None:
        if " " in text:
            keys.extend([key for key in text.split(" ") if key])
        elif text:
            keys.append(text)
    return keys


def java_string_hash(text: str) -> int:
    """Hash as Java's String.hashCode does: base 31 over UTF-16 units, a signed 32-bit result."""
    return java_hash_joined(0, text)


def java_hash_joined(prefix_hash: int, text: str) -> int:
    """Hash ``prefix + text`` when the hash of the prefix is known.

    :param prefix_hash: java_string_hash of the prefix.
    :returns: a signed 32-bit number, equal to java_string_hash(prefix + text).
    """
    code: i64 = prefix_hash & 0xFFFFFFFF
    unit: i64
    position: i64
    if text.isascii():
        data = text.encode("ascii")
        # Compiled, this takes half as long as a loop over the bytes themselves.
        for position in range(len(data)):
            unit = data[position]
            code = (31 * code + unit) & 0xFFFFFFFF
    else:
        # In Java lone surrogates are ordinary units, so they must be accepted as well.
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            unit = data[position] << 8 | data[position + 1]
            code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x100000000 if code >= 0x80000000 else code


def tags_code(tag: str | None) -> int:
    """The number that a consume queue keeps for a tag: its Java hash, or 0 without a tag."""
    return java_string_hash(tag) if tag else 0
