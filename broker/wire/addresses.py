"""Addresses as they stand in settings and options: "host:port", or several with ; or , between."""

from __future__ import annotations

from typing import Final

__all__ = ["ANSWER_SIZE_MAX", "addresses_of_answer", "split_address", "split_addresses"]

#: Bytes of an address server's answer: some hundred addresses.
ANSWER_SIZE_MAX: Final = 8192


def split_address(address: str) -> tuple[str, int]:
    """Split "host:port" or "[ipv6]:port"; :raises ValueError: when it is neither."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


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
    """The addresses of an address server's answer: those before the first blank, each once.

    :raises ValueError: when one is no address, or there is none.
    """
    lines = answer.decode().split(maxsplit=1)
    return list(dict.fromkeys(split_addresses(lines[0] if lines else "")))
