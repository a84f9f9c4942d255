"""One listening port and its connections."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IReactorTCP
from twisted.logger import Logger

from twistmq.broker.config.port_checks import cannot_listen
from twistmq.broker.net.bound_port import BoundPort
from twistmq.broker.net.connection_close import close_connection
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["ListenerService"]


class ListenerService(Service):
    """A service that listens on one port.

    :param port: 0 lets the system choose; ``port`` then holds the actual number once it listens.
    :param interface: the address to bind to.
    :param purpose: the server and the setting of the port, for the error message.
    """

    log = Logger()

    def __init__(
        self, reactor: IReactorTCP, port: int, interface: str, backlog: int,
        factory: RemotingFactory, purpose: str,
    ) -> None:
        self._reactor: Any = reactor
        self.port = port
        self.interface = interface
        self._backlog = backlog
        self._purpose = purpose
        self.factory = factory
        self._bound: BoundPort | None = None

    def startService(self) -> None:
        """:raises BrokerError: when the port cannot be bound; the text names it and the reason."""
        try:
            self._bound = BoundPort(
                self._reactor, self.factory, self.port, self.interface, self._backlog)
        except OSError as error:
            raise cannot_listen(self.interface, self.port, self._purpose, error) from None
        self.port = self._bound.port
        super().startService()  # type: ignore[no-untyped-call]

    def stop_listening(self) -> Deferred[Any]:
        """Stop accepting connections; existing connections stay open."""
        bound, self._bound = self._bound, None
        return succeed(None) if bound is None else bound.stop()

    def stopService(self) -> Deferred[object]:
        """Stop listening and close the connections; fires when all are closed."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.stop_listening().addCallback(lambda _: self._close_connections())

    def _close_connections(self) -> Deferred[list[None]]:
        closings = []
        for channel in self.factory.channels:
            if isinstance(channel, RemotingProtocol) and channel.factory is self.factory:
                closings.append(close_connection(channel, self.factory))
        return gatherResults(closings)
