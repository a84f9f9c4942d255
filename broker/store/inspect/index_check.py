"""The index against the log: headers, slot chains, each key's item and each item's key.

Items are added in the order of the log, so they are read beside its walk, once. An item that does
not fit there is looked up by itself.

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
from twistmq.protocol.properties import index_keys
from twistmq.protocol.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    StoredMessage,
)

__all__ = ["IndexCheck"]

#: Items ahead among which those of a record are looked for when one in between is damaged.
_WINDOW: Final = 64
#: Items after which progress is told.
_STEP: Final = 4096
_INT_MAX: Final = 0x7FFFFFFF
#: Where numbers are in a header and an item, in bytes.
_HEADER_FIELDS: Final = (("begin time", 0), ("end time", 8), ("begin place", 16),
                         ("end place", 24), ("slots used", 32), ("next item", 36))
_PLACE_POSITION: Final = 4
_SECONDS_POSITION: Final = 12
_PREVIOUS_POSITION: Final = 16


class IndexCheck:
    """Checks all index files; made before the log's end is asked for, as the queues are.

    :param slot_count: None: each file's is found out.
    :param advance: told how many items were passed.
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
        known = {view.size: view.slot_count for view in self._views if view.slot_count}
        for view in self._views:
            view.slot_count = view.slot_count or known.get(view.size, 0)
        for view in [view for view in self._views if not view.slot_count]:
            report.problem(view.path, None, "a header and items that fit", f"{view.size} bytes in "
                           "which none can be found; --index-slots says how many slots there are")
            self._views.remove(view)
        for view in self._views:
            view.settle()
        self.item_count = sum(view.count - 1 for view in self._views)
        self._items = self._all_items()
        self._ahead: deque[tuple[IndexView, int, Item]] = deque()

    # --- each file by itself

    def check_structure(self) -> None:
        """Check headers and slot chains."""
        for view in self._views:
            self._report.counts["index files"] += 1
            self._check_file(view)

    def _check_file(self, view: IndexView) -> None:
        newest = array("i", bytes(SLOT_SIZE * view.slot_count))
        used = 0
        left = _LeftItems(view)
        for number, (code, place, _, previous) in view.items():
            left.see(number, code, place)
            slot = code % view.slot_count
            if previous != newest[slot] and not left.are_between(newest[slot], previous):
                self._report.problem(
                    view.path, view.position(number) + _PREVIOUS_POSITION,
                    f"the item before in slot {slot}: {newest[slot]}", str(previous))
            used += newest[slot] == 0
            newest[slot] = number
            if number % _STEP == 0:
                self._advance(_STEP)
        self._advance((view.count - 1) % _STEP)
        self._check_slots(view, newest, left)
        # Apache's broker counts no slot that was on disk at the kill; which were is unknown.
        if view.is_ahead or used - left.first_count <= view.slots_used <= used:
            used = view.slots_used
        self._check_header(view, used)

    def _check_slots(self, view: IndexView, newest: array[int], left: _LeftItems) -> None:
        step = 65_536
        for begin in range(0, view.slot_count, step):
            expected = newest[begin : begin + step]
            found = array("i", view.slots(begin, len(expected)).ljust(SLOT_SIZE * len(expected)))
            found.byteswap()
            if found == expected:
                continue
            for slot, (wanted, given) in enumerate(zip(expected, found, strict=True), begin):
                if (wanted != given and view.counted(given) != wanted
                        and not left.are_between(wanted, given) and not self._changed(view)):
                    self._report.problem(view.path, HEADER_SIZE + SLOT_SIZE * slot,
                                         f"the newest item of slot {slot}: {wanted}", str(given))

    def _check_header(self, view: IndexView, used: int) -> None:
        last = view.count - 1
        if view.header[5] > view.item_max:
            self._report.problem(view.path, 36, f"at most {view.item_max} as next item",
                                 str(view.header[5]))
            return
        if last < 1:
            return
        expected: list[int | None] = [None, None, view.item(1)[1], view.item(last)[1], used,
                                      None]
        for index, number in ((0, 1), (1, last)):
            place = view.item(number)[1]
            message = self._store.look(place) if place >= self._store.log_begin else ""
            if isinstance(message, StoredMessage):
                expected[index] = message.store_timestamp
        for (name, position), value, found in zip(_HEADER_FIELDS, expected, view.header,
                                                  strict=True):
            if value is not None and value != found and not self._changed(view):
                self._report.problem(view.path, position, f"{name} {value}", str(found))

    def _changed(self, view: IndexView) -> bool:
        """Whether a broker is filling the file, so that its parts are of different moments."""
        return self._store.running and view.read_header() != view.header

    # --- beside the log

    def record(self, place: int, message: StoredMessage, properties: dict[str, str]) -> None:
        """Check that a record's keys have their items; records come in the order of the log."""
        if not self._views:
            return
        keys: list[str] = []
        if message.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK:
            keys = index_keys(properties)
        wanted = {key_hash(message.topic, key): key for key in keys}
        all_wanted = frozenset(wanted)
        ahead = self._ahead
        while True:
            self._fill()
            while ahead and ahead[0][2][1] < place:
                self._alone(*ahead.popleft())
                self._fill()
            if not ahead or (not wanted and ahead[0][2][1] != place):
                break
            index = next((index for index, (_, _, item) in enumerate(islice(ahead, _WINDOW))
                          if item[1] == place), None)
            if index is None:
                break
            for _ in range(index):
                self._alone(*ahead.popleft())
            view, number, item = ahead.popleft()
            if item[0] in all_wanted:
                wanted.pop(item[0], None)
                self._check_time(view, number, item, message)
            else:
                self._wrong_key(view, number, item, message)
        if wanted:
            self._without_item(place, message, next(iter(wanted.values())))

    def finish(self) -> None:
        """Look at the items no record was found for."""
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
            found = list(islice(self._items, 4 * _WINDOW))
            self._ahead.extend(found)
            self._report.counts["index items"] += len(found)

    def _alone(self, view: IndexView, number: int, item: Item) -> None:
        """Check an item that was not met beside its record."""
        code, place = item[:2]
        if 0 <= place < self._store.log_begin:
            self._report.counts["items of removed messages"] += 1
            return
        if self._store.log.is_gone(place):
            return
        message = self._store.look(place)
        if isinstance(message, str):
            self._report.problem(view.path, view.position(number) + _PLACE_POSITION,
                                 f"the place of a record (item {number})", f"{place}, {message}",
                                 run=(view.path, message))
        elif code not in {key_hash(message.topic, key)
                          for key in index_keys(message.properties_map())}:
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
        """Compare an item's time; the first one counts from the file before."""
        seconds = (message.store_timestamp - view.begin_timestamp) // 1000
        expected = min(max(seconds, 0), _INT_MAX)
        if item[2] != expected and number > 1 and view.begin_timestamp > 0:
            self._report.problem(view.path, view.position(number) + _SECONDS_POSITION,
                                 f"{expected} s behind the file's begin (item {number})",
                                 str(item[2]))

    def _without_item(self, place: int, message: StoredMessage, key: str) -> None:
        # The keys of one record may fill a file and begin the next.
        if self._store.running and place >= self._views[-1].end_physical:
            self._report.counts["records not in the index yet"] += 1
            return
        path, position = self._store.log.locate(place)
        self._report.problem(path, position, f"an index item of {message.topic} for key {key!r}",
                             "none", run="no index item")


