"""A master and slaves in one process, each on its own reactor, with a name server."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twistmq.broker.edge import boot, services
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.in_process_broker import ReactorThread
from twistmq.plugins import ha

__all__ = ["LOCAL", "LoneBroker", "identical", "lone_broker", "wait_until", "within"]

#: Settings of a broker whose connections are all of this host.
LOCAL = {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
         "brokerName": "pair", "mappedFileSizeCommitLog": str(64 * 1024), "haListenPort": "0",
         "maxMessageSize": "30000", "brokerFastFailureEnable": "false"}

#: How much later than it should something may be on a machine that is busy, seconds.
BUSY_SECONDS = 5.0


def wait_until(true: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait for a condition; :raises AssertionError: when it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.01)


def within(seconds: float, true: Callable[[], object], what: str) -> None:
    """Wait for a condition that needs so long at most where nothing else runs; print the time."""
    begin = time.monotonic()
    wait_until(true, what, seconds + BUSY_SECONDS)
    print(f"{what}: after {time.monotonic() - begin:.1f} s of {seconds}")


class LoneBroker:
    """A broker without its own name server."""

    def __init__(self, thread: ReactorThread, service: BrokerService, data: Path) -> None:
        self.thread = thread
        self.service = service
        self.data = data

    @property
    def kernel(self) -> Kernel:
        return self.service.kernel

    @property
    def plugin(self) -> ha.Plugin:
        """Return the plugin of replication."""
        found = self.kernel.hooks.find(ha.Plugin)
        assert found is not None
        return found

    @property
    def address(self) -> str:
        """Return the address for requests, "host:port"."""
        return f"127.0.0.1:{self.service.port}"

    @property
    def end(self) -> int:
        """Return the end of the log."""
        return self.kernel.store.commit_log.max_offset

    def client(self) -> RawClient:
        """Return a new connection to the broker."""
        return RawClient(self.address)


@contextmanager
def lone_broker(data: Path, settings: Mapping[str, str]) -> Iterator[LoneBroker]:
    """Run a broker on free ports while the block runs; ``data`` stays."""
    thread = ReactorThread()
    values = boot.broker_settings(None, {
        **LOCAL, "listenPort": "0", "storePathRootDir": str(data), **settings})
    with thread.serving(lambda reactor: BrokerService(
            reactor, values, services.load_hooks(values))) as service:
        yield LoneBroker(thread, service, data)


def identical(first: Path, second: Path, end: int) -> bool:
    """Whether the commit-log files that both have are the same up to a place."""
    common = sorted({path.name for path in first.glob("0*")}
                    & {path.name for path in second.glob("0*")})
    assert common, "no file is there twice"

    def digest(folder: Path, name: str) -> str:
        data = (folder / name).read_bytes()
        return hashlib.md5(data[: max(0, end - int(name))]).hexdigest()

    return all(digest(first, name) == digest(second, name) for name in common)
