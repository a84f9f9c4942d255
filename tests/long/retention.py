"""Our broker and Apache's pass each threshold of a full disk; their removals are compared.

    python -m tests.long.retention

Each has a tmpfs of its own, filled with ballast to the same part, and the same messages in
commit-log files of 1 MiB, the older half of which were written 100 hours ago by their times. After
each step both are asked for the files that are left, the least offset of the queue, what a pull of
the oldest offset says and what a send; all of it must be the same, and as expected. Meanwhile a
consumer at each broker reads the oldest messages round and round while their files are removed: it
must hear of nothing but messages and moved offsets. Takes about five minutes, as brokers look at
their disks 60 s after a start; needs root to mount, java and mvn. Prints a line a step; ends with
status 1 when anything differs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.hostile.mounts import mount_tmpfs, unmount
from tests.interop.clients import java_missing
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.offset import (
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from twistmq.protocol.headers.pull import PullMessageResponseHeader

_MIB: Final = 1024 * 1024
DISK_SIZE: Final = 128 * _MIB
TOPIC: Final = "RetentionTest"
#: A queue that has messages in the oldest file alone.
SHORT_QUEUE: Final = 1
BODY_SIZE: Final = 50_000
#: So many of such messages are in a commit-log file.
PER_FILE: Final = 20
FILES: Final = 12
#: Files removed in a row, between two looks at the disk.
BATCH: Final = 2
OLD_HOURS: Final = 100
#: How long brokers wait for their first look at the disk, and what comes on top, seconds.
FIRST_LOOK_SECONDS: Final = 62
#: Some intervals of cleaning, seconds: what was not removed by then stays.
SETTLE_SECONDS: Final = 5
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(_MIB), "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000", "maxIndexNum": "4000", "cleanResourceInterval": "1000",
    "deleteFileBatchMax": str(BATCH), "flushConsumeQueueThoroughInterval": "1000",
}
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class State:
    """The state of a broker and its output."""

    files: int
    #: Number of the first commit-log file that is left.
    first_file: int
    min_offset: int
    #: Where the queue begins that had messages in the first file alone, and ends.
    short_queue: tuple[int, int]
    #: Code of a pull of offset 0 and where it leads to.
    pull: str
    send: str


class Side:
    """One broker on its own disk."""

    def __init__(self, name: str, disk: Path) -> None:
        self.name, self.disk = name, disk
        self._peer: Peer | None = None
        self._ours: Servers | None = None
        self._ports = free_port(), free_port()
        self.port = 0

    def start(self, delete_when: str) -> None:
        settings = {**SETTINGS, "deleteWhen": delete_when}
        if self.name == "apache":
            self._peer = Peer(self.disk, "5.3.3", *self._ports, heap="512m",
                              settings={**settings, "timerWheelEnable": "false"})
            self._peer.start()
            self.port = self._ports[1]
        else:
            self._ours = Servers(self.disk, *[f"{key}={value}" for key, value in settings.items()])
            self._ours.start()
            self.port = self._ours.broker_port

    def stop(self) -> None:
        if self._peer is not None:
            self._peer.stop()
        if self._ours is not None:
            self._ours.stop()
        self._peer = self._ours = None

    def client(self) -> RawClient:
        return RawClient(f"127.0.0.1:{self.port}", 30)

    def send(self, count: int, queue_id: int = 0) -> None:
        with self.client() as client:
            for _ in range(count):
                client.send(TOPIC, bytes(BODY_SIZE), queue_id=queue_id)

    def log_files(self) -> list[Path]:
        return sorted((self.disk / "store" / "commitlog").glob("[0-9]*"))

    def written_files(self) -> list[Path]:
        """Return the files with messages; Apache's broker creates another one in advance."""
        return [path for path in self.log_files() if path.stat().st_blocks]

    def make_old(self, count: int) -> None:
        """Let the oldest files be as if they were written long ago."""
        then = time.time() - OLD_HOURS * 3600
        for path in self.log_files()[:count]:
            os.utime(path, (then, then))

    def use(self, ratio: float) -> None:
        """Let ballast fill the disk up to a part of it, 0.0 to 1.0."""
        ballast = self.disk / "ballast"
        ballast.touch()
        state = os.statvfs(self.disk)
        wanted = int(state.f_blocks * ratio) - (state.f_blocks - state.f_bfree)
        size = ballast.stat().st_size + wanted * state.f_frsize
        if size < ballast.stat().st_size:
            os.truncate(ballast, size)
        else:
            with ballast.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def state(self) -> State:
        """Ask for all that is compared; sends a small message."""
        files = self.written_files()
        with self.client() as client:
            minimum, short_minimum = (
                client.request(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(
                    topic=TOPIC, queue_id=queue_id)).header(GetMinOffsetResponseHeader).offset
                for queue_id in (0, SHORT_QUEUE))
            short = short_minimum, client.max_offset(TOPIC, SHORT_QUEUE)
            pulled = client.request(RequestCode.PULL_MESSAGE, pull_header(TOPIC, 0))
            leads_to = pulled.header(PullMessageResponseHeader).next_begin_offset
            if pulled.code == ResponseCode.SUCCESS:
                # How many messages a reply holds is another matter.
                leads_to = -1
            sent = client.request(RequestCode.SEND_MESSAGE_V2,
                                  send_header(TOPIC, 1, queue_id=2), b"x")
        return State(len(files), int(files[0].name) // _MIB, minimum, short,
                     f"{pulled.code} to {leads_to}",
                     f"{sent.code} {_NUMBER.sub('N', sent.remark or '')}".strip())


