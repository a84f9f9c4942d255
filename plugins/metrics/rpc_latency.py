"""Measures how long requests take, by code and result.

The time runs from the read that brought a request to its response, in whole milliseconds, as Apache
measures it. This is the only metric that has a cost for each request, so it is off by default.

Source: RemotingMetricsManager, NettyRemotingAbstract @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twistmq.broker.api import (
    Histogram,
    MetricFamily,
    Reply,
    Request,
    RequestCode,
    ResponseCode,
    hookimpl,
)
from twistmq.broker.api.wire import ONEWAY_FLAG

__all__ = ["RpcLatency", "counted_code", "request_name", "response_name"]

_ENDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
#: The label of codes without a handler, since a client may send any code.
_UNKNOWN: Final = -1


class RpcLatency:
    """Measures the requests of one server.

    :param name: the name of the metric; for a name server it is specific to twistmq.
    :param unit_ms: the unit of the metric, ms.
    """

    def __init__(self, now_ms: Callable[[], int],
                 name: str = "rocketmq_rpc_latency_milliseconds", unit_ms: int = 1) -> None:
        self._now_ms = now_ms
        self._name = name
        self._unit_ms = unit_ms
        self._ends = tuple(end_ms / unit_ms for end_ms in _ENDS_MS)
        #: Keyed by request code, response code, whether the request was held, and its flags.
        self._histograms: dict[tuple[int, int, bool, int], Histogram] = {}

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        command = request.command
        # Only a pull that was held has this attribute.
        was_held = hasattr(request, "kept_bytes")
        key = (command.code, reply.code, was_held, command.flag & ONEWAY_FLAG)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._new(key)
        # The clock may have been set back since the request arrived.
        histogram.add(max(self._now_ms() - request.now_ms, 0) / self._unit_ms)

    def _new(self, key: tuple[int, int, bool, int]) -> Histogram:
        return self._histograms.setdefault(
            (counted_code(key[0]), *key[1:]), Histogram(self._ends))

    def family(self) -> MetricFamily:
        """Return the measurements since the start."""
        family = MetricFamily(
            self._name, "histogram",
            "The time from the read that brought a request to its response.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"))
        for (code, answer, was_held, oneway), histogram in self._histograms.items():
            result = "success"
            if oneway:
                result = "oneway"
            elif answer == ResponseCode.SYSTEM_ERROR:
                result = "process_request_failed"
            family.add(histogram, "remoting",
                       request_name(code), response_name(answer),
                       "true" if was_held else "false", result)
        return family


def counted_code(code: int) -> int:
    """Return the code to count a request under; all codes without a handler share one."""
    return code if code in RequestCode._value2member_map_ else _UNKNOWN


def request_name(code: int) -> str:
    """Return the label text of a counted request code."""
    return "unknown" if code == _UNKNOWN else RequestCode(code).name.lower()


def response_name(code: int) -> str:
    """Return the label text of a response code."""
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
