# ^The time in which a broker opens the store of a killed one: ours and Apache's.
"""How long a broker takes to open what a killed one left: ours beside Apache's.

  crash_bench.py [--twistmq .venv/bin/twistmq] [--gigabytes 2] [--rest 0] [--rounds 3] [--keep DIR]

Fills a store over the wire with messages of 1 KiB, each with a tag and two keys, files of default
sizes; lets it rest for so many seconds; kills the broker. Then copies of that store are opened by
`twistmq broker` and by Apache's broker (tests/interop/peer.py: needs java and mvn) in turn, another
first each round, all files of the copy read once before. The times are seconds from the start of
the process to its first answer to a request, and until each queue says that it has all messages.
Without a rest the checkpoint is as old as the store, and all of it is read again; after a minute
the last files are. Nothing else should run on the machine meanwhile. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import wire_bench
from bench_servers import parser_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
from peer import Peer

TOPIC, QUEUES, BODY_SIZE = "CrashBench", 4, 1024
#: Request codes.
GET_BROKER_CONFIG, GET_MAX_OFFSET = 26, 30
#: Seconds of each burst of sends.
BURST_SECONDS = 2.0
START_SECONDS = 300.0
READ_SIZE = 1 << 20


def ask(port: int, code: int, fields: dict[str, str]) -> dict:
    """Ask a broker; :returns: the reply's header."""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(wire_bench.frame(code, 1, fields, b"", False))
        with link.makefile("rb") as replies:
            head = replies.read(4)
            if len(head) < 4:
                raise ConnectionResetError("no answer")
            data = bytearray(head + replies.read(struct.unpack(">i", head)[0]))
    header = wire_bench.decode(data, 0)[2]
    assert header is not None
    return header


def queue_ends(port: int) -> list[int]:
    """Return the queues' maximum offsets; 0 while the broker does not know them."""
    replies = [ask(port, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)})
               for queue in range(QUEUES)]
    return [int(reply.get("extFields", {}).get("offset", 0)) for reply in replies]


def seconds_until(broker: Twistmq | Apache, begin: float, condition: Callable[[], bool]) -> float:
    """Wait for a condition, which may fail to connect; :returns: seconds since ``begin``."""
    while time.monotonic() < begin + START_SECONDS and broker.runs():
        with contextlib.suppress(OSError):
            if condition():
                return time.monotonic() - begin
        time.sleep(0.01)
    raise SystemExit(f"{broker.name} does not open the store; see {broker.home}")


def read_files(folder: Path) -> None:
    """Read all files of a folder into the page cache."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb", buffering=0) as file, contextlib.suppress(OSError):
                position = 0
                while True:
                    # Holes need no reading, and end with ENXIO.
                    position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                    position += len(file.read(READ_SIZE))


class Twistmq:
    """Our broker alone."""

    def __init__(self, program: str, home: Path, port: int, namesrv: str) -> None:
        self.name, self.home, self.port = "twistmq", home, port
        self._command = [
            program, "broker", "-n", namesrv, f"storePathRootDir={home}/store",
            f"listenPort={port}", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1",
            "brokerName=broker-peer"]

    def start(self) -> None:
        with open(self.home / "out", "ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._process.pid

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class Apache:
    """Apache's broker alone."""

    def __init__(self, home: Path, port: int, namesrv: str) -> None:
        self.name, self.home, self.port = "Apache", home, port
        self._peer = Peer(home, broker_port=port, with_namesrv=False, namesrv_address=namesrv,
                          short_lived=False)
        for name in ("namesrv", "broker"):
            (home / "conf").mkdir(parents=True, exist_ok=True)
            (home / "conf" / f"logback_{name}.xml").write_text("<configuration/>")

    def start(self) -> None:
        # It waits until the port is open, and looks less often than the clock here.
        self._starting = threading.Thread(target=self._peer.start_broker)
        self._starting.start()

    def runs(self) -> bool:
        process = self._peer.processes.get("broker")
        return self._starting.is_alive() or (process is not None and process.poll() is None)

    def kill(self) -> None:
        self._starting.join()
        self._peer.stop_one("broker", kill=True)


