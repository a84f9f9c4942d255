"""The host names of a test: ``socket.getaddrinfo`` first looks into a table."""

from __future__ import annotations

import socket
from typing import Any, Final

__all__ = ["NameTable"]

_ASK_THE_HOST: Final = socket.getaddrinfo


class NameTable:
    """The addresses of names; other names are looked up by the host.

    To be put in the place of ``socket.getaddrinfo``.
    """

    def __init__(self, **addresses: list[str]) -> None:
        #: By name; an empty list: DNS does not know it.
        self.addresses = addresses
        #: Names that were asked for, of the table.
        self.asked: list[str] = []

    def __call__(self, host: str, *arguments: Any, **options: Any) -> list[Any]:
        if host not in self.addresses:
            return _ASK_THE_HOST(host, *arguments, **options)
        self.asked.append(host)
        found = self.addresses[host]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        # Each once for every kind of socket, as the host may say it.
        return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, kind, 6, "",
                 (ip, 0, 0, 0) if ":" in ip else (ip, 0))
                for ip in found for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM)]