class Reader(threading.Thread):
    """Reads the oldest messages of a broker in a loop, and counts the responses."""

    def __init__(self, side: Side) -> None:
        super().__init__(daemon=True)
        self.codes: collections.Counter[int] = collections.Counter()
        self.failures: list[str] = []
        self._side = side
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            with self._side.client() as client:
                offset, first = 0, -1
                while not self._ended.wait(0.005):
                    reply = client.request(RequestCode.PULL_MESSAGE, pull_header(TOPIC, offset))
                    self.codes[reply.code] += 1
                    offset = reply.header(PullMessageResponseHeader).next_begin_offset
                    if reply.code == ResponseCode.SUCCESS:
                        messages = records_of(reply.body)
                        first = messages[0].queue_offset if first < 0 else first
                        if any(message.body != bytes(BODY_SIZE) for message in messages):
                            self.failures.append(f"another message at {messages[0].queue_offset}")
                        # Two files further there is nothing to learn.
                        if messages[-1].queue_offset > first + 2 * PER_FILE:
                            offset, first = 0, -1
                    elif reply.code == ResponseCode.PULL_NOT_FOUND:
                        offset, first = 0, -1
                    elif reply.code not in (ResponseCode.PULL_OFFSET_MOVED,
                                            ResponseCode.PULL_RETRY_IMMEDIATELY):
                        self.failures.append(f"{reply.code} {reply.remark}")
        except Exception as error:
            self.failures.append(repr(error))

    def end(self) -> None:
        self._ended.set()
        self.join(30)


