"""The stores of Apache's brokers in tests/golden/dledger, unpacked into a folder."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Final

from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import small_settings

__all__ = ["CASES", "FIRST_COUNT", "GOLDEN_SIZES", "GoldenBox", "unpack"]

GOLDEN: Final = Path(__file__).resolve().parents[3] / "golden" / "dledger"
#: (version, state) of each store.
CASES: Final = [(version, state) for version in ("4.9.4", "5.3.3", "5.5.0")
                for state in ("stopped", "killed")]
#: The number of sends before the clean stop.
FIRST_COUNT: Final = 120
#: The sizes of files in these stores.
GOLDEN_SIZES: Final = {
    "mapped_file_size_commit_log": 16 * 1024, "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 400, "max_index_num": 1200}


def unpack(version: str, state: str, root: Path) -> None:
    """Write the files of a store, with the lengths that they had."""
    with zipfile.ZipFile(io.BytesIO((GOLDEN / version / f"{state}.zip").read_bytes())) as archive:
        for name, length in json.loads(archive.read("lengths.json")).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.read(name))
                file.truncate(length)


class GoldenBox(LedgerBox):
    """Our store, opened on files of Apache's broker."""

    index_file_size = 5 * 1024 * 1024 * 32

    @classmethod
    def over(cls, root: Path) -> GoldenBox:
        """Open the store in a folder."""
        from twistmq.broker.store.disk import RealDisk

        cls.folder = f"{root}/dledger-n0"
        return cls(RealDisk(), small_settings(str(root), **GOLDEN_SIZES)).open()
