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

from twistmq.broker import topic_names
from twistmq.broker.codes import ResponseCode
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import (
    DELETED_TOPICS_MAX,
    TOPIC_QUEUES_MAX,
    TOPIC_ROWS_KEPT,
    TOPIC_ROWS_SIZE_MAX,
)
from twistmq.broker.errors import RequestRefused, WireError
from twistmq.broker.observe.log_rate import EVENTS_A_MINUTE, LimitedLog, LineRate
from twistmq.broker.request.attributes import (
    BATCH_QUEUE,
    CLEAN_UP,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    alter_attributes,
)
from twistmq.broker.request.persisted_table import FileRows, SavedTable, Saving
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.topic_names import can_be_directory, group_of_topic, retry_topic
from twistmq.broker.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.broker.wire.bodies.rows import encode_with_rows, map_row
from twistmq.broker.wire.flags import PERM_INHERIT, PERM_READ_WRITE
from twistmq.broker.wire.json_writer import encode_pretty_row

__all__ = ["TopicConfigTable", "is_batch_topic"]

#: The size of the row of a topic without its name, which is in it twice, and attributes, bytes.
_ROW_SIZE: Final = 200
#: Topics that one line names.
_NAMED_MAX: Final = 20
#: Topics of another broker that are compared between two looks at the clock.
_ROWS_AT_ONCE: Final = 100


def _is_no_group(group: str) -> bool:
    """The default of ``is_group``: no name is a group."""
    return False