class Comparison:
    """Both brokers, step by step."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides
        self.steps = 0
        self.problems: list[str] = []

    def step(self, what: str, expected: Callable[[State], bool], seconds: float = 30) -> None:
        """Wait until each has the expected state, and a little longer; compare their output."""
        for side in self.sides:
            with contextlib.suppress(AssertionError):
                wait_until(what, lambda: expected(side.state()), seconds)  # noqa: B023
        # Nothing more must happen, which no condition can tell.
        time.sleep(SETTLE_SECONDS)
        states = {side.name: side.state() for side in self.sides}
        apache, ours = states["apache"], states["ours"]
        self.steps += 1
        same = "the same" if apache == ours else "OTHER THAN APACHE'S"
        print(f"{what}: {same}: {ours}" + ("" if apache == ours else f"\n  apache: {apache}"),
              flush=True)
        if apache != ours:
            self.problems.append(f"{what}: ours {ours}, Apache's {apache}")
        if not expected(ours):
            self.problems.append(f"{what}: {ours} was not expected")

    def ask(self, code: RequestCode) -> None:
        """Send both a request without a header."""
        replies = []
        for side in self.sides:
            with side.client() as client:
                replies.append(client.request(code).code)
        if replies != [ResponseCode.SUCCESS] * 2:
            self.problems.append(f"request {code}: {replies}")


@contextlib.contextmanager
def running(sides: list[Side], delete_when: str) -> Iterator[None]:
    """Run both brokers during the block."""
    try:
        for side in sides:
            side.start(delete_when)
        yield
    finally:
        for side in sides:
            side.stop()


@contextlib.contextmanager
def readers(comparison: Comparison) -> Iterator[None]:
    """Run a reader for each broker, which must have no errors."""
    started = [Reader(side) for side in comparison.sides]
    for reader in started:
        reader.start()
    try:
        yield
    finally:
        for side, reader in zip(comparison.sides, started, strict=True):
            reader.end()
            print(f"  reader at {side.name}: codes {dict(reader.codes)}, "
                  f"{len(reader.failures)} failures", flush=True)
            for failure in reader.failures[:3]:
                print(f"    {failure}")
            # What Apache's broker answers there is its own affair.
            if side.name == "ours":
                comparison.problems += [f"reader: {failure}" for failure in reader.failures[:5]]
                if not reader.codes[ResponseCode.SUCCESS]:
                    comparison.problems.append("the reader read nothing")


def compare(comparison: Comparison) -> None:
    """Run all steps."""
    sides, step = comparison.sides, comparison.step
    hour = datetime.now().hour
    other_hour, this_hour = f"{(hour + 12) % 24:02d}", f"{hour:02d};{(hour + 1) % 24:02d}"
    old = FILES // 2
    with running(sides, other_hour):
        for side in sides:
            side.send(PER_FILE // 2, SHORT_QUEUE)
            side.send(FILES * PER_FILE)
    for side in sides:
        side.make_old(old)
        side.use(0.70)
    with running(sides, other_hour), readers(comparison):
        time.sleep(FIRST_LOOK_SECONDS)
        step("used to 70 %", lambda state: state.first_file == 0)
        for side in sides:
            side.use(0.78)
        step("used to 78 %, past diskMaxUsedSpaceRatio", lambda state: state.first_file == old)
        for side in sides:
            # Four files have to go, in two rounds of two.
            side.use(0.85 + 3.4 * _MIB / DISK_SIZE)
        step("used to 88 %, past diskSpaceCleanForciblyRatio",
             lambda state: state.first_file == old + 4)
        for side in sides:
            side.use(0.96)
        step("used to 96 %, past diskSpaceWarningLevelRatio",
             lambda state: state.files == 1 and not state.send.startswith("0"))
        for side in sides:
            side.use(0.50)
        step("used to 50 % again", lambda state: state.send == "0")
        comparison.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        step("after request 306", lambda state: state.files == 1)
        for side in sides:
            side.send(4 * PER_FILE)
            side.make_old(2)
        step("two old files more", lambda state: state.files >= 5)
        comparison.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        step("after request 329", lambda state: state.first_file == FILES + 2)
    for side in sides:
        side.make_old(2)
    with running(sides, this_hour), readers(comparison):
        step("at the hour of deleteWhen", lambda state: state.first_file == FILES + 4,
             FIRST_LOOK_SECONDS + 30)


def main() -> int:
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if reason := java_missing("5.3.3"):
        raise SystemExit(reason)
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        sides = []
        for name in ("apache", "ours"):
            disk = home / name
            disk.mkdir()
            if fault := mount_tmpfs(disk, f"size={DISK_SIZE}"):
                raise SystemExit(f"a file system cannot be mounted: {fault}")
            stack.callback(unmount, disk)
            sides.append(Side(name, disk))
        comparison = Comparison(sides)
        compare(comparison)
    print(f"{comparison.steps} steps in {time.monotonic() - begin:.0f} s, "
          f"{len(comparison.problems)} problems")
    for problem in comparison.problems:
        print(problem)
    return 1 if comparison.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
