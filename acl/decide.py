"""Decides by a user's policies whether a request may touch a resource.

The entry that counts is the first of these that matches the resource, one of the wanted actions,
and the address:

1. the entry that names the resource;
2. the entry with the longest prefix of its name;
3. the entry for all resources of its kind;
4. the entry for everything.

If several entries are about the same resource, a denial comes before a permission. The default
entries are examined in the same order, if no custom entry matches. Without a matching entry the
request is refused.

Differs from Apache: there the *shorter* prefix counts, a prefix comes before or after a name by
chance, and a denial comes after a permission. Apache corrected this after 5.3.3 (issues 9539 and
9784).

This module does no input or output.

Source: AclAuthorizationHandler, UserAuthorizationHandler @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Final, NamedTuple

from twistmq.acl.access_table import Action, Kind, RequestedAccess
from twistmq.acl.networks import contains
from twistmq.acl.policies import (
    Entry,
    Policies,
    actions_of,
    resource_key,
)
from twistmq.acl.resources import DecidingValues
from twistmq.acl.users import User
from twistmq.broker.api.wire import Signer

__all__ = ["Denial", "Subject"]

#: The bit of each action.
_BIT: Final = {action: actions_of([action.value.capitalize()]) for action in Action}
#: The beginning of the text of each kind of resource.
_BEGINNINGS: Final = {kind: resource_key(kind, "") for kind in Kind}
#: Limits of the cache of allowed requests: entries, and characters of the names of one entry.
_PASSED_MAX: Final = 4096
_PASSED_LENGTH_MAX: Final = 512
NO_POLICY: Final = "no matched policies."
IS_DENIED: Final = "the decision is deny."


class Denial(NamedTuple):
    """The reason for which a user may not access a resource.

    :param entry: the entry that decided; None without one.
    """

    access: RequestedAccess
    reason: str
    entry: Entry | None = None

    def text(self, user: str, host: str) -> str:
        """Return Apache's text.

        :param host: the address from which the request came, without the port.
        """
        resource = resource_key(self.access.kind, self.access.name)
        return f"User:{user} has no permission to access {resource} from {host}, {self.reason}"


class _Rules:
    """The entries of one type, by the text of the resource that they are about.

    A lookup tries the whole text of a resource first, and then the prefixes of it that some entry
    has, the longest one first. The constructor only groups the entries by their text. Most users
    send requests about few resources, so the actions and addresses of most entries are never
    examined.
    """

    __slots__ = ("_about", "_lengths")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._about: dict[str, list[Entry]] = {}
        about, lengths = self._about, set()
        for entry in entries:
            text = entry.resource
            if text in about:
                about[text].append(entry)
            else:
                about[text] = [entry]
                if text[-1] == "*":
                    lengths.add(len(text) - 1)
        #: The lengths of the prefixes, the longest first; 0 if there is an entry for everything.
        self._lengths = sorted(lengths, reverse=True)

    def entry_for(self, resource: str, actions: int, host: str) -> Entry | None:
        """Return the entry that counts, or None if none matches.

        :param resource: the text of the resource, such as "Topic:orders".
        """
        about = self._about
        entry = _first(about.get(resource), actions, host)
        if entry is not None:
            return entry
        for length in self._lengths:
            entry = _first(about.get(resource[:length] + "*"), actions, host)
            if entry is not None:
                return entry
        return None


def _first(entries: Sequence[Entry] | None, actions: int, host: str) -> Entry | None:
    """Return the entry that counts among those about one resource; a denial comes first."""
    first: Entry | None = None
    for entry in entries or ():
        if _bits_of(entry.actions) & actions and (
                not entry.sources or contains(entry.sources, host)):
            if not entry.is_allowed:
                return entry
            first = first or entry
    return first


class Subject:
    """A user in the form in which requests are checked; a change makes a new one.

    :param policies: the user's policies; the caller makes another subject when they change.
    """

    def __init__(self, user: User, policies: Policies) -> None:
        self.user = user
        self._policies = policies
        #: The deciding values of requests that are allowed from every address: most clients send
        #: the same ones for hours.
        self.passed: set[DecidingValues] = set()
        #: Whether a send may pass without the validator once it is in ``passed``.
        self.passes_runs = user.is_enabled
        self._custom = _Rules(policies.custom)
        self._default = _Rules(policies.default) if policies.default else None

    @cached_property
    def signer(self) -> Signer:
        """Checks the signatures of the user's requests."""
        return Signer(self.user.password)

    @cached_property
    def _is_alike_everywhere(self) -> bool:
        return not any(entry.sources for entries in self._policies for entry in entries)

    def note_passed(self, values: DecidingValues) -> None:
        """Remember that a request is allowed, if that does not depend on its address."""
        _, topic, group = values
        if not (self._is_alike_everywhere or self.user.is_super) or (
                len(topic or "") + len(group or "") > _PASSED_LENGTH_MAX):
            return
        if len(self.passed) >= _PASSED_MAX:
            self.passed.clear()
        self.passed.add(values)

    def denial_of(self, access: RequestedAccess, host: str) -> Denial | None:
        """Return why the user may not touch a resource; None if he may.

        :param host: the address from which the request came, without the port.
        """
        if self.user.is_super:
            return None
        actions = 0
        for action in access.actions:
            actions |= _BIT[action]
        resource = _BEGINNINGS[access.kind] + access.name
        entry = self._custom.entry_for(resource, actions, host)
        if entry is None and self._default is not None:
            entry = self._default.entry_for(resource, actions, host)
        if entry is None:
            return Denial(access, NO_POLICY)
        return None if entry.is_allowed else Denial(access, IS_DENIED, entry)


@cache
def _bits_of(actions: tuple[str, ...]) -> int:
    """Return actions as bits; there are few different tuples."""
    return actions_of(actions)
