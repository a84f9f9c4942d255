"""Source addresses of policies: whether the address of a client is in one of several networks.

    10.1.2.3        2001:db8::1       one address
    10.1.0.0/16     2001:db8::/32     a network by the number of its first bits
    10.1.0.0/255.255.0.0              a network by its mask

An IPv4 address within IPv6 (``::ffff:10.1.2.3``) counts as IPv4, because clients of a port for
both have such addresses. Common texts of IPv4 are read here: the module ipaddress needs ten times
as long, which would be most of the time of a user's first decision and of a start with many users.

This module does no input or output.

Source: IPAddressUtils @5.3.3.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["contains", "is_network"]

#: The bits before an IPv4 address within IPv6.
_MAPPED: Final = 96
#: The texts of the numbers in an IPv4 address. A text with a leading zero is not among them,
#: because some programs read it as an octal number.
_OCTETS: Final = {str(number): number for number in range(256)}
_LENGTHS: Final = {str(length): length for length in range(33)}


class _Network(NamedTuple):
    """A network: an address belongs to it if its first bits are the same."""

    version: int
    shift: int
    first_bits: int


def is_network(text: str) -> bool:
    """Whether a text is an address or a network."""
    try:
        return _v4_network(text) is not None or ipaddress.ip_network(text, strict=False) is not None
    except ValueError:
        return False


def contains(sources: tuple[str, ...], host: str) -> bool:
    """Whether an address is in one of several networks.

    :param sources: texts for which :func:`is_network` holds.
    :param host: an address without a port; a text that is not an address is in no network.
    """
    address = _number(host)
    if address is None:
        return False
    version, number = address
    for network in _networks_of(sources):
        if network.version == version and number >> network.shift == network.first_bits:
            return True
    return False


@lru_cache(maxsize=4096)
def _networks_of(sources: tuple[str, ...]) -> tuple[_Network, ...]:
    """Convert networks to the form in which they are compared."""
    return tuple([_v4_network(source) or _any_network(source) for source in sources])


def _v4_network(text: str) -> _Network | None:
    """Return an IPv4 network whose length is given in bits; None for every other text."""
    address, slash, length_text = text.partition("/")
    number = _v4_number(address)
    length = _LENGTHS.get(length_text) if slash else 32
    if number is None or length is None:
        return None
    return _Network(4, 32 - length, number >> (32 - length))


def _any_network(text: str) -> _Network:
    network = ipaddress.ip_network(text, strict=False)
    first, length = network.network_address, network.prefixlen
    if isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped and length >= _MAPPED:
        first, length = first.ipv4_mapped, length - _MAPPED
    shift = first.max_prefixlen - length
    return _Network(first.version, shift, int(first) >> shift)


def _v4_number(text: str) -> int | None:
    """Return an IPv4 address as a number; None if the text is not one."""
    parts = text.split(".")
    if len(parts) != 4:
        return None
    number = 0
    for part in parts:
        octet = _OCTETS.get(part)
        if octet is None:
            return None
        number = number << 8 | octet
    return number


@lru_cache(maxsize=4096)
def _number(host: str) -> tuple[int, int] | None:
    """Return the version of an address and its number; None if it is not an address."""
    number = _v4_number(host)
    if number is not None:
        return 4, number
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.version, int(address)
