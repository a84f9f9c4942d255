"""The servers that benchmarks start: `twistmq up` of an installation, Apache's from its jars.

Both get the same settings, those of peer.py among them: no request is refused because the machine
is busy, and messages may be filtered and traced. Apache's broker has a heap of 1 GiB and writes no
log; ours writes its log.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import wire_bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
from peer import PATIENT, Peer

#: Request codes that every broker and name server answers.
CLUSTER_INFO, BROKER_CONFIG = 106, 26
Values = dict[str, float]
#: The settings that Peer gives Apache's broker; ours gets the same.
SAME = ("enablePropertyFilter=true", "traceTopicEnable=true",
        *[f"{name}={value}" for name, value in PATIENT.items()])
#: How long a server may take to start: one with 80,000 topics, on a machine in a slow hour.
START_SECONDS = 300
#: Between the ports of the brokers of one command.
PORT_STEP = 10


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script that starts `twistmq`, with the option for its path.

    It is the installation of this Python by default, else the first of the path.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(sys.executable).with_name("twistmq")
    found = str(beside) if beside.exists() else shutil.which("twistmq")
    parser.add_argument("--twistmq", type=program, default=found, required=found is None)
    return parser


def program(name: str) -> str:
    """The absolute path of a program, because some benchmarks run in a folder of their own."""
    return os.path.abspath(shutil.which(name) or name)


class Twistmq:
    """`twistmq up` of one installation.

    :param brokers: so many processes are the broker; ports that follow in steps of ten are theirs.
    """

    def __init__(
        self, name: str, program: str, folder: Path, port: int, brokers: int = 1
    ) -> None:
        self.name, self.program, self.port = name, program, port
        self.folder = folder
        self.brokers = brokers
        self.values: Values = {}
        self.bad = 0

    def start(self, *settings: str, accounts: str = "") -> None:
        """:param accounts: the text of plain_acl.yml."""
        data = self.folder / f"data-{len(settings)}"
        write_accounts(data, accounts)
        tls = tls_of(settings)
        ports = [self.port + 5 + PORT_STEP * number for number in range(self.brokers)]
        several = ("--brokers", str(self.brokers)) if self.brokers > 1 else ()
        begin = time.monotonic()
        with open(self.folder / "out", "ab") as out:
            self.process = subprocess.Popen(
                [self.program, "up", "--data", str(data), "--namesrv-port", str(self.port),
                 "--broker-port", str(ports[0]), *several, *SAME, *settings],
                stdout=out, stderr=out)
        try:
            for port in ports:
                wait_until_serving(self.port, port, tls, tls)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.values.setdefault("start", time.monotonic() - begin)
        self.pids = [self.process.pid, *children_of(self.process.pid)]
        joined = ["+".join(map(str, each)) for each in (ports, self.pids)]
        self.endpoint = f"{self.name}=127.0.0.1:{joined[0]}:{joined[1]}"

    def stop(self, seconds: float = 60) -> None:
        """:param seconds: the time-out of the stop."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(seconds):
            raise SystemExit(f"{self.name} ended with status {self.process.returncode}; "
                             f"see {self.folder}/out")


class Apache:
    """Apache's name server and broker of one release."""

    def __init__(self, folder: Path, port: int, version: str = "5.3.3") -> None:
        self.name, self.folder, self.port = "Apache", folder, port
        self.version = version
        self.values: Values = {}
        self.bad = 0

    def start(self, *settings: str, accounts: str = "") -> None:
        """:param accounts: the text of plain_acl.yml."""
        home = self.folder / f"peer-{len(settings)}"
        write_accounts(home, accounts)
        # What is TLS's is a system property there; its name server goes on without.
        pairs = [text.split("=", 1) for text in settings]
        self.peer = Peer(
            home, self.version, self.port, self.port + 5, short_lived=False,
            settings={name: value for name, value in pairs if not name.startswith("tls.")},
            broker_properties={name: value for name, value in pairs if name.startswith("tls.")})
        begin = time.monotonic()
        self.peer.start_namesrv()
        self.peer.start_broker()
        # Its name server has no TLS.
        wait_until_serving(self.port, self.port + 5, None, tls_of(settings))
        self.values.setdefault("start", time.monotonic() - begin)
        pid = self.peer.processes["broker"].pid
        self.pids = [pid, self.peer.processes["namesrv"].pid]
        self.endpoint = f"{self.name}=127.0.0.1:{self.port + 5}:{pid}"

    def stop(self) -> None:
        self.peer.stop()


Server = Twistmq | Apache


def tls_of(settings: Sequence[str]) -> ssl.SSLContext | None:
    """Return the TLS context for a broker with these settings; None: without TLS."""
    return wire_bench.tls_context() if "tls.server.mode=enforcing" in settings else None


def write_accounts(home: Path, accounts: str) -> None:
    """Put accounts where either broker reads them below its home."""
    if accounts:
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(accounts)


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that run still."""
    return [int(text) for text in
            Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_serving(
    namesrv_port: int, port: int, namesrv_tls: ssl.SSLContext | None, tls: ssl.SSLContext | None
) -> None:
    """Wait until name server and broker answer, and the name server knows the broker."""
    ask(port, BROKER_CONFIG, tls)
    known = f':{port}"'.encode()
    deadline = time.monotonic() + START_SECONDS
    while known not in ask(namesrv_port, CLUSTER_INFO, namesrv_tls):
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker at {port} is not registered after {START_SECONDS} s")
        time.sleep(0.005)


def ask(port: int, code: int, tls: ssl.SSLContext | None = None) -> bytes:
    """Ask until a server answers, whatever it answers; :returns: header and body."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            plain = socket.create_connection(("127.0.0.1", port), 5)
            with plain if tls is None else tls.wrap_socket(plain) as link:
                link.sendall(wire_bench.frame(code, 1, {}, b"", False))
                with link.makefile("rb") as replies:
                    size = replies.read(4)
                    if size:
                        return replies.read(int.from_bytes(size, "big"))
        except OSError:
            time.sleep(0.005)
    raise SystemExit(f"nothing answers on port {port} after {START_SECONDS} s")


def print_ratios(
    rows: Sequence[tuple[str, str, str, str]], names: Sequence[str], ours: Values, theirs: Values
) -> None:
    """A Markdown table of both values and their ratio.

    :param rows: the text of a row, the key of its value, its format, the bound.
    """
    print(f"\n| | {' | '.join(names)} | twistmq/Apache | bound |\n| --- | --- | --- | --- | --- |")
    for text, key, form, bound in rows:
        if key in ours:
            print(f"| {text} | {ours[key]:{form}} | {theirs[key]:{form}} "
                  f"| {ours[key] / theirs[key]:.2f}x | {bound} |")


def anonymous_mb(pids: Sequence[int]) -> float:
    """RssAnon of processes: mapped pages are the kernel's."""
    kilobytes = [int(re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])
                 for pid in pids]
    return sum(kilobytes) / 1024
