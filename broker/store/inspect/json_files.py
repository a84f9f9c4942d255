"""The JSON files in ``config``, in the dialect of Apache's broker.

Source: ConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from twistmq.broker.store.inspect.report import Report
from twistmq.broker.store.regular_file import read_regular
from twistmq.protocol import json_dialect
from twistmq.protocol.errors import WireError

__all__ = ["check_json_file", "read_config"]

#: The size in bytes of the largest file that is read: tables have at most tens of megabytes.
_SIZE_MAX: Final = 512 << 20
#: The number of times a file that its owner may be writing is read before it counts as damaged.
_READ_TRIES: Final = 3
_EMPTY: Final = "nothing"


def check_json_file(
    path: Path, report: Report, running: bool,
    decode: Callable[[bytes], object] = json_dialect.decode, what: str = "JSON",
) -> None:
    """Count a file, and report an error in reading it; a file that is missing is not reported.

    :param running: whether its owner may be writing it.
    :param decode: reads the file; the text of a ValueError or a WireError describes the fault.
    :param what: the expected contents of the file.
    """
    report.counts["configuration files"] += 1
    wrong: str | None = None
    for _ in range(_READ_TRIES if running else 1):
        wrong = _error(path, decode)
        if wrong is None:
            return
    backup = path.with_name(path.name + ".bak")
    if wrong == _EMPTY and backup.exists() and _error(backup, decode) is None:
        # A crash occurred between the backup and the new file; the backup is valid.
        return
    if decode is not json_dialect.decode and _error(path, json_dialect.decode) is not None:
        what = "JSON"
    report.problem(path, None, what, str(wrong))


def _error(path: Path, decode: Callable[[bytes], object]) -> str | None:
    try:
        data = read_config(path)
        if not data.strip():
            return _EMPTY
        decode(data)
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error.strerror)
    except (ValueError, WireError) as error:
        return str(error)
    return None


def read_config(path: Path) -> bytes:
    """Read a file in ``config``.

    :raises OSError: when it is not a regular file, or is longer than any broker writes.
    """
    return read_regular(path, _SIZE_MAX)
