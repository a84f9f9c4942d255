"""The rules for a mapping."""

from __future__ import annotations

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import TOPIC, A, B, item
from twistmq.plugins.static_topic.checks import (
    MappingError,
    check_brokers,
    check_items,
    check_physical_queues,
    check_whole,
    logical_queues,
    merged,
)
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)

Parts = list[LogicQueueMappingItem]


def detail(*lists: Parts, name: str = A, epoch: int = 1, **fields: str) -> TopicQueueMappingDetail:
    """Return the mapping of a broker."""
    return TopicQueueMappingDetail(topic=TOPIC, total_queues=len(lists), bname=name, epoch=epoch,
                                   hosted_queues=dict(enumerate(lists)), **fields)


def configs() -> dict[str, TopicConfigAndQueueMapping]:
    """Return two queues on two brokers, one of which was moved."""
    first, second = [item(0, A, 0, 0), item(1, B, 1, 10_000)], [item(0, B, 0, 0)]
    found = {}
    for name, queues in ((A, {0: first}), (B, {0: first, 1: second})):
        found[name] = TopicConfigAndQueueMapping(
            TOPIC, 2, 2, mapping_detail=TopicQueueMappingDetail(
                topic=TOPIC, total_queues=2, bname=name, epoch=7, hosted_queues=queues))
    return found


class CheckCase(SynchronousTestCase):
    """Tests of refusals."""

    def refused(self, why: str, function: Callable[..., object], *arguments: object) -> None:
        error = self.assertRaises(MappingError, function, *arguments)
        self.assertIn(why, str(error))


class ItemsTests(CheckCase):
    """The parts of one queue."""

    def test_valid_parts_are_accepted(self) -> None:
        """No part, one part, and parts with growing generations and offsets are valid."""
        for parts in ([], [item(0, A, 0, -1)], [item(0, A, 0, 0), item(3, B, 0, 10)],
                      [item(0, A, 0, 0, end_offset=9), item(1, B, 0, 10), item(2, A, 1, -1)]):
            check_items(parts)

    def test_each_fault_of_a_part_has_apaches_words(self) -> None:
        """Each fault has the error text of Apache."""
        for why, parts in (
            ("should not be negative", [item(-1, A, 0, 0)]),
            ("should not be negative", [item(0, A, -1, 0)]),
            ("should not be negative", [item(0, A, 0, 0, start_offset=-1)]),
            ("negative logic offset", [item(0, A, 0, -1), item(1, B, 0, -1)]),
            ("gen does not increase", [item(1, A, 0, 0), item(1, B, 0, 10)]),
            ("endOffset is smaller", [item(0, A, 0, 0, start_offset=5, end_offset=4)]),
            ("base logic offset", [item(0, A, 0, 10), item(1, B, 0, 10)]),
            ("max logic offset", [item(0, A, 0, 0, end_offset=10), item(1, B, 0, 10)]),
        ):
            self.refused(why, check_items, parts)


class MergeTests(CheckCase):
    """A new mapping and the previous one."""

    def setUp(self) -> None:
        self.old = detail([item(0, A, 0, 0)], [item(0, A, 1, 0)])

    def test_a_first_mapping_is_accepted_if_it_is_consistent(self) -> None:
        """Without a previous mapping any consistent one is valid."""
        self.assertEqual(merged(self.old, None, False), self.old)
        self.refused("negative", merged, detail([item(-1, A, 0, 0)]), None, True)

    def test_queues_that_are_left_out_stay(self) -> None:
        """Queues that are left out are kept, for a later epoch or by force."""
        for new, force in ((detail([item(0, A, 0, 0)], epoch=2), False),
                           (detail([item(0, A, 0, 0)], epoch=0), True)):
            self.assertEqual(merged(new, self.old, force).hosted_queues, self.old.hosted_queues)

    def test_an_older_or_contradicting_mapping_is_refused(self) -> None:
        """An older or contradicting mapping, or one of another scope, is refused."""
        for why, new in (
            ("Can't accept data with small epoch 0 < 1", detail(epoch=0)),
            ("Can't accept data with unmatched scope x != __global__", detail(scope="x")),
            ("Cannot accept equal epoch with null data", detail([item(0, A, 0, 0)])),
            ("The new item list is null or empty", detail([], [item(0, A, 1, 0)], epoch=2)),
            ("The new leader is different but epoch equal",
             detail([item(0, A, 0, 0), item(1, B, 0, -1)], [item(0, A, 1, 0)])),
            ("must not change", detail([item(0, B, 0, 0)], epoch=2)),
            ("must not change", detail([item(0, A, 2, 0)], epoch=2)),
            ("must not change", detail([item(0, A, 0, 5)], epoch=2)),
        ):
            self.refused(why, merged, new, self.old, False)

    def test_decided_once(self) -> None:
        """The beginning of a part may be decided once, with the same epoch."""
        old = detail([item(0, A, 0, 0), item(1, B, 0, -1)])
        new = detail([item(0, A, 0, 0), item(1, B, 0, 10_000)])
        self.assertEqual(merged(new, old, False), new)
        again = detail([item(0, A, 0, 0), item(1, B, 0, 20_000)])
        self.refused("must not change", merged, again, new, False)

    def test_first_part_may_be_gone(self) -> None:
        """The first part may have been removed in the meantime, in either mapping."""
        whole = [item(0, A, 0, 0), item(1, A, 1, 10_000)]
        for old, new in ((whole, whole[1:]), (whole[1:], whole)):
            self.assertEqual(merged(detail(new, epoch=2), detail(old), False).hosted_queues,
                             {0: new})


