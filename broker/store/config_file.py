"""A small text file of the store's ``config`` directory, replaced whole and kept with its backup.

The tables that own the text decode it themselves; ``load`` asks them to, so that a file whose text
cannot be decoded counts as damaged and the backup is tried.

Source: ConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol, Self, TypeVar

from twisted.logger import Logger

from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.errors import StoreDamaged, StoreError, WireError

__all__ = ["ConfigFile", "SavedBody"]


class SavedBody(Protocol):
    """A body that a file holds; see ``wire.bodies.Body``."""

    @classmethod
    def decode_saved(cls, data: bytes) -> Self:
        """Read all of it; :raises WireError: when anything of it cannot be read."""

    @classmethod
    def decode_rows(cls, data: bytes) -> tuple[Self, list[str]]:
        """Read it without the rows that cannot be read; :returns: it, and those rows."""


S = TypeVar("S", bound=SavedBody)


class ConfigFile:
    """One file and its ``.bak``.

    :param path: absolute.
    """

    log = Logger()

    def __init__(self, io: IStoreIO, path: str) -> None:
        self.path = path
        self._io = io
        #: Of the text that is saved.
        self._saved: bytes | None = None
        #: Whether the file was loaded from its backup, which is the better one then.
        self._is_damaged = False

    def load(self, decode: Callable[[str], None]) -> bool:
        """Read the file, or its backup when it is missing, empty or damaged.

        :param decode: takes the text in; raises ValueError (what json and msgspec raise is one)
            or WireError when it cannot.
        :returns: whether there was anything to load.
        :raises StoreDamaged: when what there is cannot be decoded.
        """
        problems: list[str] = []
        for path in (self.path, self.path + ".bak"):
            try:
                data = self._io.read_file(path)
                text = data.decode("utf-8")
                if not text.strip():
                    continue
                decode(text)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, WireError) as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                self.log.warn(
                    "{path} was read because of {problem}", path=path, problem=problems[0]
                )
            if path == self.path:
                self._saved = _digest(data)
            else:
                self._is_damaged = True
            return True
        if problems:
            raise StoreDamaged("neither file nor backup can be read: " + "; ".join(problems))
        return False

    def load_rows(self, kind: type[S], take: Callable[[S, bytes], None]) -> bool:
        """Read the file as :meth:`load` does, if need be without the rows that cannot be read.

        One number that is out of range must not keep a broker from starting. Neither the file nor
        its backup is read without its bad rows as long as one of them is whole. A file that loses
        rows is copied to one with the ending ``.refused`` first.

        :param kind: the class of the body that the file holds.
        :param take: takes the body in, and the bytes that it was read from, which are empty when
            rows are left out; raises ValueError or WireError when it cannot.
        :returns: whether there was anything to load.
        :raises StoreDamaged: when more than single rows cannot be read.
        """
        def take_whole(text: str) -> None:
            data = text.encode()
            take(kind.decode_saved(data), data)

        def take_rows(text: str) -> None:
            data = text.encode()
            body, faults = kind.decode_rows(data)
            take(body, b"" if faults else data)
            self.log.error(
                "{path}: {count} rows are left out, because they cannot be read; the file is kept "
                "as {kept}. The first is {fault}", path=self.path, count=len(faults),
                kept=self.keep_refused(data), fault=faults[0] if faults else "none")

        try:
            return self.load(take_whole)
        except StoreDamaged as damaged:
            try:
                return self.load(take_rows)
            except StoreDamaged:
                raise damaged from None

    def keep_refused(self, data: bytes) -> str:
        """Keep what a start leaves out, for a later look at it.

        :returns: the path of the copy, or why there is none.
        """
        path = self.path + ".refused"
        try:
            self._io.write_file_atomically(path, data)
        except (StoreError, OSError) as error:
            return f"nothing: {error}"
        return path

    def save(self, text: str) -> bool:
        """Replace the file; the old one becomes the backup, unless it is damaged.

        :returns: whether anything was written: text that is saved already is not written again,
            unless the file was removed.
        :raises StoreFull: when the disk is full; the old file stays.
        """
        return self.save_bytes(text.encode("utf-8"))

    def save_bytes(self, data: bytes) -> bool:
        """Save encoded text; may be called on a thread, one call at a time."""
        digest = _digest(data)
        if digest == self._saved and self._io.exists(self.path):
            return False
        self._io.make_directory(self.path.rpartition("/")[0])
        self._io.write_file_atomically(self.path, data, keep_backup=not self._is_damaged)
        self._saved = digest
        self._is_damaged = False
        return True


def _digest(data: bytes) -> bytes:
    """The digest of a text, which may have megabytes."""
    return blake2b(data, digest_size=16).digest()
