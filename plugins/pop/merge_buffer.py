"""Check points that wait in memory for their acknowledgements, under enablePopBufferMerge.

A check point whose messages are all acknowledged is never written. A check point that stays too
long, or whose messages would soon become visible again, is written together with the
acknowledgements that arrived. Until then the consumer offset of the queue does not pass the check
point, so a broker that is killed gives its messages out again.

Differs from Apache: both steps happen at once, so no request has to be refused before them.

Source: PopBufferMergeService @5.3.3.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api.observe import LimitedLog
from twistmq.plugins.pop.check_point import CheckPoint, PointKey, ReviveRecord, ReviveRecords
from twistmq.plugins.pop.offsets import SETTLED, TakenRange
from twistmq.plugins.pop.settings import PopSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MergeBuffer"]

#: The minimum time between adding a check point and writing it, ms.
_LEAST_STAY_MS: Final = 1500
#: The number of check points that are written at once.
_WRITE_COUNT: Final = 256
#: The time until a failed write is tried again, ms.
_AGAIN_MS: Final = 100


class _Buffered:
    """One check point in memory."""

    __slots__ = ("point", "revive_queue", "safe_from", "taken_range")

    def __init__(self, point: CheckPoint, revive_queue: int, taken_range: TakenRange) -> None:
        self.point = point
        self.revive_queue = revive_queue
        self.taken_range = taken_range
        #: The acknowledgements count when the commit log is durable up to this offset.
        self.safe_from = SETTLED


class MergeBuffer:
    """The check points of one broker that wait in memory."""

    log = Logger()

    def __init__(
        self, settings: PopSettings, records: ReviveRecords, steady_ms: Callable[[], int]
    ) -> None:
        self._steady_ms = steady_ms
        self._lines = LimitedLog(self.log)
        self._settings = settings
        self._records = records
        self._points: dict[PointKey, _Buffered] = {}
        #: (time to write by the monotonic clock, a number, key); some keys are already gone.
        self._due: list[tuple[int, int, PointKey]] = []
        self._numbers = count()
        self._is_failing = False

    def __len__(self) -> int:
        return len(self._points)

    def accepts(self, point: CheckPoint, now_ms: int) -> bool:
        """Whether there is enough room and time to keep a check point in memory."""
        settings = self._settings
        return (settings.buffer_merge and point.key not in self._points
                and len(self._points) <= settings.buffer_size_max
                and point.revive_time - now_ms >= settings.stay_timeout_ms + _LEAST_STAY_MS)

    def add(
        self, point: CheckPoint, revive_queue: int, taken_range: TakenRange, now_ms: int
    ) -> None:
        """Keep a check point that ``accepts`` allowed."""
        settings = self._settings
        self._points[point.key] = _Buffered(point, revive_queue, taken_range)
        remaining_ms = min(point.revive_time - settings.stay_timeout_ms - now_ms, settings.stay_ms)
        heappush(self._due, (self._steady_ms() + remaining_ms, next(self._numbers), point.key))

    @property
    def due_ms(self) -> int | None:
        """When the first check point is written, on the clock for durations, ms; None without one.
        """
        return self._due[0][0] if self._due else None

    def has(self, key: PointKey) -> bool:
        return key in self._points

    def acknowledge(
        self, key: PointKey, offsets: Sequence[int], safe_from: int = SETTLED
    ) -> bool:
        """Note acknowledgements.

        :param safe_from: they count when the commit log is durable up to this offset.
        :returns: False when the check point is not in memory.
        """
        buffered = self._points.get(key)
        if buffered is None:
            return False
        for offset in offsets:
            if not buffered.point.acknowledge(offset):
                self._lines.warn(self._steady_ms(), "check point {key} has no message {offset}",
                                 key=key, offset=offset)
        buffered.safe_from = max(buffered.safe_from, safe_from)
        if buffered.point.is_done:
            buffered.taken_range.safe_from = buffered.safe_from
            del self._points[key]
        return True

    def write_due(self) -> bool:
        """Write some of the due check points; :returns: whether more may be due now."""
        now_ms = self._steady_ms()
        written: list[_Buffered] = []
        while self._due and self._due[0][0] <= now_ms and len(written) < _WRITE_COUNT:
            buffered = self._points.get(heappop(self._due)[2])
            if buffered is not None:
                written.append(buffered)
        return bool(written) and self._write(written) and len(written) == _WRITE_COUNT

    def write_all(self) -> None:
        """Write all check points because the broker stops."""
        self._due.clear()
        self._write(list(self._points.values()))

    def clear(self) -> None:
        """Forget all check points because this broker is no longer a master."""
        self._points.clear()
        self._due.clear()

    def _write(self, written: list[_Buffered]) -> bool:
        """Write check points with their acknowledgements; :returns: whether all were written."""
        records: list[ReviveRecord] = []
        owners: list[int] = []
        for index, buffered in enumerate(written):
            own_records = self._records_of(buffered)
            records += own_records
            owners += [index] * len(own_records)
        refusals = self._records.store(records, owners)
        refused = {owners[index]: error for index, error in refusals.items()}
        for record, owner in zip(records, owners, strict=True):
            if owner not in refused:
                written[owner].taken_range.safe_from = record.next_offset
        for index, buffered in enumerate(written):
            key = buffered.point.key
            if index not in refused:
                del self._points[key]
            else:
                heappush(self._due, (self._steady_ms() + _AGAIN_MS, next(self._numbers), key))
        if refused and not self._is_failing:
            self.log.error("check points cannot be written: {error}",
                           error=str(next(iter(refused.values()))))
        self._is_failing = bool(refused)
        return not refused

    def _records_of(self, buffered: _Buffered) -> list[ReviveRecord]:
        point, queue_id = buffered.point, buffered.revive_queue
        records = [self._records.check_point(point, queue_id)]
        offsets = point.acknowledged()
        parts = ([offsets] if offsets else []) if self._settings.batch_ack else [
            [offset] for offset in offsets]
        return records + [self._records.ack(point.key, part, queue_id, point.revive_time)
                          for part in parts]