class _LeftItems:
    """Items that a flush wrote before a kill, and that Apache's broker put once more.

    Our flush writes items and their count, then slots, then the header's end. Apache's broker
    counts those items, and puts again what is behind the end: places in the log go back to one that
    was there. Some slots lead to the items that were left, others pass them.

    :ivar first_count: how many of these items were the first in their slots.
    """

    def __init__(self, view: IndexView) -> None:
        self._view = view
        self._ranges: list[range] = []
        #: Hash and place of the first item of the message that was seen last.
        self._message = (-1, -1)
        self.first_count = 0

    def see(self, number: int, code: int, place: int) -> None:
        """Look at the next item."""
        first_code, last_place = self._message
        if place < last_place or (place == last_place and code == first_code):
            self._go_back(number, place)
        if place != last_place:
            self._message = (code, place)

    def are_between(self, newer: int, older: int) -> bool:
        """Whether only items that were left are between two items of a slot."""
        number = newer
        while number > older and any(number in items for items in self._ranges):
            previous = self._view.item(number)[3]
            if previous >= number:
                return False
            number = previous
        return number == older

    def _go_back(self, end: int, place: int) -> None:
        """Places go back with an item, to one that was there unless the item is damaged."""
        least = self._ranges[-1].stop if self._ranges else 1
        # Places ascend between two such items. A page of damaged items must not read all others.
        begin = least + bisect_left(
            range(least, end), place, key=lambda number: self._view.item(number)[1])
        if self._view.item(begin)[1] == place and begin < end:
            left = range(begin, end)
            self._ranges.append(left)
            self.first_count += sum(self._view.item(number)[3] == 0 for number in left)
