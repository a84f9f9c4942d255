"""Delayed messages: a producer sets a level from 1 to 18, and the message is delivered later.

A message with the property DELAY is stored in SCHEDULE_TOPIC_XXXX, in the queue of its level. It is
stored again in its own topic when it is due: never earlier, and at most about a twentieth of a
second later while the broker keeps up. The progress of each level is saved in
``config/delayOffset.json``.

Source: ScheduleMessageService, HookUtils.handleScheduleMessage @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    EmptyHeader,
    PeriodicTask,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    Setting,
    SettingCheck,
    hookimpl,
)
from twistmq.broker.api.requests import SyncedTable
from twistmq.broker.api.topics import SCHEDULE_TOPIC
from twistmq.broker.api.wire import DELAY
from twistmq.plugins.schedule.levels import DelayLevels
from twistmq.plugins.schedule.service import ScheduleService

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MessageRecord
    from twistmq.broker.api.store import TagsCode
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["Plugin"]

#: The time from the start to the first delivery and to the first save, ms.
#: Source: ScheduleMessageService.FIRST_DELAY_TIME, start.
_FIRST_LOOK_MS = 1000
_FIRST_SAVE_MS = 10_000
#: The time between two copies of the master's offsets, ms. A slave that becomes master searches its
#: log for deliveries since the last copy. Apache's slaves copy every 60 s and do not search.
_COPY_PERIOD_MS = 250


_SETTINGS: Final = (
    Setting("messageDelayLevel", "text",
            "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
            "The length of each delay level, from level 1 on: numbers with a unit of s, m, h or "
            "d, separated by one space.", source="MessageStoreConfig", at_start=True),
    Setting("flushDelayOffsetInterval", "int", 10_000,
            "How often the progress of delivery is saved.", unit="ms", least=1,
            source="MessageStoreConfig"),
)


class Plugin:
    """The plugin for the delayed messages of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._service = ScheduleService(broker)
        self._service.load()

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.broker.api.bodies import DelayOffsetSerializeWrapper
        from twistmq.broker.api.store_files import PluginFiles

        return [PluginFiles("delays", tables={
            "delayOffset.json": DelayOffsetSerializeWrapper.decode_saved})]

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        name = "messageDelayLevel"
        return [SettingCheck((name,), lambda settings: DelayLevels(settings.text(name)))]

    @hookimpl
    def register_tags_codes(self) -> Mapping[str, TagsCode]:
        return {SCHEDULE_TOPIC: self._service.tags_code}

    @hookimpl
    def claim_properties(self) -> Collection[str]:
        return (DELAY,)

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> Mapping[int, BrokerError] | None:
        return self._service.before_append(records)

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        service = self._service
        return (
            PeriodicTask("deliver delayed messages", _FIRST_LOOK_MS, service.look_period_ms,
                         service.deliver, service.rest_ms),
            PeriodicTask("save the progress of delayed messages",
                         min(_FIRST_SAVE_MS, self._broker.settings.int("flushDelayOffsetInterval")),
                         lambda: self._broker.settings.int("flushDelayOffsetInterval"),
                         lambda now_ms: service.save()),
        )

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        """GET_ALL_DELAY_OFFSET (45): a slave asks for its master's delivery offsets."""

        def get_all_delay_offset(request: Request[Any]) -> Reply:
            return Reply(body=self._service.wrapper().encode())

        return (RequestHandler(RequestCode.GET_ALL_DELAY_OFFSET, get_all_delay_offset,
                               EmptyHeader),)

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        return (SyncedTable("delay offsets", RequestCode.GET_ALL_DELAY_OFFSET, self._service.take,
                            _COPY_PERIOD_MS, follows_log=True,
                            take_back=self._service.take_back),)

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str]:
        return self._service.runtime_info()

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        return self._service.save()
