"""Waiting requests, found by the tags that they want."""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.request.filters import PropertyFilter, TagFilter, tag_filter, wants_any
from twistmq.broker.request.waiting_by_tag import WaitingByTag, index_size
from twistmq.broker.store.get_message import MessageFilter
from twistmq.broker.testing.store import message
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import MessageRecord


class Waiting:
    """A waiting request."""

    def __init__(self, number: int, wants: MessageFilter | None) -> None:
        self.number = number
        self.wants = wants
        self.is_over = False


def came(tag: str) -> MessageRecord:
    record = message("T")
    record.tags_code = java_string_hash(tag)
    return record


class WaitingTests(SynchronousTestCase):
    """Every request that wants a message is found, whichever others came and ended before."""

    def setUp(self) -> None:
        self.waiting: WaitingByTag[Waiting] = WaitingByTag()
        self.there: list[Waiting] = []
        self.number = 0

    def add(self, wants: MessageFilter | None) -> Waiting:
        self.number += 1
        one = Waiting(self.number, wants)
        self.waiting.add(one)
        self.there.append(one)
        return one

    def remove(self, one: Waiting) -> None:
        one.is_over = True
        self.there.remove(one)
        self.waiting.remove(one)

    def assertRight(self, *tags: str) -> None:
        """Check the order of all requests, and that those for these tags are found."""
        self.assertEqual(len(self.waiting), len(self.there))
        self.assertEqual(list(self.waiting), self.there)
        self.assertEqual(list(reversed(self.waiting)), self.there[::-1])
        records = [came(tag) for tag in tags]
        found = self.waiting.candidates(records)
        wanting = [one for one in self.there if wants_any(one.wants, records)]
        self.assertLessEqual(set(wanting), set(found))
        self.assertLessEqual(set(found), set(self.there))

    def test_requests_may_come_and_go_in_any_order(self) -> None:
        """Requests for one tag, for several tags or for all tags come and go at random."""
        rng = random.Random(1)
        tags = [f"tag{number}" for number in range(300)]
        for step in range(3000):
            growing = step // 400 % 2 == 0
            if not self.there or rng.random() < (0.8 if growing else 0.25):
                count = rng.choice((0, 1, 1, 2, 20))
                wants = tag_filter(" || ".join(rng.sample(tags, count)))
                self.add(PropertyFilter(lambda _: True) if rng.random() < 0.05 else wants)
            else:
                self.remove(rng.choice(self.there))
            if step % 20 == 0:
                self.assertRight(*rng.sample(tags, rng.choice((1, 3))))
        while self.there:
            self.remove(self.there[0])
        self.assertRight("tag1")

    def test_in_the_order_they_came(self) -> None:
        """Requests for one tag are found in the order of their arrival."""
        for number in range(200):
            self.add(tag_filter("a" if number % 2 else "b"))
        found = [one for one in self.waiting.candidates([came("a")])
                 if wants_any(one.wants, [came("a")])]
        self.assertEqual([one.number for one in found], list(range(2, 201, 2)))

    def test_cost_of_others(self) -> None:
        """A message costs the same however many wait for other tags."""
        def found(count: int, per_one: int) -> int:
            waiting: WaitingByTag[Waiting] = WaitingByTag()
            for number in range(count):
                tags = range(number * per_one, (number + 1) * per_one)
                waiting.add(Waiting(number, TagFilter(frozenset(
                    java_string_hash(f"other{tag}") for tag in tags))))
            # A tag that is by chance where others are is one of many.
            return sorted(len(waiting.candidates([came(f"tag{tag}")])) for tag in range(50))[25]

        self.assertLess(found(10_000, 1), 100)
        self.assertLess(found(2_000, 17), 200)

    def test_same_tag_that_never_comes(self) -> None:
        """Thousands of requests for one tag cost nothing when messages with other tags arrive."""
        for number in range(5000):
            self.waiting.add(Waiting(number, tag_filter("never")))
        found = sum(bool(self.waiting.candidates([came(f"tag{tag}")])) for tag in range(200))
        self.assertLess(found, 20)

    def test_cost_of_leaving(self) -> None:
        """The time grows in proportion to the number."""
        def prepare(count: int) -> Callable[[], object]:
            def work() -> None:
                waiting: WaitingByTag[Waiting] = WaitingByTag()
                there = [Waiting(number, tag_filter(f"t{number % 7}")) for number in range(count)]
                for one in there:
                    waiting.add(one)
                for one in there:
                    one.is_over = True
                    waiting.remove(one)
            return work

        self.assertLess(growth(prepare, 2000), GROWTH_MAX)

    def test_ended_requests_are_dropped(self) -> None:
        """The number of ended requests that are kept is at most that of the waiting ones."""
        for number in range(1000):
            self.add(tag_filter(f"t{number}"))
        for _ in range(700):
            self.remove(self.there[0])
        self.assertLessEqual(len(self.waiting._waiting), 600)
        for _ in range(280):
            self.remove(self.there[0])
        self.assertEqual(len(self.waiting._waiting), 20)

    def test_tags_count_up_to_the_places_there_are(self) -> None:
        """Tags count up to the number of places."""
        many = tag_filter(" || ".join(f"t{number}" for number in range(5000)))
        sizes = [index_size(wants) for wants in (
            None, PropertyFilter(lambda _: True), tag_filter("a"), tag_filter("a || b"), many)]
        self.assertEqual(sizes, [0, 0, 16, 32, 16 * 1024])
