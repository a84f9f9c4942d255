"""The connections of replication, which pass bytes between sockets and sender or receiver.

A master keeps at most ``_UNSENT_MAX`` bytes in memory for each slave; when the operating system has
taken them, the transport asks for more. A slave that lacks more bytes gets them directly from the
files, except over TLS. A slave does not read from its connection while its log is being changed.

Source: DefaultHAConnection, DefaultHAClient @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.python.failure import Failure

from twistmq.broker.api import BrokerError, StoreError
from twistmq.plugins.ha.direct import DirectFrames
from twistmq.plugins.ha.frames import StreamBroken
from twistmq.plugins.ha.receiver import Receiver
from twistmq.plugins.ha.sender import Sender
from twistmq.plugins.replica.link import Link

__all__ = ["CLOSED", "MasterLink", "SlaveLink", "host_of"]

#: The reason for the end of a connection that neither side explained.
CLOSED: Final = "it closed the connection"
#: The number of bytes of the log that are passed to a transport at once, and may wait there.
_UNSENT_MAX: Final = 256 * 1024


class SlaveLink(Link):
    """The connection of one slave, at its master.

    :param peer: "host:port".
    :param now_ms: the clock for silences.
    :param on_report: called when a report advanced, with whether it was the first one.
    :param on_end: called once when the connection is lost, with the reason.
    """

    def __init__(
        self, sender: Sender, peer: str, now_ms: Callable[[], int],
        on_report: Callable[[SlaveLink, bool], None], on_end: Callable[[SlaveLink, str], None],
    ) -> None:
        super().__init__()
        self.sender = sender
        self.peer = peer
        self._now_ms = now_ms
        self._on_report, self._on_end = on_report, on_end
        self._why = ""
        #: Whether the connection is closed or about to be closed.
        self.is_over = False
        #: Sends bytes to a slave with a large lag; None over TLS.
        self._direct: DirectFrames | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        plain = getattr(self.transport, "socket", None)
        if plain is not None and not self.is_encrypted:
            self._direct = DirectFrames(self.sender, plain)

    @property
    def has_reported(self) -> bool:
        """Whether the connection counts as a slave."""
        return self.sender.acked >= 0 and not self.is_over

    @property
    def slave(self) -> int | str:
        """Identifies the slave: its broker id, or its host if it did not send its id."""
        broker_id = self.sender.slave_id
        return self.host if broker_id is None else broker_id

    @property
    def host(self) -> str:
        """The host that the connection comes from."""
        return host_of(self.peer)

    def dataReceived(self, data: bytes) -> None:
        if self.is_over:
            return
        is_first = not self.has_reported
        try:
            moved = self.sender.received(data, self._now_ms())
        except StreamBroken as error:
            self.end(str(error))
            return
        if moved:
            self._on_report(self, is_first)
            if is_first:
                self.send()

    def send(self) -> None:
        """Send the bytes that are due, unless bytes wait in the transport."""
        if self.is_full or self.is_over:
            return
        direct = self._direct
        try:
            if direct is not None and (
                    direct.is_within or self.sender.unsent_bytes() >= _UNSENT_MAX):
                direct.send(_UNSENT_MAX, self._now_ms())
                self._wait_for_room()
                return
            data = self.sender.frames(_UNSENT_MAX, self._now_ms())
        except (ConnectionError, TimeoutError):
            self.end(CLOSED)
            return
        except (StoreError, OSError) as error:
            self.end(f"its bytes cannot be read: {error}")
            return
        if len(data) >= _UNSENT_MAX:
            # More bytes are due; they wait until the reactor has served other connections.
            self.is_full = True
            self.transport.write(data)
        elif data:
            self.write_soon(data)

    def _wait_for_room(self) -> None:
        """Ask the reactor to report when the socket takes more, without any bytes in the transport.

        The report comes after other connections were served, or at once if the socket has room.
        """
        self.is_full = True
        self.transport.startWriting()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self.send()

    def tick(self) -> None:
        """Send a heartbeat when it is due, and close when the slave is silent; periodic."""
        now_ms = self._now_ms()
        if self.sender.is_silent(now_ms):
            self.end("it was silent too long")
            return
        self.send()
        if not self.is_full and not self.is_over:
            heartbeat = self.sender.heartbeat(now_ms)
            if heartbeat:
                self.write_soon(heartbeat)

    def end(self, why: str) -> None:
        """Close the connection at once."""
        if not self.is_over:
            self.is_over, self._why = True, why
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.is_over = True
        self._on_end(self, self._why or _why_ended(reason))


class MasterLink(Link):
    """The connection to the master, at its slave.

    :param now_ms: the clock for silences.
    :param take: appends bytes to the log, given their offset and the bytes; raises StoreError.
    :param on_end: called once when the connection is lost, with the reason.
    """

    def __init__(
        self, receiver: Receiver, now_ms: Callable[[], int],
        take: Callable[[MasterLink, int, bytes], None],
        on_end: Callable[[MasterLink, str], None],
    ) -> None:
        super().__init__()
        self.receiver = receiver
        self._now_ms = now_ms
        self._take, self._on_end = take, on_end
        self._why = ""
        self._is_over = False
        #: Whether the master has sent anything that could be accepted.
        self.is_heard = False
        #: Whether the master sent anything that could not be accepted.
        self.is_refused = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self.write_soon(self.receiver.begin())

    def dataReceived(self, data: bytes) -> None:
        if self._is_over:
            return
        receiver = self.receiver
        at = receiver.offset
        try:
            log_bytes = receiver.received(data, self._now_ms())
            if log_bytes:
                self._take(self, at, log_bytes)
            self.is_heard = True
        except (StreamBroken, StoreError) as error:
            self.is_refused = True
            self.end(str(error))

    def report(self, offset: int) -> None:
        """Report to the master how far the local log reaches."""
        data = self.receiver.report(offset, self._now_ms())
        if data and not self._is_over:
            self.write_soon(data)

    def tick(self) -> bool:
        """Send a heartbeat when it is due; periodic.

        :returns: whether the connection was closed because the master is silent.
        """
        now_ms = self._now_ms()
        if self.receiver.is_silent(now_ms):
            self.end("it was silent too long")
            return True
        heartbeat = self.receiver.heartbeat(now_ms)
        if heartbeat and not self._is_over:
            self.write_soon(heartbeat)
        return False

    def end(self, why: str) -> None:
        """Close the connection at once."""
        if not self._is_over:
            self._is_over, self._why = True, why
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self._is_over = True
        self._on_end(self, self._why or _why_ended(reason))


def host_of(peer: str) -> str:
    """Return the host of "host:port"."""
    return peer.rpartition(":")[0]


def _why_ended(reason: Failure) -> str:
    """Return why a connection was lost that this side did not end."""
    return str(reason.value) if reason.check(BrokerError) else CLOSED
