"""How long requests took, by code and result.

From the read that brought a request to its reply, in whole milliseconds, as Apache measures it.
This is the one metric that costs something for each request; it is there only when it is asked for.

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
#: The label of codes without a handler: a client may send any.
_UNKNOWN: Final = -1


class RpcLatency:
    """The requests of one server.

    :param name: the metric's; it is ours for a name server.
    :param unit_ms: of what it tells, ms.
    """

    def __init__(self, now_ms: Callable[[], int],
                 name: str = "rocketmq_rpc_latency_milliseconds", unit_ms: int = 1) -> None:
        self._now_ms = now_ms
        self._name = name
        self._unit_ms = unit_ms
        self._ends = tuple(end_ms / unit_ms for end_ms in _ENDS_MS)
        #: By request code, response code, whether the request waited for a message, its flags.
        self._histograms: dict[tuple[int, int, bool, int], Histogram] = {}

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        command = request.command
        # Only a pull that was held has it.
        was_held = hasattr(request, "kept_bytes")
        key = (command.code, reply.code, was_held, command.flag & ONEWAY_FLAG)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._new(key)
        # The clock may have been set back meanwhile.
        histogram.add(max(self._now_ms() - request.now_ms, 0) / self._unit_ms)

    def _new(self, key: tuple[int, int, bool, int]) -> Histogram:
        return self._histograms.setdefault(
            (counted_code(key[0]), *key[1:]), Histogram(self._ends))

    def family(self) -> MetricFamily:
        """The measurements since the start."""
        family = MetricFamily(
            self._name, "histogram",
            "From the read that brought a request to its reply.",
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
    """The label of a request code: all codes without a handler have one."""
    return code if code in RequestCode._value2member_map_ else _UNKNOWN


def request_name(code: int) -> str:
    """The label text of a counted request code."""
    return "unknown" if code == _UNKNOWN else RequestCode(code).name.lower()


def response_name(code: int) -> str:
    """The label text of a response code."""
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
