"""The part of the plugin that a name server has: it counts how often routes are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.logger import Logger

from twistmq.broker.api import (
    MetricFamily,
    NameServer,
    Reply,
    Request,
    RequestCode,
    Setting,
    hookimpl,
)

__all__ = ["Sample"]

_log = Logger()


class Sample:
    """The plugin of one name server."""

    def __init__(self, name_server: NameServer) -> None:
        self._name_server = name_server
        #: How often routes were asked for, by the code of the answer.
        self._counts: Counter[int] = Counter()

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return [Setting("sample.count_routes", "flag", False,
                        "Whether a name server counts how often routes are asked for.")]

    @property
    def _is_on(self) -> bool:
        return self._name_server.settings.flag("sample.count_routes")

    @hookimpl
    async def on_namesrv_start(self) -> None:
        _log.info("sample: whether routes are counted: {is_on}", is_on=self._is_on)

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        if request.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and self._is_on:
            self._counts[reply.code] += 1

    @hookimpl
    def collect_namesrv_metrics(self) -> Sequence[MetricFamily]:
        family = MetricFamily("sample_routes", "counter", "Routes asked for.", ("code",))
        for code, count in self._counts.items():
            family.add(count, str(code))
        return (family,)

    @hookimpl
    async def on_namesrv_stop(self) -> None:
        if self._is_on:
            _log.info("sample: routes were asked for {count} times", count=self._counts.total())
