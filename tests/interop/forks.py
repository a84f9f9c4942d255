"""The command line in processes that start fast, because each is a fork with all modules.

A start of Python and its modules costs seconds of a busy machine, and a test that kills a broker
two hundred times has no use for them. A forked process is as apart from the others as any: it has
its own memory, its own files, and a SIGKILL ends it alone.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.interop.servers import wait_until

__all__ = ["Forked"]

#: A program that reads a line of JSON for each process it is to fork, and tells its id.
_PROGRAM: Final = """
import json, os, signal, sys
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot, broker_service, services, starter
from twistmq.tools import command_line

services.load_hooks(boot.broker_settings(None, {}))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    sys.argv = ["twistmq", *asked["words"]]
    try:
        status = command_line.main()
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 1)
"""


class _Forker:
    """The process from which the others are forked, started at the first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def fork(self, words: Sequence[str], out: Path) -> int:
        """:returns: the id of a process that runs the command line."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True)
                atexit.register(self._end)
            asked, told = self._pipes()
            asked.write(json.dumps({"words": list(words), "out": str(out)}) + "\n")
            asked.flush()
            return int(told.readline())

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        process = self._process
        assert process is not None
        assert process.stdin is not None and process.stdout is not None
        return process.stdin, process.stdout

    def _end(self) -> None:
        for pipe in self._pipes():
            pipe.close()
        assert self._process is not None
        self._process.wait()


_forker = _Forker()


class Forked:
    """One process of the command line.

    :param words: the command and its arguments.
    :param out: what it prints is added to this file.
    :param ready: the words that it prints when it is ready; the start returns then.
    :raises RuntimeError: when it ends before, or does not print them in time.
    """

    def __init__(self, words: Sequence[str], out: Path, ready: str, seconds: float) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        begin = out.stat().st_size if out.exists() else 0
        self._seconds = seconds
        self.pid = _forker.fork(words, out)
        deadline = time.monotonic() + seconds
        while ready not in (said := out.read_text()[begin:] if out.exists() else ""):
            if not self.runs or time.monotonic() > deadline:
                self.end(signal.SIGKILL)
                raise RuntimeError(f"{words[0]} does not start:\n{said}")
            time.sleep(0.01)

    @property
    def runs(self) -> bool:
        """Whether it is running."""
        return Path(f"/proc/{self.pid}").exists()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal that ends it, and wait for its end."""
        try:
            os.kill(self.pid, how)
        except ProcessLookupError:
            return
        # The process it was forked from takes its status at once, so that no zombie stays.
        wait_until(f"the end of process {self.pid}", lambda: not self.runs, self._seconds)
