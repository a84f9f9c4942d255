"""Logs slow requests: the code, the client and the time, one line each.

Two times are measured: the time of a slice, which runs the requests of one read, a part of them, or
sends of several connections; and the time for which an answer waited. No request is begun once a
slice is too long, so the last request of a long slice, or its last batch, is the slow one.
A request that waits for an event, such as a pull for a message, is not slow. A quick request costs
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from twisted.logger import Logger

from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.constants import HEADER_SIZE_MAX
from twistmq.broker.remoting.messages import AnyHandler, Request
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import Frame
from twistmq.protocol.frame_peek import sketch
from twistmq.protocol.log_rate import LineRate

__all__ = ["SLOW_REQUEST_SETTING", "SlowRequests"]

SLOW_REQUEST_SETTING: Final = "log.slow_request"
#: The number of frames of a long turn that are examined; a turn may have thousands.
_FRAMES_MAX: Final = 100


class SlowRequests:
    """The slow requests of one server.

    ``count`` and ``longest_ms`` are metrics of the process; ``limit_ms`` is the limit.

    :param now_ms: the wall clock, Unix ms.
    :param settings: the source of the limit, which may change; None for no limit.
    """

    log = Logger()

    def __init__(self, now_ms: Callable[[], int], settings: Settings | None = None) -> None:
        self.now_ms = now_ms
        self.count = 0
        self.longest_ms = 0
        self.limit_ms = sys.maxsize
        self._rate = LineRate()
        if settings is not None:
            self._set_limit(settings.int(SLOW_REQUEST_SETTING))
            settings.on_change.append(self._settings_changed)

    def _settings_changed(self, changes: Mapping[str, SettingValue]) -> None:
        limit_ms = changes.get(SLOW_REQUEST_SETTING)
        if isinstance(limit_ms, int):
            self._set_limit(limit_ms)

    def _set_limit(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms or sys.maxsize

    def turn(self, peer: str, frames: Sequence[Frame], seconds: float) -> None:
        """Record a turn that took longer than the limit.

        :param peer: "ip:port" of the client whose requests ran, and the number of other clients.
        :param frames: the frames that ran.
        """
        codes = [_code_of(frame) for frame in frames[-_FRAMES_MAX:]]
        runs = [(code, sum(1 for _ in run)) for code, run in groupby(codes)]
        what = ", ".join(f"{_name(code)} x {count}" if count > 1 else _name(code)
                         for code, count in runs[-2:])
        self._note(peer, what, round(seconds * 1000), "took")

    def waited(
        self, peer: str, requests: Sequence[Request[Any]], handlers: Mapping[int, AnyHandler]
    ) -> None:
        """Record requests that were answered now, if they waited for too long."""
        now_ms = self.now_ms()
        # They belong to one read, so all of them waited for the same time.
        if now_ms - requests[0].now_ms < self.limit_ms:
            return
        code = requests[0].command.code
        handler = handlers.get(code)
        if handler is not None and handler.waits:
            return
        what = f"{_name(code)} x {len(requests)}" if len(requests) > 1 else _name(code)
        self._note(peer, what, now_ms - requests[0].now_ms, "was answered after")

    def _note(self, peer: str, what: str, milliseconds: int, how: str) -> None:
        self.count += 1
        self.longest_ms = max(self.longest_ms, milliseconds)
        left_out = self._rate.left_out(self.now_ms())
        if left_out is not None:
            self.log.warn("slow request: {what} of {peer} {how} {milliseconds} ms{more}",
                          what=what, peer=peer, how=how, milliseconds=milliseconds,
                          more=f"; {left_out} such lines were left out" if left_out else "")


def _code_of(frame: Frame) -> int | None:
    """Return the code of a frame; None when its header cannot be read."""
    if len(frame[1]) > HEADER_SIZE_MAX:
        return sketch(frame).code
    try:
        return decode_command(frame).code
    except HeaderError:
        return None


def _name(code: int | None) -> str:
    """Describe a code for a reader of the log: its number and Apache's name."""
    if code is None:
        return "an unreadable header"
    try:
        return f"{code} {RequestCode(code).name}"
    except ValueError:
        return str(code)
