# ^The processor time of a broker by module, for this commit and an earlier one.
"""Where a broker's processor time goes, by module: ours, and ours of an earlier commit.

  profile_bench.py [binary] [json] [pull] [guarded]     all when none is named
      [--twistmq .venv/bin/twistmq] [--before OTHER/bin/twistmq] [--seconds 8] [--top 20]
      [--page FILE]

Loads the brokers one after the other, while `perf` notes a thousand times a second which function
runs, and prints for each load the modules with the largest shares, and what they are of the CPU a
message that the same seconds cost. A compiled module is told by the names of its functions. Work
that a module leaves to the interpreter, to a library or to the kernel is counted there: objects
that it makes are the interpreter's. `--page` writes the tables to a file instead. Needs perf, and
compiled installations. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import feature_loads
from bench_servers import Twistmq, parser_of
from feature_loads import ACCOUNTS, GUARDED, KEYS, MATCHES_ALL
from results_page import build_of, machine
from wire_loads import load

PORT_FIRST = 32_700
#: Samples a second.
FREQUENCY = 997
TOPIC = "FeatureBench"
LOADS = {"binary": "sends with binary headers", "json": "sends with JSON headers",
         "pull": "pulls of 32 messages",
         "guarded": "signed sends with binary headers, SQL92 bitmaps and traces"}
#: A function of a compiled module: "CPyDef_frames___FrameReader___take".
_COMPILED = re.compile(r"CPy(?:Def|Py)_(\w+?)___")
#: The names that the samples of other objects go under, by what is in the object's name.
_OTHERS = (("kernel", "the kernel"), ("_mypyc", "the runtime of compiled modules"),
           ("libpython", "the interpreter"), ("python3", "the interpreter"),
           ("vdso", "the clock"), ("libc", "the C library"), ("msgspec", "msgspec"),
           ("libcrypto", "OpenSSL"), ("libz", "zlib"))
Profile = tuple[float, Counter[str]]


def module_of(shared_object: str, symbol: str) -> str:
    """Return the module of a sample.

    :param shared_object: the file that has the function, as perf names it.
    """
    found = _COMPILED.match(symbol)
    if found is not None and "_mypyc" in shared_object:
        return found[1]
    for part, name in _OTHERS:
        if part in shared_object:
            return name
    return shared_object


def shares_of(printed: str) -> Counter[str]:
    """Samples by module, from lines of "count;shared object;symbol" that perf printed."""
    shares: Counter[str] = Counter()
    for line in printed.splitlines():
        count, separator, rest = line.strip().partition(";")
        shared_object, _, symbol = rest.partition(";")
        if separator and count.strip().isdecimal():
            name = re.sub(r"^\s*\[.\]\s*", "", symbol)
            shares[module_of(shared_object.strip(), name)] += int(count)
    return shares


@contextlib.contextmanager
def sampling(pids: Sequence[int], file: Path) -> Iterator[None]:
    """Let perf sample processes; they must do something meanwhile."""
    recorder = subprocess.Popen(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "-o", str(file), "-p",
         ",".join(map(str, pids))], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)


def profile(what: str, program: str, folder: Path, seconds: float) -> Profile:
    """Load a broker; :returns: CPU a message in us, and samples by module."""
    server = Twistmq("twistmq", program, folder, PORT_FIRST)
    file = folder / "perf.data"
    if what == "guarded":
        server.start(*GUARDED, "trace.server=true", accounts=ACCOUNTS)
    else:
        server.start("brokerFastFailureEnable=false")
    try:
        run = (_guarded if what == "guarded" else _plain)(what, server)
        run(seconds / 2)
        with sampling(server.pids, file):
            cost = run(seconds)
    finally:
        server.stop()
    printed = subprocess.run(
        ["perf", "report", "-q", "-i", str(file), "--stdio", "-g", "none", "-n", "-F",
         "sample,dso,sym", "-t", ";"], capture_output=True, text=True, check=True).stdout
    return cost, shares_of(printed)


def _plain(what: str, server: Twistmq) -> Callable[[float], float]:
    """A load of wire_bench; :returns: runs it for so many seconds, returns CPU a message in us."""
    if what == "pull":
        load([server], "fill", "send", 1, 3, warms=False)

    def run(seconds: float) -> float:
        load([server], what, "pull" if what == "pull" else "send", seconds, 1,
             warms=False, encoding="json" if what == "json" else "rocketmq")
        return server.values[f"{what} cpu"]

    return run


def _guarded(what: str, server: Twistmq) -> Callable[[float], float]:
    broker = feature_loads.Broker(server.endpoint, KEYS)
    broker.make_topic(TOPIC)
    feature_loads.need_keys(broker, TOPIC)
    feature_loads.subscribe(broker, TOPIC, "bench_group", MATCHES_ALL)

    def run(seconds: float) -> float:
        return feature_loads.guarded_sends(broker, TOPIC, seconds, 64, binary=True)["cpu"]

    return run


def table_of(profiles: dict[str, Profile], top: int) -> list[str]:
    """A Markdown table of the largest shares of the last installation, beside the others'."""
    names = list(profiles)
    costs = {name: {module: cost * count / shares.total() for module, count in shares.items()}
             for name, (cost, shares) in profiles.items()}
    last = costs[names[-1]]
    order = sorted({module for each in costs.values() for module in each},
                   key=lambda module: -max(each.get(module, 0.0) for each in costs.values()))
    shown = sorted(order[:top], key=lambda module: -last.get(module, 0.0))
    lines = ["| module | " + " | ".join(f"{name}, us | share" for name in names) + " |",
             "| --- |" + " --- |" * (2 * len(names))]
    rows = [("all", {name: profiles[name][0] for name in names})]
    rows += [(module, {name: costs[name].get(module, 0.0) for name in names}) for module in shown]
    for module, values in rows:
        cells = [f"{values[name]:.2f} | {100 * values[name] / profiles[name][0]:.1f} %"
                 for name in names]
        lines.append(f"| {module} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("loads", nargs="*", metavar="LOAD")
    parser.add_argument("--before", help="another installation of ours, of an earlier commit")
    parser.add_argument("--seconds", type=float, default=8, help="of each load")
    parser.add_argument("--top", type=int, default=20, help="modules that are shown")
    parser.add_argument("--page", type=Path, help="the file to write")
    arguments = parser.parse_args()
    if unknown := set(arguments.loads) - set(LOADS):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    programs = {"now": arguments.twistmq}
    if arguments.before:
        programs = {"before": arguments.before, **programs}
    lines = ["# Profiles", "", f"`profile_bench.py --seconds {arguments.seconds:g}`, "
             f"{date.today():%d %B %Y}, on {machine()}.", ""]
    lines += [f"- {name}: {build_of(program)}" for name, program in programs.items()]
    for what in arguments.loads or LOADS:
        profiles: dict[str, Profile] = {}
        for name, program in programs.items():
            with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as folder:
                profiles[name] = profile(what, program, Path(folder), arguments.seconds)
            time.sleep(2)
        title = LOADS[what][0].upper() + LOADS[what][1:]
        lines += ["", f"## {title}", "", *table_of(profiles, arguments.top)]
    text = "\n".join(lines) + "\n"
    if arguments.page:
        arguments.page.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
