"""A request as the console sees it: without the path of a reverse proxy, and with its headers read.

The headers of a reverse proxy count only if the connection comes from a proxy that is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from twistmq.console.access import COOKIE
from twistmq.console.page_session import PAGE_S, PageSession
from twistmq.console.query import Query
from twistmq.protocol.printable import one_line

__all__ = ["ConsoleOptions", "Visitor"]

#: The parameters of an address that links on its page keep.
_KEPT: Final = ("q", "sort", "size", "kind", "page", "count", "older")
#: An address of a client is shown up to this length, because a proxy reports it.
_ADDRESS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of a console.

    :param clusters: makes the session of each cluster, by name; the first one is the default.
    :param token: the secret with which a browser logs in; it is not used with ``accounts``.
    :param base: the path under which a reverse proxy publishes the console, or an empty text.
    :param readonly: whether every change is refused.
    :param trusted_proxies: the addresses of the reverse proxies whose headers X-Forwarded-For,
        -Host and -Proto count.
    :param page_s: the time in which a page collects its answers, seconds.
    :param accounts: whether visitors log in with the keys of their accounts, which sign their
        requests; the sessions of ``clusters`` then do not sign.
    """

    clusters: Mapping[str, Callable[[], PageSession]]
    token: str
    base: str = ""
    readonly: bool = False
    trusted_proxies: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    page_s: float = PAGE_S
    accounts: bool = False


class Visitor:
    """A request as the console sees it, without the path of a reverse proxy.

    :param request: its body has been read.
    """

    def __init__(self, request: Any, options: ConsoleOptions) -> None:
        self.request = request
        self._options = options
        path: str = request.path.decode("ascii", "replace")
        if path == options.base or path.startswith(f"{options.base}/"):
            path = path[len(options.base):]
        # A path without a slash at its begin is the address of another host.
        self._path = path if path.startswith("/") else f"/{path}"
        self.parts = [unquote(part) for part in self._path.split("/")[1:]]
        if self.parts == [""]:
            self.parts = []
        lists = {name.decode("utf-8", "replace"): [each.decode("utf-8", "replace")
                                                   for each in values]
                 for name, values in (request.args or {}).items()}
        self.query = Query({name: values[-1] for name, values in lists.items()}, lists)
        self.is_change = request.method == b"POST"

    def header(self, name: str) -> str:
        """Return a header, or an empty text."""
        text: str | None = self.request.getHeader(name)
        return text or ""

    @property
    def _is_forwarded(self) -> bool:
        peer = getattr(self.request.getClientAddress(), "host", "")
        return peer in self._options.trusted_proxies

    @property
    def host(self) -> str:
        """The host by which the browser knows the console."""
        forwarded = self.header("x-forwarded-host") if self._is_forwarded else ""
        return (forwarded.split(",")[0] or self.header("host")).strip()

    @property
    def address(self) -> str:
        """The address of the browser, or the last one that a trusted proxy reports."""
        forwarded = self.header("x-forwarded-for") if self._is_forwarded else ""
        return one_line(forwarded.split(",")[-1].strip() or getattr(
            self.request.getClientAddress(), "host", "") or "unknown")[:_ADDRESS_MAX]

    @property
    def login_id(self) -> str:
        """The id in the cookie."""
        value = self.request.getCookie(COOKIE.encode())
        return str(value, "ascii", "replace") if value else ""

    def set_cookie(self, text: str) -> None:
        """Set the cookie for this console alone; scripts cannot read it."""
        is_encrypted = self._is_forwarded and self.header("x-forwarded-proto") == "https"
        self.request.addCookie(
            COOKIE, text, path=self._options.base or "/", httpOnly=True, sameSite="strict",
            secure=is_encrypted or None)

    @property
    def has_bearer(self) -> bool:
        """Whether the request has a token in its header, as programs send it."""
        return self.header("authorization").startswith("Bearer ")

    @property
    def bearer_token(self) -> str:
        """The token in the header."""
        return self.header("authorization").removeprefix("Bearer ").strip()

    @property
    def wants_json(self) -> bool:
        """Whether the JSON form is requested."""
        return "application/json" in self.header("accept")

    @property
    def wants_part(self) -> bool:
        """Whether the script of a page asks for its live part alone."""
        return (self.request.method == b"GET" and self.header("hx-request") == "true"
                and not self.header("hx-history-restore-request") and not self.wants_json)

    @property
    def address_values(self) -> dict[str, str]:
        """The parameters in the address, which links keep."""
        return {name: text for name, text in self.query.values.items()
                if name in _KEPT}

    @property
    def local_address(self) -> str:
        """The address of this request in the console."""
        _, mark, parameters = self.request.uri.decode("ascii", "replace").partition("?")
        return f"{self._path}{mark}{parameters}"

    @property
    def next_path(self) -> str:
        """Where a browser goes after a change."""
        return self.safe_path(self.query.text("next")) if self.query.text("next") else (
            self.local_address)

    @staticmethod
    def safe_path(path: str) -> str:
        """Return a path of this console; the start for anything else."""
        is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
        return path if is_local and path.isprintable() else "/"

    def redirect_to(self, address: str) -> bytes:
        """Send the browser to another address by GET."""
        self.request.setResponseCode(303)
        self.request.setHeader(b"location", address.encode("ascii", "replace"))
        return b""
