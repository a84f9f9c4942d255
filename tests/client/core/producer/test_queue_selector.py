"""The choice of queues: turns, retries, keys and rooms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.core.producer.fault_tolerance import Faults
from twistmq.client.core.producer.queue_selector import (
    Choice,
    MachineRoomChoice,
    RandomChoice,
    RoundRobin,
    by_hash,
)
from twistmq.protocol.bodies import MessageQueue

GOLDEN: Final = Path(__file__).resolve().parents[3] / "golden" / "client"


def queues_of(*brokers: str, topic: str = "T", each: int = 4) -> list[MessageQueue]:
    """Return the queues of some brokers."""
    return [MessageQueue(topic, broker, number) for broker in brokers for number in range(each)]


QUEUES: Final = queues_of("a", "b")


def counts(choice: Choice, sends: int, queues: Sequence[MessageQueue] = QUEUES) -> Counter[
        MessageQueue]:
    """Return how often each queue is chosen."""
    return Counter(choice.choose(queues) for _ in range(sends))


class TurnTests(SynchronousTestCase):
    """Queues in turn."""

    @given(st.integers(0, 1 << 31))
    def test_each_queue_gets_its_share(self, start: int) -> None:
        """1,000 sends to two brokers of four queues: 125 each, from every start."""
        found = counts(RoundRobin(start), 1000)
        self.assertEqual(len(found), 8)
        self.assertTrue(all(124 <= count <= 126 for count in found.values()), msg=str(found))

    def test_the_start_chooses_the_first_queue(self) -> None:
        """Senders with different starts begin with different queues."""
        self.assertEqual([RoundRobin(start).choose(QUEUES) for start in range(8)], QUEUES)

    def test_topics_have_turns_of_their_own(self) -> None:
        """A sender that alternates between topics reaches all queues of each."""
        choice = RoundRobin()
        other = queues_of("a", "b", topic="U")
        found = Counter(choice.choose(queues) for _ in range(8) for queues in (QUEUES, other))
        self.assertEqual(found, Counter([*QUEUES, *other]))

    def test_a_retry_passes_over_the_brokers_that_failed(self) -> None:
        """The order of turns continues behind the queue that the retry was sent to."""
        choice = RoundRobin(1)
        self.assertEqual(choice.choose(QUEUES), QUEUES[1])
        self.assertEqual(choice.choose(QUEUES, ["a"]), QUEUES[4])
        self.assertEqual([choice.choose(QUEUES) for _ in range(4)],
                         [QUEUES[5], QUEUES[6], QUEUES[7], QUEUES[0]])

    def test_all_brokers_failed_and_one_of_them_is_chosen(self) -> None:
        """With one broker the retry goes to its next queue."""
        choice = RoundRobin(1)
        self.assertEqual(choice.choose(QUEUES, ["a", "b"]), QUEUES[1])
        self.assertEqual(choice.choose(QUEUES, ["a", "b"]), QUEUES[2])

    def test_a_route_that_shrinks_is_followed(self) -> None:
        """A turn after the end of the new list is a queue of that list."""
        choice = RoundRobin(7)
        choice.choose(QUEUES)
        self.assertIn(choice.choose(QUEUES[:3]), QUEUES[:3])

    def test_a_sender_to_very_many_topics_remembers_a_bound_of_them(self) -> None:
        """Each topic begins with the start, whether or not it was forgotten."""
        choice = RoundRobin(5)
        for number in range(10_001):
            self.assertEqual(choice.choose(queues_of("a", topic=f"T{number}", each=3)).queue_id, 2)
        self.assertEqual(choice.choose(queues_of("a", topic="T10000", each=3)).queue_id, 0)
        self.assertEqual(choice.choose(queues_of("a", topic="T1", each=3)).queue_id, 2)


class FaultTests(SynchronousTestCase):
    """Turns that avoid slow and dead brokers."""

    def setUp(self) -> None:
        """Create a choice with a scripted clock."""
        self.faults = Faults()
        self.choice = RoundRobin(0, self.faults)

    def brokers(self, now_ms: int, failed: Sequence[str] = ()) -> set[str]:
        """Return the brokers of eight sends."""
        return {self.choice.choose(QUEUES, failed, now_ms).broker_name for _ in range(8)}

    def test_a_slow_broker_gets_nothing_while_it_is_left_out(self) -> None:
        """After 700 ms it gets nothing for two seconds, and its share afterwards."""
        self.faults.ended("a", 700, 0)
        self.assertEqual(self.brokers(1999), {"b"})
        self.assertEqual(self.brokers(2000), {"a", "b"})

    def test_of_slow_and_dead_the_slow_is_chosen(self) -> None:
        """Without an available broker a reachable one is chosen; without one of these, any."""
        self.faults.ended("a", 700, 0)
        self.faults.ended("b", 700, 0, failed=True, reachable=False)
        self.assertEqual(self.brokers(0), {"a"})
        self.faults.ended("a", 700, 0, failed=True, reachable=False)
        self.assertEqual(self.brokers(0), {"a", "b"})

    def test_a_broker_that_failed_in_the_same_send_is_passed_over(self) -> None:
        """A slow broker is better than the one that has just refused."""
        self.faults.ended("b", 700, 0)
        self.assertEqual(self.brokers(0, ["a"]), {"b"})


class KeyTests(SynchronousTestCase):
    """Sharding keys."""

    def test_each_key_has_the_queue_that_java_chooses(self) -> None:
        """Of 500 keys some are beyond ASCII, and one has Java's hash without an absolute value."""
        lines = (GOLDEN / "hash-choices.tsv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 500)
        for line in lines:
            key, count, chosen = line.split("\t")
            self.assertEqual(by_hash(queues_of("a", each=int(count)), key).queue_id, int(chosen),
                             msg=line)


class OtherTests(SynchronousTestCase):
    """A random choice, and rooms."""

    def test_a_random_choice_reaches_all_queues(self) -> None:
        """Each queue is chosen at some time, and queues of failed brokers are avoided."""
        choice = RandomChoice(Random(1).randrange)
        self.assertEqual(set(counts(choice, 200)), set(QUEUES))
        self.assertEqual({choice.choose(QUEUES, ["a"]).broker_name for _ in range(50)}, {"b"})
        self.assertIn(choice.choose(QUEUES, ["a", "b"]), QUEUES)

    def test_queues_of_the_rooms_take_turns(self) -> None:
        """Brokers of other rooms, and without a room, get nothing."""
        queues = queues_of("hz@a", "sh@b", "hz", "hz@c", each=2)
        found = counts(MachineRoomChoice(["hz"]), 8, queues)
        self.assertEqual(found, Counter([*queues[:2], *queues[6:]] * 2))

    def test_without_a_broker_in_the_rooms_all_take_turns(self) -> None:
        """The same is true if the brokers in the rooms failed."""
        queues = queues_of("hz@a", "sh@b", each=2)
        self.assertEqual(set(counts(MachineRoomChoice(["bj"]), 4, queues)), set(queues))
        self.assertEqual(
            MachineRoomChoice(["hz"]).choose(queues, ["hz@a"]).broker_name, "sh@b")
