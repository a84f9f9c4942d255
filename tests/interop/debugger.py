"""Stops a Java process at the beginning of a method, with the debugger of the JDK.

The process is started with the option ``agent_option``. All of its threads stop, so that it can be
killed at exactly this moment.
"""

from __future__ import annotations

from typing import Final

from tests.interop.java_process import LineProcess
from tests.interop.servers import wait_until

__all__ = ["Debugger", "agent_option"]

#: How long the debugger may take to attach, and the process to reach a method, seconds.
_PATIENCE_SECONDS: Final = 60.0


def agent_option(port: int) -> str:
    """Return the option of Java with which a process lets a debugger attach at a port."""
    return f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,quiet=y,address=127.0.0.1:{port}"


class Debugger(LineProcess):
    """A debugger that is attached to a process."""

    def __init__(self, port: int) -> None:
        super().__init__(["jdb", "-attach", f"127.0.0.1:{port}"])

    def stop_in(self, method: str) -> None:
        """Stop the process whenever a method begins.

        :param method: ``package.Class.method``, and the types of the arguments in parentheses if
            the class has several methods of this name.
        """
        count = self._count("Set breakpoint")
        self._write(f"stop in {method}")
        self._wait_for_more("Set breakpoint", count)

    def wait_for_stop(self) -> None:
        """Wait until the process has stopped for the first time."""
        self._wait_for_more("Breakpoint hit", 0)

    def go_on(self) -> None:
        """Let a process that has stopped go on until the next stop."""
        count = self._count("Breakpoint hit")
        self._write("cont")
        self._wait_for_more("Breakpoint hit", count)

    def _write(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _count(self, words: str) -> int:
        # A line may begin with one or more prompts.
        return sum(words in line for line in list(self.lines))

    def _wait_for_more(self, words: str, count: int) -> None:
        try:
            wait_until(words, lambda: self._count(words) > count, _PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.lines)) from None