def fill(broker: Twistmq, size: int) -> list[int]:
    """Send until the log has so many bytes; :returns: where each queue ends."""
    endpoint = wire_bench.Endpoint(f"fill=127.0.0.1:{broker.port}:{broker.pid}")
    arguments = argparse.Namespace(connections=4, window=64, size=BODY_SIZE, encoding="rocketmq",
                                   topic=TOPIC, queues=QUEUES)
    log = broker.home / "store" / "commitlog"
    while sum(path.stat().st_blocks * 512 for path in log.iterdir()) < size:
        _, _, bad, first_bad = wire_bench.send_round(endpoint, arguments, BURST_SECONDS)
        if bad:
            raise SystemExit(f"{bad} sends failed: {first_bad}")
    return queue_ends(broker.port)


def open_copy(broker: Twistmq | Apache, crashed: Path, ends: list[int]) -> tuple[float, float]:
    """Time how a broker opens a copy of the store; :returns: seconds (first answer, all there)."""
    store = broker.home / "store"
    subprocess.run(["cp", "-r", "--sparse=always", crashed, store], check=True)
    os.sync()
    read_files(store)
    begin = time.monotonic()
    broker.start()
    try:
        answer = seconds_until(broker, begin, lambda: bool(
            ask(broker.port, GET_BROKER_CONFIG, {})))
        complete = seconds_until(broker, begin, lambda: queue_ends(broker.port) == ends)
    finally:
        broker.kill()
        shutil.rmtree(store)
    return answer, complete


@contextlib.contextmanager
def name_server(folder: Path, port: int) -> Iterator[str]:
    """Start Apache's name server, for both."""
    peer = Peer(folder / "namesrv", namesrv_port=port, short_lived=False)
    peer.home.mkdir()
    (peer.home / "conf").mkdir()
    (peer.home / "conf" / "logback_namesrv.xml").write_text("<configuration/>")
    peer.start_namesrv()
    try:
        yield peer.namesrv_address
    finally:
        peer.stop_one("namesrv")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rest", type=float, default=0, help="seconds from fill to kill")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=32_500)
    parser.add_argument("--keep", type=Path,
                        help="a folder for the killed broker's store; one that is there is opened")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-crash-")))
        namesrv = stack.enter_context(name_server(folder, args.port))
        kept = args.keep or folder / "kept"
        if not (kept / "store").exists():
            make_crashed(args, kept, namesrv)
        ends = [int(text) for text in (kept / "ends").read_text().split()]
        homes = [folder / name for name in ("twistmq", "apache")]
        for home in homes:
            home.mkdir()
        brokers = [Twistmq(args.twistmq, homes[0], args.port + 20, namesrv),
                   Apache(homes[1], args.port + 40, namesrv)]
        print(f"{sum(ends):,} messages, {os.cpu_count()} cores", flush=True)
        compare(brokers, kept / "store", ends, args.rounds)


def make_crashed(args: argparse.Namespace, kept: Path, namesrv: str) -> None:
    """Fill a store and kill its broker."""
    kept.mkdir(parents=True, exist_ok=True)
    broker = Twistmq(args.twistmq, kept, args.port + 20, namesrv)
    broker.start()
    try:
        seconds_until(broker, time.monotonic(), lambda: bool(
            ask(broker.port, GET_BROKER_CONFIG, {})))
        ends = fill(broker, int(args.gigabytes * (1 << 30)))
        time.sleep(args.rest)
    finally:
        broker.kill()
    (kept / "ends").write_text(" ".join(map(str, ends)))


def compare(
    brokers: list[Twistmq | Apache], crashed: Path, ends: list[int], rounds: int
) -> None:
    """Let the brokers open copies in turn, and print a table."""
    times: dict[str, list[tuple[float, float]]] = {broker.name: [] for broker in brokers}
    for number in range(rounds):
        for broker in brokers[::-1] if number % 2 else brokers:
            times[broker.name].append(open_copy(broker, crashed, ends))
            answer, complete = times[broker.name][-1]
            print(f"{broker.name:<8} {answer:7.2f} s to the first answer, {complete:7.2f} s until "
                  "all is there", flush=True)
    print(f"\n| median of {rounds}, s | {' | '.join(times)} | ratio |")
    print("| --- | --- | --- | --- |")
    for column, text in enumerate(("first answer", "all messages in their queues")):
        ours, theirs = (statistics.median(each[column] for each in found)
                        for found in times.values())
        print(f"| {text} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f}x |")


if __name__ == "__main__":
    main()
