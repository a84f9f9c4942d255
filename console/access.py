"""The access to the console: logins, the throttle of failed ones, and the origin of forms.

A login is a random id in a cookie and a second random text in each form. Nothing is stored on a
disk, so all logins end with the process. The keys of an account are in the sessions of its login
alone, which are closed when the login ends.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from twistmq.console.cluster_sessions import ClusterSessions

__all__ = ["COOKIE", "Login", "Logins", "Throttle", "is_same_origin"]

#: The name of the cookie.
COOKIE: Final = "twistmq_console"
#: A login ends after this time without a request, seconds.
IDLE_S: Final = 30 * 60
#: The number of logins; the one that was idle for the longest time ends before a further one.
LOGINS_MAX: Final = 1_000
#: Failed logins of one address within a minute.
FAILURES_MAX: Final = 5
_MINUTE_S: Final = 60.0
#: The addresses whose failures are counted.
_ADDRESSES_MAX: Final = 10_000
_ID_BYTES: Final = 32


@dataclass(slots=True)
class Login:
    """A browser that is logged in.

    :ivar csrf: the text that each form of this browser contains.
    :ivar account: the name for the log.
    :ivar sessions: the sessions that sign as this account; None: the sessions of the console.
    :ivar message: the result of the newest change, for the next page.
    :ivar is_refused: whether this change was refused.
    """

    account: str
    last_s: float
    sessions: ClusterSessions | None = field(default=None, repr=False)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    message: str = ""
    is_refused: bool = False

    def take_message(self) -> str:
        """Return the message for the next page, once."""
        message, self.message = self.message, ""
        return message

    def accepts(self, csrf: str) -> bool:
        """Return whether a form contains the text of this login."""
        return hmac.compare_digest(csrf.encode("utf-8", "replace"), self.csrf.encode())


class Throttle:
    """Counts failed logins by address.

    :param seconds: the clock for durations.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._failures: dict[str, list[float]] = {}

    def allows(self, address: str) -> bool:
        """Return whether an address may try to log in now."""
        return len(self._recent(address)) < FAILURES_MAX

    def count(self, address: str) -> None:
        """Count a failed login."""
        recent = self._recent(address)
        self._failures.pop(address, None)
        if len(self._failures) >= _ADDRESSES_MAX:
            self._failures.pop(next(iter(self._failures)))
        self._failures[address] = [*recent, self._seconds()]

    def take_back(self, address: str) -> None:
        """Take back the newest failure of an address."""
        recent = self._recent(address)[:-1]
        if recent:
            self._failures[address] = recent
        else:
            self._failures.pop(address, None)

    def _recent(self, address: str) -> list[float]:
        begin = self._seconds() - _MINUTE_S
        return [at for at in self._failures.get(address, ()) if at > begin]


class Logins:
    """The logins of a console.

    :param token: the secret that is printed at the start; empty: the visitors have accounts.
    :param seconds: the clock for durations.
    :param end: is called with each login that ends, on the thread of the caller.
    """

    def __init__(
        self, token: str, seconds: Callable[[], float],
        end: Callable[[Login], None] = lambda login: None,
    ) -> None:
        self._token = token.encode()
        self._seconds = seconds
        self._end = end
        self._id_key = secrets.token_bytes(_ID_BYTES)
        self.throttle = Throttle(seconds)
        #: By id; the one that was idle for the longest time comes first.
        self._logins: dict[str, Login] = {}

    def accepts(self, token: str, address: str) -> bool:
        """Return whether a token is right; a wrong one counts as a failure of the address."""
        is_right = bool(self._token) and hmac.compare_digest(
            token.encode("utf-8", "replace"), self._token)
        if not is_right:
            self.throttle.count(address)
        return is_right

    def enter(self, token: str, address: str) -> Login | None:
        """Log in; :returns: None for a wrong token, see :meth:`accepts`."""
        return self.add(Login("token", 0.0)) if self.accepts(token, address) else None

    def add(self, login: Login) -> Login:
        """Add a login, which then begins to be idle."""
        former = self._logins.get(login.id)
        if former is not None:
            self.leave(former)
        if len(self._logins) >= LOGINS_MAX:
            self.leave(next(iter(self._logins.values())))
        login.last_s = self._seconds()
        self._logins[login.id] = login
        return login

    def id_of(self, text: str) -> str:
        """Return the id for the login of a program that sends the same text each time.

        The id does not reveal the text, which has a secret key.
        """
        return hmac.digest(self._id_key, text.encode("utf-8", "replace"), "sha256").hex()

    def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, which is then not idle."""
        self.end_idle()
        login = self._logins.pop(cookie, None)
        if login is None:
            return None
        login.last_s = self._seconds()
        self._logins[cookie] = login
        return login

    def end_idle(self) -> None:
        """End the logins that have been idle for too long."""
        begin_s = self._seconds() - IDLE_S
        while self._logins:
            login = next(iter(self._logins.values()))
            if login.last_s >= begin_s:
                return
            self.leave(login)

    def leave(self, login: Login) -> None:
        """Log out."""
        if self._logins.pop(login.id, None) is not None:
            self._end(login)

    def end_all(self) -> None:
        """End all logins."""
        while self._logins:
            self.leave(next(iter(self._logins.values())))


def is_same_origin(origin: str, fetch_site: str, host: str) -> bool:
    """Return whether a form was sent by a page of this console.

    :param origin: the header Origin, or an empty text.
    :param fetch_site: the header Sec-Fetch-Site, or an empty text.
    :param host: the host and port by which the browser knows the console.
    """
    if fetch_site and fetch_site not in ("same-origin", "none"):
        return False
    return not origin or urlsplit(origin).netloc.lower() == host.lower()