class WholeTests(CheckCase):
    """The mappings of all brokers."""

    def test_the_epoch_and_each_queue_as_its_leader_has_it(self) -> None:
        """The epoch, and each queue as its leader has it."""
        epoch, queues = check_whole(TOPIC, configs())
        self.assertEqual((epoch, [(q.number, q.bname, len(q.items)) for q in queues.values()]),
                         (7, [(0, B, 2), (1, B, 1)]))

    def test_all_brokers_must_agree(self) -> None:
        """The brokers must agree on everything except their own queues."""
        for why, field, value in (
            ("The broker name is not equal", "bname", "x"), ("is dirty", "dirty", True),
            ("topic name is inconsistent", "topic", "x"), ("scope does not match", "scope", "x"),
            ("epoch does not match 7 != 8", "epoch", 8),
            ("total queue number does not match 2 != 3", "total_queues", 3),
        ):
            broken = configs()
            setattr(broken[B].mapping_detail, field, value)
            self.refused(why, check_brokers, TOPIC, broken)
        broken = configs()
        broken[A].mapping_detail = None
        self.refused(f"Mapping info should not be null in broker {A}", check_brokers, TOPIC, broken)
        self.refused("topic name is not match", check_brokers, "other", configs())

    def test_each_logical_queue_has_one_leader(self) -> None:
        """Each queue has one leader, and no physical queue is used twice."""
        def change(queues: dict[int, Parts]) -> dict[str, TopicConfigAndQueueMapping]:
            broken = configs()
            assert broken[B].mapping_detail is not None
            broken[B].mapping_detail.hosted_queues = queues
            return broken

        first, second = [item(0, A, 0, 0), item(1, B, 1, 10_000)], [item(0, B, 0, 0)]
        for why, broken in (
            ("real hosted queues 2 != 1", change({0: first})),
            ("The queue number 1 is not in globalIdMap", change({0: first, 2: second})),
            (f"shared the same physical queue {B}-1", change({0: first, 1: [item(0, B, 1, 0)]})),
        ):
            self.refused(why, logical_queues, broken)
        twice = configs()
        assert twice[A].mapping_detail is not None
        twice[A].mapping_detail.hosted_queues[1] = [item(0, A, 1, 0)]
        self.refused("The queue id is duplicated", logical_queues, twice)

    def test_physical_queues(self) -> None:
        """Parts begin at 0, in queues that exist on their brokers."""
        def changed(**fields: int) -> dict[str, TopicConfigAndQueueMapping]:
            broken = configs()
            for name, value in fields.items():
                setattr(broken[B], name, value)
            return broken

        check_physical_queues(configs())
        self.refused("Read queues is smaller", check_physical_queues, changed(read_queue_nums=1))
        self.refused("overflow the write queues", check_physical_queues,
                     changed(write_queue_nums=1))
        gone = configs()
        del gone[A]
        self.refused("The broker of item does not exist", check_physical_queues, gone)
        late = configs()
        assert late[A].mapping_detail is not None
        late[A].mapping_detail.hosted_queues[0][0].start_offset = 1
        self.refused("does not begin from 0", check_physical_queues, late)
