"""The strategies are compared with 5,000 cases of the Java client 5.3.3."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import SHARE, WHOLE, drawn
from twistmq.client.core.consumer.strategies import (
    STRATEGIES,
    Averagely,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    share,
    sorted_members,
    sorted_queues,
)
from twistmq.protocol.bodies import MessageQueue

GOLDEN: Final = Path(__file__).resolve().parents[3] / "golden" / "client"
#: The seed of the orders in which lists are given.
SEED: Final = 1


def room_of(name: str) -> str:
    """Return the room of a broker or a member, as the Java program does."""
    room, at, _ = name.partition("@")
    return room if at and room else "none"


def strategy_of(name: str, case: dict[str, Any], queues: list[MessageQueue]) -> Strategy:
    """Return the strategy of a case by its name."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if name == "MACHINE_ROOM":
        return MachineRoom(case["rooms"])
    if name == "CONFIG":
        first = case["shares"]["CONFIG"].split(";")[0]
        return Configured(queues[int(number)] for number in first.split(",") if number)
    kind, _, inner = name.partition("-")
    assert kind == "MACHINE_ROOM_NEARBY", name
    return MachineRoomNearby(STRATEGIES[inner], lambda queue: room_of(queue.broker_name), room_of)


def cases() -> Iterator[dict[str, Any]]:
    """Return the cases of the golden file."""
    for line in lzma.decompress((GOLDEN / "allocations.jsonl.xz").read_bytes()).splitlines():
        yield json.loads(line)


class JavaTests(SynchronousTestCase):
    """The shares that Java computed."""

    def test_every_share_is_the_one_java_computes(self) -> None:
        """In all 5,000 cases each member has Java's queues in Java's order.

        Members hear of queues and members in any order, so the lists are in any order here.
        """
        shuffle = random.Random(SEED).shuffle
        names, count = set(), 0
        for case in drawn(cases()):
            count += 1
            queues = [MessageQueue(case["topic"], broker, number)
                      for broker, most in case["brokers"] for number in range(most)]
            given, members = list(queues), list(case["members"])
            shuffle(given)
            shuffle(members)
            for name, shares in case["shares"].items():
                strategy = strategy_of(name, case, queues)
                self.assertEqual(strategy.name, name)
                names.add(name)
                for member, numbers in zip(case["members"], shares.split(";"), strict=True):
                    expected = [queues[int(number)] for number in numbers.split(",") if number]
                    if share(strategy, member, given, members) != expected:
                        self.fail(f"{name} for {member} in {case}")
        self.assertEqual(count, 5000 if WHOLE else 5000 // SHARE)
        self.assertEqual(len(names), 8)

    def test_the_cases_hold_the_names_that_are_hard(self) -> None:
        """There are names beyond ASCII and the basic plane, in both cases, and equal hashes."""
        names = {name for case in cases()
                 for name in (*case["members"], *(broker for broker, _ in case["brokers"]))}
        self.assertTrue(any(ord(letter) > 0xFFFF for name in names for letter in name))
        self.assertTrue(any(0xE000 <= ord(letter) <= 0xFFFF for name in names for letter in name))
        self.assertTrue(any(name.swapcase() in names for name in names if name.isupper()))
        self.assertTrue(any(len(set(case["members"])) < len(case["members"]) for case in cases()))


class OrderTests(SynchronousTestCase):
    """The order of lists."""

    def test_text_is_sorted_by_its_utf_16_units(self) -> None:
        """Unlike in Python, a letter beyond the basic plane precedes one near its end."""
        self.assertEqual(sorted_members(["\uff5e", "\U0001f600", "a", "B", "\ue000"]),
                         ["B", "a", "\U0001f600", "\ue000", "\uff5e"])

    def test_queues_are_sorted_by_topic_broker_and_id(self) -> None:
        """The id is a number, so 10 is after 9."""
        queues = [MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("t", "a", 11),
                  MessageQueue("T", "z", 0)]
        self.assertEqual(sorted_queues(queues), [queues[3], queues[2], queues[1], queues[0]])


class EdgeTests(SynchronousTestCase):
    """Lists that Java never gets."""

    queues: Final = [MessageQueue("t", "b", number) for number in range(4)]

    def test_a_member_the_broker_does_not_know_has_no_share(self) -> None:
        """A member that is not listed yet gets nothing until the next list."""
        self.assertEqual(share(Averagely(), "me", self.queues, ["other"]), [])
        self.assertEqual(share(Averagely(), "me", self.queues, []), [])

    def test_a_topic_without_queues_has_no_shares(self) -> None:
        """No strategy is called with an empty list."""
        self.assertEqual(share(Configured(self.queues), "me", [], ["me"]), [])

    def test_a_ring_without_places_gives_nothing(self) -> None:
        """Without virtual nodes there is no owner; a negative number is refused."""
        self.assertEqual(share(ConsistentHash(0), "me", self.queues, ["me"]), [])
        self.assertRaises(ValueError, ConsistentHash, -1)

    def test_a_queue_or_member_without_a_room_is_refused(self) -> None:
        """The error names it."""
        nowhere = MachineRoomNearby(Averagely(), lambda queue: "", lambda member: "hz")
        error = self.assertRaises(ValueError, share, nowhere, "me", self.queues, ["me"])
        self.assertIn("queue_id=0", str(error))
        homeless = MachineRoomNearby(Averagely(), lambda queue: "hz", lambda member: "")
        error = self.assertRaises(ValueError, share, homeless, "me", self.queues, ["me"])
        self.assertIn("me is in no machine room", str(error))
