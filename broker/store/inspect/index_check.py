"""Compares the index with the log: headers, slot chains, and the items of all keys.

Items are added in the order of the log, so they are read along with the walk through the log, once.
An item that does not fit into this order is looked up on its own.

Source: IndexService.buildIndex, IndexFile.putKey @5.3.3.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from twistmq.broker.store.index_tail import HEADER_SIZE, SLOT_SIZE
from twistmq.broker.store.inspect.index_view import IndexView, Item, key_hash
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.properties import TAGS, index_keys
from twistmq.protocol.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    StoredMessage,
)

__all__ = ["IndexCheck"]

#: The number of following items that are searched for the items of a record, in case one in between
#: is damaged.
_WINDOW: Final = 64
#: The number of items after which progress is reported.
_STEP: Final = 4096
_INT_MAX: Final = 0x7FFFFFFF
#: The positions of fields in a header and in an item, in bytes.
_HEADER_FIELDS: Final = (("begin time", 0), ("end time", 8), ("begin place", 16),
                         ("end place", 24), ("slots used", 32), ("next item", 36))
_PLACE_POSITION: Final = 4
_SECONDS_POSITION: Final = 12
_PREVIOUS_POSITION: Final = 16


class IndexCheck:
    """Checks all index files. Create it before the end of the log is determined, like QueueCheck.

    :param slot_count: the number of slots of each file; with None it is determined for each file.
    :param advance: called with the number of items processed.
    """

    def __init__(
        self, store: StoreFiles, report: Report, slot_count: int | None = None,
        advance: Callable[[int], object] = int,
    ) -> None:
        self._store = store
        self._report = report
        self._advance = advance
        self._views = [
            view for path in store.index_paths()
            if (view := IndexView(store.reader, path, slot_count)).size > 0
        ]
        slot_counts = {view.size: view.slot_count for view in self._views if view.slot_count}
        for view in self._views:
            view.slot_count = view.slot_count or slot_counts.get(view.size, 0)
        for view in [view for view in self._views if not view.slot_count]:
            report.problem(view.path, None, "a header and items that fit", f"{view.size} bytes in "
                           "which none can be found; --index-slots sets the number of slots")
            self._views.remove(view)
        for view in self._views:
            view.settle()
        self.item_count = sum(view.count - 1 for view in self._views)
        self._items = self._all_items()
        self._ahead: deque[tuple[IndexView, int, Item]] = deque()

    # --- single files

    def check_structure(self) -> None:
        """Check headers and slot chains."""
        for view in self._views:
            self._report.counts["index files"] += 1
            self._check_file(view)

    def _check_file(self, view: IndexView) -> None:
        newest = array("i", bytes(SLOT_SIZE * view.slot_count))
        used_slots = 0
        remaining = _RemainingItems(view)
        for number, (code, log_offset, _, previous) in view.items():
            remaining.add(number, code, log_offset)
            slot = code % view.slot_count
            if previous != newest[slot] and not remaining.are_between(newest[slot], previous):
                self._report.problem(
                    view.path, view.position(number) + _PREVIOUS_POSITION,
                    f"the item before in slot {slot}: {newest[slot]}", str(previous))
            used_slots += newest[slot] == 0
            newest[slot] = number
            if number % _STEP == 0:
                self._advance(_STEP)
        self._advance((view.count - 1) % _STEP)
        self._check_slots(view, newest, remaining)
        # Apache's broker does not count the slots that were on disk at the kill, and it is unknown
        # which ones these were.
        if view.is_ahead or used_slots - remaining.first_count <= view.slots_used <= used_slots:
            used_slots = view.slots_used
        self._check_header(view, used_slots)

    def _check_slots(self, view: IndexView, newest: array[int], remaining: _RemainingItems) -> None:
        step = 65_536
        for begin in range(0, view.slot_count, step):
            expected = newest[begin : begin + step]
            actual = array("i", view.slots(begin, len(expected)).ljust(SLOT_SIZE * len(expected)))
            actual.byteswap()
            if actual == expected:
                continue
            for slot, (newest_item, slot_item) in enumerate(
                    zip(expected, actual, strict=True), begin):
                if (newest_item != slot_item and view.counted(slot_item) != newest_item
                        and not remaining.are_between(newest_item, slot_item)
                        and not self._changed(view)):
                    self._report.problem(view.path, HEADER_SIZE + SLOT_SIZE * slot,
                                         f"the newest item of slot {slot}: {newest_item}",
                                         str(slot_item))

    def _check_header(self, view: IndexView, used_slots: int) -> None:
        last = view.count - 1
        if view.header[5] > view.item_max:
            self._report.problem(view.path, 36, f"at most {view.item_max} as next item",
                                 str(view.header[5]))
            return
        if last < 1:
            return
        expected: list[int | None] = [None, None, view.item(1)[1], view.item(last)[1], used_slots,
                                      None]
        for index, number in ((0, 1), (1, last)):
            log_offset = view.item(number)[1]
            message = self._store.look(log_offset) if log_offset >= self._store.log_begin else ""
            if isinstance(message, StoredMessage):
                expected[index] = message.store_timestamp
        for (name, position), value, actual in zip(_HEADER_FIELDS, expected, view.header,
                                                   strict=True):
            if value is not None and value != actual and not self._changed(view):
                self._report.problem(view.path, position, f"{name} {value}", str(actual))

    def _changed(self, view: IndexView) -> bool:
        """Return whether a broker is filling the file, so that its parts differ in age."""
        return self._store.running and view.read_header() != view.header

    # --- beside the log

    def record(self, log_offset: int, message: StoredMessage, properties: dict[str, str]) -> None:
        """Check that the keys of a record have items; records arrive in the order of the log."""
        if not self._views:
            return
        keys: list[str] = []
        if message.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK:
            keys = index_keys(properties)
        unmatched = {key_hash(message.topic, key): key for key in keys}
        key_hashes = frozenset(unmatched)
        ahead = self._ahead
        while True:
            self._fill()
            while ahead and ahead[0][2][1] < log_offset:
                self._alone(*ahead.popleft())
                self._fill()
            if not ahead or (not unmatched and ahead[0][2][1] != log_offset):
                break
            index = next((index for index, (_, _, item) in enumerate(islice(ahead, _WINDOW))
                          if item[1] == log_offset), None)
            if index is None:
                break
            for _ in range(index):
                self._alone(*ahead.popleft())
            view, number, item = ahead.popleft()
            if item[0] in key_hashes or item[0] == _tag_hash(message.topic, properties):
                unmatched.pop(item[0], None)
                self._check_time(view, number, item, message)
            else:
                self._wrong_key(view, number, item, message)
        if unmatched:
            self._without_item(log_offset, message, next(iter(unmatched.values())))

    def finish(self) -> None:
        """Check the items for which no record was found."""
        self._fill()
        while self._ahead:
            self._alone(*self._ahead.popleft())
            self._fill()

    def _all_items(self) -> Iterator[tuple[IndexView, int, Item]]:
        for view in self._views:
            for number, item in view.items():
                yield view, number, item

    def _fill(self) -> None:
        if len(self._ahead) < _WINDOW:
            items = list(islice(self._items, 4 * _WINDOW))
            self._ahead.extend(items)
            self._report.counts["index items"] += len(items)

    def _alone(self, view: IndexView, number: int, item: Item) -> None:
        """Check an item that was not found along with its record."""
        code, log_offset = item[:2]
        if 0 <= log_offset < self._store.log_begin:
            self._report.counts["items of removed messages"] += 1
            return
        if self._store.log.is_gone(log_offset):
            return
        message = self._store.look(log_offset)
        if isinstance(message, str):
            self._report.problem(view.path, view.position(number) + _PLACE_POSITION,
                                 f"the place of a record (item {number})",
                                 f"{log_offset}, {message}", run=(view.path, message))
            return
        properties = message.properties_map()
        hashes = {key_hash(message.topic, key) for key in index_keys(properties)}
        if code not in hashes and code != _tag_hash(message.topic, properties):
            self._wrong_key(view, number, item, message)

    def _wrong_key(
        self, view: IndexView, number: int, item: Item, message: StoredMessage
    ) -> None:
        self._report.problem(
            view.path, view.position(number),
            f"a record with a key of hash {item[0]} at {item[1]} (item {number})",
            f"a record of {message.topic} with keys {index_keys(message.properties_map())[:4]}")

    def _check_time(
        self, view: IndexView, number: int, item: Item, message: StoredMessage
    ) -> None:
        """Compare the time of an item; the time of the first item counts from the previous file."""
        seconds = (message.store_timestamp - view.begin_timestamp) // 1000
        expected = min(max(seconds, 0), _INT_MAX)
        if item[2] != expected and number > 1 and view.begin_timestamp > 0:
            self._report.problem(view.path, view.position(number) + _SECONDS_POSITION,
                                 f"{expected} s after the file's begin (item {number})",
                                 str(item[2]))

    def _without_item(self, log_offset: int, message: StoredMessage, key: str) -> None:
        # The keys of one record may fill a file and begin the next.
        if self._store.running and log_offset >= self._views[-1].end_physical:
            self._report.counts["records not in the index yet"] += 1
            return
        path, position = self._store.log.locate(log_offset)
        self._report.problem(path, position, f"an index item of {message.topic} for key {key!r}",
                             "none", run="no index item")


def _tag_hash(topic: str, properties: dict[str, str]) -> int | None:
    """Return the hash of the item that Apache's brokers from 5.4.0 on also make for the tag of a
    record; None without a tag."""
    tag = properties.get(TAGS)
    return None if tag is None else key_hash(topic, f"T#{tag}")


class _RemainingItems:
    """Items that a flush wrote before a kill, and that Apache's broker then added once more.

    Our flush writes items and their count, then slots, then the end in the header. After a kill in
    between, Apache's broker counts these items, and adds the items after the end again, so
    commit-log offsets in the file go back to one that already occurred. Some slots lead to the
    remaining items, others bypass them.

    :ivar first_count: the number of remaining items that were the first in their slots.
    """

    def __init__(self, view: IndexView) -> None:
        self._view = view
        self._ranges: list[range] = []
        #: The hash and commit-log offset of the first item of the last message.
        self._message = (-1, -1)
        self.first_count = 0

    def add(self, number: int, code: int, log_offset: int) -> None:
        """Process the next item."""
        first_code, last_offset = self._message
        if log_offset < last_offset or (log_offset == last_offset and code == first_code):
            self._go_back(number, log_offset)
        if log_offset != last_offset:
            self._message = (code, log_offset)

    def are_between(self, newer: int, older: int) -> bool:
        """Return whether all items between two items of a slot are remaining ones."""
        number = newer
        while number > older and any(number in items for items in self._ranges):
            previous = self._view.item(number)[3]
            if previous >= number:
                return False
            number = previous
        return number == older

    def _go_back(self, end: int, log_offset: int) -> None:
        """Note a range of remaining items when offsets go back to an earlier one; damaged items do
        not."""
        first = self._ranges[-1].stop if self._ranges else 1
        # Offsets ascend between two such items, so a binary search avoids reading all items for
        # each damaged one.
        begin = first + bisect_left(
            range(first, end), log_offset, key=lambda number: self._view.item(number)[1])
        if self._view.item(begin)[1] == log_offset and begin < end:
            number_range = range(begin, end)
            self._ranges.append(number_range)
            self.first_count += sum(self._view.item(number)[3] == 0 for number in number_range)
