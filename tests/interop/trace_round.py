"""Run clients that send and consume with their trace on or off: `trace_java`, `go_trace`.

They end when they are told to, so that what they hand over late can be waited for.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.interop.clients import (
    HERE,
    ROUND_TIMEOUT,
    RoundError,
    client_home,
    go_program,
    java_classes,
)
from tests.interop.peer import class_path, java_command

__all__ = ["go_trace", "java_trace"]


def java_trace(
    version: str, namesrv: str, topic: str, trace: bool, parts: Sequence[str],
    when_done: Callable[[dict[str, str]], None],
) -> dict[str, str]:
    """Run parts of the Java client's round one after the other; returns the ids by kind.

    :param parts: as the program's comment names them.
    :param when_done: called with the ids while the clients still run.
    :raises RoundError: when one fails.
    """
    classes = java_classes(version, HERE / "trace_java")
    with client_home() as home:
        command = java_command(home, [str(classes), class_path(version)])
        return _run([*command, "TraceRound", namesrv, topic, "on" if trace else "off", *parts],
                    {}, when_done)


def go_trace(
    namesrv: str, topic: str, when_done: Callable[[dict[str, str]], None]
) -> dict[str, str]:
    """Run the Go client, its trace on; the rest as :func:`java_trace`."""
    with client_home() as home:
        return _run([go_program("go_trace"), namesrv, topic], {"HOME": str(home)}, when_done)


def _run(
    command: Sequence[str | Path], environment: Mapping[str, str],
    when_done: Callable[[dict[str, str]], None],
) -> dict[str, str]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, **environment})
    timer = threading.Timer(ROUND_TIMEOUT, process.kill)
    timer.start()
    assert process.stdin is not None and process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if line == "ok\n":
                break
        else:
            raise RoundError(f"status {process.wait()}: {command[-1]}\n{''.join(lines)}")
        words = [line.split() for line in lines]
        ids = {line[1]: line[2] for line in words if line[:1] == ["sent"]}
        when_done(ids)
        process.stdin.close()
        lines += process.stdout
        if process.wait():
            raise RoundError(f"status {process.returncode}: {command[-1]}\n{''.join(lines)}")
        return ids
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
