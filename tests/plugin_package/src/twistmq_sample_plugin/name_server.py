"""The part of the plugin that a name server has: it counts how often routes are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from twisted.logger import Logger

from twistmq.broker import hookimpl
from twistmq.broker.codes import RequestCode
from twistmq.broker.config.settings import Setting
from twistmq.broker.observe.metrics import MetricFamily

if TYPE_CHECKING:
    from twistmq.broker.namesrv.requests import NameServer
    from twistmq.broker.remoting.messages import Reply, Request

__all__: list[str] = []

_log = Logger()


class RouteCounts:
    """How often routes were asked for, by the code of the answer; a plugin as well."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        if request.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.counts[reply.code] += 1


_counts: WeakKeyDictionary[NameServer, RouteCounts] = WeakKeyDictionary()


@hookimpl
def register_settings() -> Sequence[Setting]:
    return [Setting("sample.count_routes", "flag", False,
                    "Whether a name server counts how often routes are asked for.")]


@hookimpl
def on_namesrv_start(name_server: NameServer) -> None:
    if name_server.settings.flag("sample.count_routes"):
        counts = _counts[name_server] = RouteCounts()
        # One object a name server, so that it is known whose requests they are.
        name_server.hooks.register("sample_routes", counts)
        name_server.hooks.freeze()


@hookimpl
def collect_namesrv_metrics(name_server: NameServer) -> Sequence[MetricFamily]:
    family = MetricFamily("sample_routes", "counter", "Routes asked for.", ("code",))
    counts = _counts.get(name_server)
    for code, count in counts.counts.items() if counts else ():
        family.add(count, str(code))
    return (family,)


@hookimpl
def on_namesrv_stop(name_server: NameServer) -> None:
    counts = _counts.pop(name_server, None)
    if counts is not None:
        _log.info("sample: routes were asked for {count} times", count=counts.counts.total())
