"""A master as its slave hears it: the bytes that its log goes on with.

No network here: bytes of the connection come in, and the time is given.

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
    """The bytes that a slave gets of its master over one connection.

    :param file_size: bytes of a commit-log file here.
    :param offset: up to where the slave has the log.
    :param now_ms: the time of the connection, on a clock that does not jump.
    :param slave_id: this broker's id, for a master that hears it; None: it is not said.
    """

    def __init__(
        self, settings: Settings, file_size: int, offset: int, now_ms: int,
        slave_id: int | None = None,
    ) -> None:
        self._slave_id = slave_id
        self._settings = settings
        self._frames = FrameReader(file_size)
        #: Up to here bytes came.
        self.offset = offset
        self.reported = offset
        self.read_ms = self.reported_ms = self._made_ms = now_ms
        #: Whether what came last was a heartbeat, and not as the first of the connection: the
        #: master had nothing to send.
        self.is_idle = False

    def begin(self) -> bytes:
        """The first bytes of the slave: its broker id, and up to where it has the log."""
        said = encode_slave_id(self._slave_id) if self._slave_id is not None else b""
        return said + encode_report(self.offset)

    def received(self, data: bytes, now_ms: int) -> bytes:
        """Take what was read; :returns: the bytes of the log that follow those before.

        :raises StreamBroken: when they do not follow; the text says why.
        """
        self.read_ms = now_ms
        parts = []
        at = self.offset
        for frame in self._frames.feed(data):
            if frame.offset != at:
                raise StreamBroken(f"bytes of {frame.offset} came, but the log goes on at {at}")
            parts.append(frame.data)
            self.is_idle = not frame.data and now_ms > self._made_ms + self._heartbeat_ms()
            at += len(frame.data)
        self.offset = at
        return b"".join(parts)

    def report(self, offset: int, now_ms: int) -> bytes:
        """Say that the slave has the log up to ``offset``; nothing if that was said before.

        :returns: the bytes to send.
        """
        if offset <= self.reported:
            return b""
        self.reported, self.reported_ms = offset, now_ms
        return encode_report(offset)

    def heartbeat(self, now_ms: int) -> bytes:
        """The report that is due although nothing came, or nothing."""
        if now_ms - self.reported_ms <= self._heartbeat_ms():
            return b""
        self.reported_ms = now_ms
        return encode_report(self.reported)

    def _heartbeat_ms(self) -> int:
        return self._settings.int("haSendHeartbeatInterval")

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing was read for so long that the connection has to be closed."""
        return now_ms - self.read_ms > self._settings.int("haHousekeepingInterval")
