"""A file or folder that is renamed for a while, so that a test can put another in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["moved"]


@contextlib.contextmanager
def moved(path: Path, away: Path) -> Iterator[None]:
    """Move a file or folder, if it exists, to another path; its replacement is removed later.

    :param away: on the same file system; nothing is there.
    """
    if path.exists():
        path.rename(away)
    try:
        yield
    finally:
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
        if away.exists():
            away.rename(path)
