"""The loop that all blocking clients of a process share; a child of ``fork`` makes its own.

At the end of the process, the work that its clients have in flight is finished, within a time
limit. A child of ``multiprocessing`` does not call functions of ``atexit``; it calls the finalizers
of the module ``multiprocessing.util``.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref

from twistmq.client.base.errors import Closed
from twistmq.client.blocking.loop import Loop

__all__ = ["shared_loop"]

_lock = threading.RLock()
_loop: Loop | None = None
_loops: weakref.WeakSet[Loop] = weakref.WeakSet()


def shared_loop() -> Loop:
    """The loop of this process; the first call starts it.

    :raises Closed: when the interpreter ends, because it starts no thread then.
    """
    global _loop
    with _lock:
        if _loop is None or _loop.pid != os.getpid():
            if sys.is_finalizing():
                raise Closed("the program has ended, so no client can be made")
            _loop = Loop()
            _loops.add(_loop)
            _finish_in_child()
        return _loop


def finish() -> None:
    """Finish the work of all clients of the process, because it ends."""
    loop = _loop
    if loop is not None and loop.pid == os.getpid():
        try:
            loop.finish()
        except (KeyboardInterrupt, SystemExit):
            # The end must not wait any longer: Ctrl-C, or a handler of SIGTERM that exits.
            for function in list(loop.at_end):
                function()


def _finish_in_child() -> None:
    """Arrange for a child of ``multiprocessing`` to finish its work when it ends."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, finish, exitpriority=10)


def _forked() -> None:
    global _lock, _loop
    _lock = threading.RLock()
    _loop = None
    for loop in list(_loops):
        if loop.pid != os.getpid():
            loop.abandon()
            _loops.discard(loop)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
atexit.register(finish)
