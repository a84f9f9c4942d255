"""A program of tests/interop/java or of ours that runs beside a test until it ends."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.clients import WAIT_MS, java_classes
from tests.interop.peer import class_path, java_command
from tests.interop.servers import wait_until

__all__ = ["JavaProcess", "LineProcess"]

#: How long a program may take to start and to leave, seconds.
_END_SECONDS: Final = 120.0


class LineProcess:
    """A process that starts at once, prints lines, and ends with its input.

    :param command: its words.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        #: What it told until now, a line each.
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A line that a killed process did not end is none.
            if line.endswith("\n"):
                self.lines.append(line.rstrip("\n"))

    def told(self, word: str) -> list[str]:
        """Return the lines that begin with a word."""
        return [line for line in list(self.lines) if line.split(" ")[0] == word]

    def wait_for(self, word: str, times: int = 1) -> None:
        """Wait until so many lines begin with a word."""
        def is_told() -> bool:
            ended = self._process.poll() is not None and not self._reader.is_alive()
            if len(self.told(word)) >= times:
                return True
            if ended:
                raise AssertionError(f"it ended:\n{self._text()}")
            return False

        try:
            wait_until(f"{times} times {word}", is_told, WAIT_MS / 1000)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._text()}") from None

    def _text(self) -> str:
        return "\n".join(self.lines[-50:])

    def ask(self, command: str, word: str) -> list[str]:
        """Write a line to its input; :returns: the words of its next line that begins with a word.

        :raises AssertionError: when it ends, or tells no such line in time.
        """
        assert self._process.stdin is not None
        count = len(self.told(word))
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self.wait_for(word, count + 1)
        return self.told(word)[count].split(" ")

    def pause(self) -> None:
        """Send SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL; the earlier output is in ``lines``."""
        self._process.kill()
        self._end()

    def leave(self) -> None:
        """Close its input and wait for its end; :raises AssertionError: when it fails."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(_END_SECONDS)
        self._end()
        assert status == 0, f"status {status}\n{self._text()}"

    def close(self) -> None:
        """End the process, whatever its state is."""
        if self._process.poll() is None:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(_END_SECONDS)
        self._reader.join(_END_SECONDS)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class JavaProcess(LineProcess):
    """A program of tests/interop/java.

    :param main: its class.
    :param properties: Java's system properties, "name=value".
    """

    def __init__(self, version: str, main: str, *arguments: str,
                 properties: Sequence[str] = ()) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="client-home-")
        classes = java_classes(version, main=main)
        command = java_command(Path(self._home.name), [str(classes), class_path(version)])
        super().__init__([*command, f"-Dround.wait_ms={WAIT_MS}",
                          *[f"-D{each}" for each in properties], main, *arguments])

    def _end(self) -> None:
        super()._end()
        self._home.cleanup()
