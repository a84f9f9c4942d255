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

import ipaddress
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Final, NamedTuple

from twistmq.acl.access_table import Action, Kind, Wanted
from twistmq.acl.policies import (
    ANY_RESOURCE,
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
    """Why a user may not touch a resource.

    :param entry: the entry that decided; None without one.
    """

    access: Wanted
    reason: str
    entry: Entry | None = None

    def text(self, user: str, host: str) -> str:
        """Return Apache's text.

        :param host: the address from which the request came, without the port.
        """
        resource = resource_key(self.access.kind, self.access.name)
        return f"User:{user} has no permission to access {resource} from {host}, {self.reason}"


class _Network(NamedTuple):
    """A network: an address belongs to it if its first bits are the same."""

    version: int
    shift: int
    first_bits: int


class _Rule(NamedTuple):
    """An entry in the form in which it is compared."""

    actions: int
    networks: tuple[_Network, ...]
    entry: Entry

    def matches(self, actions: int, host: str) -> bool:
        if not self.actions & actions:
            return False
        if not self.networks:
            return True
        address = _number(host)
        return address is not None and any(
            network.version == address[0] and address[1] >> network.shift == network.first_bits
            for network in self.networks)


class _Rules:
    """The entries of one type, by the text of the resource that they are about.

    The text of a prefix is ``Topic:pay``, and the text of all topics is ``Topic:``. A lookup tries
    the beginnings of the text of a resource, and the longest one with a matching entry counts.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._literal: dict[str, list[_Rule]] = {}
        self._prefixed: dict[str, list[_Rule]] = {}
        self._any: list[_Rule] = []
        for entry in entries:
            text = entry.resource
            rule = _Rule(_bits_of(entry.actions), _networks_of(entry.sources), entry)
            if text == ANY_RESOURCE:
                self._any.append(rule)
            elif text.endswith("*"):
                self._prefixed.setdefault(text[:-1], []).append(rule)
            else:
                self._literal.setdefault(text, []).append(rule)
        self._lengths = sorted({len(text) for text in self._prefixed}, reverse=True)

    def entry_for(self, resource: str, actions: int, host: str) -> Entry | None:
        """Return the entry that counts, or None if none matches.

        :param resource: the text of the resource, such as "Topic:orders".
        """
        entry = _first(self._literal.get(resource), actions, host)
        if entry is not None:
            return entry
        for length in self._lengths:
            entry = _first(self._prefixed.get(resource[:length]), actions, host)
            if entry is not None:
                return entry
        return _first(self._any, actions, host)


def _first(rules: Sequence[_Rule] | None, actions: int, host: str) -> Entry | None:
    """Return the entry that counts among those about one resource; a denial comes first."""
    first: Entry | None = None
    for rule in rules or ():
        if rule.matches(actions, host):
            if not rule.entry.is_allowed:
                return rule.entry
            first = first or rule.entry
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
        self._is_alike_everywhere = not any(
            entry.sources for entries in policies for entry in entries)
        #: Whether a send may pass without the validator once it is in ``passed``.
        self.passes_runs = user.is_enabled

    @cached_property
    def signer(self) -> Signer:
        """Checks the signatures of the user's requests."""
        return Signer(self.user.password)

    @cached_property
    def _custom(self) -> _Rules:
        return _Rules(self._policies.custom)

    @cached_property
    def _default(self) -> _Rules:
        return _Rules(self._policies.default)

    def note_passed(self, values: DecidingValues) -> None:
        """Remember that a request is allowed, if that does not depend on its address."""
        _, topic, group = values
        if not (self._is_alike_everywhere or self.user.is_super) or (
                len(topic or "") + len(group or "") > _PASSED_LENGTH_MAX):
            return
        if len(self.passed) >= _PASSED_MAX:
            self.passed.clear()
        self.passed.add(values)

    def denial_of(self, access: Wanted, host: str) -> Denial | None:
        """Return why the user may not touch a resource; None if he may.

        :param host: the address from which the request came, without the port.
        """
        if self.user.is_super:
            return None
        actions = 0
        for action in access.actions:
            actions |= _BIT[action]
        resource = _BEGINNINGS[access.kind] + access.name
        entry = (self._custom.entry_for(resource, actions, host)
                 or self._default.entry_for(resource, actions, host))
        if entry is None:
            return Denial(access, NO_POLICY)
        return None if entry.is_allowed else Denial(access, IS_DENIED, entry)


@cache
def _bits_of(actions: tuple[str, ...]) -> int:
    """Return actions as bits; there are few different tuples."""
    return actions_of(actions)


def _networks_of(sources: Iterable[str]) -> tuple[_Network, ...]:
    """Convert addresses and networks, which were checked, to the form in which they are compared.

    IPv4 addresses within IPv6 count as IPv4, as clients of a port for both have such addresses.
    """
    networks = []
    for source in sources:
        network = ipaddress.ip_network(source, strict=False)
        first, length = network.network_address, network.prefixlen
        if isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped and length >= _MAPPED:
            first, length = first.ipv4_mapped, length - _MAPPED
        shift = first.max_prefixlen - length
        networks.append(_Network(first.version, shift, int(first) >> shift))
    return tuple(networks)


#: The bits before an IPv4 address within IPv6.
_MAPPED: Final = 96


@lru_cache(maxsize=4096)
def _number(host: str) -> tuple[int, int] | None:
    """Return the version of an address and its number; None if it is not an address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.version, int(address)
