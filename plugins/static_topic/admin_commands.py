"""The commands ``twistmq admin updateStaticTopic`` and ``remappingStaticTopic``.

Like mqadmin, the commands write the old and the new mapping into two files of the temporary folder
before anything is changed. With ``--mapFile``, the first file restores the old mapping, and the
second one continues a change that was interrupted.

Source: UpdateStaticTopicSubCommand, RemappingStaticTopicSubCommand, MQAdminUtils @5.3.3.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from twistmq.broker.api import RequestCode, ResponseCode
from twistmq.broker.api.admin_commands import AdminError, Row, Session
from twistmq.broker.api.bodies import TopicStatsTable
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.headers import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from twistmq.plugins.static_topic.checks import check_brokers, logical_queues
from twistmq.plugins.static_topic.mapping import TopicConfigAndQueueMapping
from twistmq.plugins.static_topic.plans import (
    TopicRemappingDetailWrapper,
    decided,
    empty_config,
    growing_plan,
    remapping_plan,
)

__all__ = ["remapping_static_topic", "update_static_topic"]

#: Apache's broker requires a default topic here, but uses the settings of the topic itself.
_DEFAULT_TOPIC: Final = "TBW102"

Configs = dict[str, TopicConfigAndQueueMapping]


class _LogicalTopicConfigRequestHeader(GetTopicConfigRequestHeader):
    """Asks for the configuration of a topic, including its logical queues on the broker."""

    logical: bool = msgspec.field(default=True, name="lo")


def update_static_topic(
    session: Session, *, topic: str, brokers: str | None, clusters: str | None, total: int,
    file: str | None, force: bool,
) -> Iterator[Row]:
    """Create a static topic, or give it more queues."""
    if file is not None:
        wrapper, files = _read(file, topic), ("", file)
        _complete(session, wrapper)
    else:
        targets = _targets(session, brokers, clusters)
        configs = _existing(session, topic)
        before_file = _write(topic, "CREATE_OR_UPDATE", configs, ".before")
        wrapper = growing_plan(topic, total, sorted({*targets, *configs}), configs, _now_ms(),
                               random.choice)
        files = (before_file, _write_wrapper(wrapper, ".after"))
        _complete(session, wrapper)
        force = False
    yield from _send_configs(session, wrapper, wrapper.broker_config_map, force, files)


def remapping_static_topic(
    session: Session, *, topic: str, brokers: str | None, clusters: str | None,
    file: str | None, force: bool,
) -> Iterator[Row]:
    """Move the queues of a static topic so that the given brokers share them.

    The new leaders accept messages first, and then the old leaders stop accepting them. The start
    of a new part is decided once the end of the old part is known.
    """
    if file is not None:
        wrapper, files = _read(file, topic), ("", file)
    else:
        targets = _targets(session, brokers, clusters)
        for name in targets:
            session.named(name)
        configs = _existing(session, topic)
        if not configs:
            raise AdminError("No topic route to do the remapping")
        before_file = _write(topic, "CREATE_OR_UPDATE", configs, ".before")
        wrapper = remapping_plan(topic, targets, configs, _now_ms(), random.choice)
        files = (before_file, _write_wrapper(wrapper, ".after"))
        _complete(session, wrapper)
        force = False
    for name in wrapper.broker_config_map:
        session.named(name)
    map_in, map_out = sorted(wrapper.broker_to_map_in), sorted(wrapper.broker_to_map_out)
    for _ in _send_configs(session, wrapper, map_in, force, files):
        pass
    out = list(_send_configs(session, wrapper, map_out, force, files))
    decided(wrapper, _ends(session, topic, map_out))
    yield from _send_configs(session, wrapper, map_in, force, files)
    yield from (row for row in out if row[0] not in wrapper.broker_to_map_in)
    other_names = [name for name in wrapper.broker_config_map if name not in {*map_in, *map_out}]
    yield from _send_configs(session, wrapper, other_names, force, files)


# --- the present state


def _targets(session: Session, brokers: str | None, clusters: str | None) -> list[str]:
    """Return the names of the chosen brokers; :raises AdminError: when none is chosen."""
    names: set[str] = set()
    if brokers is not None:
        names.update(name.strip() for name in brokers.split(",") if name.strip())
    for cluster in (clusters or "").split(","):
        names |= session.cluster_info().cluster_addr_table.get(cluster.strip(), set())
    if not names:
        raise AdminError("Find none brokers, do nothing")
    return sorted(names)


def _existing(session: Session, topic: str) -> Configs:
    """Return the mapping of a topic on each broker, by broker name."""
    configs: Configs = {}
    for broker in session.brokers():
        reply = session.ask(broker.address, RequestCode.GET_TOPIC_CONFIG,
                            _LogicalTopicConfigRequestHeader(topic),
                            accepted_codes=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST))
        if reply.code == ResponseCode.SUCCESS:
            configs[broker.name] = TopicConfigAndQueueMapping.decode(reply.body)
    if configs:
        check_brokers(topic, configs)
    return configs


def _ends(session: Session, topic: str, brokers: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return the end offsets of the brokers' physical queues."""
    ends: dict[tuple[str, int], int] = {}
    for name in brokers:
        reply = session.ask(session.named(name).address, RequestCode.GET_TOPIC_STATS_INFO,
                            GetTopicStatsInfoRequestHeader(topic=topic))
        for queue, bounds in TopicStatsTable.decode(reply.body).offset_table.items():
            ends[queue.broker_name, queue.queue_id] = bounds.max_offset
    return ends


