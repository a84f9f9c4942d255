# ^The client compared with Apache's Java client and client-go, at one broker, in turn.
"""The client beside Apache's Java client and client-go, at one broker, in turn, in one run.

  client_bench.py [--twistmq .venv/bin/twistmq] [--apache 5.3.3] [--seconds 5] [--rounds 3]
                  [--messages 200000] [--only async,batch16,...] [--without java,go]
                  [--before PYTHON]

Starts the broker of the installation, or Apache's of a release, fills a topic of 4 queues, and runs
each load of each client in a process of its own, which is warmed up (warm_up.py) and then measured:
bodies of 128 bytes, medians of the rounds. A consumer reads the same messages again and again for
the time of a round. CPU counts all threads of the client's process. The loads are 1,024 messages
under way (``async``), 8,192 that the client batches (``auto``; client-go cannot), 64 batches of 16
or 32 under way, one and 64 threads that wait (``sync1``, ``sync64``), 64 tasks of asyncio
(``tasks``; beside Java's threads), and push consumers with 20 workers, a call for 32 messages or
for each (``consume_batch``, ``consume_one``). ``--before`` adds our client of another commit: the
Python that it is installed for. The benchmark prints a Markdown table with the bounds. A busy
machine says little of the rates, more of the CPU. The exit status is 1 when a send failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_servers import Apache, Server, Twistmq, parser_of
from load_process import LoadProcess, Values, medians_in_turn

from tests.interop.clients import client_home, go_program, java_classes
from tests.interop.peer import class_path, java_command

HERE = Path(__file__).resolve().parent
PORT_FIRST = 32_700
#: By load: its text, the bound on CPU a message (us), and on the rate beside Java's.
LOADS: dict[str, tuple[str, float | None, float | None]] = {
    "async": ("1,024 sends under way", 15, 0.6),
    "auto": ("8,192 sends, batched by the client", 4, None),
    "batch16": ("64 batches of 16 under way", 3, 0.8),
    "batch32": ("64 batches of 32 under way", 3, 0.8),
    "sync1": ("one thread that waits", None, None),
    "sync64": ("64 threads that wait", None, 0.5),
    "tasks": ("64 tasks of asyncio that wait", None, 0.8),
    "consume_batch": ("push, 32 messages a call, 20 workers", 6, 1.0),
    "consume_one": ("push, one message a call, 20 workers", 12, 0.6),
}
#: Given the load.
Command = Callable[[str], list[str | Path]]


def clients(
    program: Path, namesrv: str, home: Path, without: Sequence[str], messages: int,
    before: Path | None,
) -> dict[str, Command]:
    """Return how each client's load is started, by the client's name."""
    def of_python(python: Path) -> Command:
        return lambda load: [python, HERE / "client_loads.py", load, namesrv, topic_of(load),
                             "--messages", str(messages)]

    found = {"twistmq": of_python(program.with_name("python"))}
    if before:
        found["before"] = of_python(before)
    if "java" not in without:
        classes = java_classes("5.3.3", HERE / "client_java", "ClientLoad")
        java = java_command(home, [str(classes), class_path("5.3.3")], "1g", short_lived=False)
        found["java"] = lambda load: [
            *java, "ClientLoad", as_java(load), namesrv, topic_of(load), str(messages)]
    if "go" not in without:
        go = go_program("client_go", HERE)
        found["go"] = lambda load: [go, as_java(load), namesrv, topic_of(load), str(messages)]
    return found


def topic_of(load: str) -> str:
    """Return the topic of a load; consumers read topics to which nothing is added meanwhile."""
    return "ClientBenchFull" if load.startswith(("consume", "poll")) else "ClientBench"


def as_java(load: str) -> str:
    """Return the load of Java and Go with which one of ours is compared."""
    return "sync64" if load == "tasks" else load


def fill(program: Path, namesrv: str, messages: int) -> None:
    """Send the messages that the consumers read."""
    subprocess.run(
        [program.with_name("python"), "-c",
         "import sys\n"
         "from twistmq.client import Message, Producer\n"
         "where, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
         "with Producer(where, in_flight_max=64) as producer:\n"
         "    for _ in range(count // 50 + 1):\n"
         "        producer.send_batch_soon([Message(topic, b'x' * 128) for _ in range(50)])\n",
         namesrv, topic_of("consume"), str(messages)], check=True, timeout=300)


def cpu_of(values: Values) -> str:
    """The median of CPU a message, us, and the spread of the rounds."""
    return f"{values['cpu']:.1f} ({values['cpu lowest']:.1f}..{values['cpu highest']:.1f})"


def table(results: dict[str, dict[str, Values]], names: Sequence[str]) -> None:
    """Print the Markdown table."""
    others = [name for name in names if name != "twistmq"]
    heads = ["load", "twistmq, msg/s", *[f"to {name}" for name in others], "bound, to java",
             "twistmq, us", *[f"{name}, us" for name in others], "bound, us"]
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " --- |" * (len(heads) - 1))
    for load, found in results.items():
        text, cpu_bound, rate_bound = LOADS[load]
        ours = found["twistmq"]
        if ours["p50"]:
            text += f" (p50 {ours['p50']:.0f} us" + "".join(
                f", {name} {found[name]['p50']:.0f}" for name in others
                if found.get(name, {}).get("p50")) + ")"
        cells = [text, f"{ours['rate']:,.0f}",
                 *[f"{ours['rate'] / found[name]['rate']:.2f}x" if name in found else ""
                   for name in others],
                 "" if rate_bound is None else f"{rate_bound}", cpu_of(ours),
                 *[cpu_of(found[name]) if name in found else "" for name in others],
                 "" if cpu_bound is None else f"{cpu_bound}"]
        print("| " + " | ".join(cells) + " |")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--apache", metavar="VERSION", help="its broker, instead of ours")
    parser.add_argument("--seconds", type=float, default=5, help="of each round of sends")
    parser.add_argument("--messages", type=int, default=200_000, help="that are consumed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=PORT_FIRST)
    parser.add_argument("--only", default=",".join(LOADS), help="these loads")
    parser.add_argument("--without", default="", help="these clients: java, go")
    parser.add_argument("--before", type=Path, metavar="PYTHON",
                        help="our client of another commit")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="client-bench-")))
        server: Server = (Apache(folder, arguments.port, arguments.apache) if arguments.apache else
                          Twistmq("twistmq", arguments.twistmq, folder, arguments.port))
        home = stack.enter_context(client_home())
        server.start("brokerFastFailureEnable=false", "osPageCacheBusyTimeOutMills=60000")
        stack.callback(server.stop)
        return measure(arguments, home)


def measure(arguments: argparse.Namespace, home: Path) -> int:
    """Run all loads and print the table; :returns: the exit status."""
    loads = re.split(r",\s*", arguments.only)
    program = Path(arguments.twistmq)
    namesrv = f"127.0.0.1:{arguments.port}"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    print(f"{version.stdout.strip()}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"broker {arguments.apache or 'twistmq'}", flush=True)
    starts = clients(program, namesrv, home, arguments.without.split(","), arguments.messages,
                     arguments.before)
    results: dict[str, dict[str, Values]] = {}
    failed = 0.0
    for load in loads:
        if load.startswith("consume") and not any(
                each.startswith("consume") for each in results):
            # The newest messages: a broker that finds gigabytes behind a message takes it for one
            # on disk, and answers a pull with 8 (maxTransferCountOnMessageInDisk).
            fill(program, namesrv, arguments.messages)
        with contextlib.ExitStack() as stack:
            running = {name: stack.enter_context(LoadProcess(start(load), home))
                       for name, start in starts.items() if (name, load) != ("go", "auto")}
            results[load] = medians_in_turn(load, running, arguments.rounds, arguments.seconds)
        failed += sum(values["failed"] for values in results[load].values())
        print(load, json.dumps(results[load]), flush=True)
    table(results, list(starts))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
