"""The PROXY protocol: a proxy in front of a port sends the address of its client.

Version 1 is a line of text, version 2 a binary header. Either precedes all other bytes. Proxied
and direct connections share a port: the first bytes distinguish the header from frames and TLS.
The address in the header becomes the client's address in logs, access control and client tables.

Any peer that reaches the port can send such a header. It is therefore accepted from the addresses
in ``proxy.trusted`` only, or from all peers if access does not depend on addresses (see
:func:`proxy_stage`).

Differs from Apache: a header for UDP is refused, because no UDP connection reaches these ports.

Source: HAProxy's "The PROXY protocol", versions 1 and 2; NettyRemotingServer.HandshakeHandler
@5.3.3, which trusts all peers and keeps the additional fields for its plugins.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import PROXY_HEADER_SIZE_MAX
from twistmq.broker.errors import SettingsError
from twistmq.protocol.decimal_text import PORT_MAX, whole_number
from twistmq.protocol.log_rate import LineRate

if TYPE_CHECKING:
    from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["ProxyHeader", "ProxyHeaderError", "ProxyProtocol", "parse_proxy_header", "proxy_stage"]

#: The first bytes of a header in each version.
_TEXT: Final = b"PROXY "
_BINARY: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: Length of the longest line of version 1, with its line end, bytes.
_LINE_SIZE_MAX: Final = 107
#: The size of a version 2 header before its addresses, bytes: the first bytes above, version and
#: command (4 bits each), family and transport (4 bits each), uint16 length of the remainder.
_FIXED_SIZE: Final = 16
#: The number of digits of a port in version 1.
_PORT_DIGITS_MAX: Final = 5
#: Family and transport -> size of an address in bytes. Only TCP over IPv4 and over IPv6.
_ADDRESS_SIZES: Final = {0x11: 4, 0x21: 16}
#: Families of a header without an address: unspecified, Unix sockets.
_WITHOUT_ADDRESS: Final = (0x00, 0x31)
#: The value that stands for every address in the setting.
_ANY: Final = "*"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyHeaderError(ValueError):
    """A malformed PROXY header."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A parsed header.

    :param size: the length of the header; the bytes after it belong to the client.
    :param ip: the client's address; empty if the connection is the proxy's own, or if the proxy
        does not know it.
    """

    size: int
    ip: str = ""
    port: int = 0


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of ``data``.

    :returns: the header; None when more bytes are needed.
    :raises ProxyHeaderError: when it is malformed or too long, as soon as this is detected.
    """
    return _parse_binary(data) if data[:1] == _BINARY[:1] else _parse_text(data)


