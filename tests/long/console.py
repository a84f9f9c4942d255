"""Load the lists of the console for two brokers with many topics and groups, also with a hung one.

    python -m tests.long.console [--topics 2000] [--groups 2500] [--loads 15]
        [--list-seconds 0.3] [--hung-seconds 2.2] [--python ELSEWHERE/bin/python]

Each broker has all topics, with a message in each of their four queues, and the progress of each
group in one topic. The brokers and the console are processes of their own; --python names the
interpreter of an installation with compiled modules for them. Each list, the page of one topic and
that of one group are loaded as HTML and as JSON. Then one broker is stopped by SIGSTOP: the
connections to it stay open, and nothing is answered. Prints the median and the longest time of each
page; ends with status 1 when a median is longer than it may be, when a row is missing, or when a
page does not name the hung broker. Only a quiet machine decides about the times.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.console.case import Browser
from tests.interop.servers import MAIN, Servers, free_port, wait_until
from tests.tools.admin.case import call
from twistmq.console.page_session import PageSession
from twistmq.protocol.bodies import MessageQueue
from twistmq.tools.admin.offsets import commit_offset
from twistmq.tools.admin.send_commands import send_to_queue

PATIENCE_S = 60.0
QUEUES = 4
PAGES = ("/", "/topics", "/groups", "/brokers", "/topics/topic-00000", "/groups/group-00000")


@contextmanager
def process(
    python: str, *arguments: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ours during the block."""
    running = subprocess.Popen([python, "-c", MAIN, *arguments],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, **environment})
    try:
        yield running
    finally:
        running.send_signal(signal.SIGCONT)
        running.terminate()
        running.wait(PATIENCE_S)


class Cluster:
    """Two brokers and a console.

    :param topics: the number of topics on each broker.
    :param groups: the number of groups on each broker.
    :param python: the interpreter of the brokers and the console.
    """

    def __init__(
        self, folder: Path, topics: int, groups: int, stack: ExitStack, python: str
    ) -> None:
        servers = Servers(folder / "first", "brokerIP1=127.0.0.1", "brokerName=first")
        servers.python = python
        stack.callback(servers.stop)
        servers.start()
        self.name_server = servers.namesrv
        self.second = stack.enter_context(process(
            python, "broker", "-n", self.name_server, "bindAddress=127.0.0.1",
            "brokerIP1=127.0.0.1", f"listenPort={free_port()}", "brokerName=second",
            f"storePathRootDir={folder / 'second'}", f"log.dir={folder / 'logs'}"))
        self.session = PageSession(self.name_server, timeout_s=PATIENCE_S)
        stack.callback(self.session.close)
        wait_until("both brokers are registered", lambda: len(
            self.session.for_page(PATIENCE_S).all_brokers()) == 2, PATIENCE_S)
        self._fill(folder, topics, groups)
        token, port = secrets.token_urlsafe(24), free_port()
        stack.enter_context(process(
            python, "console", "-n", self.name_server, "--port", str(port),
            TWISTMQ_CONSOLE_TOKEN=token))
        self.browser = Browser(port)
        wait_until("the console answers", self._answers, PATIENCE_S)
        self.browser.get(f"/login?token={token}")

    def _answers(self) -> bool:
        try:
            return self.browser.get("/login").status == 200
        except OSError:
            return False

    def _fill(self, folder: Path, topics: int, groups: int) -> None:
        """Create topics and groups, store messages, and commit the offsets of each group."""
        for command, name, rows in (
                ("updateTopicList", "topics", [
                    {"topicName": f"topic-{at:05}", "readQueueNums": QUEUES,
                     "writeQueueNums": QUEUES, "perm": 6} for at in range(topics)]),
                ("updateSubGroupList", "groups", [
                    {"groupName": f"group-{at:05}"} for at in range(groups)])):
            file = folder / f"{name}.json"
            file.write_text(json.dumps(rows))
            status, _, err = call(command, "-f", str(file), "-c", "DefaultCluster",
                                  "-n", self.name_server)
            assert status == 0, err
        for broker in self.session.for_page(PATIENCE_S).all_brokers():
            for at in range(topics * QUEUES):
                send_to_queue(self.session, MessageQueue(
                    f"topic-{at // QUEUES:05}", broker.name, at % QUEUES), broker.address, b"x", {})
            for at in range(groups * QUEUES):
                queue = MessageQueue(f"topic-{at // QUEUES % topics:05}", broker.name, at % QUEUES)
                commit_offset(self.session, broker.address, f"group-{at // QUEUES:05}", queue, 1)


def times_of(
    browser: Browser, path: str, loads: int, *, as_json: bool
) -> tuple[list[float], int, str]:
    """Load a page several times.

    :returns: the seconds of each time, the number of loads without a whole page, and the last text.
    """
    seconds, failed = [], 0
    for _ in range(loads):
        begin = time.perf_counter()
        answer = browser.json(path) if as_json else browser.get(path)
        seconds.append(time.perf_counter() - begin)
        is_whole = ('"unanswered":[]' if as_json else "This page is incomplete") in answer.text
        failed += answer.status != 200 or is_whole != as_json
    return seconds, failed, answer.text


def measure(cluster: Cluster, loads: int, limit_s: float, *, hung: str = "") -> list[str]:
    """Load all pages; :returns: the faults.

    :param hung: the name of the broker that hangs, or an empty text.
    """
    faults = []
    for path in PAGES:
        for as_json in (False, True):
            seconds, failed, text = times_of(cluster.browser, path, loads, as_json=as_json)
            form = "JSON" if as_json else "HTML"
            print(f"{'hung ' if hung else ''}{path:20} {form} median {median(seconds) * 1e3:6.0f} "
                  f"ms, longest {max(seconds) * 1e3:6.0f} ms, {len(text) / 1e3:6.0f} kB")
            if failed and not hung:
                faults.append(f"{path} was not whole {failed} times of {loads}")
            if median(seconds) > limit_s:
                faults.append(f"{path} took {median(seconds):.2f} s, {limit_s} s are allowed")
            if hung and f"{hung} (127.0.0.1:" not in text:
                faults.append(f"{path} does not name the broker {hung}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=2500)
    parser.add_argument("--loads", type=int, default=15)
    parser.add_argument("--list-seconds", type=float, default=0.3)
    parser.add_argument("--hung-seconds", type=float, default=2.2)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        cluster = Cluster(
            Path(name), options.topics, options.groups, stack, options.python)
        faults = []
        for path, table, count in (("/topics", "topics", options.topics),
                                   ("/groups", "groups", options.groups)):
            total = json.loads(cluster.browser.json(path).text)["totals"][table]
            if total != count:
                faults.append(f"{path} has {total} rows in place of {count}")
        faults += measure(cluster, options.loads, options.list_seconds)
        cluster.second.send_signal(signal.SIGSTOP)
        faults += measure(cluster, 2, options.hung_seconds, hung="second")
    print("\n".join(faults) or "every page came in time")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
