"""How much of a name server's tables each host may take: places of brokers, bytes of routes.

A name server has no accounts, so any host that reaches its port can register brokers. Both tables
have a limit, and each host has a share of what the others left: half of the bytes; a quarter of the
places, half on the loopback address, and one connection half of that. So no host takes all of it,
with any number of connections, and each further host finds room.

A broker that leaves keeps its place and its bytes for as long as it had them, an hour at most: one
that starts again comes back, whatever came meanwhile.

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

#: A host has this part of the places that the others left, the loopback address that one.
_PLACES_PART: Final = 4
_LOOPBACK_PLACES_PART: Final = 2
#: A connection has this part of the places that others of its host left.
_CONNECTION_PART: Final = 2
#: A host has this part of the bytes that the others left.
_BYTES_PART: Final = 2

_LOOPBACK: Final = "loopback"

#: Cluster, address and name of a broker.
_Key = tuple[str, str, str]


def host_of(charged_address: str) -> str:
    """The host whose share a connection's broker uses.

    :param charged_address: "ip:port"; IPv6 as "[ip]:port", where a host has a network of 64 bits.
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
    """A broker's, there or gone.

    :param until_ms: when it is gone: how long its place is kept.
    """

    host: str
    channel_id: int
    since_ms: int
    until_ms: int | None = None


@dataclass(slots=True)
class _Rows:
    """The bytes of a broker name's routes.

    :param used_bytes: of the rows there are.
    :param taken_bytes: what its host is charged, not less than that.
    :param until_ms: when the name is gone: how long the bytes are kept.
    """

    host: str
    since_ms: int
    used_bytes: int = 0
    taken_bytes: int = 0
    until_ms: int | None = None


class RouteRoom:
    """Places and bytes of one name server.

    :param size_max: the value of ``routes.size_max``, asked each time; none unless given.
    """

    def __init__(self, size_max: Callable[[], int] = lambda: sys.maxsize) -> None:
        self._size_max = size_max
        #: The clock, Unix ms; set by the caller that knows the time.
        self.now_ms = 0
        self._places: dict[_Key, _Place] = {}
        self._place_shares: Shares[str] = Shares()
        #: Brokers that are there, by connection.
        self._on_connection: Counter[int] = Counter()
        self._rows: dict[str, _Rows] = {}
        self._byte_shares: Shares[str] = Shares()

    # --- places

    def why_no_place(self, key: _Key, host: str, channel_id: int) -> str:
        """Why a broker that is not there may not come; empty: it may."""
        known = self._places.get(key)
        if known is not None and known.host == host:
            return ""
        shares = self._place_shares
        part = _LOOPBACK_PLACES_PART if host == _LOOPBACK else _PLACES_PART
        most = shares.most(host, NAMESRV_BROKERS_MAX, part)
        own = shares.of(host)
        if own >= most:
            return (f"{host} has {own} of {shares.total} brokers, its share; there may be "
                    f"{NAMESRV_BROKERS_MAX}")
        on_connection = self._on_connection[channel_id]
        room = most - (own - on_connection)
        if on_connection >= max(room // _CONNECTION_PART, 1):
            return f"this connection has {on_connection} brokers, its share of those of {host}"
        return ""

    def came(self, key: _Key, host: str, channel_id: int) -> None:
        """Note that a broker is there, by which connection."""
        known = self._places.get(key)
        since_ms = self.now_ms
        if known is not None:
            if known.host == host:
                since_ms = known.since_ms
            self._free(known)
        self._places[key] = _Place(host, channel_id, since_ms)
        self._place_shares.add(host, 1)
        self._on_connection[channel_id] += 1

    def left(self, key: _Key) -> None:
        """Keep the place of a broker that is gone, for as long as it was there."""
        place = self._places[key]
        self._leave_connection(place)
        place.until_ms = self._kept_until_ms(place.since_ms)
        if place.until_ms <= self.now_ms:
            self._place_shares.add(place.host, -1)
            del self._places[key]

    def _free(self, place: _Place) -> None:
        self._place_shares.add(place.host, -1)
        if place.until_ms is None:
            self._leave_connection(place)

    def _leave_connection(self, place: _Place) -> None:
        self._on_connection[place.channel_id] -= 1
        if not self._on_connection[place.channel_id]:
            del self._on_connection[place.channel_id]

    def _kept_until_ms(self, since_ms: int) -> int:
        return self.now_ms + min(self.now_ms - since_ms, PLACE_KEPT_MS_MAX)

    # --- bytes

    @property
    def size_bytes(self) -> int:
        """The size of all routes, kept places of brokers included."""
        return self._byte_shares.total

    def name_came(self, name: str, host: str) -> None:
        """Charge a host with the rows of a name from now on."""
        rows = self._rows.get(name)
        if rows is None:
            self._rows[name] = _Rows(host, self.now_ms)
            return
        rows.until_ms = None
        if rows.host != host:
            self._byte_shares.add(rows.host, -rows.taken_bytes)
            rows.host, rows.since_ms, rows.taken_bytes = host, self.now_ms, rows.used_bytes
            self._byte_shares.add(host, rows.taken_bytes)

    def is_charged(self, name: str, host: str) -> bool:
        """Whether a host's brokers may add to the rows of a name."""
        rows = self._rows.get(name)
        return rows is None or rows.host in ("", host)

    def take(self, name: str, size_bytes: int) -> bool:
        """Charge a name with a row; :returns: False when there is no room for it."""
        rows = self._rows.get(name)
        if rows is None:
            rows = self._rows[name] = _Rows("", self.now_ms)
        more_bytes = rows.used_bytes + size_bytes - rows.taken_bytes
        if more_bytes > 0:
            shares = self._byte_shares
            most = shares.most(rows.host, self._size_max(), _BYTES_PART)
            if shares.of(rows.host) + more_bytes > most:
                return False
            shares.add(rows.host, more_bytes)
            rows.taken_bytes += more_bytes
        rows.used_bytes += size_bytes
        return True

    def release_row(self, name: str, size_bytes: int) -> None:
        """A row of a name is removed. Its bytes stay reserved as long as those of the name."""
        rows = self._rows[name]
        rows.used_bytes -= size_bytes
        assert rows.used_bytes >= 0, name
        if rows.until_ms is None or rows.until_ms <= self.now_ms:
            self.settle(name)

    def settle(self, name: str) -> None:
        """Charge a name with no more than the rows it has."""
        rows = self._rows.get(name)
        if rows is None:
            return
        self._byte_shares.add(rows.host, rows.used_bytes - rows.taken_bytes)
        rows.taken_bytes = rows.used_bytes
        if not rows.used_bytes and rows.until_ms is not None:
            del self._rows[name]

    def name_left(self, name: str) -> None:
        """Keep the bytes of a name that is gone, for as long as it was there."""
        rows = self._rows.get(name)
        if rows is not None:
            rows.until_ms = self._kept_until_ms(rows.since_ms)
            if rows.until_ms <= self.now_ms:
                self.settle(name)

    def used_bytes(self, name: str) -> int:
        """The size of the rows of a name."""
        rows = self._rows.get(name)
        return rows.used_bytes if rows else 0

    # --- time

    def forget_old(self, now_ms: int) -> None:
        """Drop the reserved places whose time is over; called periodically."""
        self.now_ms = max(self.now_ms, now_ms)
        for key in [key for key, place in self._places.items()
                    if place.until_ms is not None and place.until_ms <= self.now_ms]:
            self._place_shares.add(self._places.pop(key).host, -1)
        for name in [name for name, rows in self._rows.items()
                     if rows.until_ms is not None and rows.until_ms <= self.now_ms]:
            self.settle(name)
