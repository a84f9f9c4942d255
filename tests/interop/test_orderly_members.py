"""Members of an ordered group join, suspend, die and leave: `java/OrderlyMember.java`.

A producer of ours sends to four queues all the time. One member works on all of them; a second one
comes, which suspends some messages; the first is killed; a third one comes; the second leaves. Each
tells when it begins and ends with each message. The same is asserted with Apache's broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port, wait_until
from twistmq.broker.testing import RawClient

TOPIC, GROUP, QUEUES = "OrderlyMembers", "orderly_members", 4
SUSPEND_EVERY = 7
#: Seconds between two messages of the producer.
PAUSE_SECONDS = 0.01


class Times(NamedTuple):
    """The times that follow from the settings of broker and client, in seconds."""

    #: The broker's: a lock that is not renewed for longer is another's.
    lock_age: float = 60
    #: The client's: it renews, and looks for what to work on.
    renewal: float = 20
    rebalance: float = 20
    #: The client's: after that it takes a lock for lost that it could not renew.
    doubt: float = 30

    def client_properties(self) -> list[str]:
        return [f"rocketmq.client.rebalance.{name}={seconds * 1000:.0f}" for name, seconds in (
            ("lockInterval", self.renewal), ("waitInterval", self.rebalance),
            ("lockMaxLiveTime", self.doubt))]


SHORT = Times(lock_age=20, renewal=1, rebalance=2, doubt=4)


class Work(NamedTuple):
    """A member's turn with a message; times are Unix ms."""

    begin_ms: int
    end_ms: int
    member: str
    offset: int
    #: How often the member tried it before.
    tries: int
    #: success, suspend or killed.
    result: str


