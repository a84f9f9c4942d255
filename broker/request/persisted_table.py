"""Tables that have a file: changed rows are encoded again, the others are kept as they were
written.

A table of tens of thousands of rows takes a second to write as text. So each row's text is kept,
rows that changed are written in steps, and the file is put together and saved on a thread.

Source: ConfigManager @5.3.3, which writes all of a table for each change.
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

#: Rows written between two looks at the clock.
_ROWS_AT_ONCE = 20


#: Writes a table as text in steps, and returns the job that saves it.
Saving = Generator[None, None, Callable[[], None]]


class FileRows:
    """The rows of one map, as its file has them.

    :param encode: writes the row of a key; None when the row is gone.
    """

    def __init__(self, encode: Callable[[str], bytes | None]) -> None:
        self._encode = encode
        #: By key, in the order of the table: a row that changes keeps its place in both.
        self._rows: dict[str, bytes] = {}
        #: A plain dict finds its first key behind all that were deleted.
        self._changed: OrderedDict[str, None] = OrderedDict()

    def loaded(self, data: bytes, name: str, keys: Collection[str]) -> None:
        """The table was read from a file: rows that stand there as they are written are kept.

        :param data: the file.
        :param name: of the map in it.
        :param keys: those of the map, in its order.
        """
        rows = pretty_rows(data, name, keys)
        if rows is None:
            self._changed.update(dict.fromkeys(keys))
            return
        self._rows.update(rows)
        for key in [key for key in self._changed if key in rows]:
            del self._changed[key]

    def changed(self, key: str) -> None:
        """A row is there, changed, or is gone."""
        self._changed[key] = None

    def write(self) -> Iterator[None]:
        """Write the rows that changed, in steps; some may change while it pauses."""
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
        """All rows, once they are written.

        :param but: keys whose rows are left out.
        """
        assert not self._changed, "rows wait to be written"
        if not but:
            return list(self._rows.values())
        return [row for key, row in self._rows.items() if key not in but]


class Persistable(Protocol):
    """Anything with a file that is saved in one go; plugins have such."""

    def persist(self) -> None:
        """Save it if it changed; :raises StoreError, OSError: when that cannot be."""


class SavedTable:
    """A table with a file.

    :param file: where it is saved.
    """

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        #: Whether it says something that was not yet given to be saved.
        self.dirty = False

    def saving(self) -> Saving:
        """Write it as text, in steps.

        :returns: a job that puts the text together and saves it, for a thread.
        """
        raise NotImplementedError

    def persist(self) -> None:
        """Save it at once if it changed; :raises StoreError, OSError: when that cannot be."""
        job = run_to_completion(self.saving())
        try:
            job()
        except BaseException:
            self.dirty = True
            raise

    def _job(self, wrapper: Body, maps: dict[str, list[bytes]]) -> Callable[[], None]:
        """The job of saving a body whose large maps are given as rows; the body has them empty."""
        self.dirty = False
        frame = wrapper.encode_pretty()

        def save() -> None:
            self._file.save_bytes(with_rows(frame, maps))

        return save


def with_rows(frame: bytes, maps: dict[str, list[bytes]]) -> bytes:
    """Put rows into the empty maps of what a config file holds.

    :param frame: the file's text with these maps empty.
    :param maps: rows by the name of their map.
    """
    parts: list[bytes] = []
    for name in sorted(maps):
        before, found, frame = frame.partition(b'\n\t"%b":{}' % name.encode())
        assert found, name
        parts += (before, found[:-2], join_pretty_rows(maps[name]))
    return b"".join([*parts, frame])
