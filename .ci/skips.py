"""Which skipped tests a run may have: python .ci/skips.py LOG [--without EXTRA]...

LOG is what pytest printed with -rs. A test may be skipped when this machine lacks a program, when
the system grants no privilege, and for an extra that the run does without. Every other skip is of
something that a machine of CI must have: it is named, and the exit status is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import which
from typing import Final

#: Programs that a machine may lack, and what tests say then. Where one is, no test may say so.
PROGRAMS: Final = {
    "java": r"no java on this machine|Spark needs Java, and there is no java",
    "javac": r"no javac on this machine",
    "mvn": r"no mvn to fetch the jars of Apache RocketMQ with",
    "go": r"no go on this machine",
    "prometheus": r"prometheus and promtool are not installed",
    "promtool": r"prometheus and promtool are not installed",
    "hadolint": r"hadolint is not installed",
    "chromium": r"chromium is not installed",
    "chromedriver": r"chromedriver is not installed",
    "systemd-analyze": r"systemd-analyze is not installed",
    "helm": r"helm is not installed",
    "docker-compose": r"docker-compose is not installed",
}
#: The system may not grant these, or the client is not made for this machine.
ALWAYS: Final = (
    r"a file system cannot be mounted: .*",
    r"root may write anywhere, and mount says: .*",
    r"nothing is forbidden to this user",
    # The step without a compiler runs these.
    r"compiled names cannot be replaced",
    r"rocketmq==\S+ has a wheel for x86-64 Linux only",
)
#: No run of CI has these extras.
EXTRAS: Final = ("browser", "delta", "iceberg", "kubernetes")

_SKIPPED: Final = re.compile(r"SKIPPED \[(\d+)\] (\S+?): (.*)")
#: In pytest's closing line.
_COUNT: Final = re.compile(r"^.*\b(\d+) skipped\b.* in [\d.]+s\b", re.MULTILINE)
_RAISED: Final = re.compile(r"(?:[\w.]*SkipTest|Skipped): ")


def faults(
    log: str, without: Sequence[str] = (), find: Callable[[str], str | None] = which
) -> list[str]:
    """The skips of a log that may not be, a line each.

    :param without: the extras that the run does without.
    :param find: where a program is; None: it is not there.
    """
    allowed = [*ALWAYS, *(reason for program, reason in PROGRAMS.items() if find(program) is None),
               *(rf"the extra {extra} is not installed.*" for extra in (*EXTRAS, *without))]
    found = []
    named = _SKIPPED.findall(log)
    counts = _COUNT.findall(log)
    if sum(int(count) for count, _, _ in named) != (int(counts[-1]) if counts else 0):
        found.append("pytest counts other skips than it names: was it run with -rs?")
    for count, place, reason in named:
        reason = _RAISED.sub("", reason).strip()
        if not any(re.fullmatch(each, reason) for each in allowed):
            found.append(f"{place}: {count} skipped, but CI must have it: {reason}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the faults; :returns: the exit status."""
    log, *options = arguments
    without = [name for name in options if name != "--without"]
    found = faults(Path(log).read_text(errors="replace"), without)
    print("\n".join(found) or "no test was skipped that must run")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
