"""A name server and a broker that run in the same process as the code under test.

They run on a separate reactor in a separate thread, and the reactor of the process is not affected,
whether or not it is installed or running. Plain synchronous code can therefore use them, and under
pytest they do not disturb trial's test cases, which run the reactor of the process.

The start takes a few hundredths of a second once Twisted is imported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.services import UpService
from twistmq.broker.errors import SettingsError
from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.net.tls_options import tls_client_options, tls_enabled
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.testing.raw_client import RawClient
from twistmq.tools.client_tls import ssl_context

__all__ = [
    "ReactorThread", "RunningBroker", "ServedAddresses", "running_broker", "up_service"]

T = TypeVar("T")
S = TypeVar("S", UpService, BrokerService)

#: The limit for every wait in this module, seconds; a start takes far less.
_TIMEOUT_S = 30.0

Plugins = Sequence[tuple[str, object]]


def up_service(
    reactor: Any, data: Path, settings: Mapping[str, str] | None = None, plugins: Plugins = (),
    io: IStoreIO | None = None, namesrv_plugins: Plugins = (),
) -> UpService:
    """Make a name server and a broker on free ports, without starting them.

    :param data: the folder of all their data.
    :param settings: the texts of settings by name, as on the command line.
    :param plugins: pairs of (name, plugin) to use in addition to the installed plugins.
    :param io: the disk of the broker; None: the real one.
    :param namesrv_plugins: pairs of (name, plugin) for the name server, in the same way.
    :raises SettingsError: when a setting is not valid.
    """
    overrides = {"listenPort": "0", "namesrv.port": "0", **(settings or {})}
    values: Settings = boot.up_settings(str(data), None, overrides)
    return UpService(
        reactor, boot.name_server_settings(values), values, plugins, io, namesrv_plugins)


class ReactorThread:
    """A separate reactor on a separate thread."""

    def __init__(self) -> None:
        self.reactor = _new_reactor()
        self._thread = Thread(target=self._run, name="twistmq-reactor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.reactor.run(installSignalHandlers=False)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the reactor's thread and wait.

        :returns: the result of the function, or of the Deferred or coroutine that it returns.
        :raises Exception: the exception of the function.
        :raises TimeoutError: when the call takes too long.
        """
        future: Future[Any] = Future()

        def failed(failure: Failure) -> None:
            future.set_exception(failure.value or RuntimeError(failure.getErrorMessage()))

        def run() -> None:
            maybeDeferred(function, *arguments).addCallbacks(future.set_result, failed)

        self.reactor.callFromThread(run)
        return future.result(_TIMEOUT_S)

    @contextmanager
    def serving(self, make: Callable[[Any], S]) -> Iterator[S]:
        """Run a service while the block runs; the thread ends with the block.

        :param make: called with the reactor on its thread; makes the service.
        :raises Exception: the error of a failed start.
        """
        service: S | None = None

        def start() -> Any:
            nonlocal service
            service = make(self.reactor)
            service.startService()
            return service.started

        try:
            try:
                self.call(start)
                assert service is not None
                yield service
            finally:
                if service is not None:
                    self.call(service.stopService)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the reactor and release its resources."""
        self.reactor.callFromThread(self.reactor.stop)
        self._thread.join(_TIMEOUT_S)
        # A reactor usually lives as long as its process, so it does not close these itself.
        self.reactor.waker.connectionLost(None)
        poller: Any = getattr(self.reactor, "_poller", None)
        if poller is not None:
            poller.close()


def _new_reactor() -> Any:
    """Return a reactor that is not installed as the reactor of the process."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    return EPollReactor()  # type: ignore[no-untyped-call]


class ServedAddresses:
    """The addresses of a name server and a broker, once they have started."""

    service: UpService

    @property
    def kernel(self) -> Kernel:
        """The broker's kernel."""
        return self.service.broker.kernel

    @property
    def namesrv_address(self) -> str:
        """The name server's address for the configuration of clients: "127.0.0.1:port"."""
        return f"127.0.0.1:{self.service.namesrv.port}"

    @property
    def broker_address(self) -> str:
        """The address of the broker itself: "127.0.0.1:port"."""
        return f"127.0.0.1:{self.service.broker.port}"


class RunningBroker(ServedAddresses):
    """A running name server and broker.

    :param data: the folder of all their data.
    """

    def __init__(self, thread: ReactorThread, service: UpService, data: Path) -> None:
        self._thread = thread
        #: The services; use them, and the kernel, only in :meth:`call`.
        self.service = service
        self.data = data

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the reactor's thread and return its result."""
        result: T = self._thread.call(function, *arguments)
        return result

    def client(self) -> RawClient:
        """Open a connection to the broker, with TLS if the settings enable it for clients."""
        settings = self.kernel.settings
        context = ssl_context(tls_client_options(settings)) if tls_enabled(settings) else None
        return RawClient(self.broker_address, tls=context)


@contextmanager
def running_broker(
    settings: Mapping[str, str] | None = None, *, plugins: Plugins = (),
    data: Path | str | None = None, io: IStoreIO | None = None, namesrv_plugins: Plugins = (),
) -> Iterator[RunningBroker]:
    """Run a name server and a broker on free ports of 127.0.0.1 while the block runs.

    :param settings: the texts of settings by name, as on the command line.
    :param plugins: pairs of (name, plugin) to use in addition to the installed plugins.
    :param data: the folder of all their data; None: a temporary one, removed afterwards.
    :param io: the disk of the broker; None: the real one.
    :param namesrv_plugins: the plugins of the name server.
    :raises BrokerError, SettingsError: when they cannot start, or one of ``plugins`` is left out;
        the text gives the reason.
    """
    folder = Path(tempfile.mkdtemp(prefix="twistmq-")) if data is None else Path(data)
    thread = ReactorThread()

    def make(reactor: Any) -> UpService:
        service = up_service(reactor, folder, settings, plugins, io, namesrv_plugins)
        left_out = [notice for notice in service.broker.kernel.hooks.notices
                    if any(notice.startswith(f"plugin {name} ") for name, _ in plugins)]
        if left_out:
            raise SettingsError("; ".join(left_out))
        return service

    try:
        with thread.serving(make) as service:
            yield RunningBroker(thread, service, folder)
    finally:
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)
