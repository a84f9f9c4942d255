"""Kill the leader of a group of three processes under load.

    python -m tests.long.dledger_kills [leader|unwaited]... [--rounds 20]

Each part starts ``twistmq up --group 3`` in a folder of its own:

    leader      the leader is killed in each round, with sends in flight
    unwaited    messages that need not wait (WAIT=false) and one-way sends, 1,000 of each; the
                leader is killed in the middle of them

At the end each acknowledged message is at its place, and the logs of the three are the same.
Without a part, both run. Ends with status 1 when one fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from twisted.trial.reporter import VerboseTextReporter
from twisted.trial.runner import TestSuite, TrialRunner

from tests.broker.supervisor.test_supervisor import until
from tests.plugins.dledger.test_failover import QUEUES, GroupCase
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.client import Message, Producer
from twistmq.protocol.codes import RequestCode

__all__ = ["KillRuns", "main"]

#: The number of sends in a round, and the number of sends in the part ``unwaited``.
SENDS = 60
UNWAITED_SENDS = 1000


class KillRuns(GroupCase):
    """The parts."""

    rounds: ClassVar[int] = 20
    timeout: ClassVar[int] = 3600

    def setUp(self) -> None:
        super().setUp()
        until(lambda: len(self.masters()) == 1, "a first leader")
        #: All bodies that were sent, by their numbers.
        self.count = 0

    def producer(self) -> Producer:
        return Producer(self.namesrv, group="g", await_master=True, timeout_s=60)

    def send_around(
        self, producer: Producer, act: Callable[[], object], *, wait_stored: bool = True,
        count: int = SENDS,
    ) -> None:
        """Send messages; in the middle of them something happens."""
        waiting = []
        for number in range(count):
            body = b"%d" % self.count
            self.count += 1
            waiting.append((body, producer.send_soon(
                Message("T", body, wait_stored=wait_stored))))
            if number == count // 2:
                act()
        for body, future in waiting:
            self.note(future.result(120), body)

    def check(self, *, copies_max: int = 2) -> None:
        """Compare the stored messages with the acknowledged ones, and compare the logs."""
        until(self.is_whole, "a whole group")
        stored = self.stored(self.masters()[0])
        for place, body in self.places.items():
            self.assertEqual(stored.get(place), body)
        for queue_id in range(QUEUES):
            offsets = sorted(offset for queue, offset in stored if queue == queue_id)
            self.assertEqual(offsets, list(range(len(offsets))))
        counts = Counter(stored.values())
        self.assertLessEqual(max(counts.values()), copies_max)
        end = int(self.rows(0)["commitLogMaxOffset"])
        print(f"{self.rounds} rounds: {len(self.places)} messages were acknowledged, "
              f"{len(stored)} are stored, {end:,} bytes of log")
        self.assertEqual(self.stop(), 0)
        logs = self.logs(end)
        self.assertEqual((logs[0] == logs[1], logs[0] == logs[2]), (True, True))

    def long_leader(self) -> None:
        """The leader is killed in each round."""
        with self.producer() as producer:
            for number in range(self.rounds):
                begin = time.monotonic()
                self.send_around(producer, self.kill_master)
                print(f"round {number + 1}: {time.monotonic() - begin:.1f} s")
                until(self.is_whole, "a whole group")
        # A send whose answer was lost is repeated, at each kill.
        self.check()

    def send_oneway(self, index: int, count: int) -> None:
        """Send messages that are not answered to one broker."""
        with RawClient(self.addresses[index], timeout_s=10) as client:
            for _ in range(count):
                body = b"%d" % self.count
                self.count += 1
                header = send_header("T", time.time_ns() // 1_000_000)
                client.begin(RequestCode.SEND_MESSAGE_V2, header, body, oneway=True)

    def long_unwaited(self) -> None:
        """What was acknowledged is stored, although it need not wait."""
        with self.producer() as producer:
            self.send_around(producer, self.kill_master, wait_stored=False, count=UNWAITED_SENDS)
            until(self.is_whole, "a whole group")
            for _ in range(2):
                self.send_oneway(self.masters()[0], UNWAITED_SENDS // 2)
                self.kill_master()
                until(self.is_whole, "a whole group")
            self.note(producer.send("T", b"last"), b"last")
        self.check()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name.removeprefix("long_") for name in vars(KillRuns) if name.startswith("long_")]
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*names, []])
    parser.add_argument("--rounds", type=int, default=KillRuns.rounds)
    args = parser.parse_args()
    KillRuns.rounds = args.rounds
    suite = TestSuite([KillRuns(f"long_{name}") for name in args.parts or names])
    return 0 if TrialRunner(VerboseTextReporter).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
