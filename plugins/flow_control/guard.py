"""Refuses requests when more arrive than the broker can serve, with Apache's answers.

One thread runs all requests, so a request that arrives during an overload waits until all earlier
ones are done. Its client may have given up by then, and serving it would only delay the next one.
Refusing such a request early costs a twentieth of serving it and keeps the remaining waits short. A
broker that keeps up never examines a request here. A broker that is behind reads and counts
incoming requests, and refuses those for which waiting would be useless: because too many already
wait, because they waited too long, or because an append was held up by the disk. README.md
describes the cases.

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

#: Apache's queues that the runtime table reports: the processor's name in metrics, the first part
#: of its row names, and one of its codes. Source: AdminBrokerProcessor.prepareRuntimeInfo.
_QUEUES: Final = (
    ("send", "send", RequestCode.SEND_MESSAGE), ("pull", "pull", RequestCode.PULL_MESSAGE),
    ("lite_pull", "litePull", RequestCode.LITE_PULL_MESSAGE),
    ("query_message", "query", RequestCode.QUERY_MESSAGE),
    ("ack", "ack", RequestCode.ACK_MESSAGE))
_REJECT: Final = Refusal("[REJECTREQUEST]system busy, start flow control for a while")
_OVERLOAD: Final = Refusal("[OVERLOAD]system busy, start flow control for a while")
#: Arguments: the reason, the waiting time in ms, and the number of requests that wait after it.
_TOO_LATE: Final = ("[{}]broker busy, start flow control for a while, period in queue: {}ms, size "
                    "of queue: {}")
#: Time after such an append in which requests that arrived during it are read, ms: one tick.
_READ_AFTER_MS: Final = 10

Sorted = tuple[Sequence[Frame], Sequence[bytes]]


@implementer(IFlowControl)
class FlowControl:
    """The flow control of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: WaitingRequests | None = None
        #: Refusals since the start, by the reason with which their remarks begin.
        self.refused: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        #: The last append that took too long: its duration, and its end by the monotonic clock.
        self._slow_ms = 0
        self._slow_end_ms = 0
        #: True while requests that were in the sockets at that time are being read.
        self._is_busy = False
        self.rejects = False
        self._is_on = True
        self.settings_changed()
        broker.settings.on_change.append(self.settings_changed)

    def settings_changed(self, changes: Mapping[str, SettingValue] | None = None) -> None:
        """Read the settings; called again whenever one changes."""
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
        """Return the codes that are refused.

        On a slave that may stand in for its master, the store refuses sends, as in Apache's broker.
        """
        rejected: frozenset[int] = frozenset()
        is_slave = self._broker.is_slave
        if self._is_busy or not (is_slave and self._broker.identity.enable_acting_master):
            rejected |= REJECTED_SENDS
        if is_slave and not self._slave_read:
            rejected |= PULLS
        return rejected

    # --- calls from the connections

    def begin_round(self, waiting: WaitingRequests) -> None:
        """See IFlowControl; check whether an append was held up since the last round."""
        self._waiting = waiting
        stats = self._broker.store.stats
        slow_ms, stats.slow_put_ms = stats.slow_put_ms, 0
        if slow_ms > self._page_cache_ms:
            self._slow_ms, self._slow_end_ms = slow_ms, self._broker.steady.now_ms()
            self._is_busy = True
            self.log.warn("an append took {slow} ms, more than {limit}: sends that came during it "
                          "are refused, {count} wait", slow=slow_ms, limit=self._page_cache_ms,
                          count=waiting.request_count)
        elif self._is_busy and self._broker.steady.now_ms() > self._slow_end_ms + _READ_AFTER_MS:
            self._is_busy = False
        self._set_rejects()

    def arrived(self, frames: Sequence[Frame], own_count: int, waiting: WaitingRequests) -> Sorted:
        """See IFlowControl; refuse requests when too many requests or too many bytes wait.

        A connection with less than its share is not refused because of the other connections.
        """
        bounds = self._bounds
        is_full = waiting.size_bytes >= self._bytes_max
        count = waiting.request_count
        if count + len(frames) <= bounds.least_capacity and not is_full:
            return frames, ()
        share = bounds.least_capacity // (waiting.connection_count + 1)
        free_count = 0 if is_full else max(share - own_count, 0)
        accepted = list(frames[:free_count])
        count += len(accepted)
        refusals: list[bytes] = []
        refused = 0
        capacities, otherwise = bounds.capacity_of, bounds.capacity_otherwise
        for frame in frames[free_count:]:
            head = look(frame)
            if head is not None:
                code, opaque, flag = head
                if count >= capacities.get(code, otherwise) or (is_full and code in SEND.codes):
                    refused += 1
                    if not flag & ONEWAY_FLAG:
                        refusals.append(_OVERLOAD.frame(opaque))
                    continue
            accepted.append(frame)
            count += 1
        self.refused["OVERLOAD"] += refused
        return accepted, refusals

    def due(self, frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests) -> Sorted:
        """See IFlowControl; refuse requests that waited too long or were held up by an append."""
        bounds = self._bounds
        is_late = self._is_on and waited_ms >= bounds.least_wait_ms
        is_busy = self._is_on and bool(self._slow_ms) and (
            self._broker.steady.now_ms() - waited_ms <= self._slow_end_ms)
        if not is_late and not is_busy:
            return frames, ()
        accepted: list[Frame] = []
        refusals: list[bytes] = []
        late = busy = 0
        size = waiting.request_count + len(frames)
        waits, otherwise = bounds.wait_ms_of, bounds.wait_ms_otherwise
        forms: dict[str, Refusal] = {}
        for frame in frames:
            size -= 1
            head = look(frame)
            if head is None:
                accepted.append(frame)
                continue
            code, opaque, flag = head
            if is_busy and code in SEND.codes:
                busy += 1
                word = "PCBUSY_CLEAN_QUEUE"
            elif is_late and waited_ms >= waits.get(code, otherwise):
                late += 1
                word = "TIMEOUT_CLEAN_QUEUE"
            else:
                accepted.append(frame)
                continue
            if not flag & ONEWAY_FLAG:
                form = forms.get(word)
                if form is None:
                    form = forms[word] = Refusal(_TOO_LATE.format(word, waited_ms, "{}"))
                refusals.append(form.frame_with(opaque, size))
        self.refused["TIMEOUT_CLEAN_QUEUE"] += late
        self.refused["PCBUSY_CLEAN_QUEUE"] += busy
        return accepted, refusals

    def reject(self, frames: Sequence[Frame]) -> Sorted:
        """See IFlowControl; refuse sends while the page cache is busy; on a slave also pulls."""
        rejected = self._rejected()
        accepted: list[Frame] = []
        refusals: list[bytes] = []
        for frame in frames:
            head = look(frame)
            if head is None or head[0] not in rejected:
                accepted.append(frame)
            elif not head[2] & ONEWAY_FLAG:
                refusals.append(_REJECT.frame(head[1]))
        self.refused["REJECTREQUEST"] += len(frames) - len(accepted)
        return accepted, refusals

    # --- reports

    def log_refusals(self, now_ms: int) -> None:
        """Log the refusals since the previous log line; periodic."""
        new = self.refused - self._logged
        if new:
            self._logged = self.refused.copy()
            self.log.warn("overload: requests refused since the last such line: {what}",
                          what=", ".join(f"{count} {word}" for word, count in new.items()))

    def families(self) -> list[MetricFamily]:
        """Return the number of waiting requests as metrics."""
        return [watermark(self._waiting)]

    def runtime_info(self) -> dict[str, str]:
        """Return rows of the runtime table: Apache's rows about its queues, and the refusals.

        All kinds wait in one queue. Every waiting request counts as being ahead of a send, and the
        first request of a kind waits no longer than the first request of all.
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
        # Apache's names for these rows are irregular, and no row has the wait of the first request.
        rows["EndTransactionQueueSize"] = str(counts["transaction"])
        rows["EndTransactionThreadPoolQueueCapacity"] = str(
            self._bounds.capacity_of[RequestCode.END_TRANSACTION])
        for word in ("OVERLOAD", "TIMEOUT_CLEAN_QUEUE", "PCBUSY_CLEAN_QUEUE", "REJECTREQUEST"):
            rows[f"flowControl_{word}"] = str(self.refused[word])
        return rows
