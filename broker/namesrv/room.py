"""Limits the part of a name server's tables that each host may use: places and bytes of routes.

A name server has no accounts, so any host that reaches its port can register brokers, and a single
one could fill the tables so that no other broker can register. Both tables have a limit, but a
fixed limit for each host would be too small for a large cluster, or too large against several
attackers. A host is therefore limited to a fraction of the room that other hosts leave free: half
of the bytes, and a quarter of the places (half for the loopback address). One connection is limited
to half of the places of its host. Thus no host can take everything, with any number of connections,
and each further host still finds room.

A broker that leaves keeps its place and its bytes for as long as it was registered, at most for an
hour. A broker that restarts can therefore register again, whatever was registered in between.

Source: none; Apache's name server has no limits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from twistmq.broker.constants import NAMESRV_BROKERS_MAX, PLACE_KEPT_MS_MAX
from twistmq.broker.remoting.host_shares import Shares

__all__ = ["RouteRoom", "host_of"]

#: The places that other hosts left, divided by this number, are a host's maximum. The second number
#: is for the loopback address.
_PLACES_PART: Final = 4
_LOOPBACK_PLACES_PART: Final = 2
#: The places that other connections of its host left, divided by this, are a connection's maximum.
_CONNECTION_PART: Final = 2
#: The bytes that other hosts left, divided by this number, are a host's maximum.
_BYTES_PART: Final = 2

_LOOPBACK: Final = "loopback"

#: The cluster, address and name of a broker.
_Key = tuple[str, str, str]


def host_of(charged_address: str) -> str:
    """Return the host whose share is used by the broker of a connection.

    :param charged_address: "ip:port"; for IPv6 "[ip]:port", where a host is a network of 64 bits.
    """
    host = charged_address.rpartition(":")[0].strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return _LOOPBACK
    return str(address) if isinstance(address, IPv4Address) else (
        f"{IPv6Address(int(address) >> 64 << 64)}/64")


@dataclass(slots=True)
class _Place:
    """The place of a broker that is registered or has left.

    :param until_ms: for a broker that has left, the time until which the place is kept.
    """

    host: str
    channel_id: int
    since_ms: int
    until_ms: int | None = None


@dataclass(slots=True)
class _Rows:
    """The bytes of a broker name's routes.

    :param used_bytes: the size of the existing rows.
    :param charged_bytes: the size charged to its host, which is at least as large.
    :param until_ms: for a name that is gone, the time until which the bytes are kept.
    """

    host: str
    since_ms: int
    used_bytes: int = 0
    charged_bytes: int = 0
    until_ms: int | None = None


class RouteRoom:
    """The places and bytes of one name server.

    :param size_max: returns ``routes.size_max``; called each time. By default, there is no limit.
    """

    def __init__(self, size_max: Callable[[], int] = lambda: sys.maxsize) -> None:
        self._size_max = size_max
        #: The wall-clock time, Unix ms; set by the caller, who knows the time.
        self.now_ms = 0
        self._places: dict[_Key, _Place] = {}
        self._place_shares: Shares[str] = Shares()
        #: The number of registered brokers by connection.
        self._on_connection: Counter[int] = Counter()
        self._rows: dict[str, _Rows] = {}
        self._byte_shares: Shares[str] = Shares()

    # --- places

    def why_no_place(self, key: _Key, host: str, channel_id: int) -> str:
        """Return why a new broker may not register; empty if it may."""
        broker_place = self._places.get(key)
        if broker_place is not None and broker_place.host == host:
            return ""
        shares = self._place_shares
        part = _LOOPBACK_PLACES_PART if host == _LOOPBACK else _PLACES_PART
        limit = shares.maximum(host, NAMESRV_BROKERS_MAX, part)
        own = shares.amount(host)
        if own >= limit:
            return (f"{host} has {own} of {shares.total} brokers, its share; there may be "
                    f"{NAMESRV_BROKERS_MAX}")
        on_connection = self._on_connection[channel_id]
        room = limit - (own - on_connection)
        if on_connection >= max(room // _CONNECTION_PART, 1):
            return f"this connection has {on_connection} brokers, its share of those of {host}"
        return ""

    def broker_came(self, key: _Key, host: str, channel_id: int) -> None:
        """Record that a broker registered, and over which connection."""
        broker_place = self._places.get(key)
        since_ms = self.now_ms
        if broker_place is not None:
            if broker_place.host == host:
                since_ms = broker_place.since_ms
            self._free(broker_place)
        self._places[key] = _Place(host, channel_id, since_ms)
        self._place_shares.add(host, 1)
        self._on_connection[channel_id] += 1

    def broker_left(self, key: _Key) -> None:
        """Reserve the place of a broker that left, for as long as it was registered."""
        broker_place = self._places[key]
        self._leave_connection(broker_place)
        broker_place.until_ms = self._kept_until_ms(broker_place.since_ms)
        if broker_place.until_ms <= self.now_ms:
            self._place_shares.add(broker_place.host, -1)
            del self._places[key]

    def _free(self, broker_place: _Place) -> None:
        self._place_shares.add(broker_place.host, -1)
        if broker_place.until_ms is None:
            self._leave_connection(broker_place)

    def _leave_connection(self, broker_place: _Place) -> None:
        self._on_connection[broker_place.channel_id] -= 1
        if not self._on_connection[broker_place.channel_id]:
            del self._on_connection[broker_place.channel_id]

    def _kept_until_ms(self, since_ms: int) -> int:
        return self.now_ms + min(self.now_ms - since_ms, PLACE_KEPT_MS_MAX)

    # --- bytes

    @property
    def size_bytes(self) -> int:
        """The size of all routes, including reserved bytes."""
        return self._byte_shares.total

    def name_came(self, name: str, host: str) -> None:
        """Charge a host with the rows of a name from now on."""
        rows = self._rows.get(name)
        if rows is None:
            self._rows[name] = _Rows(host, self.now_ms)
            return
        rows.until_ms = None
        if rows.host != host:
            self._byte_shares.add(rows.host, -rows.charged_bytes)
            rows.host, rows.since_ms, rows.charged_bytes = host, self.now_ms, rows.used_bytes
            self._byte_shares.add(host, rows.charged_bytes)

    def is_charged(self, name: str, host: str) -> bool:
        """Whether a host's brokers may add to the rows of a name."""
        rows = self._rows.get(name)
        return rows is None or rows.host in ("", host)

    def take(self, name: str, size_bytes: int) -> bool:
        """Charge a name with a row; :returns: False when there is no room for it."""
        rows = self._rows.get(name)
        if rows is None:
            rows = self._rows[name] = _Rows("", self.now_ms)
        more_bytes = rows.used_bytes + size_bytes - rows.charged_bytes
        if more_bytes > 0:
            shares = self._byte_shares
            limit = shares.maximum(rows.host, self._size_max(), _BYTES_PART)
            if shares.amount(rows.host) + more_bytes > limit:
                return False
            shares.add(rows.host, more_bytes)
            rows.charged_bytes += more_bytes
        rows.used_bytes += size_bytes
        return True

    def release_row(self, name: str, size_bytes: int) -> None:
        """Remove a row of a name. Its bytes stay reserved as long as the bytes of the name."""
        rows = self._rows[name]
        rows.used_bytes -= size_bytes
        assert rows.used_bytes >= 0, name
        if rows.until_ms is None or rows.until_ms <= self.now_ms:
            self.settle(name)

    def settle(self, name: str) -> None:
        """Reduce the charge of a name to the rows that it has."""
        rows = self._rows.get(name)
        if rows is None:
            return
        self._byte_shares.add(rows.host, rows.used_bytes - rows.charged_bytes)
        rows.charged_bytes = rows.used_bytes
        if not rows.used_bytes and rows.until_ms is not None:
            del self._rows[name]

    def name_left(self, name: str) -> None:
        """Reserve the bytes of a name that is gone, for as long as it was registered."""
        rows = self._rows.get(name)
        if rows is not None:
            rows.until_ms = self._kept_until_ms(rows.since_ms)
            if rows.until_ms <= self.now_ms:
                self.settle(name)

    def used_bytes(self, name: str) -> int:
        """Return the size of the rows of a name."""
        rows = self._rows.get(name)
        return rows.used_bytes if rows else 0

    # --- time

    def forget_old(self, now_ms: int) -> None:
        """Drop reservations that have expired; called periodically."""
        self.now_ms = max(self.now_ms, now_ms)
        for key in [key for key, broker_place in self._places.items()
                    if broker_place.until_ms is not None and broker_place.until_ms <= self.now_ms]:
            self._place_shares.add(self._places.pop(key).host, -1)
        for name in [name for name, rows in self._rows.items()
                     if rows.until_ms is not None and rows.until_ms <= self.now_ms]:
            self.settle(name)
