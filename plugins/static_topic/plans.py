"""Plans for a static topic: the broker of each logical queue when the topic is created or moved.

Source: TopicQueueMappingUtils (createTopicConfigMapping, remappingStaticTopic, MappingAllocator),
TopicRemappingDetailWrapper, MQAdminUtils.remappingStaticTopic @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from twistmq.broker.api.bodies import Body
from twistmq.broker.api.wire import Int64
from twistmq.plugins.static_topic.checks import LogicalQueue, MappingError, check_whole
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)

__all__ = ["BLOCK_SIZE", "TopicRemappingDetailWrapper", "decided", "empty_config", "growing_plan",
           "remapping_plan", "round_up"]

#: A new part begins at a multiple of this number. Source: DEFAULT_BLOCK_SEQ_SIZE.
BLOCK_SIZE: Final = 10_000
#: Epochs are times; two changes differ by at least this much, ms.
_EPOCH_STEP: Final = 1000

Configs = dict[str, TopicConfigAndQueueMapping]
#: Chooses one of several broker names.
Choose = Callable[[list[str]], str]


class TopicRemappingDetailWrapper(Body):
    """A change of a static topic, in the form in which mqadmin writes it to a file."""

    topic: str | None = None
    #: CREATE_OR_UPDATE or REMAPPING.
    type: str | None = None
    epoch: Int64 = 0
    #: Broker name to the mapping that is sent to this broker.
    broker_config_map: dict[str, TopicConfigAndQueueMapping] = msgspec.field(default_factory=dict)
    broker_to_map_in: set[str] = msgspec.field(default_factory=set)
    broker_to_map_out: set[str] = msgspec.field(default_factory=set)


def empty_config(topic: str, total: int, broker: str, epoch: int) -> TopicConfigAndQueueMapping:
    """Return the mapping for a broker that has no queue of the topic."""
    return TopicConfigAndQueueMapping(
        topic_name=topic, read_queue_nums=0, write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(
            topic=topic, total_queues=total, bname=broker, epoch=epoch))


def growing_plan(
    topic: str, total: int, targets: Collection[str], configs: Configs, now_ms: int,
    choose: Choose,
) -> TopicRemappingDetailWrapper:
    """Create a static topic, or add logical queues to it.

    :param total: the new number of logical queues.
    :param targets: names of the brokers that share them.
    :param configs: the present configurations by broker name; changed in place to the new ones.
    :raises MappingError: when the change is impossible; then nothing may be sent to brokers.
    """
    for name, config in configs.items():
        detail = config.mapping_detail
        if detail is not None and detail.hosted_queues and name not in targets:
            raise MappingError(f"The existed broker {name} does not in target brokers ")
    epoch, queues = check_whole(topic, configs) if configs else (now_ms, {})
    if total < len(queues):
        raise MappingError("Cannot decrease the queue num for static topic "
                           f"{total} < {len(queues)}")
    if total == len(queues):
        raise MappingError("The topic queue num is equal the existed queue num, do nothing")
    counts = Counter(dict.fromkeys(targets, 0))
    counts.update(queue.bname for queue in queues.values())
    for number in range(len(queues), total):
        broker = _next_broker(counts, {}, choose)
        config = configs.setdefault(broker, empty_config(topic, total, broker, epoch))
        _put_part(config, number, [], 0)
    _date(configs, total, max(epoch + _EPOCH_STEP, now_ms))
    epoch, _ = check_whole(topic, configs)
    return TopicRemappingDetailWrapper(topic, "CREATE_OR_UPDATE", epoch, configs)


def remapping_plan(
    topic: str, targets: Collection[str], configs: Configs, now_ms: int, choose: Choose
) -> TopicRemappingDetailWrapper:
    """Move logical queues so that brokers share them evenly.

    A broker either receives queues or gives some away, never both.

    :param targets: names of the brokers that will lead all queues.
    :param configs: the present configurations by broker name, not empty; changed in place to the
        new ones.
    :raises MappingError: when the change is impossible; then nothing may be sent to brokers.
    """
    epoch, queues = check_whole(topic, configs)
    before = Counter(queue.bname for queue in queues.values())
    quotas = Counter(dict.fromkeys(targets, 0))
    for _ in queues:
        _next_broker(quotas, before, choose)
    moving: list[LogicalQueue] = []
    for queue in queues.values():
        if quotas[queue.bname] > 0:
            quotas[queue.bname] -= 1
        else:
            moving.append(queue)
    epoch = max(epoch + _EPOCH_STEP, now_ms)
    map_in: set[str] = set()
    map_out: set[str] = set()
    for queue, broker in zip(moving, quotas.elements(), strict=True):
        config = configs.setdefault(broker, empty_config(topic, len(queues), broker, epoch))
        parts = _put_part(config, queue.number, queue.items, -1)
        old = configs[queue.bname].mapping_detail
        assert old is not None
        old.hosted_queues[queue.number] = parts
        map_in.add(broker)
        map_out.add(queue.bname)
    _date(configs, len(queues), epoch)
    _, queues = check_whole(topic, configs)
    for queue in queues.values():
        if queue.bname not in targets:
            raise MappingError("The leader broker does not in target broker")
    return TopicRemappingDetailWrapper(topic, "REMAPPING", epoch, configs, map_in, map_out)


def _next_broker(counts: Counter[str], before: Mapping[str, int], choose: Choose) -> str:
    """Choose the broker for one more queue: among those with the fewest, the former largest."""
    min_count = min(counts.values())
    names = [name for name in counts if counts[name] == min_count]
    max_before = max(before.get(name, 0) for name in names)
    broker = choose([name for name in names if before.get(name, 0) == max_before])
    counts[broker] += 1
    return broker


def _put_part(
    config: TopicConfigAndQueueMapping, number: int, items: Iterable[LogicQueueMappingItem],
    logic_offset: int,
) -> list[LogicQueueMappingItem]:
    """Let a broker lead a logical queue, with a new physical queue for it."""
    detail = config.mapping_detail
    assert detail is not None
    parts = list(items)
    parts.append(LogicQueueMappingItem(
        gen=parts[-1].gen + 1 if parts else 0, queue_id=config.write_queue_nums,
        bname=detail.bname or "", logic_offset=logic_offset))
    config.write_queue_nums += 1
    config.read_queue_nums += 1
    detail.hosted_queues[number] = parts
    return parts


def _date(configs: Configs, total: int, epoch: int) -> None:
    for config in configs.values():
        assert config.mapping_detail is not None
        config.mapping_detail.epoch = epoch
        config.mapping_detail.total_queues = total


def decided(
    wrapper: TopicRemappingDetailWrapper, ends: Mapping[tuple[str, int], int],
    block_size: int = BLOCK_SIZE,
) -> None:
    """Decide the starts of the parts that were appended to logical queues.

    :param ends: the ends of physical queues that no longer receive messages, by broker and queue.
    :raises MappingError: when an end is not known.
    """
    configs = wrapper.broker_config_map
    for broker in sorted(wrapper.broker_to_map_out):
        detail = configs[broker].mapping_detail
        assert detail is not None
        for number, items in detail.hosted_queues.items():
            leader = configs[items[-1].bname].mapping_detail
            assert leader is not None
            if len(items) < 2 or leader.hosted_queues.get(number) != items or (
                    items[-1].is_decided):
                # Differs from Apache, which treats this broker's outdated copy of a queue that
                # left it long ago as the new state.
                continue
            last = items[-2]
            end = ends.get((last.bname, last.queue_id))
            if end is None:
                raise MappingError(f"Cannot get the max offset for old leader {last}")
            if end < last.start_offset:
                raise MappingError(
                    f"The max offset is smaller then the start offset {last} {end}")
            items = [*items[:-1], msgspec.structs.replace(
                items[-1], logic_offset=round_up(last.logical(end), block_size))]
            detail.hosted_queues[number] = items
            leader.hosted_queues[number] = items


def round_up(offset: int, block_size: int) -> int:
    """Return the next multiple of a block's size, or the following one if the next is near.

    Messages may still be on their way to the part that ends.
    """
    blocks, rest = divmod(offset, block_size)
    return (blocks + (1 if rest < block_size // 2 else 2)) * block_size
