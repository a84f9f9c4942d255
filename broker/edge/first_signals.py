"""Signal handling while the process of a server is still loading.

The modules of a server take a second to load on a slow host, and a signal that arrives during that
time must not end the process as if it had crashed. This module imports almost nothing, so that it
can run before the other modules are loaded.

Source: design of twistmq.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from _thread import allocate_lock, get_ident, start_new_thread
from types import FrameType
from typing import Final

__all__ = ["MEANINGLESS", "SERVERS", "hang_up", "hold_signals", "print_stacks_at_sigquit"]

#: The commands that run a server.
SERVERS: Final = ("broker", "namesrv", "up")
#: The signals that a server ignores.
MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2)
#: The largest number of texts that wait to be written; further texts are dropped.
TEXTS_MAX: Final = 16

#: The waiting texts, the oldest first.
_texts: list[bytes] = []
#: The lock of the thread that writes these texts.
_writing = allocate_lock()


def hold_signals() -> None:
    """Handle signals until ``tap.handle_signals`` takes over, before anything is opened.

    SIGTERM, SIGINT and SIGHUP end the process at once with status 0, because there is nothing to
    stop yet. Other signals have no effect, except that SIGQUIT prints the stack of each thread.
    """
    for number in (signal.SIGTERM, signal.SIGINT, *hang_up()):
        signal.signal(number, _end)
    for number in MEANINGLESS:
        signal.signal(number, _pass)
    print_stacks_at_sigquit()


def hang_up() -> list[signal.Signals]:
    """Return SIGHUP, unless it is ignored, as under ``nohup``."""
    return [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]


def print_stacks_at_sigquit() -> None:
    """Let SIGQUIT print the stack of each thread."""
    signal.signal(signal.SIGQUIT, _print_stacks)


def _print_stacks(number: int, frame: FrameType | None) -> None:
    """Print the stack of each thread to the standard error, the latest call first.

    ``faulthandler.register`` is not used, because it reads the frames of threads while they run,
    and has ended a server with SIGSEGV. A handler in Python holds the interpreter's lock instead.
    It imports nothing, because the signal may arrive in the middle of any import. A thread
    writes the text, because the standard error may be a pipe that is never read. A write by the
    handler itself would then block the server, and no signal could end it.
    """
    own = get_ident()
    lines = []
    for thread, latest in sys._current_frames().items():
        called = frame if thread == own else latest
        word = "Current thread" if thread == own else "Thread"
        lines.append(f"{word} 0x{thread:016x} (most recent call first):")
        while called is not None:
            code = called.f_code
            lines.append(f'  File "{code.co_filename}", line {called.f_lineno} in {code.co_name}')
            called = called.f_back
        lines.append("")
    if len(_texts) < TEXTS_MAX:
        _texts.append("\n".join(lines).encode(errors="backslashreplace"))
        # If no thread can be started, the next one writes the text.
        with contextlib.suppress(RuntimeError):
            start_new_thread(_write_texts, ())


def _write_texts() -> None:
    """Write the waiting texts, unless another thread is writing them."""
    # This thread writes a text that arrived after the last check of the other thread.
    while _texts and _writing.acquire(blocking=False):
        try:
            while _texts:
                remaining = _texts[0]
                with contextlib.suppress(OSError):  # standard error is closed
                    while remaining:
                        remaining = remaining[os.write(2, remaining):]
                del _texts[0]
        finally:
            _writing.release()


def _end(number: int, frame: object) -> None:
    # An exception could be caught by the module that is being imported.
    os._exit(0)


def _pass(number: int, frame: object) -> None:
    """Do nothing; unlike an ignored signal, a handler is not inherited by child processes."""
