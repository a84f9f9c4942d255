"""A broker's kernel for tests, with a store in memory, a test clock, and peers without sockets.

    box = KernelBox(plugins=[("mine", my_plugin)])
    reply = box.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0))

Requests pass through the dispatcher as frames, so that codecs, checks and hooks are tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred, execute
from twisted.python.failure import Failure

from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.kernel.kernel_checks import kernel_checks
from twistmq.broker.kernel.store_maker import make_store, use_ledger_folder
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.messages import Request
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.local_host import LocalHost
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import Frame, FrameDecoder
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.record import StoredMessage, decode_record, host_bytes

__all__ = ["KernelBox", "Peer", "SentRequest"]

H = TypeVar("H", bound=CommandHeader)
T = TypeVar("T")

#: Small files, and names that do not depend on the host.
_SETTINGS: Mapping[str, str] = {
    "brokerName": "broker-a", "brokerIP1": "127.0.0.1", "storePathRootDir": "/store",
    "mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "50", "maxIndexNum": "200",
}
#: The length of each file of the index of a ledger, bytes.
_INDEX_FILE_SIZE = 32 * 1024


@dataclass
class SentRequest:
    """A request that the broker sent to a peer; ``reply`` is None for a one-way request."""

    code: int
    header: CommandHeader | None
    body: bytes
    timeout_ms: int = 0
    reply: Deferred[RemotingCommand] | None = None


class Peer:
    """The other side of a connection; it keeps everything that the broker sends."""

    def __init__(self, channel_id: int, port: int) -> None:
        self.channel_id = channel_id
        self.remote_address = f"127.0.0.1:{port}"
        self.charged_address = f"127.0.0.1:{port}"
        self.remote_host = host_bytes("127.0.0.1", port)
        self.local_port = 10911
        self.active = True
        self.requests: list[SentRequest] = []
        self.written: list[bytes] = []
        self.held_bytes = 0

    def send_oneway(self, code: int, header: CommandHeader | None, body: bytes = b"") -> None:
        self.requests.append(SentRequest(code, header, body))

    def call(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        reply: Deferred[RemotingCommand] = Deferred()
        self.requests.append(SentRequest(code, header, body, timeout_ms, reply))
        return reply

    def close(self) -> None:
        self.active = False

    def response_received(self, command: RemotingCommand) -> None:
        raise AssertionError("tests answer through SentRequest.reply")

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def reserve(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes

    def waited(self, requests: Sequence[Request[Any]]) -> None:
        """Do nothing: waiting times are not measured."""

    def may_run_more(self, reply_bytes: int) -> bool:
        return True

    def run_later(self, frames: Sequence[Frame]) -> None:
        raise AssertionError("it may always continue")


class KernelBox:
    """A started kernel.

    :param plugins: pairs of (name, plugin) in the order of registration.
    :param settings: the texts of settings by name.
    :param clock: the clock of the kernel; None: ``now_ms``.
    :param in_thread: runs the work that the store gives to threads.
    """

    def __init__(
        self, plugins: Iterable[tuple[str, object]] = (),
        settings: Mapping[str, str] | None = None, disk: IStoreIO | None = None,
        clock: Callable[[], int] | None = None,
        in_thread: Callable[[Callable[[], None]], Deferred[None]] = execute,
    ) -> None:
        self.now_ms = 1_700_000_000_000
        #: The kernel's clock; replace it to let time pass while something runs.
        self.clock: Callable[[], int] = clock or (lambda: self.now_ms)
        #: The difference between the wall clock and this clock after jumps, ms.
        self.jump_ms = 0
        self.disk = disk or MemoryDisk()
        if isinstance(self.disk, MemoryDisk):
            self.disk.now_ms = self._now
        hooks = Hooks(plugins)
        rows = [*broker_rows(), *hooks.collect_settings(broker_rows())]
        self.settings = Settings.load(rows, overrides={**_SETTINGS, **(settings or {})})
        self.settings.start_checks += kernel_checks(hooks)
        use_ledger_folder(self.settings, hooks)
        store = make_store(self.settings, hooks, self.disk, self._now, in_thread,
                           steady_ms=lambda: self.clock(), index_file_size=_INDEX_FILE_SIZE)
        #: The environment of the broker, to which a test adds name servers and other servers.
        self.host = LocalHost(self._now, lambda: self.clock())
        self.kernel = Kernel(self.settings, store, hooks, self.host)
        self._peers = 0
        self._opaque = 0
        started = ensureDeferred(self.kernel.start())
        assert started.called, "the start waits for something"
        failures: list[Failure] = []
        started.addErrback(failures.append)
        for failure in failures:
            failure.raiseException()

    def _now(self) -> int:
        return self.clock() + self.jump_ms

    def stop(self) -> None:
        """Stop the kernel cleanly."""
        assert ensureDeferred(self.kernel.stop()).called, "the stop waits for something"

    def plugin(self, kind: type[T]) -> T:
        """Return the object of a plugin's class."""
        plugin = self.kernel.hooks.find(kind)
        assert plugin is not None, f"{kind} is not in use"
        return plugin

    def peer(self) -> Peer:
        """Open a new connection."""
        self._peers += 1
        peer = Peer(self._peers, 50_000 + self._peers)
        self.kernel.channels.add(peer)
        return peer

    def send(
        self, peer: Peer, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        oneway: bool = False, extra_fields: dict[str, str] | None = None,
    ) -> RemotingCommand | None:
        """Send a request and return its reply, or None; see :meth:`late_replies`."""
        self._opaque += 1
        frame = encode_request(code, self._opaque, header, body, oneway=oneway,
                               extra_fields=extra_fields)
        replies = self.kernel.dispatcher.execute(
            peer, FrameDecoder().feed(frame), self.now_ms + self.jump_ms)
        assert len(replies) <= 1
        return decode_command(FrameDecoder().feed(replies[0])[0]) if replies else None

    def ask(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"",
        peer: Peer | None = None,
    ) -> RemotingCommand:
        """Send a request with an immediate reply, on a new connection or a given one."""
        reply = self.send(peer or self.peer(), code, header, body)
        assert reply is not None, "the reply waits"
        return reply

    def stored(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Return all messages of a queue, as a pull reads them."""
        messages: list[StoredMessage] = []
        while True:
            records = self.kernel.store.get_message(topic, queue_id, len(messages), 32).messages
            if not records:
                return messages
            messages += [decode_record(data) for data in records]

    @staticmethod
    def late_replies(peer: Peer) -> list[RemotingCommand]:
        """Return the replies that arrived later than their requests."""
        decoder = FrameDecoder()
        return [decode_command(frame) for data in peer.written for frame in decoder.feed(data)]
