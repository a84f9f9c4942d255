"""The console in the process of ``twistmq up --console``.

Only its port is open after the start. The first connection loads the console on a thread, so an
unused console needs no memory, and the reactor is never held.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.console.start_token import TOKEN_VARIABLE, is_token_given, start_token
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    from twistmq.console.page_session import PageSession

__all__ = ["ConsoleOpener", "LateSite"]

_HOST: Final = "127.0.0.1"
_PORT: Final = 8082
#: Makes a site and its resource, on the reactor.
MakeSite: TypeAlias = Callable[[], tuple[Any, Any]]


class _WaitingBrowser(Protocol):
    """A connection that waits until the console is loaded; nothing is read from it before."""

    def __init__(self, connect: Callable[[_WaitingBrowser], None]) -> None:
        self._connect = connect
        self._inner: Any = None
        self._is_lost = False

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.pauseProducing()
        self._connect(self)

    def hand_over(self, build: Callable[[], Any]) -> None:
        """Pass the connection to a protocol of the console.

        :param build: makes the protocol; None: there are too many connections.
        """
        if self._is_lost:
            return
        self._inner = build()
        if self._inner is None:
            self.give_up()
            return
        transport: Any = self.transport
        self._inner.makeConnection(transport)
        transport.resumeProducing()

    def give_up(self) -> None:
        """Close the connection, because the console could not be loaded."""
        transport: Any = self.transport
        transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self._inner.dataReceived(data)

    def connectionLost(self, reason: Any = None) -> None:
        self._is_lost = True
        if self._inner is not None:
            self._inner.connectionLost(reason)


class LateSite(Factory):
    """A factory that makes its site when the first browser connects.

    :param load: loads the console on a thread, and returns the function that makes the site.
    """

    log = Logger()
    noisy = False

    def __init__(self, reactor: Any, load: Callable[[], MakeSite]) -> None:
        self._reactor = reactor
        self._load = load
        self._waiting: list[tuple[_WaitingBrowser, Any]] = []
        self._is_loading = False
        self.site: Any = None
        self._resource: Any = None

    def buildProtocol(self, addr: Any) -> Any:
        if self.site is not None:
            return self.site.buildProtocol(addr)
        return _WaitingBrowser(lambda browser: self._wait(browser, addr))

    def _wait(self, browser: _WaitingBrowser, addr: Any) -> None:
        self._waiting.append((browser, addr))
        if not self._is_loading:
            self._is_loading = True
            deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._load
                              ).addCallback(self._loaded).addErrback(self._failed)

    def _loaded(self, make_site: MakeSite) -> None:
        self.site, self._resource = make_site()
        self._resource.warm_up()
        self._is_loading = False
        self.site.doStart()
        waiting, self._waiting = self._waiting, []
        for browser, addr in waiting:
            browser.hand_over(partial(self.site.buildProtocol, addr))

    def _failed(self, failure: Failure) -> None:
        self._is_loading = False
        self.log.failure("the console could not be loaded", failure)
        waiting, self._waiting = self._waiting, []
        for browser, _ in waiting:
            browser.give_up()

    def close(self) -> None:
        """End the threads and connections of the console, if it was loaded."""
        if self.site is not None:
            self.site.doStop()
            self._resource.close()


class ConsoleOpener:
    """Opens the port of the console once the servers answer.

    :param port: 0: any free port; None: the usual one.
    :param make_tls: returns the TLS context of connections to the servers; None: they are plain.
    :param doctor_arguments: the arguments of ``twistmq doctor`` that describe the servers.
    :param accounts: whether the servers check accounts, with which visitors then log in.
    :param can_print: whether the address with its token is printed; otherwise the token has to come
        from the environment, because printed lines end in a log.
    :raises click.UsageError: when the token of the environment is missing or too short.
    """

    def __init__(
        self, port: int | None, make_tls: Callable[[], ssl.SSLContext | None],
        doctor_arguments: Sequence[str] = (), *, accounts: bool = False, can_print: bool,
    ) -> None:
        if not can_print and not accounts and not is_token_given():
            raise click.UsageError(f"--console needs a token in {TOKEN_VARIABLE} here, because the "
                                   "lines that are printed go to a log")
        self._port = _PORT if port is None else port
        self._make_tls = make_tls
        self._doctor_arguments = doctor_arguments
        self._accounts = accounts
        self._has_token_line = can_print and not accounts
        self._token = start_token()

    def __call__(self, reactor: Any, name_servers: str) -> str:
        """Listen until the reactor stops.

        :param name_servers: "host:port" of the name server in this process.
        :returns: a line with the address, which may contain the token and so must not be logged.
        :raises BrokerError: when the port cannot be opened.
        """
        site = LateSite(reactor, lambda: self._load(reactor, name_servers))
        try:
            listening = reactor.listenTCP(self._port, site, interface=_HOST)
        except CannotListenError as error:
            raise BrokerError(f"{_HOST}:{self._port} (the console's port: --console-port): "
                              f"{error.socketError}") from None
        reactor.addSystemEventTrigger("before", "shutdown", listening.stopListening)
        # The servers have closed their connections by then, so no page waits for an answer.
        reactor.addSystemEventTrigger("after", "shutdown", site.close)
        address = f"http://{_HOST}:{listening.getHost().port}"
        site.log.info("the console answers at {address}", address=address)
        return f"The console answers at {address}" + (
            f"/login?token={self._token}" if self._has_token_line else "")

    def _load(self, reactor: Any, name_servers: str) -> MakeSite:
        """Load the console, and return the function that makes its site."""
        from twistmq.console.doctor_runner import DoctorRunner
        from twistmq.console.page_session import PageSession
        from twistmq.console.site import make_site
        from twistmq.console.visitor import ConsoleOptions

        def make_session() -> PageSession:
            return PageSession(name_servers, tls=self._make_tls(),
                               doctor=DoctorRunner(self._doctor_arguments))

        options = ConsoleOptions(
            {"default": make_session}, self._token, accounts=self._accounts)
        return lambda: make_site(reactor, options)
