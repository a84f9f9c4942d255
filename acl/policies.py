"""Policies of ACL 2.0: which actions a subject may perform on which resources, from where.

    resource   Topic:orders   one topic          actions    Pub Sub Create Update Delete
               Group:pay*     all groups with               Get List All
                              this prefix        sources    addresses and networks, or all
               Cluster:*      every cluster      decision   Allow or Deny
               *              everything

Custom entries are examined first, and the default ones only if no custom one matches. Within one
type, ``decide`` finds the entry that counts. Entries are kept as compact as possible, because a
broker may have many thousands of them: the sources are parsed when a subject is first used.

Source: Acl, Policy, PolicyEntry, Resource, AclConverter,
AuthorizationMetadataManagerImpl.validate @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

import msgspec

from twistmq.acl.access_table import Action, Kind
from twistmq.acl.errors import AclError
from twistmq.acl.networks import is_network
from twistmq.broker.api.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

__all__ = ["ALL_ACTIONS", "ANY_RESOURCE", "Entry", "Pattern", "Policies", "PolicyType",
           "actions_of", "entries_of", "pattern_of", "policies_info", "resource_key",
           "resource_text", "subject_name"]

#: The longest text of a resource, characters; no topic or group has a longer name.
_RESOURCE_LENGTH_MAX: Final = 300
#: The text of each action in a policy.
_ACTION_TEXTS: Final = {action: action.value.capitalize() for action in Action}
_ALL: Final = "All"
_ACTIONS: Final = {text.lower(): text for text in (_ALL, *_ACTION_TEXTS.values())}
_KINDS: Final = {kind.value: kind for kind in Kind}
#: The resource that stands for everything.
ANY_RESOURCE: Final = "*"
_SUBJECT: Final = "user:"

#: Every action at once, as one bit for each.
ALL_ACTIONS: Final = (1 << len(Action)) - 1
_BITS: Final = {_ALL: ALL_ACTIONS,
                **{_ACTION_TEXTS[action]: 1 << index for index, action in enumerate(Action)}}


class PolicyType(Enum):
    """The type of an entry: a default entry counts only if no custom entry matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Pattern(NamedTuple):
    """The resources that an entry is about.

    :param kind: None for resources of every kind.
    :param name: the name or the prefix; empty if every name matches.
    :param is_prefix: whether all names with this prefix match.
    """

    kind: Kind | None
    name: str
    is_prefix: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a policy.

    :param resource: the resource in the form that tools display.
    :param actions: texts of actions in the order in which they were given; equal tuples are shared.
    :param sources: addresses and networks; empty for all.
    """

    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    is_allowed: bool

    def info(self) -> PolicyEntryInfo:
        """Return the entry in the form of requests and files."""
        return PolicyEntryInfo(self.resource, list(self.actions), list(self.sources) or None,
                               "Allow" if self.is_allowed else "Deny")


class Policies(NamedTuple):
    """All entries of one subject."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def merged(self, new: Policies) -> Policies:
        """Return these policies with new entries, which replace entries about the same resource."""
        return Policies(_merged(self.custom, new.custom), _merged(self.default, new.default))

    def without(self, policy_type: PolicyType | None, resource: str) -> Policies:
        """Return these policies without the first entry about a resource.

        :param policy_type: None for the entries of both types.
        :param resource: the resource in the form that tools display.
        """
        return Policies(
            self.custom if policy_type is PolicyType.DEFAULT else _without(self.custom, resource),
            self.default if policy_type is PolicyType.CUSTOM else _without(self.default, resource))


