"""Attributes of topics and groups: the changes "+name=value,-name", and a rule for each name.

Source: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twistmq.broker.request.priority import MESSAGE_TYPE, PRIORITY_FACTOR, PRIORITY_TYPE
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused

__all__ = ["BATCH_QUEUE", "CLEAN_UP", "GROUP_ATTRIBUTES", "QUEUE_TYPE", "TOPIC_ATTRIBUTES",
           "Attribute", "alter_attributes", "parse_attribute_changes"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute that can be set.

    :param changeable: whether it can be set after creation.
    :param fault: returns why a text is not a valid value, in the words of Apache's broker, or None
        if it is valid.
    """

    changeable: bool
    fault: Callable[[str], str | None]


def _one_of(*values: str) -> Callable[[str], str | None]:
    """:param values: the allowed values, in the order in which Apache's remark lists them."""
    remark = f"value is not in set: [{', '.join(values)}]"
    return lambda text: None if text in values else remark


def _number(minimum: int, maximum: int) -> Callable[[str], str | None]:
    def fault(text: str) -> str | None:
        if not _NUMBER.fullmatch(text):
            return f'For input string: "{text}"'
        if not minimum <= int(text) <= maximum:
            return f"value is not in range({minimum}, {maximum})"
        return None

    return fault


def _clean_up(text: str) -> str | None:
    """Differs from Apache: a request cannot make a topic compacted."""
    if text == "COMPACTION":
        return "cleanup.policy=COMPACTION: topics are not compacted here, DELETE is what there is"
    return _one_of("DELETE", "COMPACTION")(text)


_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)

#: The kind of queues that a topic has, and the kind that is not the default.
QUEUE_TYPE = "queue.type"
BATCH_QUEUE = "BatchCQ"
#: Whether old messages of a topic are removed by age, or all but the newest message of each key.
CLEAN_UP = "cleanup.policy"

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: Attribute(False, _one_of("SimpleCQ", BATCH_QUEUE)),
    CLEAN_UP: Attribute(False, _clean_up),
    # In the order of the remark of 5.5.0, which also has LITE.
    MESSAGE_TYPE: Attribute(True, _one_of(
        "UNSPECIFIED", "MIXED", "TRANSACTION", PRIORITY_TYPE, "FIFO", "DELAY", "NORMAL")),
    "reserve.time": Attribute(True, _number(-1, 2**63 - 1)),
}
#: Version 5.3.3 does not define any; this one comes from 5.5.0.
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    PRIORITY_FACTOR: Attribute(True, _number(0, 100)),
}


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Read "+name=value,-name". The signs stay part of the names.

    Differs from Apache: a second "=" belongs to the value, because cutting the value off there
    would set a different value from the requested one.

    :raises RequestRefused: when the text does not have this form.
    """
    changes: dict[str, str] = {}
    for piece in filter(None, (text or "").split(",")):
        name, equals, value = piece.partition("=")
        if equals and "+" not in name:
            raise _refused(f"add/alter attribute format is wrong: {name}")
        if not equals and "-" not in name:
            raise _refused(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise _refused(f"key duplication: {name}")
        changes[name] = value
    return changes


def alter_attributes(
    is_new: bool, declared: Mapping[str, Attribute], current: Mapping[str, str],
    changes: Mapping[str, str],
) -> dict[str, str]:
    """Apply changes to attributes.

    :param changes: as returned by :func:`parse_attribute_changes`.
    :returns: the attributes after the changes.
    :raises RequestRefused: when a change has the wrong form, a name is unknown, a value is not
        allowed, or a change comes too late.
    """
    signed = [(signed_name[:1], signed_name[1:], value) for signed_name, value in changes.items()]
    seen: set[str] = set()
    for sign, name, _ in signed:
        _check_form(is_new, sign, name, current)
        if name in seen:
            raise _refused(f"alter duplication key. key: {name}")
        seen.add(name)
    altered = dict(current)
    # Deletions come last, so that the first of several faults is the one that Apache reports.
    for sign, name, value in sorted(signed, key=lambda change: change[0] == "-"):
        attribute = declared.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}")
        if not is_new and not attribute.changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del altered[name]
            continue
        fault = attribute.fault(value)
        if fault is not None:
            raise _refused(fault)
        altered[name] = value
    return altered


def _check_form(is_new: bool, sign: str, name: str, current: Mapping[str, str]) -> None:
    """:raises RequestRefused: when a change is malformed, whatever its name means."""
    if not name or "+" in name or "-" in name:
        raise _refused("kv string format wrong.")
    if is_new and sign != "+":
        raise _refused(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in "+-":
        raise _refused(f"wrong format key: {name}")
    if sign == "-" and name not in current:
        raise _refused(f"attempt to delete a nonexistent key: {name}")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
