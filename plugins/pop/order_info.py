"""The messages popped by ordered groups: a queue stays closed until they are acknowledged.

An ordered group must not get a message while an earlier one of the same queue is being processed,
even if another member asks or the broker was restarted. The check points of other pops do not
ensure that, because they only bring unacknowledged messages back later. Therefore an ordered pop
has no check point. Instead, the table records for each queue which messages the last pop gave out,
until when they are hidden, and which of them are acknowledged. The queue gives nothing to other
pops as long as an unacknowledged message is hidden.

The table is saved in ``config/consumerOrderInfo.json``, so that a queue stays closed across a
restart. The consumer offset follows the acknowledgements, so messages whose acknowledgement is lost
in a crash are given out again, in order.

Source: ConsumerOrderInfoManager, ConsumerOrderInfoLockManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from msgspec import field
from twisted.logger import Logger

from twistmq.broker.api.bodies import Body
from twistmq.broker.api.config import LONG_MAX
from twistmq.broker.api.requests import FileRows, SavedTable, Saving
from twistmq.broker.api.wire import Int32, Int64, encode_pretty_row
from twistmq.plugins.pop.checks import invisible_max_ms
from twistmq.plugins.pop.offsets import QueueKey

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["NOT_GIVEN_OUT", "NO_COMMIT", "OrderInfo", "OrderInfoTable", "OrderInfos"]

_SEPARATOR: Final = "@"
#: The number of keys that are processed in one step.
_KEYS_AT_ONCE: Final = 200
#: A group that did not consume for this long is forgotten, ms.
_FORGET_MS: Final = 24 * 3_600_000
#: Results of ``commit`` that are not offsets: the message is not given out, or was popped again.
NOT_GIVEN_OUT: Final = -1
NO_COMMIT: Final = -2


class OrderInfo(Body):
    """The messages that one group popped from one queue."""

    #: Unix ms.
    pop_time: Int64 = 0
    #: The time for which the messages are hidden, ms.
    invisible_time: Int64 | None = field(name="i", default=None)
    #: Queue offset of the first message, then the distances of the other messages from it.
    offset_list: list[Int64] = field(name="o", default_factory=list)
    #: Queue offset to the time at which a message with a changed invisible time becomes visible.
    offset_next_visible_time: dict[Int64, Int64] | None = field(name="ot", default=None)
    #: Queue offset to the number of times the message was given out before.
    offset_consumed_count: dict[Int64, Int32] | None = field(name="oc", default=None)
    #: Unix ms.
    last_consume_timestamp: Int64 = field(name="l", default=0)
    #: One bit for each message, set when the message is acknowledged.
    commit_offset_bit: Int64 = field(name="cm", default=0)
    #: A pop with the same attempt id is the same pop, sent again.
    attempt_id: str | None = field(name="a", default=None)

    def offsets(self) -> list[int]:
        """Return the queue offsets of the messages."""
        first = self.offset_list[:1]
        return first + [first[0] + behind for behind in self.offset_list[1:]]

    def open_offsets(self) -> Iterator[int]:
        """Yield the queue offsets of the messages that are not acknowledged."""
        for index, offset in enumerate(self.offsets()):
            if not self.commit_offset_bit >> index & 1:
                yield offset

    def visible_ms(self, offset: int) -> int:
        """Return the time at which a message becomes visible again, Unix ms."""
        other = (self.offset_next_visible_time or {}).get(offset)
        return self.pop_time + (self.invisible_time or 0) if other is None else other

    def blocked_until(self, now_ms: int) -> int | None:
        """Return the time at which the first invisible message becomes visible, Unix ms.

        The result is None if all messages are visible.
        """
        return next((visible_ms for visible_ms in map(self.visible_ms, self.open_offsets())
                     if visible_ms > now_ms), None)


class OrderInfoTable(Body):
    """The infos of all groups and topics by "topic@group" and queue, as they are saved."""

    table: dict[str, dict[Int32, OrderInfo]] = field(default_factory=dict)


class OrderInfos(SavedTable):
    """The messages popped by the ordered groups of one broker.

    :param on_free: called with a queue when its hidden messages become visible; None if no client
        has to be notified.
    """

    log = Logger()

    def __init__(self, broker: Broker, on_free: Callable[[QueueKey], None] | None) -> None:
        super().__init__(broker.store.config_file("consumerOrderInfo.json"))
        self._broker = broker
        self._on_free = on_free
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._file_rows = FileRows(self._file_row)
        #: (time in Unix ms, queue).
        self._free: list[tuple[int, QueueKey]] = []

    # --- file

    def load(self) -> None:
        """Load the saved table; :raises StoreDamaged: when it cannot be read."""
        self._file.load_rows(OrderInfoTable, self._take_saved)
        for key, queues in self._table.items():
            topic, _, group = key.partition(_SEPARATOR)
            for queue_id, info in queues.items():
                self._bound_times(info)
                self._note_free((topic, group, queue_id), info)

    def _bound_times(self, info: OrderInfo) -> None:
        """Limit saved invisible times to the longest time that is allowed now."""
        end_ms = self._broker.now_ms() + invisible_max_ms(self._broker)
        if info.pop_time + (info.invisible_time or 0) > end_ms:
            info.invisible_time = max(end_ms - info.pop_time, 0)
        others = info.offset_next_visible_time
        for offset, visible_ms in list((others or {}).items()):
            if others is not None and visible_ms > end_ms:
                others[offset] = end_ms

    def _take_saved(self, saved: OrderInfoTable, data: bytes) -> None:
        self._table = saved.table
        self._file_rows.loaded(data, "table", self._table)

    def saving(self) -> Saving:
        """See SavedTable."""
        yield from self._forgetting_old(self._broker.now_ms())
        yield from self._file_rows.write()
        return self._job(OrderInfoTable(), {"table": self._file_rows.rows()})

    def _file_row(self, key: str) -> bytes | None:
        queues = self._table.get(key)
        return None if queues is None else encode_pretty_row(key, queues)

    def _forgetting_old(self, now_ms: int) -> Iterator[None]:
        """Forget topics, groups and queues that are gone or idle for long, in steps."""
        broker = self._broker
        for number, key in enumerate(list(self._table)):
            if not number % _KEYS_AT_ONCE:
                yield
            queues = self._table.get(key)
            if queues is None:
                continue
            topic, _, group = key.partition(_SEPARATOR)
            config = broker.topic_config.get(topic)
            old = [queue_id for queue_id, info in queues.items()
                   if config is None or queue_id >= config.read_queue_nums
                   or now_ms - info.last_consume_timestamp > _FORGET_MS]
            for queue_id in old:
                del queues[queue_id]
            if not queues or not broker.subscription_group.has(group):
                del self._table[key]
                old.append(0)
            if old:
                self._file_rows.changed(key)

    # --- pops and acknowledgements

    def _find(self, key: QueueKey) -> OrderInfo | None:
        topic, group, queue_id = key
        return self._table.get(topic + _SEPARATOR + group, {}).get(queue_id)

    def is_blocked(
        self, key: QueueKey, attempt_id: str | None, invisible_time: int, now_ms: int
    ) -> bool:
        """Whether a queue gives no messages to a pop now.

        :param invisible_time: the invisible time of this pop, which is also applied to messages
            that were popped without one.
        """
        info = self._find(key)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_time or info.invisible_time < 0:
            info.invisible_time = invisible_time
        return info.blocked_until(now_ms) is not None

    def clear(self, key: QueueKey) -> None:
        """Open a queue because an administrator set its offset."""
        topic, group, queue_id = key
        table_key = topic + _SEPARATOR + group
        if self._table.get(table_key, {}).pop(queue_id, None) is not None:
            self._file_rows.changed(table_key)
            self.dirty = True

    def forget_topics(self, topics: Container[str]) -> None:
        """Forget the queues of deleted topics."""
        for key in [key for key in self._table if key.partition(_SEPARATOR)[0] in topics]:
            del self._table[key]
            self._file_rows.changed(key)
            self.dirty = True

    def popped(
        self, key: QueueKey, attempt_id: str | None, pop_time: int, invisible_time: int,
        offsets: Sequence[int],
    ) -> dict[int, int]:
        """Note that messages were given out.

        :returns: queue offset to how often the message was given out before; new messages are
            omitted.
        """
        topic, group, queue_id = key
        first = offsets[0]
        info = OrderInfo(pop_time, invisible_time,
                         [first, *[offset - first for offset in offsets[1:]]],
                         last_consume_timestamp=self._broker.now_ms(), attempt_id=attempt_id)
        previous = self._find(key)
        counts: dict[int, int] = {}
        if previous is not None:
            earlier_counts = previous.offset_consumed_count or {}
            if previous.attempt_id is not None and previous.attempt_id == attempt_id:
                counts = earlier_counts
            else:
                again = set(previous.offsets())
                counts = {offset: earlier_counts.get(offset, 0) + 1 for offset in offsets
                          if offset in again}
            info.offset_consumed_count = counts
        self._table.setdefault(topic + _SEPARATOR + group, {})[queue_id] = info
        self._changed(key, info)
        return counts

    def commit(self, key: QueueKey, offset: int, pop_time: int) -> int:
        """Note that a message is acknowledged.

        Differs from Apache, where an acknowledgement moves the offset of a group that popped
        nothing, so that any client allowed to send one could make the group skip messages.

        :returns: the new consumer offset, or NOT_GIVEN_OUT or NO_COMMIT.
        """
        info = self._find(key)
        if info is None or not info.offset_list:
            return NOT_GIVEN_OUT
        if pop_time != info.pop_time:
            self.log.debug("{key} {offset} was popped again since then", key=key, offset=offset)
            return NO_COMMIT
        offsets = info.offsets()
        if offset not in offsets:
            return NOT_GIVEN_OUT
        info.commit_offset_bit |= 1 << offsets.index(offset)
        self._changed(key, info)
        return next(info.open_offsets(), offsets[-1] + 1)

    def hide(self, key: QueueKey, offset: int, pop_time: int, visible_ms: int) -> bool:
        """Let a message become visible at another time, Unix ms.

        :returns: False when the message is not given out. A message that was popped again in the
            meantime stays unchanged, and the result is True.
        """
        info = self._find(key)
        if info is None:
            return False
        if pop_time != info.pop_time:
            self.log.debug("{key} {offset} was popped again since then", key=key, offset=offset)
            return True
        if offset not in info.offsets():
            return False
        if info.offset_next_visible_time is None:
            info.offset_next_visible_time = {}
        # The file can be read again only if each number in it is a Java long.
        info.offset_next_visible_time[offset] = min(visible_ms, LONG_MAX)
        self._changed(key, info)
        return True

    # --- notifications

    def _changed(self, key: QueueKey, info: OrderInfo) -> None:
        self._file_rows.changed(key[0] + _SEPARATOR + key[1])
        self.dirty = True
        self._note_free(key, info)

    def _note_free(self, key: QueueKey, info: OrderInfo) -> None:
        if self._on_free is not None and info.offset_list:
            until_ms = info.blocked_until(self._broker.now_ms())
            if until_ms is not None:
                heappush(self._free, (until_ms, key))

    @property
    def free_ms(self) -> int | None:
        """When hidden messages of the first queue become visible, Unix ms; None without any."""
        return self._free[0][0] if self._free else None

    def notify_unblocked(self, now_ms: int) -> None:
        """Wake pops that wait for queues whose hidden messages became visible; periodic."""
        while self._free and self._free[0][0] <= now_ms:
            key = heappop(self._free)[1]
            assert self._on_free is not None
            self._on_free(key)
            info = self._find(key)
            if info is not None:
                self._note_free(key, info)
