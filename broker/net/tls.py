"""TLS of a process: the protocol-detection stage of a port, and the connecting side.

The first byte of a connection decides whether it is TLS, so plain and TLS clients share a port.
The packages of TLS are imported when TLS is configured, or when a client begins a handshake, so a
server without TLS clients does not load them. Certificates are read again when their files change.
Existing connections keep the certificate with which they began.

Source: NettyRemotingServer.TlsModeHandler, FileWatchService, BrokerController.initialize @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.protocol_detection import FirstBytesStage, TlsRefused
from twistmq.broker.net.proxy_protocol import proxy_stage
from twistmq.broker.net.tls_layer import TlsLayer
from twistmq.broker.net.tls_options import (
    DISABLED,
    ENFORCING,
    TlsServerOptions,
    signature,
    tls_client_options,
    tls_enabled,
    tls_server_options,
)
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.protocol.addresses import split_address
from twistmq.protocol.errors import RemotingConnectError
from twistmq.protocol.log_rate import LineRate

if TYPE_CHECKING:
    from twistmq.broker.net.protocol import RemotingProtocol

__all__ = ["PortSecurity", "StreamTls", "TlsClient", "TlsServer", "tls_client"]

#: How often the files are checked for changes, ms. Source: FileWatchService.
_LOOK_MS: Final = 500
#: A TLS record that begins a handshake; as a frame's length it would be 369 MB.
_HANDSHAKE: Final = b"\x16"


def _context() -> Any:
    """Return the module that needs the packages of the extra.

    :raises SettingsError: when they are not installed.
    """
    try:
        return import_module("twistmq.broker.net.tls_context")
    except ModuleNotFoundError as error:
        raise SettingsError(f"TLS needs packages that are not installed ({error.name}): "
                            "pip install 'twistmq[tls]'") from None


class _Watch:
    """Reports that files have changed, once they no longer change."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._read_signature = self._last_signature = signature(paths)

    def has_changed(self) -> bool:
        """Whether the files have changed since they were read, but not since the last look.

        A certificate and its key are two files, which do not match between the two writes.
        """
        before, self._last_signature = self._last_signature, signature(self._paths)
        if self._last_signature == self._read_signature or self._last_signature != before:
            return False
        self._read_signature = self._last_signature
        return True


