"""Permissions of accounts for topics and groups.

A group's permission is stored under the name of its retry topic, in one table with the topics. A
resource without a row uses the default of the account. DENY has priority over everything, and an
unknown permission is read as DENY.

Source: Permission @5.2.0, PlainPermissionManager.checkPerm @4.9.4, PlainPermissionChecker @5.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from typing import Final

from twistmq.acl.errors import AclError
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX, retry_topic

__all__ = ["Permission", "allows", "check_resources", "parse_permission", "parse_resources",
           "resource_name"]


class Permission(IntFlag):
    """The permission bits of Apache's broker."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


_DENY: Final = Permission.DENY.value
_ANY: Final = Permission.ANY.value
_ALL: Final = Permission.PUB.value | Permission.SUB.value
_BY_NAME: Final = {
    "DENY": Permission.DENY, "PUB": Permission.PUB, "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB, "SUB|PUB": Permission.PUB | Permission.SUB,
}

def allows(owned: Permission, needed: Permission) -> bool:
    """Whether one permission includes another."""
    # Plain numbers, because an enum operation takes most of a microsecond and is needed often.
    has, needs = owned._value_, needed._value_
    if has & _DENY:
        return False
    if needs & _ANY:
        return bool(has & _ALL)
    return bool(has & needs)


def parse_permission(text: str | None) -> Permission:
    """Return the permission named by a text; DENY for an unknown text."""
    return _BY_NAME.get((text or "").strip(), Permission.DENY)


def _pair(text: str) -> tuple[str, str] | None:
    parts = [part.strip() for part in text.split("=") if part]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def parse_resources(texts: Iterable[str], *, groups: bool) -> dict[str, Permission]:
    """Parse ``name=permission`` texts of topics or groups.

    :raises AclError: when a text is not such a pair.
    """
    permissions: dict[str, Permission] = {}
    for text in texts:
        pair = _pair(text)
        if pair is None:
            kind = "group" if groups else "topic"
            raise AclError(f"Parse resource permission failed for {kind}:{text}")
        name, permission = pair
        permissions[retry_topic(name) if groups else name] = parse_permission(permission)
    return permissions


def check_resources(texts: Iterable[str]) -> None:
    """Check texts sent by an administrator, more strictly than those in a file.

    :raises AclError: also when a text is not a permission.
    """
    for text in texts:
        pair = _pair(text)
        if pair is None:
            raise AclError(f"Parse Resource format error for {text}.\n"
                           "The expected resource format is 'Res=Perm'. For example: topicA=SUB")
        if pair[1] not in _BY_NAME:
            raise AclError(f"Parse resource permission error for {text}.\nThe expected permissions "
                           "are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.")


def resource_name(resource: str) -> str:
    """Return the name used in remarks: the group of a retry topic, otherwise the topic."""
    if resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}"
    return f"topic:{resource}"
