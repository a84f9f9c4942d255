"""Measure what five browsers on the overview cost a broker in the same process.

    python -m tests.long.console_hot_path [--rounds 8] [--seconds 10] [--browsers 5]
        [--python ELSEWHERE/bin/python]

``twistmq up --console`` is loaded with sends by ``tests/bench/wire_bench.py``. In every second
round, browsers refresh the overview every five seconds, at the moments at which the script of a
page does. The result is the ratio of the CPU time for a message with browsers to that without, as
the median over pairs of rounds. Only a quiet machine decides.
"""

from __future__ import annotations

import argparse
import importlib
import os
import secrets
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.console.case import Browser
from tests.interop.servers import Servers, free_port, wait_until

#: As in the script of the console, seconds.
REFRESH_S: Final = 5.0
PATIENCE_S: Final = 60.0
LOAD: Final = argparse.Namespace(connections=4, window=64, size=128, encoding="rocketmq",
                                 topic="WireBench", queues=4, batch=32)


class Visitors:
    """Browsers that refresh the overview while they are awake."""

    def __init__(self, port: int, token: str, count: int) -> None:
        self._is_awake = threading.Event()
        self.answered = 0
        self.failed = 0
        for _ in range(count):
            browser = Browser(port)
            browser.get(f"/login?token={token}")
            threading.Thread(target=self._refresh, args=(browser,), daemon=True).start()

    def _refresh(self, browser: Browser) -> None:
        while True:
            self._is_awake.wait()
            time.sleep(REFRESH_S - time.time() % REFRESH_S)
            if self._is_awake.is_set():
                answer = browser.get("/", **{"HX-Request": "true"})
                if answer.status == 200 and 'id="live"' in answer.text:
                    self.answered += 1
                else:
                    self.failed += 1

    def during(self, seconds: float, awake: bool, endpoint: Any, wire_bench: Any) -> float:
        """Send for some seconds; :returns: the CPU time for a message, microseconds."""
        (self._is_awake.set if awake else self._is_awake.clear)()
        _, cpu_us, bad, first_bad = wire_bench.send_round(endpoint, LOAD, seconds)
        self._is_awake.clear()
        assert not bad, first_bad
        return float(cpu_us)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--browsers", type=int, default=5)
    parser.add_argument("--ratio", type=float, default=1.02)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
    wire_bench: Any = importlib.import_module("wire_bench")
    token, port = secrets.token_urlsafe(24), free_port()
    os.environ["TWISTMQ_CONSOLE_TOKEN"] = token
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder), "--console", "--console-port", str(port),
                          "brokerIP1=127.0.0.1")
        servers.python = options.python
        servers.start()
        try:
            wait_until("the console answers", lambda: Browser(port).get("/login").status == 200,
                       PATIENCE_S)
            endpoint = wire_bench.Endpoint(f"up=127.0.0.1:{servers.broker_port}:{servers.pid}")
            visitors = Visitors(port, token, options.browsers)
            for awake in (False, True):
                visitors.during(options.seconds, awake, endpoint, wire_bench)  # to warm up
            ratios = []
            for at in range(options.rounds):
                # The first of a pair is with browsers and without them in turn.
                costs = {awake: visitors.during(options.seconds, awake, endpoint, wire_bench)
                         for awake in ((False, True) if at % 2 else (True, False))}
                ratios.append(costs[True] / costs[False])
                print(f"alone {costs[False]:.2f} us, with browsers {costs[True]:.2f} us a message, "
                      f"ratio {ratios[-1]:.3f}", flush=True)
        finally:
            servers.stop()
    print(f"median ratio {median(ratios):.3f}; {visitors.answered} refreshes, "
          f"{visitors.failed} without an answer")
    return 1 if visitors.failed or median(ratios) > options.ratio else 0


if __name__ == "__main__":
    sys.exit(main())