class TlsServer:
    """The listening side of one port or several: a stage that examines the first byte.

    :param in_thread: runs slow work on a thread.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, settings: Settings, now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]],
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._options: TlsServerOptions = tls_server_options(settings)
        self._enforces = self._options.mode == ENFORCING
        self._lines = LineRate()
        #: Makes the connections of OpenSSL; replaced when files change.
        self._creator: Any = None
        self._make: Callable[..., Any] | None = None
        self._describe: Callable[[Failure], str] | None = None
        #: Connections that arrived before the packages were imported, with their first bytes.
        self._waiting: list[tuple[RemotingProtocol, bytes]] = []
        self._watch = _Watch(self._options.files.paths())
        if self._options.is_configured:
            self._loaded(self._load())

    # --- the stage

    def recognise(self, data: bytes) -> bool | None:
        return self._enforces or data[:1] == _HANDSHAKE

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        if data[:1] != _HANDSHAKE:
            self._log_closed(connection, "it does not speak TLS, which tls.server.mode=enforcing "
                                   "requires")
            connection.close()
        elif self._make is not None:
            self._begin(connection, data)
        else:
            connection.pause_for_stage()
            self._waiting.append((connection, data))
            if len(self._waiting) == 1:
                self._in_thread(self._load).addCallbacks(self._loaded, self._not_loaded)
        return b""

    def _begin(self, connection: RemotingProtocol, data: bytes) -> None:
        assert self._make is not None and self._describe is not None
        layer = TlsLayer(connection, self._make, self._describe, self._failed)
        connection.start_tls(layer, data)

    def _failed(self, connection: RemotingProtocol, why: str) -> None:
        self._log_closed(connection, f"TLS: {why}")

    def _log_closed(self, connection: RemotingProtocol, why: str) -> None:
        """Log why a connection is closed, at a limited rate."""
        left_out = self._lines.left_out(self._now_ms())
        if left_out is not None:
            more = f" ({left_out} similar lines were left out)" if left_out else ""
            self.log.warn("connection of {peer} closed: {why}{more}", why=why, more=more,
                          peer=connection.remote_address)

    # --- certificates

    def _load(self) -> tuple[Any, Any]:
        """Import the packages of TLS and read the files; this may run on a thread."""
        context = _context()
        return context, context.ServerCreator(self._options)

    def _loaded(self, loaded: tuple[Any, Any]) -> None:
        context, self._creator = loaded
        self._describe = context.describe
        self._make = context.layer_maker(_Current(self), False, self._reactor)
        self._log_certificate("is used")
        waiting, self._waiting = self._waiting, []
        for connection, data in waiting:
            if connection.active and not connection.closing:
                self._begin(connection, data)
            connection.resume_after_stage()

    def _not_loaded(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, []
        if not failure.check(SettingsError):
            self.log.failure("TLS cannot start", failure)
        for connection, _ in waiting:
            if failure.check(SettingsError):
                self._log_closed(connection, f"it speaks TLS: {failure.getErrorMessage()}")
            connection.close()

    def check(self, now_ms: int) -> Deferred[None] | None:
        """Read the files again if they have changed; invalid files are logged and not used."""
        if self._creator is None or not self._watch.has_changed():
            return None
        return self._in_thread(self._read_again).addCallbacks(self._renewed, self._not_renewed)

    def _read_again(self) -> tuple[TlsServerOptions, Any]:
        # The password may have changed as well.
        options = tls_server_options(self._settings)
        return options, _context().ServerCreator(options)

    def creator(self) -> Any:
        """The maker of connections, which uses the certificate that was read last.

        :raises SettingsError: when the files cannot be used.
        """
        if self._creator is None:
            self._loaded(self._load())
        return _Current(self)

    def _renewed(self, read: tuple[TlsServerOptions, Any]) -> None:
        self._options, self._creator = read
        self._log_certificate("was read again")

    def _not_renewed(self, failure: Failure) -> None:
        failure.trap(SettingsError)
        self.log.error("the changed TLS files are not used, the old ones stay in use: {reason}",
                       reason=failure.getErrorMessage())

    def _log_certificate(self, what: str) -> None:
        files = self._options.files
        if not files.cert:
            self.log.info("TLS in test mode: a certificate was made that clients cannot verify")
            return
        until, now_s = self._creator.valid_until, self._now_ms() / 1000
        say = self.log.info if until.timestamp() > now_s else self.log.warn
        say("the certificate {subject} of {path} {what}, valid until {until}", path=files.cert,
            subject=self._creator.subject, what=what, until=until.isoformat())


@implementer(IOpenSSLServerConnectionCreator)
class _Current:
    """Makes connections with the certificate that was read last."""

    def __init__(self, server: TlsServer) -> None:
        self._server = server

    def serverConnectionForTLS(self, protocol: Any) -> Any:
        return self._server._creator.serverConnectionForTLS(protocol)


class PortSecurity:
    """The protocol-detection stages of a server, made from its settings.

    :param in_thread: runs slow work on a thread.
    :raises SettingsError: when the settings, or files they name, cannot be used.
    """

    def __init__(
        self, reactor: Any, settings: Settings, now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]],
    ) -> None:
        proxy = proxy_stage(settings, now_ms)
        self.tasks: list[PeriodicTask] = []
        #: The listening side; None if tls.server.mode is disabled.
        self.server: TlsServer | None = None
        self.stages: Sequence[FirstBytesStage]
        if settings.text("tls.server.mode") == DISABLED:
            self.stages = (proxy, TlsRefused())
            return
        server = self.server = TlsServer(reactor, settings, now_ms, in_thread)
        self.stages = (proxy, server)
        self.tasks.append(PeriodicTask("check the TLS files", _LOOK_MS, _LOOK_MS,
                                       server.check))


class TlsClient:
    """The connecting side.

    :raises SettingsError: when settings or files cannot be used.
    """

    log = Logger()

    def __init__(self, reactor: Any, settings: Settings) -> None:
        self._reactor = reactor
        self._settings = settings
        self._options = tls_client_options(settings)
        self._context = _context()
        self._watch = _Watch(self._options.files.paths())
        #: Functions that make Twisted's protocol, by host.
        self._makers: dict[str, Callable[..., Any]] = {}
        self._maker("localhost")

    def _maker(self, host: str) -> Callable[..., Any]:
        if host not in self._makers:
            creator = self._context.ClientCreator(self._options, host)
            self._makers[host] = self._context.layer_maker(creator, True, self._reactor)
        return self._makers[host]

    def check(self, now_ms: int) -> None:
        """Check whether the files have changed; the next connection then reads them again."""
        if self._watch.has_changed():
            self._makers.clear()
            self._options = tls_client_options(self._settings)

    @property
    def tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("check the client's TLS files", _LOOK_MS, _LOOK_MS, self.check)]

    def secure(self, connection: RemotingProtocol, address: str) -> Deferred[RemotingProtocol]:
        """Begin TLS on a new connection.

        :returns: a Deferred that fires with the connection when the handshake is done, and fails
            with RemotingConnectError otherwise. Cancelling it aborts the connection.
        """
        try:
            make = self._maker(split_address(address)[0])
        except SettingsError as error:
            connection.close()
            raise RemotingConnectError(f"TLS: {error}") from None
        layer = TlsLayer(connection, make, self._context.describe, lambda *_: None)
        done: Deferred[RemotingProtocol] = Deferred(lambda _: connection.cut_off())

        def failed(failure: Failure) -> None:
            if not done.called:
                why = layer.failure or "the connection was closed during the handshake"
                done.errback(RemotingConnectError(f"TLS: {why}"))

        layer.handshake.addCallbacks(lambda _: done.callback(connection), failed)
        connection.start_tls(layer)
        return done


class StreamTls:
    """TLS of connections with raw bytes, with the settings of the broker's own connections.

    Twisted's own layer encrypts them; it is imported when the first such connection is needed.
    """

    def __init__(self, reactor: Any, settings: Settings, security: PortSecurity) -> None:
        self._reactor = reactor
        self._settings = settings
        self._security = security

    def serving(self, factory: IProtocolFactory) -> Any:
        """Make a factory whose connections are encrypted as the server side, by ``tls.server``.

        :raises SettingsError: when the settings, or files they name, cannot be used.
        """
        server = self._security.server
        if server is None:
            raise SettingsError("TLS is requested, but tls.server.mode=disabled")
        return _context().secure_factory(server.creator(), False, factory, self._reactor)

    def connecting(self, factory: IProtocolFactory, host: str) -> Any:
        """Make a factory whose connections are encrypted as the client side, by ``tls.client``.

        :param host: the host that is connected to.
        :raises SettingsError: see :meth:`serving`.
        """
        context = _context()
        creator = context.ClientCreator(tls_client_options(self._settings), host)
        return context.secure_factory(creator, True, factory, self._reactor)

    def describe(self, reason: Failure) -> str:
        """Return why TLS ended a connection; empty if it ended for another reason."""
        why: str = _context().describe(reason)
        return why


def tls_client(reactor: Any, settings: Settings) -> TlsClient | None:
    """Make the connecting side of TLS, or None if outgoing connections are plain."""
    return TlsClient(reactor, settings) if tls_enabled(settings) else None
