"""Tables with a file, whose rows are encoded again only when they change.

Writing a table of tens of thousands of rows as text takes a second. The text of each row is
therefore kept, changed rows are written in steps, and a thread joins the rows and saves the file.

Source: ConfigManager @5.3.3, which writes the whole table for each change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Protocol

from twistmq.broker.store.config_file import ConfigFile
from twistmq.protocol.bodies import Body
from twistmq.protocol.json_writer import join_pretty_rows, pretty_rows
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["FileRows", "Persistable", "SavedTable", "Saving", "with_rows"]

#: The number of rows that are written between two checks of the clock.
_ROWS_AT_ONCE = 20


#: Writes a table as text in steps, and returns a job that saves the text.
Saving = Generator[None, None, Callable[[], None]]


class FileRows:
    """The encoded rows of one map in a file.

    :param encode: writes the row of a key; returns None when the row is gone.
    """

    def __init__(self, encode: Callable[[str], bytes | None]) -> None:
        self._encode = encode
        #: Rows by key, in the order of the table; a changed row keeps its place in both.
        self._rows: dict[str, bytes] = {}
        #: An OrderedDict, because a plain dict scans past deleted entries to find its first key.
        self._changed: OrderedDict[str, None] = OrderedDict()

    def loaded(self, data: bytes, name: str, keys: Collection[str]) -> None:
        """Take over the rows of a file that the table was read from, if they need no change.

        :param data: the content of the file.
        :param name: the name of the map in the file.
        :param keys: the keys of the map, in its order.
        """
        rows = pretty_rows(data, name, keys)
        if rows is None:
            self._changed.update(dict.fromkeys(keys))
            return
        self._rows.update(rows)
        for key in [key for key in self._changed if key in rows]:
            del self._changed[key]

    def changed(self, key: str) -> None:
        """Note that a row was added, changed or removed."""
        self._changed[key] = None

    def write(self) -> Iterator[None]:
        """Write the changed rows, in steps; further rows may change between the steps."""
        while self._changed:
            for _ in range(min(_ROWS_AT_ONCE, len(self._changed))):
                key, _ = self._changed.popitem(last=False)
                try:
                    self._write_row(key)
                except BaseException:
                    self._changed[key] = None
                    raise
            yield

    def _write_row(self, key: str) -> None:
        row = self._encode(key)
        if row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = row

    def rows(self, but: Collection[str] = ()) -> list[bytes]:
        """Return all rows, once they are written.

        :param but: keys whose rows are left out.
        """
        assert not self._changed, "rows wait to be written"
        if not but:
            return list(self._rows.values())
        return [row for key, row in self._rows.items() if key not in but]


class Persistable(Protocol):
    """An object with a file that is saved in one step; plugins have such objects."""

    def persist(self) -> None:
        """Save it if it changed; :raises StoreError, OSError: when that fails."""


class SavedTable:
    """A table with a file.

    :param file: the file in which it is saved.
    """

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        #: Whether it contains changes that were not yet handed over to be saved.
        self.dirty = False

    def saving(self) -> Saving:
        """Write the table as text, in steps.

        :returns: a job for a thread, which joins the text and saves it.
        """
        raise NotImplementedError

    def persist(self) -> None:
        """Save it at once if it changed; :raises StoreError, OSError: when that fails."""
        job = run_to_completion(self.saving())
        try:
            job()
        except BaseException:
            self.dirty = True
            raise

    def _job(self, wrapper: Body, maps: dict[str, list[bytes]]) -> Callable[[], None]:
        """Make the job that saves a body whose large maps are empty and passed as rows."""
        self.dirty = False
        frame = wrapper.encode_pretty()

        def save() -> None:
            self._file.save_bytes(with_rows(frame, maps))

        return save


def with_rows(frame: bytes, maps: dict[str, list[bytes]]) -> bytes:
    """Insert rows into the empty maps of the content of a config file.

    :param frame: the file's text with these maps empty.
    :param maps: the rows by the name of their map.
    """
    parts: list[bytes] = []
    for name in sorted(maps):
        before, empty_map, frame = frame.partition(b'\n\t"%b":{}' % name.encode())
        assert empty_map, name
        parts += (before, empty_map[:-2], join_pretty_rows(maps[name]))
    return b"".join([*parts, frame])
