"""Kill a broker during sends, repeatedly over one store, and look for the acknowledged messages.

    python -m tests.long.kill [--kills 100] [--seconds 600] [--flush SYNC_FLUSH] [--seed 1]
        [--keep DIR]

Producers send with many messages in flight to a queue each; at a random moment the process gets
SIGKILL and is started again over the same store; in the end it is asked for all it has. Commit-log
files are small, so that kills meet roll-overs too. Each acknowledged message must be at the offset
it was acknowledged with, whole, and once; what was sent and not acknowledged may be there or not,
whole and once as well. A kill takes a second, or several on a machine that is busy: after
``--seconds`` no more are made, and what there is is compared. Prints the counts; ends with status 1
when any of that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.send import SendMessageResponseHeader

TOPIC = "KillTest"
PRODUCERS = 4
WINDOW = 32
#: Bytes of a commit-log file: about two thousand messages.
FILE_SIZE = 1024 * 1024


class Producer(threading.Thread):
    """Sends to one queue until its connection is lost.

    :param first: number of its first message; a body is the queue, the number and some filling.
    """

    def __init__(self, address: str, queue_id: int, first: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.queue_id = queue_id
        self.next = first
        #: Queue offset by number of what was acknowledged.
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self._address = address
        self._chance = random.Random(seed)

    def run(self) -> None:
        try:
            self._send()
        except BrokerError:
            # The broker was killed.
            pass
        except Exception as error:
            self.failures.append(repr(error))

    def _send(self) -> None:
        with RawClient(self._address) as client:
            waiting: list[tuple[int, int]] = []
            while True:
                number, self.next = self.next, self.next + 1
                header = send_header(TOPIC, 1, queue_id=self.queue_id, tag=f"t{number % 3}",
                                     keys=f"k{self.queue_id}-{number}")
                waiting.append((number, client.begin(
                    RequestCode.SEND_MESSAGE_V2, header, body_of(self.queue_id, number))))
                if len(waiting) < self._chance.randint(1, WINDOW):
                    continue
                sent, opaque = waiting.pop(0)
                reply = client.reply(opaque)
                if reply.code != ResponseCode.SUCCESS:
                    self.failures.append(f"send {sent}: {reply.code} {reply.remark}")
                    return
                self.acknowledged[sent] = reply.header(SendMessageResponseHeader).queue_offset


def body_of(queue_id: int, number: int) -> bytes:
    """Return the body of a message, which is never a part of another one."""
    return b"%d %d %s end" % (queue_id, number, b"x" * (number * 37 % 700))


class Check:
    """The messages that were sent and acknowledged over all kills, compared with a broker's."""

    def __init__(self) -> None:
        #: By queue: the number after the last that was sent, and offsets that were acknowledged.
        self.sent = [0] * PRODUCERS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PRODUCERS)]
        self.found = 0
        self.kills = 0
        #: Commit-log files there are in the end.
        self.files = 0
        self.problems: list[str] = []

    def add(self, producer: Producer) -> None:
        self.sent[producer.queue_id] = producer.next
        self.acknowledged[producer.queue_id].update(producer.acknowledged)
        self.problems += producer.failures

    def compare(self, client: RawClient) -> None:
        """Read every queue from its beginning."""
        self.found = 0
        for queue_id in range(PRODUCERS):
            offsets: dict[int, int] = {}
            offset = 0
            while messages := client.pull(TOPIC, offset, queue_id=queue_id):
                for message in messages:
                    number = self._number(queue_id, message.body)
                    if message.queue_offset != offset:
                        self.problems.append(f"queue {queue_id} has a gap at {offset}")
                    if number in offsets:
                        self.problems.append(f"{queue_id}-{number} is there twice")
                    offsets[number] = message.queue_offset
                    offset = message.queue_offset + 1
            self.found += len(offsets)
            self.problems += [
                f"{queue_id}-{number} is at {offsets.get(number)}, acknowledged at {expected}"
                for number, expected in self.acknowledged[queue_id].items()
                if offsets.get(number) != expected]

    def _number(self, queue_id: int, body: bytes) -> int:
        words = body.split(b" ")
        number = int(words[1]) if len(words) == 4 and words[1].isdigit() else -1
        if body != body_of(queue_id, number) or number >= self.sent[queue_id]:
            self.problems.append(f"queue {queue_id} has {body[:40]!r}, which nobody sent")
        return number


def kill_often(folder: Path, kills: int, flush: str, seed: int, seconds: float = 600) -> Check:
    """Start, send and kill repeatedly; then check the messages.

    :param seconds: after which there are no more kills.
    """
    end = time.monotonic() + seconds
    chance = random.Random(seed)
    check = Check()
    servers = Servers(folder, f"flushDiskType={flush}", f"mappedFileSizeCommitLog={FILE_SIZE}",
                      "mappedFileSizeConsumeQueue=6000")
    servers.start()
    try:
        while check.kills < kills and time.monotonic() < end:
            address = f"127.0.0.1:{servers.broker_port}"
            producers = [Producer(address, queue_id, check.sent[queue_id], chance.getrandbits(32))
                         for queue_id in range(PRODUCERS)]
            for producer in producers:
                producer.start()
            wait_until("something is acknowledged",
                       lambda those=producers: any(each.acknowledged for each in those))
            # The moment is what is random here; nothing waits for it.
            time.sleep(chance.uniform(0.02, 0.4))
            servers.stop(signal.SIGKILL)
            check.kills += 1
            for producer in producers:
                producer.join(30)
                check.add(producer)
            servers.start()
            if check.problems:
                break
        with RawClient(f"127.0.0.1:{servers.broker_port}", 30) as client:
            check.compare(client)
        check.files = len(list((folder / "store" / "commitlog").iterdir()))
    finally:
        servers.stop()
    return check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--flush", choices=["SYNC_FLUSH", "ASYNC_FLUSH"], default="SYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the store in this folder")
    args = parser.parse_args()
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        check = kill_often(folder, args.kills, args.flush, args.seed, args.seconds)
    print(f"{check.kills} of {args.kills} kills with {args.flush} in "
          f"{time.monotonic() - begin:.0f} s: {sum(check.sent):,} sent, "
          f"{sum(map(len, check.acknowledged)):,} acknowledged, "
          f"{check.found:,} found in {check.files} files, {len(check.problems)} problems")
    for problem in check.problems[:20]:
        print(problem)
    return 1 if check.problems or check.files < 2 else 0


if __name__ == "__main__":
    raise SystemExit(main())
