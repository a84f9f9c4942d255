"""Our client with three brokers: ours, Apache's 4.9.4 and 5.3.3.

    class SendTests(ClientTestCase):
        def test_sends(self) -> None:
            self.on_each(lambda broker: ...)

They run as long as the tests of a module, which use topics and groups of their own.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.trial.unittest import SkipTest

from tests.interop.clients import JavaTestCase, java_missing
from tests.interop.kept import kept
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port

__all__ = ["NAMES", "Broker", "ClientTestCase", "three"]

#: The brokers.
NAMES: Final = ("ours", "4.9.4", "5.3.3")
#: Settings of all three. The ladder of retries is short, and transactions are asked about soon.
SETTINGS: Final = {
    "messageDelayLevel": " ".join(["1s"] * 18), "transactionTimeOut": "3000",
    "transactionCheckInterval": "1000", "transactionOpBatchInterval": "100",
    "enablePropertyFilter": "true", "recallMessageEnable": "true",
}


class Broker(NamedTuple):
    """A broker with its name server."""

    name: str
    #: The addresses of the name server and of the broker.
    where: str
    address: str
    #: What runs them.
    servers: Servers | Peer

    @property
    def client_version(self) -> str:
        """The release of Apache's client that is used beside it."""
        return "4.9.4" if self.name == "4.9.4" else "5.3.3"


def three(folder: Path, stack: ExitStack) -> dict[str, Broker]:
    """Start the three, at the same time. :param stack: stops them."""
    with ThreadPoolExecutor(len(NAMES)) as threads:
        started = list(threads.map(lambda name: _start(name, folder / name, stack), NAMES))
    return {broker.name: broker for broker in started}


def _start(name: str, folder: Path, stack: ExitStack) -> Broker:
    if name == "ours":
        ours = Servers(folder, *(f"{key}={value}" for key, value in SETTINGS.items()))
        stack.callback(ours.stop)
        ours.start()
        return Broker(name, ours.namesrv, f"127.0.0.1:{ours.broker_port}", ours)
    peer = Peer(folder, name, free_port(), free_port(), "512m", settings=dict(SETTINGS))
    stack.callback(peer.stop, kill=True)
    peer.start()
    return Broker(name, peer.namesrv_address, f"127.0.0.1:{peer.broker_port}", peer)


class ClientTestCase(JavaTestCase):
    """A test with the three brokers."""

    def setUp(self) -> None:
        """Start them unless they run."""
        super().setUp()
        reason = java_missing("4.9.4")
        if reason:
            raise SkipTest(reason)
        self.brokers = kept(self, three)

    def on_each(self, check: Callable[[Broker], Any], names: Sequence[str] = NAMES) -> list[Any]:
        """Check each broker, all at the same time: most of it is waiting.

        :returns: what the checks returned.
        """
        with ThreadPoolExecutor(len(names)) as threads:
            waiting = {name: threads.submit(check, self.brokers[name]) for name in names}
        faults = [f"{name}: {''.join(traceback.format_exception(error))}"
                  for name, future in waiting.items() if (error := future.exception())]
        self.assertEqual(faults, [], "\n".join(faults))
        return [future.result() for future in waiting.values()]
