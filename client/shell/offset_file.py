"""The file with the offsets of a broadcasting consumer, at the same path as in Apache's client.

Source: LocalFileOffsetStore, MixAll.string2File @5.3.3.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from twistmq.protocol.errors import WireError

__all__ = ["OffsetFile"]

R = TypeVar("R")

log = logging.getLogger("twistmq.client")


class OffsetFile:
    """``~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json`` and its backup.

    :param client_id: the folder is named by its address and instance. A generated instance name
        differs for each process; the folder then uses the name DEFAULT, as Apache's client does.
    :param folder: the folder to use instead of ``~/.rocketmq_offsets``.
    """

    def __init__(self, client_id: str, group: str, folder: Path | str | None = None) -> None:
        ip, _, instance = client_id.partition("@")
        name = f"{ip}@DEFAULT" if "#" in instance else client_id
        home = Path(folder) if folder else Path.home() / ".rocketmq_offsets"
        self.path = home / name / group / "offsets.json"
        self._backup = Path(f"{self.path}.bak")
        #: Whether the file was read and is damaged, so that the backup is better than the file.
        self._is_damaged = False

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.path)

    def read(self, parse: Callable[[bytes], R]) -> R | None:
        """Parse the content, or the backup's if the file is missing, empty or damaged.

        :param parse: returns the result; raises ``WireError`` when the content is damaged.
        :returns: the result; None when there is neither a file nor a backup.
        :raises WireError, OSError: when the files that exist cannot be read.
        """
        fault: Exception | None = None
        for path in (self.path, self._backup):
            try:
                data = _regular_content(path)
                if not data.strip():
                    continue
                result = parse(data)
            except FileNotFoundError:
                continue
            except (OSError, WireError) as error:
                fault = fault or error
                continue
            if fault is not None:
                self._is_damaged = True
                log.warning("the offsets of a broadcasting consumer were read from the backup %s, "
                            "because %s is damaged: %s", path, self.path, fault)
            return result
        if fault is not None:
            raise fault
        return None

    def written_ms(self) -> int:
        """Return the time when the content was written, in Unix ms; 0 when there is no file."""
        for path in (self.path, self._backup):
            with suppress(OSError):
                return path.stat().st_mtime_ns // 1_000_000
        return 0

    def write(self, data: bytes) -> None:
        """Replace the content atomically, and keep the old file as a backup if it was intact."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(f"{self.path}.tmp")
        # An existing entry is not opened, because the write to a pipe may block the thread forever.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists() and not self._is_damaged:
            os.replace(self.path, self._backup)
        os.replace(temporary, self.path)
        self._is_damaged = False


def _regular_content(path: Path) -> bytes:
    """Return the bytes of a regular file.

    :raises OSError: when the file is missing or is not a regular file. A read of a pipe could wait
        for ever, and a read of a device could return bytes without an end.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()
