"""Decides when tables are saved: soon after a change, together with other changes of that time.

Saving a table writes and syncs a whole file, so a change without a waiting request only marks its
table. An administrator's request waits until its change is saved; requests that come during a save
share the next one.

Source: ConfigManager.persist @5.3.3, which is called at each change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.request.persisted_table import Persistable, SavedTable
from twistmq.broker.scheduling.scheduler import Lane
from twistmq.protocol.errors import StoreError

__all__ = ["SAVE_PERIOD_MS", "TableSaves"]

#: The time from one save of changed tables to the next, ms.
SAVE_PERIOD_MS: Final = 1000
#: No save is in progress for most of the time: a long save is followed by a longer pause.
_PAUSE_FACTOR: Final = 5
_PAUSE_MAX_MS: Final = 30_000


class TableSaves:
    """Saves tables.

    :param slices: the lane in which the text of tables is written.
    :param in_thread: runs a blocking function on a thread.
    """

    log = Logger()

    def __init__(
        self, tables: Sequence[SavedTable], slices: Lane,
        in_thread: Callable[[Callable[[], None]], Deferred[None]], now_ms: Callable[[], int],
    ) -> None:
        self._tables = tables
        self._slices = slices
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._running: dict[SavedTable, Deferred[None]] = {}
        #: Deferreds of the save that follows the running one.
        self._waiting: dict[SavedTable, list[Deferred[None]]] = {}
        self._took_ms = 0
        #: Tables that could not be saved and will be tried again.
        self.unsaved: list[Persistable] = []

    def save(self, table: SavedTable) -> Deferred[None]:
        """Save a table soon. The Deferred fires when its present state is saved or saving failed.

        It never fails. A table that cannot be saved is logged and tried again later: its content
        is valid already, and a full disk must not prevent consumers from reading.
        """
        done: Deferred[None] = Deferred()
        self._waiting.setdefault(table, []).append(done)
        if table not in self._running:
            self._begin(table)
        return done

    def save_if_changed(self, *tables: Persistable) -> None:
        """Save the tables that changed, or that could not be saved before."""
        for table in tables:
            if not isinstance(table, SavedTable):
                self.persist(table)
            elif (table.dirty or table in self.unsaved) and table not in self._running:
                self.save(table)

    def period_ms(self) -> int:
        """Return the time from one :meth:`step` to the next, ms."""
        return max(SAVE_PERIOD_MS, min(self._took_ms * _PAUSE_FACTOR, _PAUSE_MAX_MS))

    def step(self, now_ms: int) -> None:
        """Save the changed tables; periodic."""
        self.save_if_changed(*self._tables)

    def finish(self) -> Deferred[None]:
        """Fire once the running saves, and the saves that wait for them, are done."""
        self._slices.finish()
        if not self._running:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        DeferredList(list(self._running.values())).addCallback(
            lambda _: self.finish().addCallback(ended.callback))
        return ended

    def persist(self, table: Persistable) -> None:
        """Save a table now, on this thread; a table that cannot be saved is tried again later."""
        try:
            table.persist()
        except (StoreError, OSError) as error:
            self._failed(table, error)
        else:
            self._saved(table)

    def _failed(self, table: Persistable, error: Exception) -> None:
        """Log a table that cannot be saved, only once until it succeeds, and try it again later."""
        if table not in self.unsaved:
            self.log.error("{table} cannot be saved and will be tried again: {error}",
                           table=type(table).__name__, error=str(error))
        self._keep_unsaved(table)

    def _keep_unsaved(self, table: Persistable) -> None:
        """Make sure that a table is saved again, at the latest when the broker stops."""
        if isinstance(table, SavedTable):
            table.dirty = True
        if table not in self.unsaved:
            self.unsaved.append(table)

    def _saved(self, table: Persistable) -> None:
        """Record that a table is saved."""
        if table in self.unsaved:
            self.unsaved.remove(table)
            self.log.info("{table} is saved again", table=type(table).__name__)

    def _begin(self, table: SavedTable) -> None:
        waiting = self._waiting.pop(table)
        ended = self._running[table] = Deferred()
        began_ms = self._now_ms()
        job = self._slices.run(table.saving())
        saved: Deferred[None] = job.addCallback(self._in_thread)
        saved.addBoth(self._ended, table, began_ms, waiting)
        saved.addBoth(lambda _: ended.callback(None))

    def _ended(
        self, result: Failure | None, table: SavedTable, began_ms: int,
        waiting: list[Deferred[None]],
    ) -> None:
        self._took_ms = self._now_ms() - began_ms
        del self._running[table]
        if not isinstance(result, Failure):
            self._saved(table)
        elif isinstance(result.value, StoreError | OSError):
            self._failed(table, result.value)
        else:
            self.log.failure("{table} cannot be saved", failure=result,
                             table=type(table).__name__)
            self._keep_unsaved(table)
        for done in waiting:
            done.callback(None)
        if table in self._waiting and table not in self._running:
            self._begin(table)
