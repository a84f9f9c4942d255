"""A small text file of the store's ``config`` directory, replaced whole and kept with its backup.

The tables that own the text decode it themselves; ``load`` asks them to, so that a file whose text
cannot be decoded counts as damaged and the backup is tried.

Source: ConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from twistmq.broker.errors import StoreDamaged, WireError
from twistmq.broker.interfaces import IStoreIO

__all__ = ["ConfigFile"]


class ConfigFile:
    """One file and its ``.bak``.

    :param path: absolute.
    """

    log = Logger()

    def __init__(self, io: IStoreIO, path: str) -> None:
        self.path = path
        self._io = io
        self._saved: str | None = None

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
                text = self._io.read_file(path).decode("utf-8")
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
                    "{path} was used because of {problem}", path=path, problem=problems[0]
                )
            if path == self.path:
                self._saved = text
            return True
        if problems:
            raise StoreDamaged("neither file nor backup can be read: " + "; ".join(problems))
        return False

    def save(self, text: str) -> bool:
        """Replace the file; the old one becomes the backup.

        :returns: whether anything was written: text that is saved already is not written again.
        :raises StoreFull: when the disk is full; the old file stays.
        """
        if text == self._saved:
            return False
        self._io.make_directory(self.path.rpartition("/")[0])
        self._io.write_file_atomically(self.path, text.encode("utf-8"), keep_backup=True)
        self._saved = text
        return True
