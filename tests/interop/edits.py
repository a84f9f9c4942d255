"""A relay between two members of a DLedger group that edits an answer to a push or a heartbeat."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.interop.recorder import Frame, Recorder
from twistmq.protocol.codes import DLedgerRequestCode

__all__ = ["Edit", "EditingRelay", "Fields", "Push"]

#: The fields of a body.
Fields = dict[str, Any]
#: The type of a push, and its first index; -1 without entries.
Push = tuple[str, int]

_FRAME_HEAD: Final = struct.Struct(">iI")


def _unchanged(answer: Fields) -> Fields:
    return answer


@dataclass(frozen=True)
class Edit:
    """The fate of one answer.

    :param change: returns the fields of the answer that is sent instead.
    :param copies: how often the answer is sent; 0: it is lost.
    :param delay_seconds: the time by which the answer is delayed.
    :param of_heartbeat: whether an answer to a heartbeat is edited, and not one to an APPEND.
    """

    name: str
    change: Callable[[Fields], Fields] = _unchanged
    copies: int = 1
    delay_seconds: float = 0.0
    of_heartbeat: bool = False


@dataclass
class EditingRelay(Recorder):
    """Relays the requests of one member to another, and edits one answer after each ``begin``."""

    _edit: Edit | None = None
    #: The code and the body of each request that is not answered yet.
    _requests: dict[tuple[int, int], tuple[int, Fields]] = field(default_factory=dict)
    #: When the answer was edited, and the push to which it belongs.
    _edited: tuple[float, Push] | None = None
    _sent_count: int = 0
    _editing: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, edit: Edit) -> None:
        """Edit the next answer to a request of the kind that the edit names."""
        with self._editing:
            self._edit, self._edited, self._sent_count = edit, None, 0

    @property
    def is_done(self) -> bool:
        """Whether an answer was edited, and all its copies are sent."""
        with self._editing:
            return (self._edit is not None and self._edited is not None
                    and self._sent_count == self._edit.copies)

    def pushes_since_edit(self) -> list[Push]:
        """Return the push whose answer was edited, and the pushes after the edit."""
        assert self._edited is not None
        _, push = self._edited
        return [push, *(_push_of(json.loads(frame.body))
                        for frame in self._requests_since_edit(DLedgerRequestCode.PUSH))]

    def heartbeats_since_edit(self) -> int:
        """Count the heartbeats after the edit."""
        return len(self._requests_since_edit(DLedgerRequestCode.HEART_BEAT))

    def _requests_since_edit(self, code: int) -> list[Frame]:
        assert self._edited is not None
        seconds, _ = self._edited
        with self._lock:
            return [frame for frame in self.frames if frame.from_client
                    and frame.seconds >= seconds and frame.code == code]

    def pass_on(self, target: socket.socket, frame: Frame) -> None:
        """Send a frame, or the edited one."""
        key = frame.connection, frame.opaque
        if frame.from_client:
            self._requests[key] = frame.code, json.loads(frame.body)
            super().pass_on(target, frame)
            return
        edit = self._take_edit(*self._requests.pop(key, (0, {})))
        if edit is None:
            super().pass_on(target, frame)
            return
        edited = _with_body(frame, edit.change(json.loads(frame.body)))
        if edit.delay_seconds:
            timer = threading.Timer(edit.delay_seconds, self._send_copies, (target, edited, edit))
            timer.daemon = True
            timer.start()
        else:
            self._send_copies(target, edited, edit)

    def _send_copies(self, target: socket.socket, frame: Frame, edit: Edit) -> None:
        # The member may have closed the connection before a late answer.
        with contextlib.suppress(OSError):
            for _ in range(edit.copies):
                super().pass_on(target, frame)
        with self._editing:
            self._sent_count += edit.copies

    def _take_edit(self, code: int, request: Fields) -> Edit | None:
        """Return the edit of the answer to a request; None if the answer is not edited."""
        with self._editing:
            if self._edit is None or self._edited is not None:
                return None
            fits = (code == DLedgerRequestCode.HEART_BEAT if self._edit.of_heartbeat
                    else request.get("type") == "APPEND")
            if not fits:
                return None
            self._edited = time.monotonic(), _push_of(request)
            return self._edit


def _push_of(body: Fields) -> Push:
    entries = body.get("batchEntry") or [body.get("entry") or {"index": -1}]
    return body.get("type", ""), entries[0]["index"]


def _with_body(frame: Frame, fields: Fields) -> Frame:
    """Return a frame with another body."""
    _, mark = _FRAME_HEAD.unpack_from(frame.data)
    header = frame.data[_FRAME_HEAD.size : _FRAME_HEAD.size + (mark & 0xFFFFFF)]
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    length = _FRAME_HEAD.size - 4 + len(header) + len(body)
    return replace(frame, data=_FRAME_HEAD.pack(length, mark) + header + body)