# --- the change


def _complete(session: Session, wrapper: TopicRemappingDetailWrapper) -> None:
    """Add the other brokers of the same clusters, each with a mapping without queues."""
    configs = wrapper.broker_config_map
    detail = next(iter(configs.values())).mapping_detail
    assert detail is not None
    for names in session.cluster_info().cluster_addr_table.values():
        if names & configs.keys():
            for name in sorted(names - configs.keys()):
                configs[name] = empty_config(detail.topic, detail.total_queues, name, detail.epoch)


def _send_configs(
    session: Session, wrapper: TopicRemappingDetailWrapper, names: Iterable[str], force: bool,
    files: tuple[str, str],
) -> Iterator[Row]:
    """Send the configurations to the brokers, until one of them refuses."""
    targets = [(session.named(name), wrapper.broker_config_map[name]) for name in names]
    for broker, config in targets:
        detail = config.mapping_detail
        assert detail is not None
        session.ask(broker.address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
                    CreateTopicRequestHeader(
                        topic=config.topic_name, default_topic=_DEFAULT_TOPIC,
                        read_queue_nums=config.read_queue_nums,
                        write_queue_nums=config.write_queue_nums, perm=config.perm,
                        topic_filter_type=config.topic_filter_type.value,
                        topic_sys_flag=config.topic_sys_flag, order=config.order, force=force),
                    detail.encode())
        yield (broker.name, broker.address, config.topic_name, config.read_queue_nums,
               config.write_queue_nums, len(detail.led()), detail.epoch, *files)


# --- files


def _write(topic: str, kind: str, configs: Configs, suffix: str) -> str:
    epoch = check_brokers(topic, configs)[0] if configs else _now_ms()
    return _write_wrapper(TopicRemappingDetailWrapper(topic, kind, epoch, configs), suffix)


def _write_wrapper(wrapper: TopicRemappingDetailWrapper, suffix: str) -> str:
    """Write a mapping into the temporary folder; :returns: the path of the file."""
    path = Path(tempfile.gettempdir()) / f"{wrapper.topic}-{wrapper.epoch}{suffix}"
    try:
        path.write_bytes(wrapper.encode())
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}") from None
    return str(path)


def _read(file: str, topic: str) -> TopicRemappingDetailWrapper:
    """Read such a file; :raises AdminError: when it is another file, or for another topic."""
    try:
        wrapper = TopicRemappingDetailWrapper.decode_saved(Path(file).read_bytes())
    except OSError as error:
        raise AdminError(f"{file}: {error.strerror}") from None
    except WireError as error:
        raise AdminError(f"{file}: {error}") from None
    if not wrapper.broker_config_map:
        raise AdminError(f"{file}: it does not name any broker")
    check_brokers(topic, wrapper.broker_config_map)
    logical_queues(wrapper.broker_config_map)
    return wrapper


def _now_ms() -> int:
    return int(time.time() * 1000)
