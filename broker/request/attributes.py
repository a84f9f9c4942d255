"""Attributes of topics and groups: "+name=value,-name" changes them, each name with its rule.

Source: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused

__all__ = ["GROUP_ATTRIBUTES", "TOPIC_ATTRIBUTES", "Attribute", "alter_attributes",
           "parse_attribute_changes"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute that can be set.

    :param changeable: whether it can be set after creation.
    :param allows: whether a text is a value of it.
    """

    changeable: bool
    allows: Callable[[str], bool]


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda text: text in values


def _number(least: int, most: int) -> Callable[[str], bool]:
    def allows(text: str) -> bool:
        try:
            return least <= int(text) <= most
        except ValueError:
            return False

    return allows


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(False, _one_of("BatchCQ", "SimpleCQ")),
    "cleanup.policy": Attribute(False, _one_of("DELETE", "COMPACTION")),
    "message.type": Attribute(True, _one_of(
        "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")),
    "reserve.time": Attribute(True, _number(-1, 2**63 - 1)),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(True, _number(0, 100)),
}


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Read "+name=value,-name"; the signs stay with the names.

    :raises RequestRefused: when it is not of that form.
    """
    changes: dict[str, str] = {}
    for piece in (text or "").split(","):
        name, equals, value = piece.partition("=")
        name = name.strip()
        if not piece.strip():
            continue
        if equals and not name.startswith("+"):
            raise _refused(f"add/alter attribute format is wrong: {name}")
        if not equals and not name.startswith("-"):
            raise _refused(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise _refused(f"key duplication: {name}")
        changes[name] = value.strip()
    return changes


def alter_attributes(
    is_new: bool, known: Mapping[str, Attribute], current: Mapping[str, str],
    changes: Mapping[str, str],
) -> dict[str, str]:
    """Apply changes to attributes.

    :param changes: as :func:`parse_attribute_changes` gives them.
    :returns: the attributes as they are then.
    :raises RequestRefused: when a name is unknown, a value not allowed, or a change too late.
    """
    altered = dict(current)
    seen: set[str] = set()
    for signed_name, value in changes.items():
        sign, name = signed_name[:1], signed_name[1:]
        if name in seen:
            raise _refused(f"alter duplication key. key: {name}")
        seen.add(name)
        attribute = known.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}")
        if is_new and sign == "-":
            raise _refused(f"only add attribute is supported while creating topic. key: {name}")
        if not is_new and not attribute.changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            if name not in altered:
                raise _refused(f"attempt to delete a nonexistent key: {name}")
            del altered[name]
        elif not attribute.allows(value):
            raise _refused(f"value is not allowed. key: {name}, value: {value}")
        else:
            altered[name] = value
    return altered


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