def _merged(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if not old:
        return new
    entries = list(old)
    indexes: dict[str, int] = {}
    for index, entry in enumerate(entries):
        indexes.setdefault(entry.resource, index)
    for entry in new:
        index = indexes.setdefault(entry.resource, len(entries))
        if index < len(entries):
            entries[index] = entry
        else:
            entries.append(entry)
    return tuple(entries)


def _without(entries: tuple[Entry, ...], resource: str) -> tuple[Entry, ...]:
    for index, entry in enumerate(entries):
        if entry.resource == resource:
            return entries[:index] + entries[index + 1:]
    return entries


# --- texts


def subject_name(subject: str | None) -> str | None:
    """Return the user name in "User:name"; None if the text is not a subject."""
    if subject is None or subject[:len(_SUBJECT)].lower() != _SUBJECT:
        return None
    return subject[len(_SUBJECT):]


def resource_key(kind: Kind, name: str) -> str:
    """Return the text of one resource, such as "Topic:orders"."""
    return f"{kind.value.capitalize()}:{name}"


def pattern_of(text: str | None) -> Pattern | None:
    """Read the resource of an entry; None if the text is not a resource.

    Differs from Apache: a star within the name, as in ``Topic:a*b*``, is not a resource. Apache
    reads it as the prefix before the first star, and so permits more than the author intended.
    """
    if text is None or len(text) > _RESOURCE_LENGTH_MAX:
        return None
    if text == ANY_RESOURCE:
        return Pattern(None, "", True)
    kind_text, colon, name = text.partition(":")
    kind = _KINDS.get(kind_text.lower())
    if kind is None or not colon or not name:
        return None
    is_prefix = name.endswith("*")
    name = name[:-1] if is_prefix else name
    return None if "*" in name else Pattern(kind, name, is_prefix)


def resource_text(text: str) -> str | None:
    """Return a resource in the form that tools display; None if the text is not a resource."""
    pattern = pattern_of(text)
    return None if pattern is None else _text_of(pattern)


def _text_of(pattern: Pattern) -> str:
    if pattern.kind is None:
        return ANY_RESOURCE
    return resource_key(pattern.kind, f"{pattern.name}*" if pattern.is_prefix else pattern.name)


@cache
def _shared(actions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the shared tuple for these actions; there are few, because no action repeats."""
    return actions


def actions_of(texts: Sequence[str]) -> int:
    """Return actions as bits."""
    bits = 0
    for text in texts:
        bits |= _BITS[text]
    return bits


# --- the form of requests and files


def entries_of(info: AclInfo) -> Policies:
    """Read and check the policies of a request or a file.

    :raises AclError: when an entry is not valid; the text is Apache's.
    """
    if not info.policies:
        raise AclError("The policies is empty.")
    lists: dict[PolicyType, list[Entry]] = {each: [] for each in PolicyType}
    for policy in info.policies:
        if policy.entries:
            lists[_type_of(policy)] += [_entry_of(each) for each in policy.entries]
    if not any(lists.values()):
        raise AclError("The policies is empty.")
    return Policies(tuple(lists[PolicyType.CUSTOM]), tuple(lists[PolicyType.DEFAULT]))


def _type_of(policy: PolicyInfo) -> PolicyType:
    is_default = (policy.policy_type or "").lower() == "default"
    return PolicyType.DEFAULT if is_default else PolicyType.CUSTOM


def _entry_of(info: PolicyEntryInfo) -> Entry:
    pattern = pattern_of(info.resource)
    if pattern is None:
        raise AclError("The resource is null.")
    given = [(text or "").lower() for text in info.actions or ()]
    actions = dict.fromkeys(_ACTIONS[text] for text in given if text in _ACTIONS)
    if "any" in given:
        raise AclError("The actions can not be Any.")
    if not actions:
        raise AclError("The actions is empty.")
    for source in info.source_ips or ():
        _check_source(source)
    decision = (info.decision or "").lower()
    if decision not in ("allow", "deny"):
        raise AclError("The decision is null or illegal.")
    return Entry(_text_of(pattern), _shared(tuple(actions)), tuple(info.source_ips or ()),
                 decision == "allow")


def _check_source(text: str | None) -> None:
    if text is None or not text.strip():
        raise AclError("The source ip is empty.")
    if not is_network(text):
        raise AclError("The source ip is invalid.")


def policies_info(name: str, policies: Policies) -> AclInfo:
    """Return the policies of a user in the form of requests and files."""
    return AclInfo(f"User:{name}", [
        PolicyInfo(policy_type.value, [entry.info() for entry in entries])
        for policy_type, entries in ((PolicyType.CUSTOM, policies.custom),
                                     (PolicyType.DEFAULT, policies.default)) if entries])
