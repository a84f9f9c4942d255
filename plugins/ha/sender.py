"""The protocol of a master towards one slave: the bytes to send next, and the reported offsets.

This module does not use the network: received bytes and the time are passed in, and bytes to send
are returned.

Source: DefaultHAConnection @5.3.3. Differs from Apache: an impossible report is refused; Apache's
master accepts any number, and counts it as an acknowledgement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.plugins.ha.frames import ReportReader, StreamBroken, encode_head, slave_id_of
from twistmq.plugins.ha.lag import Lag
from twistmq.plugins.ha.rate import ByteRate
from twistmq.plugins.ha.settings import TLS

if TYPE_CHECKING:
    from twistmq.broker.api import Settings
    from twistmq.broker.api.store import MessageStore

__all__ = ["Sender"]

#: A handshake of TLS 1 begins with these two bytes.
_TLS_HELLO: Final = 0x1603


class Sender:
    """The bytes that a master sends to one slave, and the reports that it receives.

    :param now_ms: the time of the connection, on a clock that does not jump.
    """

    def __init__(self, store: MessageStore, settings: Settings, now_ms: int) -> None:
        self._store = store
        #: The bytes of the log.
        self.raw = store.raw
        self._settings = settings
        self._reports = ReportReader()
        #: Where the next frame begins; None until the slave has asked for any.
        self.next_offset: int | None = None
        #: The broker id of the slave; None if it did not send it.
        self.slave_id: int | None = None
        #: The offset up to which the slave has the log; -1 before its first report.
        self.acked = -1
        #: The offset of the last frame with bytes of the log.
        self.sent_from = 0
        self.read_ms = self.written_ms = now_ms
        self._lag = Lag(now_ms)
        #: The rate of log bytes that were sent.
        self.rate = ByteRate(now_ms)

    def received(self, data: bytes, now_ms: int) -> bool:
        """Accept received bytes; :returns: whether the slave has more than before.

        :raises StreamBroken: when a report is not possible; the text gives the reason.
        """
        self.read_ms = now_ms
        before = self.acked
        for offset in self._reports.feed(data):
            if self.next_offset is None and self.slave_id is None:
                self.slave_id = slave_id_of(offset)
                if self.slave_id is not None:
                    continue
            if self.next_offset is None:
                self.next_offset = self._begin(offset)
            elif not self.acked <= offset <= self.next_offset:
                raise StreamBroken(f"it reports {offset}, but it had {self.acked} before and was "
                                   f"sent up to {self.next_offset}")
            self.acked = offset
        if self.acked >= 0:
            self._lag.reported(self.acked, self._store.commit_log.max_offset, now_ms)
        return self.acked > before

    def _begin(self, offset: int) -> int:
        """Return where a slave that has the log up to ``offset`` continues.

        :raises StreamBroken: when this log has no bytes that could follow there.
        """
        log = self._store.commit_log
        if offset == 0:
            if self._settings.flag("ha.send_all"):
                return log.min_offset
            return max(log.min_offset, log.max_offset - log.max_offset % log.file_size)
        if not log.min_offset <= offset <= log.max_offset:
            if offset >> 48 == _TLS_HELLO:
                raise StreamBroken(f"it speaks TLS, and {TLS} is false here")
            raise StreamBroken(f"it asks for {offset}, but the log has bytes from "
                               f"{log.min_offset} to {log.max_offset}")
        return offset

    def frames(self, size_max: int, now_ms: int) -> bytes:
        """Make the frames that are due, at most about ``size_max`` bytes together.

        :raises StoreError: when the log does not have these bytes, or the disk fails.
        """
        parts: list[bytes] = []
        size = 0
        while size < size_max and (frame := self.next_frame(now_ms)) is not None:
            head, at, length = frame
            parts += [head, self.raw.read(at, length)]
            size += length
        return b"".join(parts)

    def next_frame(self, now_ms: int) -> tuple[bytes, int, int] | None:
        """Begin the frame that is due; :returns: its head, and the offset and size of its body.

        :raises StoreError: when the log does not have these bytes.
        """
        at = self.next_offset
        if at is None:
            return None
        size = self.raw.size_at(at, self._settings.int("haTransferBatchSize"))
        if not size:
            return None
        self.sent_from, self.next_offset, self.written_ms = at, at + size, now_ms
        self.rate.add(size, now_ms)
        return encode_head(at, size), at, size

    def heartbeat(self, now_ms: int) -> bytes:
        """Return the heartbeat that is due, if any; none precedes the slave's request. Periodic."""
        self._lag.noted(self._store.commit_log.max_offset, now_ms)
        if self.next_offset is None or (
                now_ms - self.written_ms <= self._settings.int("haSendHeartbeatInterval")):
            return b""
        self.written_ms = now_ms
        return encode_head(self.next_offset, 0)

    def is_silent(self, now_ms: int) -> bool:
        """Whether the slave was silent for long enough that the connection has to be closed."""
        return now_ms - self.read_ms > self._settings.int("haHousekeepingInterval")

    def unsent_bytes(self) -> int:
        """Return the number of bytes that are due."""
        at = self.next_offset
        return 0 if at is None else self._store.commit_log.max_offset - at

    def behind_bytes(self) -> int:
        """Return the lag of the slave, in bytes of the log."""
        return self._store.commit_log.max_offset - self.acked

    def behind_ms(self, now_ms: int) -> int:
        """Return the lag of the slave, ms."""
        return self._lag.ms(self.acked, self._store.commit_log.max_offset, now_ms)
