"""Start and stop a broker with many topics, also after a kill, and measure the times.

    python -m tests.long.many_topics [--topics 80000] [--start-seconds 20] [--stop-seconds 30]
        [--keep DIR]

Each topic is made by a message over the wire, so that it has a queue with a file; when the table of
topics is full before, there are fewer. The broker is
stopped with all that in memory, started and stopped, started again, and killed with a message in
each topic that no file of a queue has yet, then started over what that left. A start lasts until
the broker has registered, a stop until the process is gone. Every topic must have its messages at
the end. Prints seconds and the seconds of CPU among them; ends with status 1 when a start or a stop
took longer than it may, or a message is missing. On a machine with other work read the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.interop.servers import Servers
from tests.interop.turn import cpu_seconds
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)

#: Requests on their way: a send that makes its topic is answered when that is saved.
WINDOW = 4000
#: How long a start, a stop or an answer may take before it is given up, seconds.
PATIENCE_SECONDS = 900.0


def children_seconds() -> float:
    """Processor time of all processes of this one that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Times:
    """The measured times, and those that are too long.

    :param say: told each.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say = say
        self.problems: list[str] = []

    def add(self, what: str, seconds: float, cpu: float, limit: float) -> None:
        self.say(f"{what:34} {seconds:7.1f} s {cpu:7.1f} s of CPU")
        if seconds > limit:
            self.problems.append(f"{what}: {seconds:.1f} s, {limit:.0f} s are allowed")


class ManyTopics:
    """A broker over a folder.

    :param topics: how many there are.
    :param start_seconds: how long a start may take.
    :param stop_seconds: how long a stop may take.
    :param say: told what took how long.
    """

    def __init__(
        self, folder: Path, topics: int, start_seconds: float, stop_seconds: float,
        say: Callable[[str], object],
    ) -> None:
        self.names = [f"many{number:x}" for number in range(topics)]
        self.times = Times(say)
        self._start_seconds, self._stop_seconds = start_seconds, stop_seconds
        self._servers = Servers(folder, patience_seconds=PATIENCE_SECONDS)

    def start(self, what: str) -> None:
        begin = time.monotonic()
        self._servers.start()
        self.times.add(what, time.monotonic() - begin, cpu_seconds(self._servers.pid),
                       self._start_seconds)

    def stop(self, what: str, how: signal.Signals = signal.SIGTERM) -> None:
        before = cpu_seconds(self._servers.pid) + children_seconds()
        begin = time.monotonic()
        status = self._servers.stop(how)
        self.times.add(what, time.monotonic() - begin, children_seconds() - before,
                       self._stop_seconds)
        if status != (0 if how == signal.SIGTERM else -how):
            self.times.problems.append(f"{what}: status {status}")

    def send_to_each(self, body: bytes) -> int:
        """Send a message to each topic, and make it thereby; :returns: how many are refused."""
        now_ms = time.time_ns() // 1_000_000
        headers = ((RequestCode.SEND_MESSAGE_V2, send_header(name, now_ms), body)
                   for name in self.names)
        refused = [f"{name}: {reply.code} {reply.remark}"
                   for name, reply in zip(self.names, self._answers(headers), strict=True)
                   if reply.code != ResponseCode.SUCCESS]
        if refused:
            self.times.say(f"{len(refused)} sends are refused, the first to {refused[0]}")
        return len(refused)

    def check(self, messages: int) -> None:
        """Check the number of messages in each topic."""
        headers = ((RequestCode.GET_MAX_OFFSET,
                    GetMaxOffsetRequestHeader(topic=name, queue_id=0), b"") for name in self.names)
        offsets = [reply.header(GetMaxOffsetResponseHeader).offset
                   for reply in self._answers(headers)]
        wrong = [name for name, offset in zip(self.names, offsets, strict=True)
                 if offset != messages]
        if wrong:
            self.times.problems.append(
                f"{len(wrong)} topics do not have {messages} messages, first {wrong[0]}")

    def _answers(
        self, requests: Iterable[tuple[int, CommandHeader, bytes]]
    ) -> Iterator[RemotingCommand]:
        with RawClient(f"127.0.0.1:{self._servers.broker_port}", PATIENCE_SECONDS) as client:
            waiting: list[int] = []
            for request in requests:
                waiting.append(client.begin(*request))
                if len(waiting) >= WINDOW:
                    for opaque in waiting:
                        yield client.reply(opaque)
                    waiting = []
            for opaque in waiting:
                yield client.reply(opaque)

    def run(self) -> list[str]:
        """Run all steps; :returns: the faults."""
        try:
            self._servers.start()
            begin, before = time.monotonic(), cpu_seconds(self._servers.pid)
            refused = self.send_to_each(b"1")
            # The table may be full before.
            del self.names[len(self.names) - refused:]
            self.times.say(f"{len(self.names)} topics")
            self.times.add("first message of each topic", time.monotonic() - begin,
                           cpu_seconds(self._servers.pid) - before, PATIENCE_SECONDS)
            self.stop("stop after that")
            self.start("start")
            self.check(1)
            self.stop("stop")
            self.start("start again")
            if self.send_to_each(b"2"):
                self.times.problems.append("a send is refused")
            self.stop("kill", signal.SIGKILL)
            self.start("start after the kill")
            self.check(2)
            self.stop("stop after that")
        finally:
            self._servers.stop(signal.SIGKILL)
        return self.times.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=80_000)
    parser.add_argument("--start-seconds", type=float, default=20)
    parser.add_argument("--stop-seconds", type=float, default=30)
    parser.add_argument("--keep", type=Path, help="keep the store in this folder")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        problems = ManyTopics(folder, args.topics, args.start_seconds, args.stop_seconds,
                              partial(print, flush=True)).run()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
