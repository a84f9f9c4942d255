"""Locks the folder of an export, and removes the files of micro-batches that failed.

When a micro-batch is complete, Spark logs its Parquet files, and Spark ignores all files that the
log does not name. Readers other than Spark do not know this log, so the next run removes the files
of a killed run. Remote folders (``s3a://...``) are not cleaned up. Delta and Iceberg tables need no
cleanup, because their readers use the log of the table.

Source: FileStreamSinkLog, OffsetSeqLog of Spark 4.3.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from twistmq.spark_bridge.export_plan import ExportError, ExportPlan

__all__ = ["counted_files", "locked", "remove_leftovers"]

#: How long the JVM of a killed run may take to end, s.
_LOCK_WAIT_S: Final = 20.0
_LOCK_POLL_S: Final = 0.2


@contextlib.contextmanager
def locked(plan: ExportPlan, session: Any, wait_s: float = _LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock of the output folder while a job runs.

    The JVM holds the lock, because it writes the files and may outlive a killed command for a
    moment.

    :raises ExportError: when another job holds the lock for longer than ``wait_s``, or the folder
        cannot be written.
    """
    root = plan.local_output
    if root is None:
        yield
        return
    from py4j.protocol import Py4JError

    path = root / "_checkpoint/lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ExportError(f"{error.filename}: {error.strerror}") from None
    file = session._jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise ExportError(f"{root}: another export writes there")
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        # A JVM that was stopped has already released the lock.
        with contextlib.suppress(Py4JError, OSError):
            file.close()


def _try_lock(file: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        # Two jobs in one JVM.
        if "OverlappingFileLockException" in str(error):
            return False
        raise


def counted_files(folder: Path) -> dict[Path, int]:
    """Return the files that Spark's log of a Parquet table names, with their sizes in bytes."""
    sizes = {}
    log = folder / "_spark_metadata"
    for path in log.iterdir() if log.is_dir() else ():
        if path.name.startswith("."):
            continue
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry.get("action") == "add":
                file = Path("/" + entry["path"].removeprefix("file:").lstrip("/"))
                sizes[file] = int(entry["size"])
    return sizes


def remove_leftovers(plan: ExportPlan, table: str) -> int:
    """Remove the files of a micro-batch that was started but not finished.

    If the log of Spark shows such a micro-batch, the function removes the files with names as Spark
    gives them that are newer than the start of that micro-batch. All other files in the folder
    stay. The folder must be locked.

    :returns: the number of removed files.
    """
    if plan.local_output is None or plan.format != "parquet":
        return 0
    begun = {int(path.name): path
             for path in Path(plan.path("_checkpoint", table, "offsets")).glob("[0-9]*")}
    folder = Path(plan.path(table))
    last = max(begun, default=-1)
    log = folder / "_spark_metadata"
    if last < 0 or (log / str(last)).exists() or (log / f"{last}.compact").exists():
        return 0
    since, counted, removed = begun[last].stat().st_mtime_ns, counted_files(folder), 0
    for path in folder.rglob("part-*.parquet"):
        if path not in counted and path.stat().st_mtime_ns >= since:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            removed += 1
    return removed
