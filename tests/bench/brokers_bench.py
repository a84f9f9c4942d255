# ^Several brokers of one command and one broker of Apache's, on the same cores, in one run.
"""Several brokers of one command beside one broker of Apache's, on the same cores, in one run.

  brokers_bench.py [--twistmq .venv/bin/twistmq] [--brokers 2] [--apache 5.3.3] [--seconds 8]
                   [--rounds 5]

Starts `twistmq up --brokers N` and Apache's name server and broker with the same settings, sends to
the brokers of each in turn over as many connections, and pulls what was sent; rounds alternate,
another first each time, once all are warm for that load (warm_up.py). CPU counts all processes
of a cluster. The program that loads them runs on the same cores: it takes its share of what they
could do. The exit status is 1 when a request was not answered with SUCCESS. Nothing else should run
on the machine meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_servers import Apache, Server, Twistmq, parser_of, print_ratios
from wire_loads import load

PORT_FIRST = 32_500
#: The text of a row, the key of its value, its format, the bound.
ROWS = (
    ("send, JSON headers, msg/s", "json rate", ",.0f", ">= 1.7x"),
    ("CPU of the brokers per sent message (JSON), us", "json cpu", ".2f", ""),
    ("send, binary headers, msg/s", "binary rate", ",.0f", ">= 1.7x"),
    ("CPU of the brokers per sent message (binary), us", "binary cpu", ".2f", ""),
    ("pull of 32, msg/s", "pull rate", ",.0f", ""),
    ("pull of 32, CPU of the brokers per message, us", "pull cpu", ".2f", ""),
)


def measure(servers: Sequence[Server], seconds: float, rounds: int) -> None:
    """Measure, and store the values of the servers."""
    load(servers, "json", "send", seconds, rounds, encoding="json")
    load(servers, "binary", "send", seconds, rounds)
    load(servers, "pull", "pull", seconds, rounds)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--apache", default="5.3.3", help="the release to compare with")
    parser.add_argument("--seconds", type=float, default=8, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    version = subprocess.run([arguments.twistmq, "--version"], text=True, capture_output=True,
                             check=True).stdout.strip()
    print(f"{version}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as text:
        servers: list[Server] = [
            Twistmq(f"twistmq, {arguments.brokers} brokers", arguments.twistmq, Path(text),
                    PORT_FIRST, arguments.brokers),
            Apache(Path(text), PORT_FIRST + 50 + 10 * arguments.brokers, arguments.apache)]
        running: list[Server] = []
        try:
            for server in servers:
                server.start()
                running.append(server)
            measure(servers, arguments.seconds, arguments.rounds)
        finally:
            for server in running:
                server.stop()
    print_ratios(ROWS, [server.name for server in servers], servers[0].values, servers[1].values)
    return 1 if any(server.bad for server in servers) else 0


if __name__ == "__main__":
    raise SystemExit(main())
