"""Our name server and broker in their own process, for clients that are processes too."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.interop.peer import PATIENT
from tests.interop.ports import free_port

__all__ = ["MAIN", "Servers", "free_port", "rss_anon_kib", "servers", "take_default_signals",
           "wait_until"]

_READY: Final = re.compile(r"broker\[[^,]+, ([\d.]+):(\d+)\] boot success.*name server is (\S+)")
#: A program of Python that is the command line; it shows where its threads are when asked to.
MAIN: Final = ("import faulthandler, signal; faulthandler.register(signal.SIGUSR1); "
               "from twistmq.tools.command_line import main; raise SystemExit(main())")
#: How long a start and a stop may take, seconds. Several JVMs may share the machine's cores.
_PATIENCE_SECONDS: Final = 60.0
#: How long what a process says before its end may take to arrive, seconds.
_LAST_WORDS_SECONDS: Final = 5.0
#: What is shown of the end of a log.
_LOG_CHARS: Final = 4000


def take_default_signals() -> None:
    """Reset SIGINT and SIGHUP in a child process; this is a ``preexec_fn`` of ``Popen``.

    A shell starts its background jobs with SIGINT ignored, and ``nohup`` does the same with SIGHUP.
    Child processes inherit this, and our servers and commands leave an ignored signal ignored.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Servers:
    """``twistmq up`` over one folder; it can be stopped and started again.

    :param data: the folder.
    :param settings: more settings, ``key=value``; they win over ``PATIENT``.
    :param folder: the folder they are started in; None: this process's.
    :param patience_seconds: how long a start, and a stop, may take.
    """

    #: The program of Python that they run.
    program = MAIN
    #: The interpreter, which may belong to another installation.
    python = sys.executable

    def __init__(
        self, data: Path, *settings: str, folder: Path | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self.data = data
        self._patience_seconds = patience_seconds
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._reader: threading.Thread | None = None
        #: "host:port" of the name server and the broker's port, once started.
        self.namesrv = ""
        self.broker_port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start both on free ports, or on those of the last start; wait until they answer."""
        # Never port 0: after a stop a client's connection might have that port.
        namesrv_port = self.namesrv.rpartition(":")[2] or str(free_port())
        patience = [f"{name}={value}" for name, value in PATIENT.items()]
        command = [self.python, "-c", self.program, "up",
                   "--data", str(self.data), "--namesrv-port", namesrv_port,
                   "--broker-port", str(self.broker_port or free_port()), *patience,
                   *self._settings]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True, env=os.environ,
                                         cwd=self._folder)
        assert self._process.stdout is not None
        timer = threading.Timer(self._patience_seconds, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                self._lines.append(line)
                ready = _READY.search(line)
                if ready:
                    self.broker_port = int(ready[2])
                    self.namesrv = ready[3]
                    self._reader = threading.Thread(
                        target=self._drain, args=(self._process.stdout,), daemon=True)
                    self._reader.start()
                    return
        finally:
            timer.cancel()
        self._process.wait()
        raise RuntimeError("the servers do not start:\n" + "".join(self._lines))

    def _drain(self, output: Iterable[str]) -> None:
        # A reader that waits while the other side is closed raises.
        with contextlib.suppress(ValueError):
            self._lines.extend(output)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop them; :returns: the exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            status = process.wait(self._patience_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_WORDS_SECONDS)
            process.kill()
            process.wait()
            if self._reader is not None:
                self._reader.join(_LAST_WORDS_SECONDS)
            raise RuntimeError(
                f"the servers do not stop after {self._patience_seconds} s, status "
                f"{process.returncode}:\n"
                + "".join(self._lines) + self.log()[-_LOG_CHARS:]) from None
        finally:
            if process.stdout is not None:
                with contextlib.suppress(OSError):
                    process.stdout.close()
        return status

    def log(self) -> str:
        """Return the text of the log file."""
        return "".join(path.read_text() for path in sorted((self.data / "logs").glob("*.log")))


@contextlib.contextmanager
def servers(data: Path, *settings: str) -> Iterator[Servers]:
    """Return servers that are stopped at the end."""
    running = Servers(data, *settings)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def rss_anon_kib(pid: int) -> int:
    """Return the anonymous resident memory of a process, KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("the process has no RssAnon")


def wait_until(what: str, condition: object, seconds: float = 60.0) -> None:
    """Wait for a condition; :raises AssertionError: when it does not come true in time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
