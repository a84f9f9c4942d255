"""Files of captured bytes and texts, and the index that describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

__all__ = ["GOLDEN", "Gallery"]

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"


class Gallery:
    """Writes one part of tests/golden, a folder with an ``index.json`` of its own.

    An index is a list of rows: ``file``, ``what`` it is, ``how`` it came about, and where they
    apply ``source`` (the file at the peer) and ``source_offset`` (bytes).
    """

    def __init__(self, part: str, how: str) -> None:
        self.folder = GOLDEN / part
        self.how = how
        self.rows: list[dict[str, Any]] = []

    def add(self, file: str, data: bytes, what: str, **more: Any) -> None:
        """Write one file and its row."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.rows.append({"file": file, "size": len(data), "what": what, **more})

    def close(self) -> None:
        """Write the index."""
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        how = json.dumps(self.how, ensure_ascii=False)
        (self.folder / "index.json").write_text(f'{{"how": {how}, "files": [\n{rows}\n]}}\n')
