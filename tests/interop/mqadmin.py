"""Run several commands of Apache's mqadmin in one JVM, because each start takes seconds.

    python -m tests.interop.mqadmin [--version 5.3.3] NAMESRV < FILE

FILE has one command a line, e.g. `topicStatus -t Orders`;

It needs what the tests need: the environment of `pip install '.[test]'`, Java, and Apache's jars.
``-n NAMESRV`` is added to every command. As a module: :func:`mqadmin`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.clients import HERE, RoundError, java_classes
from tests.interop.peer import QUIET_LOGGING, class_path, java_command

__all__ = ["LATE", "mqadmin"]

#: Texts in the output of a command that had no answer or no connection in time.
LATE: Final = ("RemotingTimeoutException", "connect to null failed")

#: All commands of one run have ended after this, seconds.
TIMEOUT: Final = 400.0


def mqadmin(
    namesrv: str, commands: Sequence[str], *, version: str = "5.3.3", timeout: float = TIMEOUT,
    keys: tuple[str, str] | None = None,
) -> list[str]:
    """Run commands one after the other; returns their outputs, including errors."""
    classes = java_classes(version, HERE / "mqadmin_java")
    lines = ["\t".join([*shlex.split(command), "-n", namesrv]) for command in commands]
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as folder:
        home = Path(folder)
        (home / "home" / "conf").mkdir(parents=True)  # 4.x does not start without it.
        (home / "home" / "conf" / "logback_tools.xml").write_text(QUIET_LOGGING)
        if keys is not None:
            (home / "home" / "conf" / "tools.yml").write_text(
                f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n")
        java = java_command(home / "home", [str(classes), class_path(version)])
        try:
            process = subprocess.run(
                # consumerStatus leaves a folder where it is started.
                [*java, "ManyCommands", folder], input="\n".join(lines).encode(), cwd=folder,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RoundError(f"mqadmin: not done after {timeout} s: {commands}") from None
        texts = [file.read_text() for index in range(len(commands))
                 if (file := home / f"{index}.txt").exists()]
    if process.returncode or len(texts) < len(commands):
        printed = process.stdout.decode(errors="replace")
        raise RoundError(f"mqadmin ended at command {len(texts)}: {texts[-1:]} {printed}")
    return texts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="5.3.3")
    parser.add_argument("namesrv")
    args = parser.parse_args()
    commands = [line.strip() for line in sys.stdin if line.strip()]
    outputs = mqadmin(args.namesrv, commands, version=args.version)
    for command, output in zip(commands, outputs, strict=True):
        print(f"$ mqadmin {command}\n{output}")


if __name__ == "__main__":
    main()
