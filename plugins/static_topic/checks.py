"""Rules for the mapping of a static topic; violations are reported with Apache's texts.

Source: TopicQueueMappingUtils, TopicQueueMappingManager.updateTopicQueueMapping @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api import BrokerError
from twistmq.broker.api.limits import TOPIC_QUEUES_MAX
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)

__all__ = [
    "CHARACTER_MAX_LENGTH", "OFFSET_MAX", "QUEUE_PARTS_MAX", "LogicalQueue", "MappingError",
    "check_brokers", "check_detail", "check_items", "check_physical_queues", "check_whole",
    "logical_queues", "merged",
]

#: The largest offset in a mapping; the sum of two such offsets is still a Java long.
OFFSET_MAX: Final = 2**62 - 1
#: Limit of the parts of one logical queue; each move of the queue adds a part.
QUEUE_PARTS_MAX: Final = 1000
#: Limit of the characters in a broker's name and in a scope. Source: Validators.
CHARACTER_MAX_LENGTH: Final = 255


class MappingError(BrokerError):
    """A mapping contradicts itself or the previous mapping; the text describes the conflict."""


@dataclass(frozen=True, slots=True)
class LogicalQueue:
    """A logical queue as its leading broker knows it. Source: TopicQueueMappingOne."""

    topic: str
    number: int
    bname: str
    items: list[LogicQueueMappingItem]


# --- the mapping of one broker


def check_items(items: Sequence[LogicQueueMappingItem]) -> None:
    """:raises MappingError: when the items cannot be the parts of a logical queue."""
    following: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if min(item.start_offset, item.gen, item.queue_id) < 0:
            raise MappingError("The field is illegal, should not be negative")
        if following is not None and not item.is_decided:
            raise MappingError("The non-latest item has negative logic offset")
        if following is not None and item.gen >= following.gen:
            raise MappingError("The gen does not increase monotonically")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise MappingError("The endOffset is smaller than the start offset")
        if following is not None and following.is_decided:
            if item.logic_offset >= following.logic_offset:
                raise MappingError("The base logic offset does not increase monotonically")
            if item.logical_end >= following.logic_offset:
                raise MappingError("The max logic offset does not increase monotonically")
        following = item


def check_detail(detail: TopicQueueMappingDetail, physical_queues: int | None = None) -> None:
    """Refuse numbers and texts that a name server, client or table cannot hold.

    Apache's broker checks only the parts of each queue.

    :param physical_queues: the number of write queues of the topic on this broker; None: unknown.
    :raises MappingError: when a queue number is not below the number of queues, an offset exceeds
        OFFSET_MAX, a name is too long, or there are too many parts.
    """
    if not 0 <= detail.total_queues <= TOPIC_QUEUES_MAX:
        raise MappingError(f"The total queue number {detail.total_queues} is not from 0 to "
                           f"{TOPIC_QUEUES_MAX}")
    for name, text in (("scope", detail.scope), ("bname", detail.bname or "")):
        _check_short(name, text)
    for number, items in detail.hosted_queues.items():
        if not 0 <= number < detail.total_queues:
            raise MappingError(f"The queue number {number} is not from 0 to the total queue "
                               f"number {detail.total_queues} - 1")
        if len(items) > QUEUE_PARTS_MAX:
            raise MappingError(f"The queue {number} has {len(items)} items, the limit is "
                               f"{QUEUE_PARTS_MAX}")
        check_items(items)
        for item in items:
            _check_item(item, physical_queues if item.bname == detail.bname else None)


def _check_item(item: LogicQueueMappingItem, physical_queues: int | None) -> None:
    """:raises MappingError: when a part has an impossible number or name."""
    _check_short("bname", item.bname)
    if max(item.logic_offset, item.start_offset, item.end_offset) > OFFSET_MAX:
        raise MappingError(f"An offset of the item is over {OFFSET_MAX}: {item}")
    if min(item.logic_offset, item.end_offset) < -1:
        raise MappingError(f"An offset of the item is below -1: {item}")
    limit = TOPIC_QUEUES_MAX if physical_queues is None else physical_queues
    if item.queue_id >= limit:
        # Apache checks this only in its tool, which examines all brokers.
        raise MappingError("The physical queue id is overflow the write queues: "
                           f"{item.bname}-{item.queue_id}, the limit is {limit}")


def _check_short(name: str, text: str) -> None:
    if len(text) > CHARACTER_MAX_LENGTH:
        raise MappingError(f"The {name} has {len(text)} characters, the limit is "
                           f"{CHARACTER_MAX_LENGTH}")


def merged(
    new: TopicQueueMappingDetail, old: TopicQueueMappingDetail | None, force: bool
) -> TopicQueueMappingDetail:
    """Return the mapping after a change: the new one, plus the old queues that it leaves out.

    :param force: whether the new mapping may be older, and may contradict the old one.
    :raises MappingError: when it must not replace the old one.
    """
    for items in new.hosted_queues.values():
        check_items(items)
    if old is None:
        return new
    if not force:
        if new.epoch < old.epoch:
            raise MappingError(
                f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
        if new.scope != old.scope:
            raise MappingError(
                f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
        for number, items in old.hosted_queues.items():
            _check_follows(items, new.hosted_queues.get(number), new.epoch == old.epoch)
    new.hosted_queues = {**old.hosted_queues, **new.hosted_queues}
    return new


def _check_follows(
    old: Sequence[LogicQueueMappingItem], new: Sequence[LogicQueueMappingItem] | None,
    is_same_epoch: bool,
) -> None:
    """:raises MappingError: when the old parts of a queue must not be replaced by the new ones."""
    if new is None:
        if is_same_epoch:
            raise MappingError("Cannot accept equal epoch with null data")
        return
    if not old:
        return
    if not new:
        raise MappingError("The new item list is null or empty")
    old_items = {item.gen: item for item in old}
    for item in new:
        old_item = old_items.get(item.gen)
        if old_item is not None and not _is_same(old_item, item):
            # Differs from Apache, which checks this with an assertion that is off in production.
            raise MappingError(f"The item of gen {item.gen} must not change: {old_item} {item}")
    if is_same_epoch and _position(old[-1]) != _position(new[-1]):
        raise MappingError("The new leader is different but epoch equal")


def _is_same(old: LogicQueueMappingItem, new: LogicQueueMappingItem) -> bool:
    return _position(old) == _position(new) and (
        old.logic_offset in (-1, new.logic_offset))


def _position(item: LogicQueueMappingItem) -> tuple[int, str, int, int]:
    return item.gen, item.bname, item.queue_id, item.start_offset


# --- the mappings of all brokers


Configs = Mapping[str, TopicConfigAndQueueMapping]


def check_brokers(topic: str, configs: Configs) -> tuple[int, int]:
    """Compare the mappings of all brokers for a topic.

    :param configs: the configurations by broker name, not empty.
    :returns: the epoch and the number of logical queues.
    :raises MappingError: when they contradict each other, or the topic is not static everywhere.
    """
    first: TopicQueueMappingDetail | None = None
    for broker, config in configs.items():
        detail = config.mapping_detail
        if detail is None:
            raise MappingError(f"Mapping info should not be null in broker {broker}")
        if detail.bname != broker:
            raise MappingError(f"The broker name is not equal {broker} != {detail.bname} ")
        if detail.dirty:
            raise MappingError(f"The mapping info is dirty in broker  {broker}")
        if config.topic_name != detail.topic:
            raise MappingError(f"The topic name is inconsistent in broker  {broker}")
        if detail.topic != topic:
            raise MappingError(f"The topic name is not match for broker  {broker}")
        first = first or detail
        if first.scope != detail.scope:
            raise MappingError(
                f"scope does not match {detail.scope} != {first.scope} in {broker}")
        if first.epoch != detail.epoch:
            raise MappingError(f"epoch does not match {first.epoch} != {detail.epoch} in {broker}")
        if first.total_queues != detail.total_queues:
            raise MappingError("total queue number does not match "
                               f"{first.total_queues} != {detail.total_queues} in {broker}")
    assert first is not None
    return first.epoch, first.total_queues


def logical_queues(configs: Configs) -> dict[int, LogicalQueue]:
    """Return all logical queues of a topic by number, each one as its leader knows it.

    :raises MappingError: when a queue is missing, has two leaders, or shares a physical queue.
    """
    details = [config.mapping_detail for config in configs.values()
               if config.mapping_detail is not None]
    queues: dict[int, LogicalQueue] = {}
    for detail in details:
        for number, items in detail.hosted_queues.items():
            check_items(items)
            if not detail.leads(items):
                continue
            if number in queues:
                raise MappingError("The queue id is duplicated in broker "
                                   f"{detail.bname} {queues[number].bname}")
            queues[number] = LogicalQueue(
                detail.topic, number, detail.bname or "", items)
    total = max((detail.total_queues for detail in details), default=0)
    if total != len(queues):
        raise MappingError("The total queue number in config does not match the real hosted "
                           f"queues {total} != {len(queues)}")
    for number in range(total):
        if number not in queues:
            raise MappingError(f"The queue number {number} is not in globalIdMap")
    _check_not_shared(queues.values())
    return dict(sorted(queues.items()))


def _check_not_shared(queues: Iterable[LogicalQueue]) -> None:
    owners: dict[tuple[str, int], LogicalQueue] = {}
    for queue in queues:
        for item in queue.items:
            physical_queue = (item.bname, item.queue_id)
            if physical_queue in owners:
                raise MappingError(
                    f"Topic {queue.topic} global queue id {queue.number} and "
                    f"{owners[physical_queue].number} shared the same physical queue "
                    f"{item.bname}-{item.queue_id}")
            owners[physical_queue] = queue


def check_physical_queues(configs: Configs) -> None:
    """:raises MappingError: when a part lies in a physical queue that its broker does not have."""
    for config in configs.values():
        if config.read_queue_nums < config.write_queue_nums:
            raise MappingError("Read queues is smaller than write queues")
        assert config.mapping_detail is not None
        for items in config.mapping_detail.hosted_queues.values():
            for item in items:
                if item.start_offset != 0:
                    raise MappingError("The start offset does not begin from 0")
                item_config = configs.get(item.bname)
                if item_config is None:
                    raise MappingError("The broker of item does not exist")
                if item.queue_id >= item_config.write_queue_nums:
                    raise MappingError("The physical queue id is overflow the write queues")


def check_whole(topic: str, configs: Configs) -> tuple[int, dict[int, LogicalQueue]]:
    """Check a topic completely; :returns: its epoch and its logical queues by number.

    :raises MappingError: when a rule is violated.
    """
    epoch, _ = check_brokers(topic, configs)
    queues = logical_queues(configs)
    check_physical_queues(configs)
    return epoch, queues
