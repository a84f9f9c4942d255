"""Resolves the name in a "host:port" of name servers to addresses, by DNS and the host's files.

Differs from Apache: an IPv6 address is put in brackets, so that its port can be distinguished.

Source: BrokerOuterAPI.dnsLookupAddressByDomain @5.3.3.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool

from twistmq.broker.client.bounded_query import BoundedQuery
from twistmq.protocol.addresses import split_address
from twistmq.protocol.errors import RemotingConnectError, RemotingTimeout

__all__ = ["NameLookup", "look_up"]

#: The time-out of a look-up, seconds: a resolver tries its second DNS server after five.
_TIMEOUT_SECONDS: Final = 10


def look_up(name: str) -> list[str]:
    """Look up all addresses of a "host:port", IPv4 first, in order. This function blocks.

    :returns: a list of "address:port" with at least one item.
    :raises RemotingConnectError: when the name does not have an address.
    """
    try:
        host, port = split_address(name)
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RemotingConnectError(f"{name} cannot be resolved: {why}") from None
    addresses = sorted(
        {(row[0] != socket.AF_INET, str(row[4][0]).partition("%")[0]) for row in rows})
    return [f"[{ip}]:{port}" if is_ipv6 else f"{ip}:{port}" for is_ipv6, ip in addresses]


class NameLookup:
    """Looks names up on a thread, one at a time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._question = BoundedQuery(reactor)

    async def fetch(self, name: str) -> list[str]:
        """Look up all addresses of a "host:port", on a thread of the reactor.

        :raises RemotingError: when the name does not have an address, or no answer comes in time.
        """
        asking: Deferred[list[str]] = deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), look_up, name)
        try:
            return await self._question.answer(
                asking, _TIMEOUT_SECONDS, f"no answer for {name}")
        except CancelledError:
            raise RemotingTimeout(f"no answer for {name} before the stop") from None

    def stop(self) -> None:
        """Stop waiting for an answer: the look-up in progress fails."""
        self._question.stop()
