"""The plans that assign queues to brokers."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import TOPIC, A, B, item
from twistmq.plugins.static_topic.checks import MappingError, check_whole
from twistmq.plugins.static_topic.mapping import TopicConfigAndQueueMapping
from twistmq.plugins.static_topic.plans import (
    TopicRemappingDetailWrapper,
    decided,
    growing_plan,
    remapping_plan,
    round_up,
)
from twistmq.protocol.bodies import TopicConfig

Configs = dict[str, TopicConfigAndQueueMapping]
NOW_MS = 1_700_000_000_000
C = "broker-c"


def grown(total: int, targets: list[str], configs: Configs | None = None, now_ms: int = NOW_MS,
          seed: int = 1) -> TopicRemappingDetailWrapper:
    return growing_plan(TOPIC, total, targets, {} if configs is None else configs, now_ms,
                        random.Random(seed).choice)


def moved(configs: Configs, targets: list[str], seed: int = 1) -> TopicRemappingDetailWrapper:
    return remapping_plan(TOPIC, targets, configs, NOW_MS, random.Random(seed).choice)


def leaders(configs: Configs) -> dict[str, int]:
    """Return the number of queues that each broker leads."""
    return {name: len(config.mapping_detail.led()) for name, config in configs.items()
            if config.mapping_detail is not None}


class GrowingTests(SynchronousTestCase):
    """A topic is created, and gets more queues."""

    def test_the_queues_are_shared_evenly(self) -> None:
        """The queues are spread evenly, each in its own physical queue."""
        plan = grown(7, [A, B, C])
        self.assertEqual(sorted(leaders(plan.broker_config_map).values()), [2, 2, 3])
        self.assertEqual((plan.type, plan.epoch), ("CREATE_OR_UPDATE", NOW_MS + 1000))
        _, queues = check_whole(TOPIC, plan.broker_config_map)
        for queue in queues.values():
            [part] = queue.items
            self.assertEqual((part.gen, part.logic_offset, part.start_offset, part.end_offset),
                             (0, 0, 0, -1))

    def test_the_old_queues_stay_where_they_are(self) -> None:
        """The old queues keep their brokers, and the new ones balance the numbers."""
        configs = grown(3, [A]).broker_config_map
        assert configs[A].mapping_detail is not None
        before = dict(configs[A].mapping_detail.hosted_queues)
        plan = grown(6, [A, B], configs)
        self.assertEqual(leaders(plan.broker_config_map), {A: 3, B: 3})
        assert configs[A].mapping_detail is not None
        self.assertEqual(configs[A].mapping_detail.hosted_queues, before)
        self.assertEqual(plan.epoch, NOW_MS + 2000)
        self.assertEqual(grown(7, [A, B], configs, NOW_MS + 10**6).epoch, NOW_MS + 10**6)

    def test_fewer_queues_as_many(self) -> None:
        """Fewer or equally many queues, a missing broker, and an ordinary topic are refused."""
        for total, targets, why in (
            (2, [A], "Cannot decrease the queue num for static topic 2 < 3"),
            (3, [A], "equal the existed queue num"),
            (4, [B], f"The existed broker {A} does not in target brokers "),
        ):
            error = self.assertRaises(
                MappingError, grown, total, targets, grown(3, [A]).broker_config_map)
            self.assertIn(why, str(error))
        plain = {A: TopicConfigAndQueueMapping(TOPIC)}
        self.assertIsInstance(plain[A], TopicConfig)
        self.assertRaises(MappingError, grown, 4, [A], plain)


class RemappingTests(SynchronousTestCase):
    """Queues are moved."""

    def test_all_to_one(self) -> None:
        """A broker that no longer leads any queue keeps its parts for readers."""
        configs = grown(4, [A, B]).broker_config_map
        plan = moved(configs, [B])
        self.assertEqual(leaders(configs), {A: 0, B: 4})
        self.assertEqual((plan.type, plan.broker_to_map_in, plan.broker_to_map_out),
                         ("REMAPPING", {B}, {A}))
        assert configs[A].mapping_detail is not None and configs[B].mapping_detail is not None
        for number, parts in configs[A].mapping_detail.hosted_queues.items():
            self.assertEqual([(part.gen, part.bname, part.logic_offset) for part in parts],
                             [(0, A, 0), (1, B, -1)])
            self.assertEqual(configs[B].mapping_detail.hosted_queues[number], parts)
        self.assertEqual(configs[B].write_queue_nums, 4)

    def test_as_few_as_needed(self) -> None:
        """From any start the result is even, and no broker both gives and gets queues."""
        for seed in range(40):
            rng = random.Random(seed)
            names = [A, B, C]
            configs = grown(rng.randint(1, 9), rng.sample(names, rng.randint(1, 3)),
                            seed=seed).broker_config_map
            total = sum(leaders(configs).values())
            for _ in range(3):
                targets = rng.sample(names, rng.randint(1, 3))
                before = leaders(configs)
                plan = moved(configs, targets, seed)
                self.decide(plan)
                after = leaders(configs)
                counts = [after[name] for name in targets if name in after]
                self.assertEqual(sum(counts), total, msg=f"seed {seed}")
                if total >= len(targets):
                    self.assertLessEqual(max(counts) - min(counts), 1, msg=f"seed {seed}")
                self.assertEqual(plan.broker_to_map_in & plan.broker_to_map_out, set(),
                                 msg=f"seed {seed}")
                gone = sum(max(count - after[name], 0) for name, count in before.items())
                if not gone:
                    self.assertEqual(plan.broker_to_map_in, set(), msg=f"seed {seed}")

    @staticmethod
    def decide(plan: TopicRemappingDetailWrapper) -> None:
        decided(plan, {(name, queue): 5 for name, config in plan.broker_config_map.items()
                       for queue in range(config.write_queue_nums)})


class DecidedTests(SynchronousTestCase):
    """The beginning of a new part."""

    def test_round_up(self) -> None:
        """It is rounded up to the next block, with a distance for messages that are still sent."""
        for offset, expected in ((0, 10_000), (4_999, 10_000), (5_000, 20_000), (9_999, 20_000),
                                 (10_000, 20_000)):
            self.assertEqual(round_up(offset, 10_000), expected, msg=str(offset))

    def test_behind_where_the_old_part_ended(self) -> None:
        """It is after the end of the old part, and both leaders get it."""
        configs = grown(2, [A]).broker_config_map
        plan = moved(configs, [B])
        decided(plan, {(A, 0): 3, (A, 1): 7_000})
        for name in (A, B):
            detail = configs[name].mapping_detail
            assert detail is not None
            offsets = {parts[0].queue_id: parts[-1].logic_offset
                       for parts in detail.hosted_queues.values()}
            self.assertEqual(offsets, {0: 10_000, 1: 20_000}, msg=name)

    def test_what_left_long_ago(self) -> None:
        """If the broker handed the queue on long ago, the old leader is not told."""
        configs = grown(1, [A]).broker_config_map
        RemappingTests.decide(moved(configs, [B]))
        RemappingTests.decide(moved(configs, [C]))
        grown(2, [A, B, C], configs, now_ms=NOW_MS + 10**7, seed=2)
        for config in configs.values():
            assert config.mapping_detail is not None
        old = configs[A].mapping_detail
        assert old is not None
        old.hosted_queues[0] = [item(0, A, 0, 0), item(1, B, 0, -1)]
        [newest] = [name for name, count in leaders(configs).items() if count and name != C]
        plan = moved(configs, [C])
        self.assertEqual(plan.broker_to_map_out, {newest})
        RemappingTests.decide(plan)
        detail = configs[C].mapping_detail
        assert detail is not None
        self.assertEqual([part.bname for part in detail.hosted_queues[0]], [A, B, C])

    def test_unknown_end(self) -> None:
        """A broker that does not report the end of a queue stops the plan."""
        plan = moved(grown(1, [A]).broker_config_map, [B])
        self.assertRaises(MappingError, decided, plan, {})
        self.assertRaises(MappingError, decided, plan, {(A, 0): -1})