def _parse_text(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:_LINE_SIZE_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= _LINE_SIZE_MAX:
            raise ProxyHeaderError(f"its line is longer than {_LINE_SIZE_MAX} bytes")
        return None
    size = len(line) + len(end)
    words = line.split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        # The proxy does not know the address; the remaining line is ignored.
        return ProxyHeader(size)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError("its line is not: PROXY TCP4|TCP6 source destination port port")
    addresses = [_text_address(word, words[1]) for word in words[2:4]]
    ports = [_text_port(word) for word in words[4:6]]
    return ProxyHeader(size, addresses[0], ports[0])


def _text_address(word: bytes, family: bytes) -> str:
    read = ipaddress.IPv4Address if family == b"TCP4" else ipaddress.IPv6Address
    try:
        text = word.decode("ascii")
        if "%" in text:
            raise ValueError("a zone has no meaning elsewhere")
        return str(read(text))
    except ValueError:
        raise ProxyHeaderError(f"an address in it is not one of {family.decode()}") from None


def _text_port(word: bytes) -> int:
    port = whole_number(word.decode("latin-1"), PORT_MAX)
    if port is None or len(word) > _PORT_DIGITS_MAX:
        raise ProxyHeaderError("a port in it is not valid")
    return port


def _parse_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _FIXED_SIZE:
        return None
    version, command, family = data[12] >> 4, data[12] & 15, data[13]
    length = int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1:
        raise ProxyHeaderError(f"version {version} with command {command} is not known")
    size = _FIXED_SIZE + length
    if size > PROXY_HEADER_SIZE_MAX:
        raise ProxyHeaderError(f"it has {size} bytes; the limit is {PROXY_HEADER_SIZE_MAX}")
    if command == 0 or family in _WITHOUT_ADDRESS:
        return ProxyHeader(size) if len(data) >= size else None
    address_size = _ADDRESS_SIZES.get(family)
    if address_size is None:
        raise ProxyHeaderError(f"address family {family:#04x} is not TCP's")
    if length < 2 * address_size + 4:
        raise ProxyHeaderError(f"{length} bytes are too few for its addresses")
    if len(data) < size:
        return None
    source = data[_FIXED_SIZE:_FIXED_SIZE + address_size]
    port_begin = _FIXED_SIZE + 2 * address_size
    return ProxyHeader(size, str(ipaddress.ip_address(source)),
                       int.from_bytes(data[port_begin:port_begin + 2], "big"))


class ProxyProtocol:
    """The protocol-detection stage that reads a PROXY header.

    :param trusted: the networks that may send a header; None for all networks.
    :param is_named: whether ``proxy.trusted`` names them. If not, the memory of their connections
        is still charged to the proxy, or to a peer that poses as one.
    """

    log = Logger()

    def __init__(
        self, trusted: Sequence[_Network] | None, now_ms: Callable[[], int], *,
        is_named: bool = True,
    ) -> None:
        self._trusted = trusted
        self._is_named = is_named
        self._now_ms = now_ms
        self._lines = LineRate()

    def recognise(self, data: bytes) -> bool | None:
        """Return whether a header begins here; None until it is complete or malformed."""
        if not any(data[:len(begin)] == begin[:len(data)] for begin in (_TEXT, _BINARY)):
            return False
        try:
            if parse_proxy_header(data) is not None:
                return True
        except ProxyHeaderError:
            return True
        return None

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        """Set the connection's client address; :returns: the bytes after the header."""
        proxy = connection.remote_address
        if not self._is_trusted(connection):
            self._refuse(connection, "it sends a PROXY header, and proxy.trusted does not name it")
            return b""
        try:
            header = parse_proxy_header(data)
        except ProxyHeaderError as error:
            self._refuse(connection, f"its PROXY header is malformed: {error}")
            return b""
        assert header is not None, "recognise() waits for the whole header"
        if header.ip:
            connection.set_remote_address(header.ip, header.port)
            if self._is_named:
                connection.charged_address = connection.remote_address
            self.log.debug("proxy {proxy} connects client {peer}", proxy=proxy,
                           peer=connection.remote_address)
        return data[header.size:]

    def _is_trusted(self, connection: RemotingProtocol) -> bool:
        if self._trusted is None:
            return True
        address = ipaddress.ip_address(connection.remote_host[:-4])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._trusted)

    def _refuse(self, connection: RemotingProtocol, why: str) -> None:
        left_out = self._lines.left_out(self._now_ms())
        if left_out is not None:
            more = f" ({left_out} similar lines were left out)" if left_out else ""
            self.log.warn("connection of {peer} closed: {why}{more}", why=why, more=more,
                          peer=connection.remote_address)
        connection.close()


def proxy_stage(settings: Settings, now_ms: Callable[[], int]) -> ProxyProtocol:
    """Make the stage from the settings.

    Differs from Apache: with access control only the proxies in ``proxy.trusted`` are trusted.
    Otherwise any peer could claim an address of the white list.

    :raises SettingsError: when an entry of ``proxy.trusted`` is not an address or a network.
    """
    names = settings.names("proxy.trusted")
    if not names:
        return ProxyProtocol([] if settings.access_setting else None, now_ms, is_named=False)
    if _ANY in names:
        return ProxyProtocol(None, now_ms)
    try:
        return ProxyProtocol([ipaddress.ip_network(name) for name in names], now_ms)
    except ValueError as error:
        raise _no_network(settings, error) from None


def _no_network(settings: Settings, error: ValueError) -> SettingsError:
    return settings.error("proxy.trusted", f"must be addresses, networks or {_ANY}: {error}")
