"""When tables are saved: soon after a change, all changes of that time at once.

Saving a table writes and syncs a whole file, so a change without a waiting request only marks its
table. An administrator's request waits until its change is saved; those that come during a save
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

#: From one save of what changed to the next, ms.
SAVE_PERIOD_MS: Final = 1000
#: Most of the time nothing is being saved: a save that took long is followed by a longer pause.
_PAUSE_FACTOR: Final = 5
_PAUSE_MAX_MS: Final = 30_000


class TableSaves:
    """Saves tables.

    :param slices: where their text is written.
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
        #: Deferreds of the save after the one that runs.
        self._waiting: dict[SavedTable, list[Deferred[None]]] = {}
        self._took_ms = 0
        #: Tables that could not be saved and will be tried again.
        self.unsaved: list[Persistable] = []

    def save(self, table: SavedTable) -> Deferred[None]:
        """Save a table soon; fires when what it says now is saved, or could not be. Never fails.

        One that cannot be saved is logged and tried again later: what it says holds already, and
        a full disk must not keep consumers from reading.
        """
        done: Deferred[None] = Deferred()
        self._waiting.setdefault(table, []).append(done)
        if table not in self._running:
            self._begin(table)
        return done

    def save_if_changed(self, *tables: Persistable) -> None:
        """Save those that changed, or could not be saved before."""
        for table in tables:
            if not isinstance(table, SavedTable):
                self.persist(table)
            elif (table.dirty or table in self.unsaved) and table not in self._running:
                self.save(table)

    def period_ms(self) -> int:
        """From one :meth:`step` to the next, ms."""
        return max(SAVE_PERIOD_MS, min(self._took_ms * _PAUSE_FACTOR, _PAUSE_MAX_MS))

    def step(self, now_ms: int) -> None:
        """Save what changed; periodic."""
        self.save_if_changed(*self._tables)

    def finish(self) -> Deferred[None]:
        """Let the saves that run end, and those that wait for them; fires then."""
        self._slices.finish()
        if not self._running:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        DeferredList(list(self._running.values())).addCallback(
            lambda _: self.finish().addCallback(ended.callback))
        return ended

    def persist(self, table: Persistable) -> None:
        """Save a table now, on this thread; one that cannot be is tried again later."""
        try:
            table.persist()
        except (StoreError, OSError) as error:
            self._failed(table, error)
        else:
            self._saved(table)

    def _failed(self, table: Persistable, error: Exception) -> None:
        """Log that a table cannot be saved, once until it can be, and try it again later."""
        if table not in self.unsaved:
            self.log.error("{table} cannot be saved and will be tried again: {error}",
                           table=type(table).__name__, error=str(error))
        self._keep_unsaved(table)

    def _keep_unsaved(self, table: Persistable) -> None:
        """Have a table saved again, at the stop too."""
        if isinstance(table, SavedTable):
            table.dirty = True
        if table not in self.unsaved:
            self.unsaved.append(table)

    def _saved(self, table: Persistable) -> None:
        """Note that a table is saved."""
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
