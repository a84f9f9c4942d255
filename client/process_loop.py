"""The loop of the blocking clients of a process, which a child of ``fork`` does not share."""

from __future__ import annotations

import os
import threading
import weakref

from twistmq.client.loop import Loop

__all__ = ["shared_loop"]

_lock = threading.Lock()
_loop: Loop | None = None
_loops: weakref.WeakSet[Loop] = weakref.WeakSet()


def shared_loop() -> Loop:
    """The loop of this process; it starts with the first call."""
    global _loop
    with _lock:
        if _loop is None or _loop.pid != os.getpid():
            _loop = Loop()
            _loops.add(_loop)
        return _loop


def _forked() -> None:
    global _lock, _loop
    _lock = threading.Lock()
    _loop = None
    for loop in list(_loops):
        if loop.pid != os.getpid():
            loop.abandon()
            _loops.discard(loop)


os.register_at_fork(after_in_child=_forked)
