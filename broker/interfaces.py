"""Interfaces of the replaceable parts: providers that plugins supply, and the store's disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twistmq.broker.remoting.messages import Request
    from twistmq.broker.store.get_message import MessageFilter
    from twistmq.protocol.command import RemotingCommand
    from twistmq.protocol.frame import Frame
    from twistmq.protocol.header import CommandHeader
    from twistmq.protocol.record import MessageRecord

__all__ = [
    "AskServer",
    "BroadcastClient",
    "IAccessValidator",
    "IBroadcastOffsets",
    "IClientValidator",
    "IConsumerFilters",
    "IDirectoryLock",
    "IFilterLanguage",
    "IFlowControl",
    "IQueueLocks",
    "IResourceValidator",
    "IRunValidator",
    "IStoreFile",
    "IStoreIO",
    "ITimedDelivery",
    "ITransactionService",
    "OpenHttpPort",
    "OpenPort",
    "ReadMap",
    "ServeHttp",
    "WaitingRequests",
]

# --- supplied by the edge


class OpenPort(Protocol):
    """A port that listens."""

    #: The real one.
    port: int

    def stop(self) -> Deferred[None]:
        """Listen no more, and cut off the connections there are."""


#: One that serves a resource of twisted.web.
OpenHttpPort = OpenPort


class ServeHttp(Protocol):
    """Serves a resource of twisted.web on the broker's reactor."""

    def __call__(self, resource: Any, port: int, interface: str) -> OpenHttpPort:
        """:raises OSError: when the port cannot be opened."""


