"""The servers that benchmarks start: `twistmq up` of an installation, Apache's from their jars."""

from __future__ import annotations

import argparse
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

PEER = Path(__file__).resolve().parents[1] / "interop" / "peer.py"
#: Request codes that every broker and name server answers.
CLUSTER_INFO, BROKER_CONFIG = 106, 26
Values = dict[str, float]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The options of a script that starts `twistmq`, so far the one that says which.

    It is the installation of this Python by default, else the first of the path.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(sys.executable).with_name("twistmq")
    found = str(beside) if beside.exists() else shutil.which("twistmq")
    parser.add_argument("--twistmq", default=found, required=found is None)
    return parser


class Twistmq:
    """`twistmq up` of one installation."""

    def __init__(self, name: str, program: str, folder: Path, port: int) -> None:
        self.name, self.program, self.port = name, program, port
        self.folder = folder
        self.values: Values = {}
        self.bad = 0

    def start(self, *settings: str, accounts: str = "") -> None:
        """:param accounts: the text of plain_acl.yml."""
        data = self.folder / f"data-{len(settings)}"
        write_accounts(data, accounts)
        tls = tls_of(settings)
        begin = time.monotonic()
        with open(self.folder / "out", "ab") as out:
            self.process = subprocess.Popen(
                [self.program, "up", "--data", str(data), "--namesrv-port", str(self.port),
                 "--broker-port", str(self.port + 5), *settings], stdout=out, stderr=out)
        ask_until_answered(self.port, CLUSTER_INFO, tls=tls)
        ask_until_answered(self.port + 5, BROKER_CONFIG, tls=tls)
        self.values.setdefault("start", time.monotonic() - begin)
        self.pids = [self.process.pid]
        self.endpoint = f"{self.name}=127.0.0.1:{self.port + 5}:{self.process.pid}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
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
        self.home = self.folder / f"peer-{len(settings)}"
        write_accounts(self.home, accounts)
        # What is TLS's is a system property there; its name server goes on without.
        options = [text for pair in settings for text in (
            "--broker-property" if pair.startswith("tls.") else "--set", pair)]
        begin = time.monotonic()
        said = subprocess.run(
            [sys.executable, PEER, "--version", self.version, "start", self.home, "--namesrv",
             str(self.port), "--broker", str(self.port + 5), *options],
            check=True, capture_output=True, text=True).stdout
        ask_until_answered(self.port, CLUSTER_INFO)
        ask_until_answered(self.port + 5, BROKER_CONFIG, tls=tls_of(settings))
        self.values.setdefault("start", time.monotonic() - begin)
        pid = int(re.findall(r"broker pid (\d+)", said)[0])
        self.pids = [pid, int((self.home / "namesrv.pid").read_text())]
        self.endpoint = f"{self.name}=127.0.0.1:{self.port + 5}:{pid}"

    def stop(self) -> None:
        subprocess.run([sys.executable, PEER, "stop", self.home], check=True)


Server = Twistmq | Apache


def tls_of(settings: Sequence[str]) -> ssl.SSLContext | None:
    """What a broker with these settings is spoken to by; None: without TLS."""
    return wire_bench.tls_context() if "tls.server.mode=enforcing" in settings else None


def write_accounts(home: Path, accounts: str) -> None:
    """Put accounts where either broker reads them below its home."""
    if accounts:
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(accounts)


def ask_until_answered(
    port: int, code: int, seconds: float = 60, tls: ssl.SSLContext | None = None
) -> None:
    """Wait until a server answers a request, whatever it answers."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            plain = socket.create_connection(("127.0.0.1", port), 5)
            with plain if tls is None else tls.wrap_socket(plain) as link:
                link.sendall(wire_bench.frame(code, 1, {}, b"", False))
                if link.recv(4):
                    return
        except OSError:
            time.sleep(0.005)
    raise SystemExit(f"nothing answers on port {port} after {seconds} s")


def anonymous_mb(pids: Sequence[int]) -> float:
    """RssAnon of processes: mapped pages are the kernel's."""
    kilobytes = [int(re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])
                 for pid in pids]
    return sum(kilobytes) / 1024
