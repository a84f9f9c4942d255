"""The topics of a broker: table, file, creation on demand.

Source: TopicConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from twistmq.broker import topic_names
from twistmq.broker.request.attributes import (
    BATCH_QUEUE,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    alter_attributes,
)
from twistmq.broker.settings import Settings
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.wire.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper

__all__ = ["PERM_INHERIT", "PERM_READ", "PERM_WRITE", "TopicConfigTable", "is_batch_topic"]

#: Bits of a permission. Source: PermName.
PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
_READ_WRITE = PERM_READ | PERM_WRITE


class TopicConfigTable:
    """Topics by name.

    :param file: topics.json.
    :param now_ms: the clock, for the data version.
    """

    log = Logger()

    def __init__(self, settings: Settings, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        #: How a change is saved; the kernel's way outlives a full disk.
        self.save: Callable[[], None] = self.persist
        self._now_ms = now_ms
        self._light = settings.flag("enableLmq")
        self._auto_create = settings.flag("autoCreateTopicEnable")
        self._broker_permission = settings.int("brokerPermission")
        self.data_version = DataVersion(timestamp=now_ms())
        #: Topics only the broker itself may create or delete.
        self.system_topics: set[str] = set()
        self.table: dict[str, TopicConfig] = {}
        self._create_system_topics(settings)

    def _create_system_topics(self, settings: Settings) -> None:
        """Make what a fresh broker of 5.3.3 has; what was saved replaces it."""
        cluster, broker = settings.text("brokerClusterName"), settings.text("brokerName")
        template_queues = settings.int("defaultTopicQueueNums")
        cluster_perm = _READ_WRITE if settings.flag("clusterTopicEnable") else 0
        broker_perm = _READ_WRITE if settings.flag("brokerTopicEnable") else 0
        rows = [
            (topic_names.SELF_TEST_TOPIC, 1, _READ_WRITE),
            (topic_names.BENCHMARK_TOPIC, 1024, _READ_WRITE),
            (cluster, 16, cluster_perm | PERM_INHERIT),
            (broker, 1, broker_perm | PERM_INHERIT),
            (topic_names.OFFSET_MOVED_TOPIC, 1, _READ_WRITE),
            (topic_names.SCHEDULE_TOPIC, 18, _READ_WRITE),
            (f"{cluster}_REPLY_TOPIC", 1, _READ_WRITE),
            (f"rmq_sys_REVIVE_LOG_{cluster}", 8, _READ_WRITE),
            (f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
            (topic_names.HALF_TOPIC, 1, _READ_WRITE),
            (topic_names.OP_HALF_TOPIC, 1, _READ_WRITE),
            (topic_names.TIMER_TOPIC, 1, _READ_WRITE),
        ]
        if self._auto_create:
            rows.append((topic_names.TEMPLATE_TOPIC, template_queues, _READ_WRITE | PERM_INHERIT))
        if settings.flag("traceTopicEnable"):
            rows.append((settings.text("msgTraceTopicName"), 1, _READ_WRITE))
        for name, queues, perm in rows:
            self.table[name] = TopicConfig(name, queues, queues, perm)
            self.system_topics.add(name)

    # --- file

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        saved = TopicConfigSerializeWrapper.decode_saved(text.encode())
        self.table.update(saved.topic_config_table)
        self.data_version.assign(saved.data_version)

    def persist(self) -> None:
        wrapper = TopicConfigSerializeWrapper(self.table, self.data_version)
        self._file.save(wrapper.encode_pretty().decode())

    # --- look-up

    def get(self, topic: str) -> TopicConfig | None:
        config = self.table.get(topic)
        return self.light_topic(topic) if config is None else config

    def light_topic(self, topic: str) -> TopicConfig | None:
        """The topic of a light queue, which is there without being in the table."""
        if self._light and topic_names.is_light(topic):
            return TopicConfig(topic, 1, 1, _READ_WRITE)
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

    def registration(self) -> TopicConfigSerializeWrapper:
        """All topics as name servers are told of them, masked by the broker's own permission."""
        table = self.table
        if self._broker_permission & _READ_WRITE != _READ_WRITE:
            table = {name: TopicConfig(name, config.read_queue_nums, config.write_queue_nums,
                                       config.perm & self._broker_permission,
                                       topic_sys_flag=config.topic_sys_flag)
                     for name, config in table.items()}
        return TopicConfigSerializeWrapper(table, self.data_version,
                                           topic_queue_mapping_info_map={})

    # --- creation and change; the caller tells the kernel of it

    def create_in_send(
        self, topic: str, default_topic: str, remote_address: str, client_queue_nums: int,
        sys_flag: int,
    ) -> TopicConfig | None:
        """Create a topic somebody sends to, if its template allows that.

        :param client_queue_nums: queues the client asks for; the template's are the most.
        :returns: the topic, which may be there already; None when it is not created.
        """
        config = self.table.get(topic)
        if config is not None:
            return config
        template = self.table.get(default_topic)
        if template is not None and default_topic == topic_names.TEMPLATE_TOPIC and (
            not self._auto_create
        ):
            template.perm = _READ_WRITE
        if template is None or not template.perm & PERM_INHERIT:
            why = "does not exist" if template is None else f"has permission {template.perm}"
            self.log.warn("topic {topic} is not created for {peer}: its template {template} {why}",
                          topic=topic, peer=remote_address, template=default_topic, why=why)
            return None
        queues = max(min(client_queue_nums, template.write_queue_nums), 0)
        config = TopicConfig(topic, queues, queues, template.perm & ~PERM_INHERIT,
                             template.topic_filter_type, sys_flag)
        return self._add(config, remote_address)

    def create_in_send_back(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int, order: bool = False
    ) -> TopicConfig:
        """The topic of a group's retries, created when it is not there."""
        config = self.table.get(topic)
        if config is None:
            return self._add(TopicConfig(topic, queue_nums, queue_nums, perm,
                                         topic_sys_flag=sys_flag, order=order), "the broker")
        if config.order != order:
            config.order = order
            self.changed()
        return config

    def _add(self, config: TopicConfig, creator: str) -> TopicConfig:
        self.log.info("topic {config} created for {creator}", config=config, creator=creator)
        self.table[config.topic_name] = config
        self.changed()
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
        self.log.info("topic {config} replaces {old}", config=config, old=old)
        self.table[config.topic_name] = config
        self.changed()

    def delete(self, topic: str) -> bool:
        """Forget a topic; :returns: whether it was there."""
        if self.table.pop(topic, None) is None:
            return False
        self.changed()
        return True

    def update_order_topics(self, order_topics: Mapping[str, str]) -> None:
        """Mark topics whose order the name servers' configuration says matters."""
        configs = [self.table[topic] for topic in order_topics if topic in self.table]
        new = [config for config in configs if not config.order]
        for config in new:
            config.order = True
        if new:
            self.changed()
            self.save()

    def changed(self) -> None:
        """Count one more change."""
        self.data_version.next_version(self._now_ms())


def is_batch_topic(config: TopicConfig) -> bool:
    """Whether a topic's queues are batch queues."""
    return config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE
