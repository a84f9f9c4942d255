"""The limit on the bytes of a consumer: its windows, its options and its pulls."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from tests.client.core.group_box import BROKER, GroupBroker
from tests.client.core.pop_box import PopBox
from twistmq.client.core.consumer.fetcher import AHEAD_MAX
from twistmq.client.core.consumer.flow_control import CACHE_BYTES_MAX, PULL_BYTES
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.roles.parts import build_consumer, build_pull_consumer
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pull import PullMessageRequestHeader

MIB = 1 << 20
QUEUES = 8
#: A pull of 32 brings less than the 256 KiB that it counts for.
BODY = b"5" * 8_000


class BoundTests(SynchronousTestCase):
    """Eight queues of 300 messages of 8 KB each, in total 19 MB, which nothing finishes."""

    def setUp(self) -> None:
        """Store the messages."""
        self.broker = GroupBroker(QUEUES)
        self.broker.put("T", 0, BODY)
        for queue in range(QUEUES):
            # The records of a queue differ in their offsets alone.
            for _ in range(300 if queue else 299):
                self.broker.put("T", queue, BODY)
        self.box = Box()
        self.box.servers[NAMESRV] = routes({"T": route({"a": BROKER}, QUEUES)})
        self.box.servers[BROKER] = self.broker

    def member(self, build: Any = build_consumer, **options: Any) -> Member[Any]:
        """A member that has read all that it reads; its options are as programs give them."""
        core = build(self.box.core, "g", "T", {"start": "first", **options})
        member: Member[Any] = core.member if isinstance(core, PullMember) else core
        self.box.run(member.start())
        self.box.advance(3000)
        return member

    def read(self, member: Member[Any]) -> int:
        """The bytes in all windows of a member, which its total has too."""
        found = sum(assigned.window.byte_count for assigned in member.assigned_queues.values())
        self.assertEqual(member.assigned_queues.total.byte_count, found)
        return found

    def test_all_windows_together_stay_within_the_option(self) -> None:
        """This is so for both consumers; every queue has some messages, and the rest follows."""
        for build in (build_consumer, build_pull_consumer):
            with self.subTest(build=build.__name__):
                self.setUp()
                member = self.member(build, cache_bytes_max=4 * MIB)
                self.assertLessEqual(self.read(member), 4 * MIB)
                self.assertGreater(self.read(member), 2 * MIB)
                self.assertEqual(sum(assigned.window.count > 0
                                     for assigned in member.assigned_queues.values()),
                                 QUEUES)
                got: Counter[tuple[int, int]] = Counter()
                for _ in range(400):
                    while (batch := member.take(1000)) is not None:
                        got.update((each.queue.queue_id, each.offset) for each in batch.messages)
                        member.succeed(batch.assigned, batch.messages)
                    if len(got) == QUEUES * 300:
                        break
                    self.box.advance(100)
                    self.assertLessEqual(self.read(member), 4 * MIB)
                self.assertEqual((len(got), set(got.values())), (QUEUES * 300, {1}))

    def test_the_default_is_64_mib(self) -> None:
        """19 MB fit."""
        self.assertEqual(CACHE_BYTES_MAX, 64 * MIB)
        self.assertGreater(self.read(self.member()), 18 * MIB)

    def test_pulls_that_are_begun_ahead_count(self) -> None:
        """Pulls ahead leave half of the room to others; without a limit there are eight."""
        for bound, ahead in ((64 * MIB, AHEAD_MAX), (4 * MIB, 4)):
            self.setUp()
            begun: list[int] = []

            def serve(command: RemotingCommand, begun: list[int] = begun) -> Answer:
                if command.code == RequestCode.PULL_MESSAGE:
                    offset = command.header(PullMessageRequestHeader).queue_offset
                    queue = command.header(PullMessageRequestHeader).queue_id
                    if queue:
                        return None
                    begun.append(offset)
                    if offset:
                        # The pulls behind the first one stay under way.
                        return None
                return self.broker(command)

            self.box.servers[BROKER] = serve
            member: Member[Any] = build_consumer(
                self.box.core, "g", "T", {"start": "first", "cache_bytes_max": bound})
            self.box.run(member.start())
            self.box.advance(700)
            self.assertEqual(begun[:2], [0, 32])
            self.assertLessEqual(len(begun) - 1, ahead)
            if bound == 64 * MIB:
                self.assertEqual(len(begun) - 1, AHEAD_MAX)

    def test_a_consumer_that_pops_has_the_bound_too(self) -> None:
        """It does not pop if its messages and the new ones may exceed the limit."""
        box = PopBox(cache_bytes_max=2 * PULL_BYTES, pop_count=32)
        for _ in range(200):
            box.broker.put(b"5" * 10_000)
        box.start()
        for _ in range(30):
            box.demand()
            box.advance(100)
        count = sum(assigned.window.count for assigned in box.member.assigned_queues.values())
        self.assertEqual(box.member.assigned_queues.total.byte_count,
                         sum(assigned.window.byte_count
                             for assigned in box.member.assigned_queues.values()))
        self.assertLess(count, 100)
        self.assertGreater(count, 20)
