"""Files of ``config`` that are JSON, as Apache's broker writes it.

Source: ConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from twistmq.broker.errors import WireError
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.wire import json_dialect

__all__ = ["check_json_file"]

#: How often a file that its owner may be writing is read before it counts as damaged.
_READ_TRIES: Final = 3
_EMPTY: Final = "nothing"


def check_json_file(
    path: Path, report: Report, running: bool,
    decode: Callable[[bytes], object] = json_dialect.decode,
) -> None:
    """Count a file, and report an error of its reading; an empty one is as good as its backup.

    :param running: its owner may be writing it.
    :param decode: reads the file; a ValueError or a WireError says what is wrong.
    """
    report.counts["configuration files"] += 1
    wrong: str | None = None
    for _ in range(_READ_TRIES if running else 1):
        wrong = _error(path, decode)
        if wrong is None:
            return
    if wrong == _EMPTY:
        # Apache's broker empties a file before it writes it. What a kill in between leaves is read
        # as the backup, or as no file when there is none yet.
        path = path.with_name(path.name + ".bak")
        wrong = _error(path, decode)
        if wrong == _EMPTY or not path.exists():
            report.note(f"{report.shown(path.with_suffix(''))} is empty and has no backup: it "
                        "counts as missing")
            return
    if wrong is not None:
        report.problem(path, None, "JSON", wrong)


def _error(path: Path, decode: Callable[[bytes], object]) -> str | None:
    try:
        data = path.read_bytes()
        if not data.strip():
            return _EMPTY
        decode(data)
    except FileNotFoundError:
        return None
    except (ValueError, WireError) as error:
        return str(error)
    return None
