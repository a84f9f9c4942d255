"""Refusals when more requests come than the broker can serve: the answers are Apache's.

A broker that keeps up never looks at a request here. One that is behind reads what comes, counts
it, and refuses what would wait for nothing; the scenes are told in README.md.

Source: BrokerFastFailure, SendMessageProcessor.rejectRequest,
DefaultMessageStore.isOSPageCacheBusy, NettyRemotingAbstract.processRequestCommand @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import IFlowControl, MetricFamily, RequestCode
from twistmq.broker.api.config import SettingValue
from twistmq.broker.api.requests import WaitingRequests
from twistmq.broker.api.wire import ONEWAY_FLAG, Frame
from twistmq.plugins.flow_control.classes import (
    PULLS,
    REJECTED_SENDS,
    SEND,
    read_bounds,
)
from twistmq.plugins.flow_control.peek_header import look
from twistmq.plugins.flow_control.refusals import Refusal
from twistmq.plugins.flow_control.watermark import waiting_counts, watermark

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["PAGE_CACHE", "QUEUE_BYTES", "SWITCH", "FlowControl"]

SWITCH: Final = "brokerFastFailureEnable"
PAGE_CACHE: Final = "osPageCacheBusyTimeOutMills"
QUEUE_BYTES: Final = "flow_control.queue_bytes_max"

#: Apache's queues that the runtime table tells of: what metrics call who serves one, how the names
#: of its rows begin, a code of it. Source: AdminBrokerProcessor.prepareRuntimeInfo.
_QUEUES: Final = (
    ("send", "send", RequestCode.SEND_MESSAGE), ("pull", "pull", RequestCode.PULL_MESSAGE),
    ("lite_pull", "litePull", RequestCode.LITE_PULL_MESSAGE),
    ("query_message", "query", RequestCode.QUERY_MESSAGE),
    ("ack", "ack", RequestCode.ACK_MESSAGE))
_REJECT: Final = Refusal("[REJECTREQUEST]system busy, start flow control for a while")
_OVERLOAD: Final = Refusal("[OVERLOAD]system busy, start flow control for a while")
#: The word, how long it waited, ms, and how many wait behind it.
_TOO_LATE: Final = ("[{}]broker busy, start flow control for a while, period in queue: {}ms, size "
                    "of queue: {}")
#: How long after such an append what came meanwhile is read, ms: a tick.
_READ_AFTER_MS: Final = 10

Sorted = tuple[Sequence[Frame], Sequence[bytes]]


@implementer(IFlowControl)
class FlowControl:
    """The flow control of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: WaitingRequests | None = None
        #: Refusals since the start, by the word their remarks begin with.
        self.refused: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        #: The last append that took too long: how long, and when it was over, by the clock for
        #: durations.
        self._slow_ms = 0
        self._slow_end_ms = 0
        #: While what was in the sockets then is being read.
        self._is_busy = False
        self.rejects = False
        self._is_on = True
        self.settings_changed()
        broker.settings.on_change.append(self.settings_changed)

    def settings_changed(self, changes: Mapping[str, SettingValue] | None = None) -> None:
        """Read the settings; again whenever one changed."""
        settings = self._broker.settings
        self._bounds = read_bounds(settings)
        self._bytes_max = settings.int(QUEUE_BYTES)
        self._page_cache_ms = settings.int(PAGE_CACHE)
        self._is_on = settings.flag(SWITCH)
        self._slave_read = settings.flag("slaveReadEnable")
        self._set_rejects()

    def _set_rejects(self) -> None:
        self.rejects = self._broker.is_slave or self._is_busy

    def _rejected(self) -> frozenset[int]:
        """The codes that are refused. A slave that may stand in for its master has sends refused
        by the store, as Apache's has.
        """
        rejected: frozenset[int] = frozenset()
        is_slave = self._broker.is_slave
        if self._is_busy or not (is_slave and self._broker.identity.enable_acting_master):
            rejected |= REJECTED_SENDS
        if is_slave and not self._slave_read:
            rejected |= PULLS
        return rejected

    # --- what the connections ask

    def begin_round(self, waiting: WaitingRequests) -> None:
        """See IFlowControl: look whether an append was held up since."""
        self._waiting = waiting
        stats = self._broker.store.stats
        slow_ms, stats.slow_put_ms = stats.slow_put_ms, 0
        if slow_ms > self._page_cache_ms:
            self._slow_ms, self._slow_end_ms = slow_ms, self._broker.steady.now_ms()
            self._is_busy = True
            self.log.warn("an append took {slow} ms, more than {limit}: sends that came meanwhile "
                          "are refused, {count} wait", slow=slow_ms, limit=self._page_cache_ms,
                          count=waiting.request_count)
        elif self._is_busy and self._broker.steady.now_ms() > self._slow_end_ms + _READ_AFTER_MS:
            self._is_busy = False
        self._set_rejects()

    def arrived(self, frames: Sequence[Frame], own_count: int, waiting: WaitingRequests) -> Sorted:
        """See IFlowControl: requests are refused when there are too many, or too many bytes.

        A connection that has less than its share is not refused for what the others have waiting.
        """
        bounds = self._bounds
        is_full = waiting.size_bytes >= self._bytes_max
        count = waiting.request_count
        if count + len(frames) <= bounds.least_capacity and not is_full:
            return frames, ()
        share = bounds.least_capacity // (waiting.connection_count + 1)
        own = 0 if is_full else max(share - own_count, 0)
        passed = list(frames[:own])
        count += len(passed)
        refusals: list[bytes] = []
        refused = 0
        capacities, otherwise = bounds.capacity_of, bounds.capacity_otherwise
        for frame in frames[own:]:
            found = look(frame)
            if found is not None:
                code, opaque, flag = found
                if count >= capacities.get(code, otherwise) or (is_full and code in SEND.codes):
                    refused += 1
                    if not flag & ONEWAY_FLAG:
                        refusals.append(_OVERLOAD.frame(opaque))
                    continue
            passed.append(frame)
            count += 1
        self.refused["OVERLOAD"] += refused
        return passed, refusals

    def due(self, frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests) -> Sorted:
        """See IFlowControl: what waited too long is refused, and what a slow append held up."""
        bounds = self._bounds
        is_late = self._is_on and waited_ms >= bounds.least_wait_ms
        is_busy = self._is_on and bool(self._slow_ms) and (
            self._broker.steady.now_ms() - waited_ms <= self._slow_end_ms)
        if not is_late and not is_busy:
            return frames, ()
        passed: list[Frame] = []
        refusals: list[bytes] = []
        late = busy = 0
        size = waiting.request_count + len(frames)
        waits, otherwise = bounds.wait_ms_of, bounds.wait_ms_otherwise
        forms: dict[str, Refusal] = {}
        for frame in frames:
            size -= 1
            found = look(frame)
            if found is None:
                passed.append(frame)
                continue
            code, opaque, flag = found
            if is_busy and code in SEND.codes:
                busy += 1
                word = "PCBUSY_CLEAN_QUEUE"
            elif is_late and waited_ms >= waits.get(code, otherwise):
                late += 1
                word = "TIMEOUT_CLEAN_QUEUE"
            else:
                passed.append(frame)
                continue
            if not flag & ONEWAY_FLAG:
                form = forms.get(word)
                if form is None:
                    form = forms[word] = Refusal(_TOO_LATE.format(word, waited_ms, "{}"))
                refusals.append(form.frame_with(opaque, size))
        self.refused["TIMEOUT_CLEAN_QUEUE"] += late
        self.refused["PCBUSY_CLEAN_QUEUE"] += busy
        return passed, refusals

    def reject(self, frames: Sequence[Frame]) -> Sorted:
        """See IFlowControl: sends while the page cache is busy; on a slave pulls, too."""
        rejected = self._rejected()
        passed: list[Frame] = []
        refusals: list[bytes] = []
        for frame in frames:
            found = look(frame)
            if found is None or found[0] not in rejected:
                passed.append(frame)
            elif not found[2] & ONEWAY_FLAG:
                refusals.append(_REJECT.frame(found[1]))
        self.refused["REJECTREQUEST"] += len(frames) - len(passed)
        return passed, refusals

    # --- for people

    def log_refusals(self, now_ms: int) -> None:
        """Say what was refused since the last line; periodic."""
        new = self.refused - self._logged
        if new:
            self._logged = self.refused.copy()
            self.log.warn("overload: requests refused since the last such line: {what}",
                          what=", ".join(f"{count} {word}" for word, count in new.items()))

    def families(self) -> list[MetricFamily]:
        """The waiting requests, for metrics."""
        return [watermark(self._waiting)]

    def runtime_info(self) -> dict[str, str]:
        """Rows of the runtime table: what Apache's has of its queues, and what was refused.

        All kinds wait together: any waiting request is in front of a send, and the first of a kind
        waits no longer than the first of all.
        """
        waiting = self._waiting
        head_wait_ms = waiting.head_wait_ms() if waiting else 0
        rows = {"pageCacheLockTimeMills": str(self._slow_ms if self._is_busy else 0)}
        counts = waiting_counts(waiting)
        counts["send"] = waiting.request_count if waiting else 0
        for processor, name, code in _QUEUES:
            count = counts[processor]
            rows[f"{name}ThreadPoolQueueSize"] = str(count)
            rows[f"{name}ThreadPoolQueueCapacity"] = str(self._bounds.capacity_of[code])
            rows[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(head_wait_ms if count else 0)
        # Apache's names of these are not alike, and nothing tells how long the first one waits.
        rows["EndTransactionQueueSize"] = str(counts["transaction"])
        rows["EndTransactionThreadPoolQueueCapacity"] = str(
            self._bounds.capacity_of[RequestCode.END_TRANSACTION])
        for word in ("OVERLOAD", "TIMEOUT_CLEAN_QUEUE", "PCBUSY_CLEAN_QUEUE", "REJECTREQUEST"):
            rows[f"flowControl_{word}"] = str(self.refused[word])
        return rows
