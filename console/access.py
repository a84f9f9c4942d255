"""The access to the console: logins, the throttle of failed ones, and the origin of forms.

A login is a random id in a cookie and a second random text in each form. Nothing is stored on a
disk, so all logins end with the process.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

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
    :ivar message: the result of the newest change, for the next page.
    """

    account: str
    last_s: float
    id: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    message: str = ""

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

    def _recent(self, address: str) -> list[float]:
        begin = self._seconds() - _MINUTE_S
        return [at for at in self._failures.get(address, ()) if at > begin]


class Logins:
    """The logins of a console with a token.

    :param token: the secret that is printed at the start.
    :param seconds: the clock for durations.
    """

    def __init__(self, token: str, seconds: Callable[[], float]) -> None:
        self._token = token.encode()
        self._seconds = seconds
        self.throttle = Throttle(seconds)
        #: By id; the one that was idle for the longest time comes first.
        self._logins: dict[str, Login] = {}

    def accepts(self, token: str, address: str) -> bool:
        """Return whether a token is right; a wrong one counts as a failure of the address."""
        is_right = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        if not is_right:
            self.throttle.count(address)
        return is_right

    def enter(self, token: str, address: str) -> Login | None:
        """Log in; :returns: None for a wrong token, see :meth:`accepts`."""
        if not self.accepts(token, address):
            return None
        if len(self._logins) >= LOGINS_MAX:
            self._logins.pop(next(iter(self._logins)))
        login = Login("token", self._seconds())
        self._logins[login.id] = login
        return login

    def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, which is then not idle."""
        login = self._logins.pop(cookie, None)
        now_s = self._seconds()
        if login is None or now_s - login.last_s > IDLE_S:
            return None
        login.last_s = now_s
        self._logins[cookie] = login
        return login

    def leave(self, login: Login) -> None:
        """Log out."""
        self._logins.pop(login.id, None)


def is_same_origin(origin: str, fetch_site: str, host: str) -> bool:
    """Return whether a form was sent by a page of this console.

    :param origin: the header Origin, or an empty text.
    :param fetch_site: the header Sec-Fetch-Site, or an empty text.
    :param host: the host and port by which the browser knows the console.
    """
    if fetch_site and fetch_site not in ("same-origin", "none"):
        return False
    return not origin or urlsplit(origin).netloc.lower() == host.lower()
