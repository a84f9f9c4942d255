"""The topics of a broker: table, file, creation on demand.

Source: TopicConfigManager @5.3.3.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping
from copy import copy
from typing import Final

from msgspec.structs import replace
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import (
    DELETED_TOPICS_MAX,
    LOG_OFFSET_MAX,
    TOPIC_QUEUES_MAX,
    TOPIC_ROWS_KEPT,
    TOPIC_ROWS_SIZE_MAX,
)
from twistmq.broker.request.attributes import (
    BATCH_QUEUE,
    CLEAN_UP,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    alter_attributes,
)
from twistmq.broker.request.persisted_table import FileRows, SavedTable, Saving
from twistmq.broker.store.config_file import ConfigFile
from twistmq.protocol import topic_names
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.bodies.rows import encode_with_rows, map_row
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused, WireError
from twistmq.protocol.flags import PERM_INHERIT, PERM_READ_WRITE
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LimitedLog, LineRate
from twistmq.protocol.topic_names import can_be_directory, group_of_topic, retry_topic

__all__ = ["TopicConfigTable", "is_batch_topic"]

#: The size of the row of a topic without attributes and without its name, which the row contains
#: twice; bytes.
_ROW_SIZE: Final = 200
#: The number of topics that a log line names.
_NAMED_MAX: Final = 20
#: The number of another broker's topics that are compared between two checks of the clock.
_ROWS_AT_ONCE: Final = 100


def _is_no_group(group: str) -> bool:
    """The default of ``is_group``, for which no name is a group."""
    return False


class TopicConfigTable(SavedTable):
    """Topics by name.

    :param file: topics.json.
    :param now_ms: the clock, for the data version.
    :param is_group: returns whether a group exists.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, file: ConfigFile, now_ms: Callable[[], int],
        is_group: Callable[[str], bool] = _is_no_group,
    ) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self._light = settings.flag("enableLmq")
        self._settings = settings
        self.data_version = DataVersion(timestamp=now_ms())
        #: Topics that only the broker itself may create or delete.
        self.system_topics: set[str] = set()
        self.table: dict[str, TopicConfig] = {}
        #: Called with the name of a topic that was added, changed or removed.
        self.on_change: list[Callable[[str], None]] = []
        #: Topics that were deleted since the start and not created again, the oldest first, with
        #: the end of the log at the deletion.
        self._deleted: OrderedDict[str, int] = OrderedDict()
        #: The rows of the topics in replies and registrations, and the size of these rows, bytes.
        self.rows: dict[str, bytes] = {}
        self.rows_size = 0
        self.is_group = is_group
        self._was_saved = False
        self._created_lines = LineRate(EVENTS_A_MINUTE)
        self._full_lines = LineRate()
        self._lines = LimitedLog(self.log)
        self._file_rows = FileRows(self._file_row)
        self._create_system_topics(settings)

    def _create_system_topics(self, settings: Settings) -> None:
        """Make the topics of a fresh broker of 5.3.3; saved topics replace them."""
        cluster, broker = settings.text("brokerClusterName"), settings.text("brokerName")
        template_queues = settings.int("defaultTopicQueueNums")
        cluster_perm = PERM_READ_WRITE if settings.flag("clusterTopicEnable") else 0
        broker_perm = PERM_READ_WRITE if settings.flag("brokerTopicEnable") else 0
        rows = [
            (topic_names.SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
            (topic_names.BENCHMARK_TOPIC, 1024, PERM_READ_WRITE),
            (cluster, 16, cluster_perm | PERM_INHERIT),
            (broker, 1, broker_perm | PERM_INHERIT),
            (topic_names.OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE),
            (topic_names.SCHEDULE_TOPIC, 18, PERM_READ_WRITE),
            (f"{cluster}_REPLY_TOPIC", 1, PERM_READ_WRITE),
            (f"rmq_sys_REVIVE_LOG_{cluster}", 8, PERM_READ_WRITE),
            (f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
            (topic_names.HALF_TOPIC, 1, PERM_READ_WRITE),
            (topic_names.OP_HALF_TOPIC, 1, PERM_READ_WRITE),
            (topic_names.TIMER_TOPIC, 1, PERM_READ_WRITE),
        ]
        if settings.flag("autoCreateTopicEnable"):
            rows.append(
                (topic_names.TEMPLATE_TOPIC, template_queues, PERM_READ_WRITE | PERM_INHERIT))
        if settings.flag("traceTopicEnable"):
            rows.append((settings.text("msgTraceTopicName"), 1, PERM_READ_WRITE))
        for name, queues, perm in rows:
            self._enter(TopicConfig(name, queues, queues, perm))
            self.system_topics.add(name)

    # --- file

    def load(self) -> None:
        """Read the saved topics; :raises StoreDamaged: when the file cannot be read."""
        self._was_saved = self._file.load(self._decode)

    def make_again(self, queues: Mapping[str, Collection[int]],
                   is_batch: Callable[[str], bool], *, of_lost_master: bool = False,
                   last_message: Callable[[str], int] = lambda topic: -1,
                   is_slave: bool = False) -> None:
        """Find topics that have queues but no entry in the table, without removing any queues.

        If no topics were saved, for example because the folder ``config`` was removed, these topics
        are created again with their existing queues. In all other cases such a topic was deleted by
        a request that a kill interrupted, or it is newer than a restored backup; it is not changed.
        A single log line names these topics. On a slave whose master is lost, messages arrived with
        the log before their topic, because topics are copied less often. The topics that were not
        deleted are then created.

        Differs from Apache, whose broker knows none of these topics until a client sends to them.

        :param queues: ids of queues by topic.
        :param is_batch: whether a topic's queues are batch queues.
        :param of_lost_master: whether this broker takes over from its master now.
        :param last_message: returns an offset in the log within the last message of a topic; -1 if
            it is not known.
        :param is_slave: whether the topics are copied from a master.
        """
        unknown = sorted(topic for topic in queues
                         if topic not in self.table and not topic_names.is_light(topic)
                         and not (of_lost_master and self.is_deleted(topic, last_message(topic))))
        if not unknown:
            return
        names = ", ".join(unknown[:_NAMED_MAX]) + (", ..." if len(unknown) > _NAMED_MAX else "")
        if self._was_saved and is_slave:
            # The master's topics arrive later than the log.
            self.log.info("{count} topics have queues but no configuration yet: {names}",
                          count=len(unknown), names=names)
            return
        if self._was_saved and not of_lost_master:
            self.log.warn(
                "{count} topics have queues but no configuration: {names}. To read their messages, "
                "create the topics again (updateTopic); to remove their queues, use "
                "cleanUnusedTopic", count=len(unknown), names=names)
            return
        made_count = 0
        for topic in unknown:
            count = min(max(queues[topic]) + 1, TOPIC_QUEUES_MAX)
            config = TopicConfig(topic, count, count, PERM_READ_WRITE)
            if is_batch(topic):
                config.attributes = {QUEUE_TYPE: BATCH_QUEUE}
            try:
                self.require_room((config,), kept=0)
            except RequestRefused:
                break
            self._changed(config)
            made_count += 1
        why = "the master's last topics were not copied" if of_lost_master else (
            "no saved topics were found")
        self.log.warn("{why}: {made} of {count} topics are created again from their queues: "
                      "{names}. Their permissions, attributes, groups and offsets are lost: "
                      "defaults are used", why=why, made=made_count, count=len(unknown),
                      names=names)

    def _decode(self, text: str) -> None:
        data = text.encode()
        saved = TopicConfigSerializeWrapper.decode_saved(data)
        for name, config in saved.topic_config_table.items():
            if name != config.topic_name or not can_be_directory(name):
                raise ValueError(f"{name!r}, {config}: it is not a valid topic")
        for config in saved.topic_config_table.values():
            self._enter(config)
        compacted = sum(config.attributes.get(CLEAN_UP) == "COMPACTION"
                        for config in saved.topic_config_table.values())
        if compacted:
            self.log.warn("cleanup.policy=COMPACTION of {count} topics is not supported here: "
                          "their messages are removed by age", count=compacted)
        self._file_rows.loaded(data, "topicConfigTable", saved.topic_config_table)
        self.data_version.assign(saved.data_version)
        if self.rows_size > TOPIC_ROWS_SIZE_MAX:
            self.log.error("{count} topics are too many: they do not fit into a registration or a "
                           "tool's reply", count=len(self.table))

    def saving(self) -> Saving:
        """See SavedTable."""
        yield from self._file_rows.write()
        return self._job(TopicConfigSerializeWrapper({}, self.data_version),
                         {"topicConfigTable": self._file_rows.rows()})

    def _file_row(self, topic: str) -> bytes | None:
        config = self.table.get(topic)
        return None if config is None else encode_pretty_row(topic, config)

    # --- rows

    def _enter(self, config: TopicConfig) -> None:
        """Put a new or changed topic into the table."""
        # All tables share one string for the name, so that a look-up needs no comparison.
        name = config.topic_name = sys.intern(config.topic_name)
        row = map_row(name, config)
        self.rows_size += len(row) - len(self.rows.get(name, b""))
        self.rows[name] = row
        self.table[name] = config
        self._deleted.pop(name, None)
        self._topic_changed(name)

    def _topic_changed(self, name: str) -> None:
        self._file_rows.changed(name)
        for listener in self.on_change:
            listener(name)

    def require_room(
        self, configs: Collection[TopicConfig], kept: int = TOPIC_ROWS_KEPT
    ) -> None:
        """Refuse topics for which the table has no room.

        :param kept: bytes that must stay free, unless all of these are topics of existing groups or
            system topics.
        :raises RequestRefused: when less would stay free.
        """
        new = [config for config in configs if config.topic_name not in self.table]
        if not new:
            return
        size = sum(_ROW_SIZE + 2 * len(config.topic_name)
                   + sum(len(name) + len(value) for name, value in config.attributes.items())
                   for config in new)
        size_max = TOPIC_ROWS_SIZE_MAX
        if not all(self._is_served_first(config.topic_name) for config in new):
            size_max -= kept
        if self.rows_size + size <= size_max:
            return
        left_out = self._full_lines.left_out(self._now_ms())
        if left_out is not None:
            self.log.warn("no room for topic {topic}: there are {count} ({left_out} such lines "
                          "were left out before)", topic=new[0].topic_name, count=len(self.table),
                          left_out=left_out)
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the broker has {len(self.table)} topics, which take {self.rows_size} bytes in a "
            f"registration; {size} bytes more exceed the limit of {size_max}")

    def _is_served_first(self, topic: str) -> bool:
        """Whether a topic may use the reserved room."""
        group = group_of_topic(topic)
        return self.is_system_topic(topic) if group is None else self.is_group(group)

    def has_room_for_group(self, group: str) -> bool:
        """Whether there is room for the retry and dead-letter topics of a new group."""
        topic = retry_topic(group)
        new_size = 0 if topic in self.table else 2 * (_ROW_SIZE + 2 * len(topic))
        return self.rows_size + new_size <= TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT // 2

    # --- look-up

    def get(self, topic: str) -> TopicConfig | None:
        config = self.table.get(topic)
        return self.light_topic(topic) if config is None else config

    def shown_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue to which a message goes after it has waited.

        This is its own queue, if clients can read it. The topic may have lost queues in the
        meantime, and no route shows those. Differs from Apache, whose broker stores the message in
        such a queue, where no client reads it. System topics have queues with a special meaning, so
        their queue ids are not changed.
        """
        config = self.table.get(topic)
        if (config is None or not 0 < config.read_queue_nums <= queue_id
                or self.is_system_topic(topic)):
            return queue_id
        return queue_id % (min(config.read_queue_nums, config.write_queue_nums)
                           or config.read_queue_nums)

    def is_deleted(self, topic: str, log_offset: int) -> bool:
        """Whether the topic of a message was deleted after it, as far as that is known.

        A missing topic may also be one that was forgotten because of a kill. A message that was
        stored after the deletion shows that a lost master had created the topic again.

        :param log_offset: the offset of the message in the log, or an offset within the message.
        """
        end = self._deleted.get(topic)
        if end is None:
            return False
        if log_offset >= end:
            del self._deleted[topic]
            return False
        return True

    def light_topic(self, topic: str) -> TopicConfig | None:
        """Return the topic of a light queue, which exists without an entry in the table."""
        if self._light and topic_names.is_light(topic) and can_be_directory(topic):
            return TopicConfig(topic, 1, 1, PERM_READ_WRITE)
        return None

    def is_order_topic(self, topic: str) -> bool:
        config = self.table.get(topic)
        return config is not None and config.order

    def is_batch_topic(self, topic: str) -> bool | None:
        """Whether a topic's queues are batch queues; None if the topic does not exist."""
        config = self.get(topic)
        return None if config is None else is_batch_topic(config)

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics or topic_names.is_system_topic(topic)

    def topic_tables(self) -> TopicConfigSerializeWrapper:
        """Make a body for all topics, still without the topics."""
        return TopicConfigSerializeWrapper({}, copy(self.data_version),
                                           topic_queue_mapping_info_map={})

    def registration(
        self, compressed: bool, tables: TopicConfigSerializeWrapper | None = None
    ) -> Callable[[], bytes]:
        """Return all topics for a registration, masked by the broker's own permission.

        :param tables: the body without the topics, which hooks may have completed; None for a new
            one, see :meth:`topic_tables`.
        :returns: encodes the body of a registration; call it on a thread if there are many topics.
        """
        wrapper = tables or self.topic_tables()
        mask = self._settings.int("brokerPermission")
        if mask & PERM_READ_WRITE == PERM_READ_WRITE and not compressed:
            body, rows = RegisterBrokerBody(wrapper), list(self.rows.values())
            return lambda: encode_with_rows(body, b'"topicConfigTable":{}', rows)
        configs = list(self.table.values())

        def encode() -> bytes:
            sent = configs
            if mask & PERM_READ_WRITE != PERM_READ_WRITE:
                sent = [TopicConfig(config.topic_name, config.read_queue_nums,
                                    config.write_queue_nums, config.perm & mask,
                                    topic_sys_flag=config.topic_sys_flag) for config in configs]
            wrapper.topic_config_table = {config.topic_name: config for config in sent}
            return RegisterBrokerBody(wrapper).encode(compressed)

        return encode

    # --- creation and change; the caller informs the kernel

    def create_in_send(
        self, topic: str, default_topic: str, remote_address: str, client_queue_nums: int,
        sys_flag: int,
    ) -> TopicConfig | None:
        """Create a topic in a send, if its template allows it.

        :param client_queue_nums: the number of queues that the client asks for; the template's
            number is the maximum.
        :returns: the topic, which may exist already; None if it is not created.
        :raises RequestRefused: when there is no room for another topic.
        """
        config = self.table.get(topic)
        if config is not None:
            return config
        template = self.table.get(default_topic)
        if template is not None and default_topic == topic_names.TEMPLATE_TOPIC and (
            not self._settings.flag("autoCreateTopicEnable")
        ):
            template.perm = PERM_READ_WRITE
            self._enter(template)
        if template is None or not template.perm & PERM_INHERIT:
            why = "does not exist" if template is None else f"has permission {template.perm}"
            self._lines.warn(
                self._now_ms(),
                "topic {topic} is not created for {peer}: its template {template} {why}",
                topic=topic, peer=remote_address, template=default_topic, why=why)
            return None
        queues = max(min(client_queue_nums, template.write_queue_nums), 0)
        config = TopicConfig(topic, queues, queues, template.perm & ~PERM_INHERIT,
                             template.topic_filter_type, sys_flag)
        return self._add(config, remote_address, TOPIC_ROWS_KEPT)

    def create_in_send_back(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int, order: bool = False
    ) -> TopicConfig:
        """Find or create the retry topic of a group.

        :raises RequestRefused: when there is no room for another topic.
        """
        config = self.table.get(topic)
        if config is None:
            queue_nums = min(queue_nums, TOPIC_QUEUES_MAX)
            return self._add(TopicConfig(topic, queue_nums, queue_nums, perm,
                                         topic_sys_flag=sys_flag, order=order), "the broker",
                             TOPIC_ROWS_KEPT // 2)
        if config.order != order:
            config.order = order
            self._changed(config)
        return config

    def give_queues(self, topic: str, queue_nums: int) -> bool:
        """Give a topic more queues for reading and writing. It never removes any.

        :param queue_nums: the minimum number of queues afterwards, up to TOPIC_QUEUES_MAX.
        :returns: whether the topic exists and had fewer queues.
        """
        config = self.table.get(topic)
        count = min(queue_nums, TOPIC_QUEUES_MAX)
        if config is None or min(config.read_queue_nums, config.write_queue_nums) >= count:
            return False
        self._lines.info(
            self._now_ms(), "topic {topic} gets more queues: it had {reads} to read and {writes} "
            "to write, and has {count} now", topic=topic, reads=config.read_queue_nums,
            writes=config.write_queue_nums, count=count)
        self._changed(replace(config, read_queue_nums=max(config.read_queue_nums, count),
                              write_queue_nums=max(config.write_queue_nums, count)))
        return True

    def _add(self, config: TopicConfig, creator: str, kept: int) -> TopicConfig:
        if not can_be_directory(config.topic_name):
            # Once saved, such a topic would make the whole table unreadable.
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"the name cannot be that of a directory: {config.topic_name}")
        self.require_room((config,), kept)
        left_out = self._created_lines.left_out(self._now_ms())
        if left_out is not None:
            self.log.info(
                "topic {config} created for {creator} ({left_out} such lines were left out before)"
                if left_out else "topic {config} created for {creator}",
                config=config, creator=creator, left_out=left_out)
        self._changed(config)
        return config

    def update(self, config: TopicConfig, attribute_changes: Mapping[str, str]) -> None:
        """Create or replace a topic.

        :raises RequestRefused: when an attribute change is not allowed; nothing is changed then.
        """
        if self.light_topic(config.topic_name) is not None:
            # A light topic cannot be changed; Apache's broker does not report that either.
            return
        old = self.table.get(config.topic_name)
        config.attributes = alter_attributes(
            old is None, TOPIC_ATTRIBUTES, old.attributes if old else {}, attribute_changes)
        self._lines.info(self._now_ms(), "topic {config} replaces {old}", config=config, old=old)
        self._changed(config)

    def delete(self, topic: str, *, log_end: int = LOG_OFFSET_MAX) -> bool:
        """Forget a topic; :returns: whether it existed.

        :param log_end: the end of the log when the topic was deleted. 0: maybe nobody deleted it,
            because only this broker or a lost master knew it, so messages that wait for it are
            delivered.
        """
        if self.table.pop(topic, None) is None:
            return False
        if log_end:
            self._deleted[topic] = log_end
        if len(self._deleted) > DELETED_TOPICS_MAX:
            self._deleted.popitem(last=False)
        self.rows_size -= len(self.rows.pop(topic, b""))
        self._topic_changed(topic)
        self._count_change()
        return True

    def update_order_topics(self, order_topics: Mapping[str, str]) -> None:
        """Mark the topics that are ordered according to the name servers' configuration."""
        configs = [self.table[topic] for topic in order_topics if topic in self.table]
        new = [config for config in configs if not config.order]
        for config in new:
            config.order = True
            self._enter(config)
        if new:
            self._count_change()

    def _changed(self, config: TopicConfig) -> None:
        """Enter a new or changed topic, and count the change."""
        self._enter(config)
        self._count_change()

    def replacing(
        self, topics: Mapping[str, TopicConfig]
    ) -> Generator[None, None, list[str]]:
        """Take over the topics of another broker's table; yields in between.

        Only topics that differ are changed. System topics are kept, whether or not the other broker
        has them.

        :returns: topics that the other broker does not have: the caller deletes them, with their
            queues, before :meth:`take_version`.
        :raises WireError: when a topic is not valid; nothing is changed then.
        """
        for name, config in topics.items():
            if name != config.topic_name or not can_be_directory(name):
                raise WireError(f"there cannot be a topic {name!r} that is {config}")
        for number, (name, config) in enumerate(topics.items()):
            if number % _ROWS_AT_ONCE == 0:
                yield
            if self.table.get(name) != config:
                self._enter(config)
                self.dirty = True
        return [name for name in self.table
                if name not in topics and name not in self.system_topics]

    def take_version(self, version: DataVersion) -> None:
        """Adopt the data version of the table that this one was made equal to."""
        if self.data_version != version:
            self.data_version.assign(version)
            self.dirty = True

    def permissions_changed(self) -> None:
        """Note that the broker's own permission, by which topics are masked, has changed."""
        self._count_change()

    def _count_change(self) -> None:
        """Count a change, so that the table is saved."""
        self.data_version.next_version(self._now_ms())
        self.dirty = True


def is_batch_topic(config: TopicConfig) -> bool:
    """Whether a topic's queues are batch queues."""
    return config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE
