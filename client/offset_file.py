"""The file in which a broadcasting consumer keeps its offsets, where Apache's client keeps it.

Source: LocalFileOffsetStore, MixAll.string2File @5.3.3.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["OffsetFile"]


class OffsetFile:
    """``~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json`` and its backup.

    :param client_id: its address and instance name the folder. An instance that is made up for
        one process would be another each time: then the instance is DEFAULT, as with Apache's.
    :param folder: in place of ``~/.rocketmq_offsets``.
    """

    def __init__(self, client_id: str, group: str, folder: Path | str | None = None) -> None:
        ip, _, instance = client_id.partition("@")
        name = f"{ip}@DEFAULT" if "#" in instance else client_id
        home = Path(folder) if folder else Path.home() / ".rocketmq_offsets"
        self.path = home / name / group / "offsets.json"

    def read(self) -> bytes | None:
        """The content, or that of the backup; None when there is no file."""
        for path in (self.path, Path(f"{self.path}.bak")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            if data:
                return data
        return None

    def write(self, data: bytes) -> None:
        """Replace the content in one step, and keep the old as a backup."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(f"{self.path}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            os.replace(self.path, f"{self.path}.bak")
        os.replace(temporary, self.path)
