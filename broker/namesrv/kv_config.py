"""Key-value configuration: values by namespace and key, stored in one file.

The file is Apache's ``kvConfig.json``: ``{"configTable":{"NAMESPACE":{"KEY":"VALUE"}}}`` on one
line. A thread writes the whole file. Changes that arrive during a write wait and share the next
one. Each change takes effect, and is answered, once it is saved.

Differs from Apache in four ways. A change that cannot be saved is refused and undone, because a
tool that gets a success relies on the value being stored. If the file is damaged, its backup is
used. A value, a name and all values together are limited, because every registering broker receives
a whole namespace in one frame. Values are not logged, because they may be secret.

Source: KVConfigManager, KVConfigSerializeWrapper @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import KV_ENTRY_BYTES, KV_NAME_SIZE_MAX
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.bodies import Body, KVTable
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused, StoreError, WireError
from twistmq.protocol.log_rate import LimitedLog

__all__ = ["ORDER_TOPIC_NAMESPACE", "KVConfig"]

#: The value of each ordered topic, in the form "broker:queues;broker:queues".
#: Source: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

_Table = dict[str, dict[str, str]]


class _ConfigTable(Body):
    """The file's contents."""

    config_table: _Table = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class _Change:
    """A change that waits to be saved.

    :param value: the new value; None if the key must be removed.
    """

    namespace: str
    key: str
    value: str | None
    done: Deferred[None] = field(default_factory=Deferred)