class TopicConfigTable(SavedTable):
    """Topics by name.

    :param file: topics.json.
    :param now_ms: the clock, for the data version.
    :param is_group: says whether there is a group.
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
        #: Topics only the broker itself may create or delete.
        self.system_topics: set[str] = set()
        self.table: dict[str, TopicConfig] = {}
        #: Called with the name of a topic that is new, changed or gone.
        self.on_change: list[Callable[[str], None]] = []
        #: Topics that were deleted since the start and not created again, the oldest first.
        self._deleted: OrderedDict[str, None] = OrderedDict()
        #: The topics as answers and registrations have them, and what these rows take, bytes.
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
        """Make what a fresh broker of 5.3.3 has; what was saved replaces it."""
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
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._was_saved = self._file.load(self._decode)

    def make_again(self, queues: Mapping[str, Collection[int]],
                   is_batch: Callable[[str], bool], *, of_lost_master: bool = False,
                   is_slave: bool = False) -> None:
        """Look at topics that have queues and are not in the table; none loses its queues.

        Where nothing was saved, as when the folder ``config`` was removed, they are made again,
        with the queues there are. Else each was deleted, by a request that a kill cut short, or
        came after the backup that was put back: they stay as they are. One line names them. On a
        slave whose master is lost, messages came with the log before their topic, which is copied
        less often: those that were not deleted are made.
        Differs from Apache, whose broker knows none of them until a client sends.

        :param queues: ids of queues by topic.
        :param is_batch: whether a topic's queues are batch queues.
        :param of_lost_master: whether this broker takes the place of its master now.
        :param is_slave: whether the topics are a master's, from whom they are copied.
        """
        unknown = sorted(topic for topic in queues
                         if topic not in self.table and not topic_names.is_light(topic)
                         and not (of_lost_master and topic in self._deleted))
        if not unknown:
            return
        names = ", ".join(unknown[:_NAMED_MAX]) + (", ..." if len(unknown) > _NAMED_MAX else "")
        if self._was_saved and is_slave:
            # Its master's topics come later than the log.
            self.log.info("{count} topics have queues but no configuration yet: {names}",
                          count=len(unknown), names=names)
            return
        if self._was_saved and not of_lost_master:
            self.log.warn(
                "{count} topics have queues but no configuration: {names}. To read their messages, "
                "create the topics again (updateTopic); to remove their queues, use "
                "cleanUnusedTopic", count=len(unknown), names=names)
            return
        made = 0
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
            made += 1
        why = "the master's last topics were not copied" if of_lost_master else (
            "no saved topics were found")
        self.log.warn("{why}: {made} of {count} topics are created again from their queues: "
                      "{names}. Their permissions, attributes, groups and offsets are lost: "
                      "defaults are used", why=why, made=made, count=len(unknown), names=names)

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
        """Put a topic into the table, or note that it changed."""
        # One string for the names of all tables: they find it without a comparison.
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

        :param kept: bytes that stay free for others, unless all of these are topics of groups that
            there are, or the system's.
        :raises RequestRefused: when the table with these topics would leave less.
        """
        new = [config for config in configs if config.topic_name not in self.table]
        if not new:
            return
        size = sum(_ROW_SIZE + 2 * len(config.topic_name)
                   + sum(len(name) + len(value) for name, value in config.attributes.items())
                   for config in new)
        most = TOPIC_ROWS_SIZE_MAX
        if not all(self._is_served_first(config.topic_name) for config in new):
            most -= kept
        if self.rows_size + size <= most:
            return
        left_out = self._full_lines.left_out(self._now_ms())
        if left_out is not None:
            self.log.warn("no room for topic {topic}: there are {count} ({left_out} such lines "
                          "were left out before)", topic=new[0].topic_name, count=len(self.table),
                          left_out=left_out)
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the broker has {len(self.table)} topics, which take {self.rows_size} bytes in a "
            f"registration; {size} bytes more exceed the limit of {most}")

    def _is_served_first(self, topic: str) -> bool:
        """Whether a topic may have the room that is kept."""
        group = group_of_topic(topic)
        return self.is_system_topic(topic) if group is None else self.is_group(group)

    def has_room_for_group(self, group: str) -> bool:
        """Whether there is room for the retry and dead-letter topics of a new group."""
        topic = retry_topic(group)
        more = 0 if topic in self.table else 2 * (_ROW_SIZE + 2 * len(topic))
        return self.rows_size + more <= TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT // 2

    # --- look-up

    def get(self, topic: str) -> TopicConfig | None:
        config = self.table.get(topic)
        return self.light_topic(topic) if config is None else config

    def shown_queue(self, topic: str, queue_id: int) -> int:
        """The queue that a message goes to after it has waited: its own, if clients can read it.

        A topic may have lost queues meanwhile, and no route shows those. Differs from Apache, whose
        broker stores a message there all the same, so that nobody reads it. Topics of the system
        have queues of their own kind.
        """
        config = self.table.get(topic)
        if (config is None or not 0 < config.read_queue_nums <= queue_id
                or self.is_system_topic(topic)):
            return queue_id
        return queue_id % (min(config.read_queue_nums, config.write_queue_nums)
                           or config.read_queue_nums)

    def is_deleted(self, topic: str) -> bool:
        """Whether a topic was deleted, as far as that is known.

        One that is not there may as well be one that a kill made forgotten.
        """
        return topic in self._deleted

    def light_topic(self, topic: str) -> TopicConfig | None:
        """The topic of a light queue, which is there without being in the table."""
        if self._light and topic_names.is_light(topic) and can_be_directory(topic):
            return TopicConfig(topic, 1, 1, PERM_READ_WRITE)
        return None

    def is_order_topic(self, topic: str) -> bool:
        config = self.table.get(topic)
        return config is not None and config.order

    def is_batch_topic(self, topic: str) -> bool | None:
        """Whether a topic's queues are batch queues; None: there is no such topic."""
        config = self.get(topic)
        return None if config is None else is_batch_topic(config)

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics or topic_names.is_system_topic(topic)

    def topic_tables(self) -> TopicConfigSerializeWrapper:
        """A body for all topics, still without the topics."""
        return TopicConfigSerializeWrapper({}, copy(self.data_version),
                                           topic_queue_mapping_info_map={})

    def registration(
        self, compressed: bool, tables: TopicConfigSerializeWrapper | None = None
    ) -> Callable[[], bytes]:
        """All topics as they are registered, masked by the broker's own permission.

        :param tables: the body without the topics, which hooks may have completed; None: that of
            :meth:`topic_tables`.
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

    # --- creation and change; the caller tells the kernel of it

    def create_in_send(
        self, topic: str, default_topic: str, remote_address: str, client_queue_nums: int,
        sys_flag: int,
    ) -> TopicConfig | None:
        """Create a topic in a send, if its template allows that.

        :param client_queue_nums: queues the client asks for; the template's are the most.
        :returns: the topic, which may be there already; None when it is not created.
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
        """The topic of a group's retries, created when it is not there.

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
        """Give a topic more queues, to read and to write; it never loses any.

        :param queue_nums: how many it has at least afterwards, up to TOPIC_QUEUES_MAX.
        :returns: whether the topic was there and had fewer.
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
            # Saved, it would make the whole table one that cannot be read.
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
            # It is what it is; Apache's broker does not say so either.
            return
        old = self.table.get(config.topic_name)
        config.attributes = alter_attributes(
            old is None, TOPIC_ATTRIBUTES, old.attributes if old else {}, attribute_changes)
        self._lines.info(self._now_ms(), "topic {config} replaces {old}", config=config, old=old)
        self._changed(config)

    def delete(self, topic: str) -> bool:
        """Forget a topic; :returns: whether it was there."""
        if self.table.pop(topic, None) is None:
            return False
        self._deleted[topic] = None
        if len(self._deleted) > DELETED_TOPICS_MAX:
            self._deleted.popitem(last=False)
        self.rows_size -= len(self.rows.pop(topic, b""))
        self._topic_changed(topic)
        self._count_change()
        return True

    def update_order_topics(self, order_topics: Mapping[str, str]) -> None:
        """Mark topics whose order the name servers' configuration says matters."""
        configs = [self.table[topic] for topic in order_topics if topic in self.table]
        new = [config for config in configs if not config.order]
        for config in new:
            config.order = True
            self._enter(config)
        if new:
            self._count_change()

    def _changed(self, config: TopicConfig) -> None:
        """A topic is there or changed."""
        self._enter(config)
        self._count_change()

    def replacing(
        self, topics: Mapping[str, TopicConfig]
    ) -> Generator[None, None, list[str]]:
        """Take over the topics of another broker's table; yields in between.

        Only topics that differ are changed. System topics stay, if the other broker has them or
        not.

        :returns: topics that are not there: who calls deletes them, with their queues, before
            :meth:`take_version`.
        :raises WireError: when it is not a valid topic; nothing is changed then.
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
        """Have the data version of the table that this one was made equal to."""
        if self.data_version != version:
            self.data_version.assign(version)
            self.dirty = True

    def permissions_changed(self) -> None:
        """The broker's own permission, by which topics are masked, is another now."""
        self._count_change()

    def _count_change(self) -> None:
        """Count one more change, to be saved."""
        self.data_version.next_version(self._now_ms())
        self.dirty = True


def is_batch_topic(config: TopicConfig) -> bool:
    """Whether a topic's queues are batch queues."""
    return config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE
