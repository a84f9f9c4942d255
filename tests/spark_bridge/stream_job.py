"""A streaming query in its own process, which can be killed with all its children.

    python -m tests.spark_bridge.stream_job NAME_SERVER TOPIC OUTPUT CHECKPOINT ROWS

reads the topic from its begin to where it ends now, ROWS offsets a micro-batch, and writes Parquet.
It ends with status 0 when it is through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.spark_bridge.session import ROOT, spark_session

__all__ = ["Job", "committed_files", "kill_workers", "start_query", "worker_pids"]


def start_query(session: Any, name_server: str, topic: str, output: Path, checkpoint: Path,
                rows: int) -> Any:
    """Start the query; :returns: it."""
    stream = session.readStream.format("rocketmq").options(
        nameServer=name_server, subscribe=topic, startingOffsets="earliest",
        maxOffsetsPerTrigger=str(rows)).load()
    return stream.select("topic", "queueId", "queueOffset", "body").writeStream.format(
        "parquet").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(
        str(output))


def committed_files(output: Path) -> int:
    """Return the number of micro-batches in the output."""
    return len(list((output / "_spark_metadata").glob("[0-9]*")))


def worker_pids(root: int) -> list[int]:
    """Python workers below a process: children of a ``pyspark.daemon``."""
    children: dict[int, list[int]] = {}
    daemons = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                daemons.append(int(folder.name))
    below, found = [root], set()
    while below:
        pid = below.pop()
        found.add(pid)
        below += children.get(pid, [])
    # A worker is a fork of the daemon, with its command line.
    return [pid for daemon in daemons if daemon in found for pid in children.get(daemon, [])]


class Job:
    """The process, and all below it, in a group of their own."""

    def __init__(self, name_server: str, topic: str, output: Path, checkpoint: Path,
                 rows: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_bridge.stream_job", name_server, topic,
             str(output), str(checkpoint), str(rows)], cwd=ROOT, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the driver, the JVM and the workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def kill_workers(root: int) -> int:
    """Kill the workers below a process; :returns: how many there were."""
    count = 0
    for pid in worker_pids(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def main(arguments: list[str]) -> int:
    name_server, topic, output, checkpoint, rows = arguments
    query = start_query(spark_session(), name_server, topic, Path(output), Path(checkpoint),
                        int(rows))
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