class KVConfig:
    """The values and their file.

    :param path: the absolute path of the file.
    :param limit: returns ``kv.value_size_max`` or ``kv.total_size_max``; called each time.
    :param in_thread: runs the function that writes the file on a thread; None to write at once.
    :param now_ms: the clock.
    """

    log = Logger()

    def __init__(
        self, io: IStoreIO, path: str, limit: Callable[[str], int],
        in_thread: Callable[[Callable[[], bool]], Deferred[bool]] | None = None, *,
        now_ms: Callable[[], int],
    ) -> None:
        self._now_ms = now_ms
        self._lines = LimitedLog(self.log)
        self._file = ConfigFile(io, path)
        self._limit = limit
        self._in_thread = in_thread or maybeDeferred
        #: The table as saved. The table and its namespaces are never changed in place, because a
        #: thread may read them.
        self._table: _Table = {}
        #: The size of the table, see :func:`_table_size`.
        self._size_bytes = 0
        self._waiting: list[_Change] = []
        self._is_saving = False
        #: The reason why the last change could not be saved; empty if it was saved.
        self.fault = ""
        #: Deferreds that fire once all changes are saved.
        self._idle: list[Deferred[None]] = []

    def load(self) -> None:
        """Read the file, if it exists, even if it exceeds the limits.

        :raises StoreDamaged: when neither the file nor its backup can be read.
        """
        self._file.load(self._decode)
        self._size_bytes = _table_size(self._table)

    def _decode(self, text: str) -> None:
        try:
            self._table = _ConfigTable.decode_saved(text.encode()).config_table
        except WireError as error:
            raise ValueError(str(error)) from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KVTable | None:
        """Return all values of a namespace; None if it never had any."""
        values = self._table.get(namespace)
        return None if values is None else KVTable(values)

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Store a value.

        :returns: a Deferred that fires when it is saved. It fails with StoreError when the file
            cannot be written, and with RequestRefused when all values together would be too long;
            nothing is changed then.
        :raises RequestRefused: when a name or the value is too long.
        """
        for name, text, maximum_bytes in (
            ("namespace", namespace, KV_NAME_SIZE_MAX), ("key", key, KV_NAME_SIZE_MAX),
            ("value", value, self._limit("kv.value_size_max")),
        ):
            # A text that is far too long is not encoded just to measure it.
            size_bytes = len(text) if len(text) > maximum_bytes else _size(text)
            if size_bytes > maximum_bytes:
                raise self._refused(f"the {name} has {size_bytes} bytes, the limit is "
                                    f"{maximum_bytes}")
        return self._change(_Change(namespace, key, value))

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """Remove a value; the namespace is kept, even if it is empty.

        :returns: see :meth:`put`.
        """
        return self._change(_Change(namespace, key, None))

    def _refused(self, why: str) -> RequestRefused:
        self._lines.warn(self._now_ms(), "key-value configuration: value refused: {why}", why=why)
        return RequestRefused(ResponseCode.SYSTEM_ERROR, why)

    def _change(self, change: _Change) -> Deferred[None]:
        self._waiting.append(change)
        if not self._is_saving:
            self._save_waiting()
        return change.done

    def _save_waiting(self) -> None:
        """Save the waiting changes; :meth:`_saved` or :meth:`_not_saved` is called afterwards."""
        self._is_saving = True
        changes, self._waiting = self._waiting, []
        table, size_bytes = dict(self._table), self._size_bytes
        own: set[str] = set()
        applied: list[_Change] = []
        for change in changes:
            grown_bytes = _growth(table, change)
            if grown_bytes is None:
                change.done.callback(None)
                continue
            total_max = self._limit("kv.total_size_max")
            if grown_bytes > 0 and size_bytes + grown_bytes > total_max:
                change.done.errback(self._refused(
                    f"all values together would have {size_bytes + grown_bytes} bytes, the limit "
                    f"is {total_max}"))
                continue
            if change.namespace not in own:
                own.add(change.namespace)
                table[change.namespace] = dict(table.get(change.namespace, {}))
            values = table[change.namespace]
            if change.value is None:
                del values[change.key]
            else:
                values[change.key] = change.value
            size_bytes += grown_bytes
            applied.append(change)
        if not applied:
            self._save_next()
            return

        def write() -> bool:
            return self._file.save(_ConfigTable(table).encode().decode())

        self._in_thread(write).addCallbacks(
            self._saved, self._not_saved, callbackArgs=(table, size_bytes, applied),
            errbackArgs=(applied,))

    def _saved(
        self, was_written: bool, table: _Table, size_bytes: int, applied: list[_Change]
    ) -> None:
        self._table, self._size_bytes = table, size_bytes
        self.fault = ""
        for change in applied:
            if change.value is None:
                self._lines.info(
                    self._now_ms(), "key-value configuration: value deleted: {namespace} {key}",
                    namespace=change.namespace, key=change.key)
            else:
                self._lines.info(
                    self._now_ms(), "key-value configuration: value set: {namespace} {key}, {size} "
                    "characters", namespace=change.namespace, key=change.key,
                    size=len(change.value))
            change.done.callback(None)
        self._save_next()

    def _not_saved(self, failure: Failure, applied: list[_Change]) -> None:
        error = failure.value
        if isinstance(error, OSError):
            error = StoreError(f"{self._file.path}: {error.strerror}")
        self.fault = str(error)
        self._lines.warn(
            self._now_ms(), "key-value configuration cannot be saved, {count} changes are undone: "
            "{error}", count=len(applied), error=str(error))
        for change in applied:
            change.done.errback(error)
        self._save_next()

    def _save_next(self) -> None:
        """Save the changes that arrived in between, or fire the Deferreds of ``when_saved``."""
        self._is_saving = False
        if self._waiting:
            self._save_waiting()
            return
        idle, self._idle = self._idle, []
        for waiting in idle:
            waiting.callback(None)

    def when_saved(self) -> Deferred[None]:
        """Return a Deferred that fires when all changes are saved."""
        if not self._is_saving:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._idle.append(waiting)
        return waiting

    def size(self) -> tuple[int, int]:
        """Return the number of values and the total size that counts for the limit, bytes."""
        return sum(map(len, self._table.values())), self._size_bytes

    def log_size(self) -> None:
        """Log the size of the configuration.

        Differs from Apache, which logs every value, including secrets.
        """
        self.log.info("key-value configuration: {namespaces} namespaces, {keys} keys, {size} bytes",
                      namespaces=len(self._table), keys=sum(map(len, self._table.values())),
                      size=self._size_bytes)


def _size(text: str) -> int:
    """Return the size of a text in the file and in replies; a control character takes six bytes."""
    return len(msgspec.json.encode(text))


def _table_size(table: _Table) -> int:
    """Return the size of a table: its names and values, and a constant for each of them."""
    return sum(KV_ENTRY_BYTES + _size(namespace) + sum(
        KV_ENTRY_BYTES + _size(key) + _size(value) for key, value in values.items())
        for namespace, values in table.items())


def _growth(table: _Table, change: _Change) -> int | None:
    """Return the bytes by which a change makes the table longer; None if it changes nothing."""
    values = table.get(change.namespace, {})
    before = values.get(change.key)
    if change.value == before:
        # No change creates an empty namespace; only the deletion of its last value leaves one.
        return None
    grown_bytes = 0 if change.namespace in table else KV_ENTRY_BYTES + _size(change.namespace)
    if before is not None:
        grown_bytes -= KV_ENTRY_BYTES + _size(change.key) + _size(before)
    if change.value is not None:
        grown_bytes += KV_ENTRY_BYTES + _size(change.key) + _size(change.value)
    return grown_bytes
