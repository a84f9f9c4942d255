"""The protocol of a slave towards its master: it receives the bytes that continue the log.

This module does not use the network: received bytes and the time are passed in.

Source: DefaultHAClient @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.plugins.ha.frames import (
    FrameReader,
    StreamBroken,
    encode_report,
    encode_slave_id,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Settings

__all__ = ["Receiver"]


class Receiver:
    """The bytes that a slave receives from its master over one connection.

    :param file_size: the size of a local commit-log file, in bytes.
    :param offset: the offset up to which the slave has the log.
    :param now_ms: the time of the connection, on a clock that does not jump.
    :param slave_id: this broker's id if the master accepts it; None to leave it out.
    """

    def __init__(
        self, settings: Settings, file_size: int, offset: int, now_ms: int,
        slave_id: int | None = None,
    ) -> None:
        self._slave_id = slave_id
        self._settings = settings
        self._frames = FrameReader(file_size)
        #: The offset up to which bytes were received.
        self.offset = offset
        self.reported = offset
        self.read_ms = self.reported_ms = self._made_ms = now_ms
        #: Whether the last frame was a heartbeat other than the first one of the connection, so
        #: that the master had nothing to send.
        self.is_idle = False

    def begin(self) -> bytes:
        """Return the first bytes of the slave: its broker id, and the end of its log."""
        id_frame = encode_slave_id(self._slave_id) if self._slave_id is not None else b""
        return id_frame + encode_report(self.offset)

    def received(self, data: bytes, now_ms: int) -> bytes:
        """Accept received bytes; :returns: the bytes that continue the log.

        :raises StreamBroken: when they do not follow the log; the text gives the reason.
        """
        self.read_ms = now_ms
        parts = []
        at = self.offset
        for frame in self._frames.feed(data):
            if frame.offset != at:
                raise StreamBroken(
                    f"it sends bytes at {frame.offset}, but the log continues at {at}")
            parts.append(frame.data)
            self.is_idle = not frame.data and now_ms > self._made_ms + self._heartbeat_ms()
            at += len(frame.data)
        self.offset = at
        return b"".join(parts)

    def report(self, offset: int, now_ms: int) -> bytes:
        """Report that the slave has the log up to ``offset``, unless that was reported before.

        :returns: the bytes to send.
        """
        if offset <= self.reported:
            return b""
        self.reported, self.reported_ms = offset, now_ms
        return encode_report(offset)

    def heartbeat(self, now_ms: int) -> bytes:
        """Return the report that is due after a silence; empty if none is due."""
        if now_ms - self.reported_ms <= self._heartbeat_ms():
            return b""
        self.reported_ms = now_ms
        return encode_report(self.reported)

    def _heartbeat_ms(self) -> int:
        return self._settings.int("haSendHeartbeatInterval")

    def is_silent(self, now_ms: int) -> bool:
        """Whether the master was silent for long enough that the connection has to be closed."""
        return now_ms - self.read_ms > self._settings.int("haHousekeepingInterval")