class AskServer(Protocol):
    """Sends a request to another server of the protocol."""

    async def __call__(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """:raises RemotingError: when it cannot be asked, or does not answer in time."""


# --- supplied by plugins


class IAccessValidator(Interface):
    """Decides whether a request may be served. Source: AccessValidator @5.2.0."""

    def validate(request: Request[Any]) -> None:
        """Let the request pass by returning.

        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IRunValidator(IAccessValidator):
    """A validator that looks at requests of one read together."""

    def passing(requests: Sequence[Request[Any]]) -> int:
        """Count the first of them that certainly pass; ``validate`` is called for the others.

        :param requests: of one connection and one code.
        """


class IResourceValidator(IAccessValidator):
    """A validator that handlers ask as well, when they see what a request touches."""

    def require(
        request: Request[Any], publishes: Collection[str], consumes: Collection[str],
        groups: Collection[str],
    ) -> None:
        """Check that a request which passed ``validate`` may use these topics and groups.

        :param publishes: topics that it writes to, or where it ends or deletes a message.
        :param consumes: topics whose messages it reads.
        :param groups: consumer groups that it acts for.
        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IClientValidator(IAccessValidator):
    """A validator that knows whose a client is, for what the broker sends to it unasked."""

    def owner_of(request: Request[Any]) -> str | None:
        """Return the name of the account that sent a request which passed; None: it needs none."""

    def may_publish(owner: str | None, address: str, topic: str) -> bool:
        """Return whether a client may send to a topic now.

        :param owner: what ``owner_of`` returned for its heartbeat.
        :param address: of its connection, ``host:port``.
        """


#: A client that pulls for a broadcast group: its client id, and whether a proxy asks for it.
BroadcastClient = tuple[str, bool]


class IBroadcastOffsets(Interface):
    """Keeps consumer offsets for broadcast groups, by client. Source: BroadcastOffsetManager."""

    def client_of(request: Request[Any]) -> BroadcastClient | None:
        """Return the client of a broadcast group that pulls, or None. Called at each pull."""

    def begin_offset(request: Request[Any], client: BroadcastClient) -> int | None:
        """Return the offset the client must pull from; None: the one it asks for."""

    def pulled(request: Request[Any], client: BroadcastClient, offset: int) -> None:
        """The client's pull from ``offset`` is answered, or it is sent there."""


class IFilterLanguage(Interface):
    """A language subscriptions can be written in. Source: FilterSpi @5.3.3."""

    def compile(expression: str) -> Callable[[Mapping[str, str]], bool]:
        """Make a function that says whether properties match.

        A function that takes longer than some microseconds has an attribute ``cost``: how many
        times longer. A pull then looks at that many times fewer messages in one turn. The mapping
        finds a property on demand; listing it, or asking for more than a few, parses all
        properties.

        :raises ValueError: when the expression is not of the language; the text says where.
        """


class IConsumerFilters(Interface):
    """Keeps what groups filter by, beside the subscriptions themselves, for all languages.

    Source: ConsumerFilterManager, ExpressionMessageFilter @5.3.3.
    """

    def own_filter(
        group: str, topic: str, expression_type: str, expression: str
    ) -> MessageFilter:
        """Make the filter of a pull that brings its own expression.

        :raises RequestRefused: when the expression is wrong, or no plugin supports its language.
        """

    def group_filter(group: str, topic: str, sub_version: int) -> MessageFilter:
        """Make the filter of the subscription in a group's heartbeats.

        :param sub_version: of the subscription the pull means.
        :raises RequestRefused: when the group's expression was not taken, or not that one yet.
        """

    def describe(group: str, topic: str) -> str:
        """Say what a group filters a topic by, as a text for people; "null": by nothing."""


class WaitingRequests(Protocol):
    """The requests of all connections that wait for their turn."""

    #: Requests, and their bytes.
    request_count: int
    size_bytes: int

    @property
    def connection_count(self) -> int:
        """Connections that have some of them."""

    def head_wait_ms(self) -> int:
        """How long the oldest request has waited, ms."""

    def frames(self) -> Iterator[Frame]:
        """The requests, each connection's by themselves."""


class IFlowControl(Interface):
    """Refuses requests when more come than can be served.

    Each call gets frames of one connection, in order. It returns the frames that may be served and,
    as frames, the refusals of the rest. Source: BrokerFastFailure,
    NettyRemotingAbstract.processRequestCommand @5.3.3.
    """

    rejects: bool = Attribute("Whether `reject` is asked about everything that is about to run.")

    def begin_round(waiting: WaitingRequests) -> None:
        """The reactor begins a round; called at least every 10 ms while it does."""

    def arrived(
        frames: Sequence[Frame], own_count: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to wait for their turn.

        :param own_count: requests of the connection that wait before them.
        :param waiting: what waits in all.
        """

    def due(
        frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests
    ) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames waited, and would have their turn now.

        :param waited_ms: how long, since they were read.
        :param waiting: what waits behind them.
        """

    def reject(frames: Sequence[Frame]) -> tuple[Sequence[Frame], Sequence[bytes]]:
        """Frames are about to run while ``rejects`` is true."""


class ITransactionService(Interface):
    """Takes half messages. Source: TransactionalMessageService @5.3.3."""

    def prepare(record: MessageRecord, properties: Mapping[str, str]) -> None:
        """Change a record so that it is stored as a half message no consumer sees.

        :param properties: what its sender gave and its unique key, parsed.
        """


# --- store: input and output


class ReadMap(Protocol):
    """A file's bytes as a slice gives them: copies, so the file may be closed afterwards."""

    def __getitem__(self, key: slice, /) -> bytes:
        """Copy a range of bytes."""


class IQueueLocks(Interface):
    """A plugin that knows which groups consume in order; see ``Hooks.provider``."""

    def keeps_order(group: str) -> bool:
        """Whether a client of the group holds the lock of a queue."""


class ITimedDelivery(Interface):
    """A plugin that delivers messages at a time; see ``Hooks.provider``."""

    def delivered_ms() -> int | None:
        """The time before which all due messages were delivered, Unix ms; None if it is off."""


class IStoreFile(Interface):
    """An open file of a fixed length. Positions are bytes from the file's start."""

    size: int = Attribute("Length of the file in bytes.")

    def write_at(position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``; nothing of it waits in user space afterwards.

        :raises StoreFull: when the disk or a quota is full; some of it may have been written.
        :raises OSError: when the disk fails.
        """

    def read_at(position: int, size: int) -> bytes:
        """Read; fewer bytes come back at the end of the file."""

    def send_to(descriptor: int, position: int, size: int) -> int:
        """Give bytes to a socket, where the system can without a copy.

        :param descriptor: of a socket that does not block.
        :returns: how many it took; 0 at the end of the file.
        :raises BlockingIOError: when it takes none now.
        :raises OSError: when the disk fails, or the connection is lost.
        """

    def read_map() -> ReadMap:
        """Give the whole file for reading by slices; made once, kept until the file closes."""

    def sync() -> None:
        """Make what was written survive a loss of power. Blocks: call it on a thread."""

    def begin_sync(position: int, size: int) -> None:
        """Let the disk begin to write a range, so that a sync that follows soon waits less.

        It promises nothing and does not fail: an error of the disk is raised by the sync.
        """

    def length() -> int:
        """The file's length on disk, bytes: ``size``, unless another process changed it."""

    def is_there() -> bool:
        """Whether its path still leads to this file: false once it is removed or renamed."""

    def close() -> None:
        """Close the file; a second time does nothing."""


class IDirectoryLock(Interface):
    """A directory that one store uses and no other."""

    def is_at(path: str) -> bool:
        """Whether a path leads to it, by whatever links."""

    def release() -> None:
        """Release the directory, so that another store can take it."""


class IStoreIO(Interface):
    """Everything a store does with a disk. Paths are absolute text."""

    syncs_at_once: int = Attribute("how many calls of sync_path are worth making at a time")

    def open_file(path: str) -> IStoreFile:
        """Open a file that exists, for reading and writing.

        :raises OSError: when it does not exist or may not be opened.
        """

    def allocate(path: str, size: int) -> IStoreFile:
        """Open a file and give it this length; bytes it did not hold before read as zeros.

        The file is sparse: space is taken when bytes are written.

        :raises StoreFull: when the disk has no room for it.
        """

    def clear_from(path: str, position: int) -> None:
        """Make the rest of a file read as zeros; its length is the same at every moment."""

    def rewrite(path: str) -> None:
        """Write again all that was ever written to a file, so that the next sync writes it too.

        After a failed sync the kernel may count pages as clean that it could not write. The file
        must not be written meanwhile.

        :raises OSError: when it cannot be read or written.
        """

    def sync_path(path: str) -> None:
        """Make a file, or a directory's entries, survive a loss of power. Blocks."""

    def read_file(path: str) -> bytes:
        """Read a whole small file.

        :raises OSError: when it does not exist or cannot be read.
        """

    def write_file(path: str, data: bytes) -> None:
        """Replace a small file's contents in place."""

    def write_file_atomically(path: str, data: bytes, keep_backup: bool = False) -> None:
        """Replace a file so that after any crash it is the old one or the new one, whole.

        :param keep_backup: leave what it was before under ``path + ".bak"``.
        :raises StoreFull: when the disk is full; the old file stays.
        """

    def list_directory(path: str) -> list[str]:
        """List the names in a directory, sorted; empty if the directory does not exist.

        :raises NotADirectoryError: when a file is.
        """

    def make_directory(path: str) -> None:
        """Make a directory and those above it; one that exists is fine."""

    def exists(path: str) -> bool:
        """Whether a file or directory is there."""

    def file_size(path: str) -> int:
        """Length of a file in bytes.

        :raises OSError: when it is not a file.
        """

    def modified_ms(path: str) -> int:
        """When a file was written to last, Unix ms.

        :raises FileNotFoundError: when it does not exist.
        """

    def remove(path: str) -> None:
        """Remove a file, or a directory with all it holds; one that is not there is fine."""

    def lock(path: str) -> Callable[[], None]:
        """Take the exclusive lock of a store and write "lock" into the file.

        :returns: a function that releases the lock.
        :raises StoreError: when another process, or another store of this one, holds it.
        """

    def lock_directory(path: str) -> IDirectoryLock:
        """Lock a directory for one store, without a file in it. Some file systems have no such
        locks: there, a second store is not noticed.

        :raises StoreError: when another process, or another store of this one, holds it.
        :raises OSError: when it does not exist or may not be read.
        """

    def disk_used_ratio(path: str) -> float:
        """Used part of the disk under a path, 0.0 to 1.0; -1.0 when the path does not exist."""

    def physical_memory_bytes() -> int:
        """The machine's memory."""

    def open_files_max() -> int:
        """How many files and connections the process may have open."""

    def process_id() -> int:
        """The number the abort file holds."""
