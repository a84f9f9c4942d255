"""Stops groups that consume too slowly, if this is enabled by a setting.

A group that is far behind reads from the disk, and thereby evicts the messages of all other groups
from the page cache. With ``disableConsumeIfConsumerReadSlowly`` a group is stopped when its next
pull of some queue is more than ``consumerFallbehindThreshold`` bytes before the end of the commit
log. It may not consume until an administrator allows it again (``mqadmin updateSubGroup -s true``).
Only groups with a connected member are checked, because other groups do not read.

A gentler way is to let such a group read from a slave (``slaveReadEnable``, and the group's
``whichBrokerWhenConsumeSlowly``). That is part of the kernel, because every answer to a pull is
involved.

Source: BrokerController.protectBroker, DefaultMessageStore.getMessage (diskFallRecorded) @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import PeriodicTask, Setting, hookimpl
from twistmq.broker.api.config import LONG_MAX

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ColdConsumers", "Plugin"]

SWITCH: Final = "disableConsumeIfConsumerReadSlowly"
THRESHOLD: Final = "consumerFallbehindThreshold"
#: Source: BrokerController.initializeBrokerScheduledTasks.
_PERIOD_MS: Final = 180_000


class ColdConsumers:
    """Monitors the groups of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_looking = False

    def protect(self, now_ms: int) -> None:
        """Disable groups that are too slow, if the setting is on; periodic, in slices."""
        if self._is_looking or not self._broker.settings.flag(SWITCH):
            return
        self._is_looking = True

        def finished(result: object) -> object:
            self._is_looking = False
            return result

        looking = self._broker.slices.run(self._look())
        looking.addBoth(finished)
        looking.addErrback(lambda failure: self.log.failure(
            "the check for groups that are far behind failed", failure=failure))

    def _look(self) -> Generator[None, None, None]:
        broker = self._broker
        threshold = broker.settings.int(THRESHOLD)
        for topic, group, offsets in broker.consumer_offset.last_pulls():
            if broker.clients.consumer_group(group) is None:
                continue
            for queue_id, offset in list(offsets.items()):
                behind = self.behind_bytes(topic, queue_id, offset)
                yield
                if behind > threshold and broker.subscription_group.disable_consume(group):
                    self.log.warn(
                        "group {group} is no longer allowed to consume: in {topic}-{queue_id} it "
                        "is {behind} bytes of the log behind, more than {threshold}", group=group,
                        topic=topic, queue_id=queue_id, behind=behind, threshold=threshold)
                    broker.saves.save_if_changed(broker.subscription_group)

    def behind_bytes(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the number of bytes between a queue's offset and the end of the commit log."""
        store = self._broker.store
        offset = max(offset, store.queues.min_offset(topic, queue_id))
        log_offset = store.queues.commit_log_offset(topic, queue_id, offset)
        return store.commit_log.max_offset - log_offset if log_offset >= 0 else 0


_SETTINGS: Final = (
    Setting(SWITCH, "flag", False,
            "Whether groups that fall far behind are stopped from consuming.",
            source="BrokerConfig"),
    Setting(THRESHOLD, "int", 16 * 1024**3,
            "A group counts as far behind if this many bytes of the commit log lie between its "
            "next message and the end; checked every three minutes.",
            unit="bytes", least=0, most=LONG_MAX, source="BrokerConfig"),
)


class Plugin:
    """Protects one broker from slow groups."""

    def __init__(self, broker: Broker) -> None:
        self._groups = ColdConsumers(broker)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        return (PeriodicTask("limit groups with a large lag", _PERIOD_MS, _PERIOD_MS,
                             self._groups.protect),)
