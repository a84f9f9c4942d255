"""Every command of mqadmin and of ``twistmq admin``, with our servers and Apache's.

Both clusters are brought into the same state. A command prints the same shape, or it is said why
not; what differs otherwise is shown and makes the exit status 1. With --times each command that
only looks is run in a process of its own as well, and its time stands beside mqadmin's. With
--version another release's mqadmin asks the same servers; then ``twistmq admin`` is left out.

    python -m tests.long.mqadmin [--times] [--version 4.9.4]

It needs Java and Maven; two or three minutes, with --times six.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

from tests.interop.admin_sweep import (
    STEPS,
    Step,
    admin_sweep,
    differences,
    mqadmin_sweep,
    state,
    steps_of,
)
from tests.interop.peer import CACHE, MQADMIN_MAIN, class_path, java_command
from tests.interop.servers import MAIN
from tests.interop.test_mqadmin import apache_servers, our_servers

#: A command that takes longer has failed, seconds.
_COMMAND_SECONDS = 60.0
#: The release whose names and options ``twistmq admin`` has.
_VERSION = "5.3.3"
#: What else mqadmin 4.9.4 prints differently, by step.
REASONS = {"4.9.4": {
    "printMsg -t {topic}": "properties stand in the order they were stored in, which for Apache's "
                           "broker is that of a hash table",
}}


@dataclass
class Findings:
    """The results with one cluster."""

    #: By step: what mqadmin printed, and what ``twistmq admin`` did.
    mqadmin: dict[str, str]
    admin: dict[str, str]
    #: By step, ms: of mqadmin, of Apache's cluster only, and of ``twistmq admin``, a process each.
    mqadmin_ms: dict[str, int] = field(default_factory=dict)
    admin_ms: dict[str, int] = field(default_factory=dict)


def _milliseconds(command: list[str], environment: Mapping[str, str], folder: str) -> int:
    begin = time.monotonic()
    # Its output is read to the end: waiting for the end alone looks only every 50 ms.
    subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                   timeout=_COMMAND_SECONDS, env={**os.environ, **environment}, cwd=folder)
    return round((time.monotonic() - begin) * 1000)


def _times(namesrv: str, broker: str, found: Findings, folder: str, *, both: bool) -> None:
    """Time the commands that only look, a process each.

    :param folder: where they run: consumerStatus leaves a folder there.
    :param both: mqadmin's too.
    """
    home = CACHE / "home"
    java = java_command(home, [class_path("5.3.3")], "1g", short_lived=False)
    with state(namesrv, broker) as values:
        for step in STEPS:
            if step.changes or not step.admin:
                continue
            words = [*step.line(values).split(), "-n", namesrv]
            if both:
                found.mqadmin_ms[step.text] = _milliseconds(
                    [*java, MQADMIN_MAIN, *words], {"ROCKETMQ_HOME": str(home)}, folder)
            found.admin_ms[step.text] = _milliseconds(
                [sys.executable, "-c", MAIN, "admin", *words], {}, folder)


def _find(
    name: str, run: Callable[[Path], AbstractContextManager[tuple[str, str]]], version: str, *,
    timed: bool,
) -> Findings:
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as folder, \
            run(Path(folder)) as (namesrv, broker):
        print(f"{name}: mqadmin", file=sys.stderr)
        texts = mqadmin_sweep(namesrv, broker, version)
        if version != _VERSION:
            return Findings(texts, {})
        print(f"{name}: twistmq admin", file=sys.stderr)
        found = Findings(texts, admin_sweep(namesrv, broker))
        if timed:
            print(f"{name}: times", file=sys.stderr)
            _times(namesrv, broker, found, folder, both=run is apache_servers)
    return found


def verdict(
    step: Step, apache: str, ours: str, version: str = _VERSION
) -> tuple[str, list[str]]:
    """Return the result of a step, and the lines that differ without a known reason."""
    lines = differences(apache, ours)
    if not lines:
        return "same", []
    reason = step.reason or REASONS.get(version, {}).get(step.text, "")
    return (reason, []) if reason else ("DIFFERENT", lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", action="store_true", help="time each command that only looks")
    parser.add_argument("--version", default=_VERSION, choices=[_VERSION, *REASONS],
                        help="mqadmin's release")
    arguments = parser.parse_args()
    version: str = arguments.version
    apache = _find("Apache's", apache_servers, version, timed=arguments.times)
    ours = _find("ours", our_servers, version, timed=arguments.times)
    rows, wrong = [], []
    for step in steps_of(version):
        said, lines = verdict(step, apache.mqadmin[step.text], ours.mqadmin[step.text], version)
        wrong += [f"mqadmin {step.text}", *lines] if lines else []
        by_us = "-"
        if step.admin and version == _VERSION:
            by_us, lines = verdict(step, apache.admin[step.text], ours.admin[step.text])
            wrong += [f"twistmq admin {step.text}", *lines] if lines else []
        rows.append([step.text, said, by_us if by_us != said or by_us == "same" else "as mqadmin",
                     apache.mqadmin_ms.get(step.text), apache.admin_ms.get(step.text),
                     ours.admin_ms.get(step.text)])
    heads = ["command", "mqadmin, both brokers", "twistmq admin, both brokers", "mqadmin ms",
             "admin ms, Apache's", "admin ms, ours"]
    heads = heads[:2 if version != _VERSION else 6 if arguments.times else 3]
    print(tabulate([row[:len(heads)] for row in rows], heads))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