class Feed(threading.Thread):
    """Sends to the queues in turn until it is stopped; a body has the queue and the offset."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._is_over = threading.Event()
        self.sent = [0] * QUEUES
        self.failures: list[str] = []

    def run(self) -> None:
        try:
            with RawClient(self._address, 30) as client:
                # The producer's pace, no wait for anything.
                while not self._is_over.wait(PAUSE_SECONDS):
                    queue_id = min(range(QUEUES), key=self.sent.__getitem__)
                    reply = client.send(TOPIC, b"%d-%d" % (queue_id, self.sent[queue_id]),
                                        queue_id=queue_id)
                    assert reply.queue_offset == self.sent[queue_id], reply
                    self.sent[queue_id] += 1
        except Exception as error:
            self.failures.append(repr(error))

    def stop(self) -> None:
        self._is_over.set()
        self.join(60)


class Members:
    """The present and former members, and their work.

    :param namesrv: the name server they ask.
    """

    def __init__(self, version: str, namesrv: str, times: Times) -> None:
        self._version, self._namesrv, self._times = version, namesrv, times
        self.processes: dict[str, JavaProcess] = {}
        self.killed_ms: dict[str, int] = {}

    def start(self, name: str, suspend_every: int = 0) -> None:
        self.processes[name] = JavaProcess(
            self._version, "OrderlyMember", self._namesrv, TOPIC, GROUP, str(suspend_every),
            properties=self._times.client_properties())
        self.processes[name].wait_for("started")

    def kill(self, name: str) -> int:
        """Kill a member; :returns: the time, Unix ms."""
        self.processes[name].kill()
        now_ms = self.killed_ms[name] = time.time_ns() // 1_000_000
        return now_ms

    def wait_for_queues(self, name: str, count: int, since_ms: int = 0) -> None:
        """Wait until a member has begun with messages of so many queues."""
        wait_until(f"{name} works on {count} queues", lambda: len({
            line.split(" ")[2] for line in self.processes[name].told("begin")
            if int(line.split(" ")[1]) > since_ms}) >= count, 120)

    def wait_for_all(self, sent: Sequence[int]) -> None:
        """Wait until somebody succeeded with the last message of each queue."""
        def is_done() -> bool:
            done = {tuple(line.split(" ")[2:4]) for process in self.processes.values()
                    for line in process.told("success")}
            return all((str(queue_id), str(count - 1)) in done
                       for queue_id, count in enumerate(sent))

        wait_until("all is consumed", is_done, 120)

    def works(self) -> list[list[Work]]:
        """Return the handled messages of each queue, in the order of their beginnings."""
        queues: list[list[Work]] = [[] for _ in range(QUEUES)]
        for name, process in self.processes.items():
            open_ms: dict[tuple[str, ...], int] = {}
            for line in process.lines:
                event, *rest = line.split(" ")
                if event in ("started", "left"):
                    continue
                now_ms, place = int(rest[0]), tuple(rest[1:4])
                queue_id, offset, tries = map(int, place)
                assert rest[4] == f"{queue_id}-{offset}", line
                if event == "begin":
                    assert place not in open_ms, line
                    open_ms[place] = now_ms
                else:
                    queues[queue_id].append(
                        Work(open_ms.pop(place), now_ms, name, offset, tries, event))
            for (queue, offset_text, tries_text), begin_ms in open_ms.items():
                queues[int(queue)].append(Work(begin_ms, self.killed_ms[name], name,
                                               int(offset_text), int(tries_text), "killed"))
        return [sorted(works) for works in queues]

    def close(self) -> None:
        for process in self.processes.values():
            process.close()


class MembersTests(JavaTestCase):
    """The same with each broker."""

    def ours(self, times: Times) -> tuple[str, str]:
        """Start our broker; addresses of name server and broker."""
        running = Servers(self.folder / "ours", f"orderly.lock_age_max={times.lock_age * 1000:.0f}")
        running.start()
        self.addCleanup(running.stop)
        return running.namesrv, f"127.0.0.1:{running.broker_port}"

    def apache(self, times: Times) -> tuple[str, str]:
        """Start Apache's; addresses of name server and broker."""
        peer = Peer(self.folder / "peer", "5.3.3", free_port(), free_port(), "512m", properties={
            "rocketmq.broker.rebalance.lockMaxLiveTime": f"{times.lock_age * 1000:.0f}"})
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        return peer.namesrv_address, f"127.0.0.1:{peer.broker_port}"

    def come_and_go(self, addresses: tuple[str, str], times: Times) -> str:
        """Run the members, then check their work; :returns: the counts."""
        feed = Feed(addresses[1])
        feed.start()
        self.addCleanup(feed.stop)
        wait_until("there is a message in each queue", lambda: all(feed.sent))
        members = Members(self.version, addresses[0], times)
        self.addCleanup(members.close)
        members.start("first")
        members.wait_for_queues("first", QUEUES)
        members.start("second", SUSPEND_EVERY)
        members.wait_for_queues("second", QUEUES // 2)
        killed_ms = members.kill("first")
        members.wait_for_queues("second", QUEUES)
        members.start("third")
        members.wait_for_queues("third", QUEUES // 2)
        left_ms = time.time_ns() // 1_000_000
        members.processes["second"].leave()
        members.wait_for_queues("third", QUEUES, left_ms)
        feed.stop()
        self.assertEqual(feed.failures, [])
        members.wait_for_all(feed.sent)
        members.processes["third"].leave()
        queues = members.works()
        for works, sent in zip(queues, feed.sent, strict=True):
            self.one_at_a_time(works)
            self.in_order(works, sent, killed_ms, left_ms)
        self.changes_of_hands(queues, times, killed_ms, left_ms)
        return self.counts(queues)

    def one_at_a_time(self, works: Sequence[Work]) -> None:
        """Check that no member begins with a message of a queue before another one has ended."""
        for before, after in pairwise(works):
            self.assertLessEqual(before.end_ms, after.begin_ms, f"{before} {after}")

    def in_order(
        self, works: Sequence[Work], sent: int, killed_ms: int, left_ms: int
    ) -> None:
        """Check that each message follows the previous one, also among repeated ones."""
        self.assertEqual(works[0].offset, 0)
        for before, after in pairwise(works):
            msg = f"{before} {after}"
            following = before.offset + (before.result == "success")
            if before.member == after.member:
                self.assertEqual(after.offset, following, msg)
                if before.result == "suspend":
                    self.assertEqual(after.tries, before.tries + 1, msg)
            elif before.member == "first" and after.begin_ms > killed_ms:
                # What the killed one had not committed comes again.
                self.assertLessEqual(after.offset, following, msg)
            elif before.member == "second" and after.begin_ms > left_ms:
                # The client commits a last time and works on until its process ends.
                safe = max(work.offset for work in works if work.member == "second"
                           and work.result == "success" and work.end_ms < left_ms)
                self.assertTrue(safe <= after.offset <= following, msg)
            else:
                # A queue is given back with the message that was under way not committed.
                self.assertIn(after.offset, (before.offset, following), msg)
        self.assertEqual({work.offset for work in works if work.result == "success"},
                         set(range(sent)))

    def changes_of_hands(self, queues: Sequence[Sequence[Work]], times: Times, killed_ms: int,
                         left_ms: int) -> None:
        """Check that queues of killed members wait for their locks, and unlocked queues do not."""
        from_killed, from_left = [], []
        for works in queues:
            for before, after in pairwise(works):
                if before.member == "first" and after.member == "second":
                    if after.begin_ms > killed_ms:
                        from_killed.append((after.begin_ms - killed_ms) / 1000)
                elif (before.member, after.member) == ("second", "third") and (
                        after.begin_ms > left_ms):
                    from_left.append((after.begin_ms - before.end_ms) / 1000)
        self.assertEqual(len(from_killed), QUEUES // 2)
        # Who could not renew for longer would have taken its locks for lost.
        self.assertGreater(min(from_killed), times.lock_age - times.doubt)
        self.assertEqual(len(from_left), QUEUES // 2)
        # The leaving member unlocks its queues, so the next one need not wait for the lock's end.
        self.assertLess(max(from_left), times.lock_age / 2)
        suspended = [work for works in queues for work in works if work.result == "suspend"]
        self.assertEqual({work.member for work in suspended}, {"second"})

    @staticmethod
    def counts(queues: Sequence[Sequence[Work]]) -> str:
        works = [work for each in queues for work in each]
        done = [work for work in works if work.result == "success"]
        again = len(done) - len({(queue_id, work.offset) for queue_id, each in enumerate(queues)
                                 for work in each if work.result == "success"})
        return (f"{len(works)} turns, {len(done)} successes, {again} of them again, "
                f"{sum(work.result == 'suspend' for work in works)} suspended, "
                f"{sum(work.result == 'killed' for work in works)} killed")

    def test_orderly_consumers_share_the_queues_of_our_broker(self) -> None:
        """The locks of our broker end soon."""
        self.come_and_go(self.ours(SHORT), SHORT)

    def long_apaches(self) -> None:
        """The broker is Apache's."""
        print(self.come_and_go(self.apache(SHORT), SHORT))

    def long_ours_with_defaults(self) -> None:
        """Both our broker and the client have their default times."""
        print(self.come_and_go(self.ours(Times()), Times()))
