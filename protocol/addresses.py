"""Server addresses in settings and options: "host:port", or several separated by ; or commas."""

from __future__ import annotations

from typing import Final

__all__ = ["ANSWER_SIZE_MAX", "CONNECT_ATTEMPT_DELAY_S", "addresses_of_answer", "split_address",
           "split_addresses"]

#: The maximum size of an address server's response, bytes: about a hundred addresses.
ANSWER_SIZE_MAX: Final = 8192
#: The delay between attempts at the addresses of one host name, seconds. It is the shortest that
#: RFC 8305 permits, because Twisted reports that a connection was refused only after this delay,
#: also if the host has one address. A broker whose leader died is to notice it at once.
CONNECT_ATTEMPT_DELAY_S: Final = 0.01
_PORT_DIGITS: Final = 5
#: The characters that a host name cannot contain.
_NO_HOST: Final = frozenset("[]/\\@#?%,; \t\r\n")


def split_address(address: str) -> tuple[str, int]:
    """Split "host:port" or "[ipv6]:port".

    :returns: the host without brackets, and the port. The zone of an IPv6 address is kept.
    :raises ValueError: when the text has neither form, or the host is not a name or an address.
    """
    host, separator, port = address.strip().rpartition(":")
    is_port = len(port) <= _PORT_DIGITS and port.isascii() and port.isdecimal()
    if not separator or not is_port or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        is_host = _is_ipv6(host)
    else:
        # Apache's servers write their own IPv6 addresses without brackets.
        is_host = _is_ipv6(host) if ":" in host else bool(host) and _NO_HOST.isdisjoint(host)
    if not is_host or not host.isprintable():
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    """Whether the text is an IPv6 address, optionally with a zone: "fe80::1%eth0"."""
    address, has_zone, zone = host.partition("%")
    if has_zone and (not zone or not _NO_HOST.isdisjoint(zone)):
        return False
    # IPv6 addresses are rare, and importing the module takes milliseconds.
    from ipaddress import IPv6Address

    try:
        IPv6Address(address)
    except ValueError:
        return False
    return True


def split_addresses(text: str) -> list[str]:
    """Split the addresses of several servers.

    :raises ValueError: when one is not an address, or the list is empty.
    """
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        split_address(address)
    if not addresses:
        raise ValueError(f"{text!r} names no server")
    return addresses


def addresses_of_answer(answer: bytes) -> list[str]:
    """The addresses in an address server's response: the text before the first blank.

    Each address is returned once.

    :raises ValueError: when one of them is not an address, or the list is empty.
    """
    lines = answer.decode().split(maxsplit=1)
    return list(dict.fromkeys(split_addresses(lines[0] if lines else "")))
