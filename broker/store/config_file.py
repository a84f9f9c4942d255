"""A small text file in the ``config`` directory of the store, replaced as a whole, with a backup.

The tables that own the text decode it themselves. ``load`` calls them, so that a file with a text
that cannot be decoded counts as damaged, and the backup is tried.

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
    """The body of a file; see ``wire.bodies.Body``."""

    @classmethod
    def decode_saved(cls, data: bytes) -> Self:
        """Read the whole body.

        :raises WireError: when any part of it cannot be read.
        """

    @classmethod
    def decode_rows(cls, data: bytes) -> tuple[Self, list[str]]:
        """Read the body without the rows that cannot be read.

        :returns: the body, and the faults of the missing rows.
        """


S = TypeVar("S", bound=SavedBody)


class ConfigFile:
    """One file and its ``.bak``.

    :param path: an absolute path.
    :param is_private: whether only the owner may read the file, because it has secrets.
    """

    log = Logger()

    def __init__(self, io: IStoreIO, path: str, *, is_private: bool = False) -> None:
        self.path = path
        self._is_private = is_private
        self._io = io
        #: The digest of the saved text.
        self._saved: bytes | None = None
        #: Whether the file was loaded from its backup, which is then better than the file.
        self._is_damaged = False

    def load(self, decode: Callable[[str], None]) -> bool:
        """Read the file, or its backup when the file is missing, empty or damaged.

        :param decode: decodes the text; raises ValueError (the base class of the errors of json and
            msgspec) or WireError when it cannot.
        :returns: whether there was anything to load.
        :raises StoreDamaged: when the existing files cannot be decoded.
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
        """Read the file as :meth:`load` does, but without unreadable rows if necessary.

        One number that is out of range must not prevent a broker from starting. As long as the file
        or its backup is whole, rows are not left out. A file that loses rows is first copied to a
        file with the ending ``.refused``.

        :param kind: the class of the body in the file.
        :param take: receives the body and its bytes, which are empty when rows are left out; raises
            ValueError or WireError when it cannot accept the body.
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
        """Keep data that a start leaves out, for later inspection.

        :returns: the path of the copy, or an error text if it cannot be written.
        """
        path = self.path + ".refused"
        try:
            self._io.write_file_atomically(path, data)
        except (StoreError, OSError) as error:
            return f"nothing: {error}"
        return path

    def save(self, text: str) -> bool:
        """Replace the file; the old one becomes the backup, unless it is damaged.

        :returns: whether anything was written. Text that is already saved is written again only if
            the file has been removed.
        :raises StoreFull: when the disk is full; the old file stays.
        """
        return self.save_bytes(text.encode("utf-8"))

    def save_bytes(self, data: bytes) -> bool:
        """Save encoded text. May be called on a thread, one call at a time."""
        digest = _digest(data)
        if digest == self._saved and self._io.exists(self.path):
            return False
        self._io.make_directory(self.path.rpartition("/")[0])
        self._io.write_file_atomically(self.path, data, keep_backup=not self._is_damaged,
                                       is_private=self._is_private)
        self._saved = digest
        self._is_damaged = False
        return True


def _digest(data: bytes) -> bytes:
    """Return the digest of a text, which may be several megabytes long."""
    return blake2b(data, digest_size=16).digest()
