"""Brokers of one name in their own processes, ours and Apache's, beside our name server.

    with Group(folder) as group:
        master = group.ours("master", brokerRole="SYNC_MASTER", inSyncReplicas="2")
        slave = group.apache("slave", "4.9.4", brokerRole="SLAVE", brokerId="1")

Each can be stopped, killed and started again over its store; it keeps its port.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from tests.interop.forks import Forked
from tests.interop.peer import PATIENT, Peer
from tests.interop.ports import free_port
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import HARuntimeInfo, KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError

__all__ = ["FILE_SIZE", "SETTINGS", "ApacheReplica", "Group", "NameServer", "OurReplica",
           "Replica", "bodies", "configure", "end_of", "same_log", "slaves_of"]

R = TypeVar("R", "OurReplica", "ApacheReplica")

#: Bytes of a commit-log file: small, so that several roll.
FILE_SIZE: Final = 1024 * 1024
#: Of each broker; Apache's store demands more than a test's disk may have.
SETTINGS: Final = {
    **PATIENT, "brokerName": "group", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "400000",
    "diskMaxUsedSpaceRatio": "95"}
#: Only ours has it.
_OURS: Final = {"bindAddress": "127.0.0.1"}
#: How long a start and a stop may take, seconds: the machine has other work.
_PATIENCE_SECONDS: Final = 120.0
#: How long the answer to a change of settings may take, seconds.
_ANSWER_SECONDS: Final = 60.0
#: A body of a load: the text that no other has.
_BODY: Final = re.compile(rb"<\d+/\d+/\d+>")


class _Ours:
    """One of our servers in its own process.

    :param data: its folder; what it prints is in ``out``.
    """

    _ready = "boot success"

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self._process: Forked | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None
        self._process = Forked(self._words(), self.data / "out", self._ready, _PATIENCE_SECONDS)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(how)

    def _words(self) -> list[str]:
        """Return the command and its arguments."""
        raise NotImplementedError

    def log(self) -> str:
        """Return the text of the log file."""
        return "".join(path.read_text() for path in sorted((self.data / "logs").glob("*.log")))


class NameServer(_Ours):
    """``twistmq namesrv``."""

    def _words(self) -> list[str]:
        return ["namesrv", "bindAddress=127.0.0.1", f"log.dir={self.data / 'logs'}",
                f"listenPort={self.port}", f"kvConfigPath={self.data / 'kvConfig.json'}",
                f"configStorePath={self.data / 'namesrv.properties'}"]


class Replica(Protocol):
    """A broker of a group: ours or Apache's."""

    @property
    def address(self) -> str:
        """Return its address for requests, "host:port"."""

    @property
    def log_folder(self) -> Path:
        """Return the folder of its commit log."""

    @property
    def pid(self) -> int:
        """Return the id of its process."""

    def start(self) -> None:
        """Start it; return when it listens."""

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal that ends it, and wait for its end."""


class OurReplica(_Ours):
    """``twistmq broker``; the store is in ``store`` of its folder.

    :param namesrv: the name servers; empty: it has none.
    :param settings: more of them, also those that win; a test may change them between starts.
    """

    def __init__(self, data: Path, namesrv: str, settings: dict[str, str]) -> None:
        super().__init__(data)
        self.namesrv = namesrv
        self.settings = settings

    @property
    def log_folder(self) -> Path:
        return Path(self.settings.get("storePathRootDir", self.data / "store")) / "commitlog"

    def _words(self) -> list[str]:
        settings = {**SETTINGS, **_OURS, "storePathRootDir": str(self.data / "store"),
                    "log.dir": str(self.data / "logs"), "listenPort": str(self.port),
                    **self.settings}
        namesrv = ["-n", self.namesrv] if self.namesrv else []
        return ["broker", *namesrv, *[f"{name}={value}" for name, value in settings.items()]]


class ApacheReplica:
    """Apache's broker.

    :param home: its folder; the store is in its ``store``.
    """

    def __init__(self, home: Path, version: str, namesrv: str, settings: dict[str, str]) -> None:
        self.peer = Peer(home, version, broker_port=free_port(), heap="512m", with_namesrv=False,
                         namesrv_address=namesrv, settings={**SETTINGS, **settings})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.peer.broker_port}"

    @property
    def log_folder(self) -> Path:
        return self.peer.home / "store" / "commitlog"

    @property
    def pid(self) -> int:
        return self.peer.processes["broker"].pid

    def start(self) -> None:
        self.peer.start()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.peer.stop_one("broker", kill=how == signal.SIGKILL)


class Group:
    """A name server and the brokers of one name; all end with the block.

    :param folder: of their data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = NameServer(folder / "namesrv")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self.namesrv.end, signal.SIGKILL)
        self.namesrv.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ours(self, name: str, **settings: str) -> OurReplica:
        """Make a broker of ours, which the test starts.

        :param name: of its folder.
        """
        return self._add(OurReplica(self.folder / name, self.namesrv.address, settings))

    def apache(self, name: str, version: str, **settings: str) -> ApacheReplica:
        """Make a broker of Apache's, which the test starts."""
        return self._add(
            ApacheReplica(self.folder / name, version, self.namesrv.address, settings))

    def _add(self, replica: R) -> R:
        self._stack.callback(replica.end, signal.SIGKILL)
        return replica


def end_of(address: str) -> int:
    """Return the end of a broker's log; -1 while it does not report it."""
    try:
        with RawClient(address) as client:
            reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    except BrokerError:
        return -1
    if reply.code or not reply.body:
        return -1
    return int(KVTable.decode(reply.body).table["commitLogMaxOffset"])


def configure(address: str, **settings: str) -> None:
    """Change settings of a broker that runs, ours or Apache's."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    with RawClient(address, _ANSWER_SECONDS) as client:
        reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
    assert reply.code == ResponseCode.SUCCESS, reply


def slaves_of(address: str) -> HARuntimeInfo:
    """Return the slaves that a master reports."""
    with RawClient(address) as client:
        return HARuntimeInfo.decode(client.request(RequestCode.GET_BROKER_HA_STATUS).body)


def bodies(folder: Path, begin: int = 0) -> Counter[bytes]:
    """Return how often each body of a load is in a commit log.

    :param folder: of its files.
    :param begin: files that end before this place are left out.
    """
    found: Counter[bytes] = Counter()
    for path in sorted(folder.glob("0*")):
        if int(path.name) + FILE_SIZE > begin:
            found.update(_BODY.findall(path.read_bytes()))
    return found


def same_log(master: Replica, slaves: Iterable[Replica], seconds: float = 120.0) -> int:
    """Wait until slaves have all, and compare the files; :returns: where the logs end.

    No message may be sent meanwhile.

    :raises AssertionError: when the logs are not the same.
    """
    wait_until("the master says where its log ends", lambda: end_of(master.address) >= 0, seconds)
    end = end_of(master.address)
    for slave in slaves:
        wait_until(f"{slave.log_folder} has all", lambda each=slave: end_of(each.address) == end,
                   seconds)
        names = {path.name for path in master.log_folder.glob("0*")} & {
            path.name for path in slave.log_folder.glob("0*")}
        assert names, "no file is there twice"
        for name in sorted(names):
            assert _digest(master.log_folder / name, end) == _digest(
                slave.log_folder / name, end), f"file {name} differs"
    return end


def _digest(path: Path, end: int) -> str:
    """Return a digest of a file of the log, up to the end of the log."""
    return hashlib.md5(path.read_bytes()[: max(0, end - int(path.name))]).hexdigest()
