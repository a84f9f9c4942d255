"""The export job, which writes topics and traces to tables.

The job runs one streaming query for each table. The checkpoint of the query is in the folder of the
output, so a job that was killed continues at the same place when it is started again. This module
imports Spark, so the export command imports this module only when it needs it.

Source: StreamingQuery, StreamingQueryProgress of PySpark 4.3.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from twistmq.integrations.tables.connection import client_settings
from twistmq.integrations.tables.options import STREAM_READ, Options
from twistmq.integrations.tables.subscription import Subscription
from twistmq.integrations.tables.trace_read import message_options
from twistmq.protocol.bodies import MessageQueue
from twistmq.spark_bridge.executor_archive import send_package
from twistmq.spark_bridge.export_folder import locked, remove_leftovers
from twistmq.spark_bridge.export_plan import MESSAGES, ExportError, ExportPlan
from twistmq.spark_bridge.export_sinks import start_writing, written_files
from twistmq.spark_bridge.lag import source_lag
from twistmq.spark_bridge.spark_api import HAS_READ_LIMITS

__all__ = ["NO_WORKER", "STARTS", "ExportJob", "TableSummary", "end_session", "make_session",
           "waiting"]

log = logging.getLogger("twistmq.spark_bridge")

#: The interval between checks of the progress, s.
_POLL_S: Final = 0.2
#: The text of Spark's error when a Python worker does not connect in time. Source:
#: PythonWorkerFactory.
NO_WORKER: Final = "Python worker failed to connect back"
#: The largest number of starts of a query between two micro-batches. Spark gives a Python worker
#: ten seconds to load its modules, and a busy machine may exceed them several times in a row.
STARTS: Final = 10


def make_session(plan: ExportPlan) -> Any:
    """Start Spark or use the existing session, and send this package to remote executors."""
    from pyspark.sql import SparkSession

    # By default, workers run the python3 of the path, which may belong to another environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("twistmq export").master(plan.master).config(
        "spark.ui.showConsoleProgress", "false").config("spark.sql.session.timeZone", "UTC")
    # The executors of local-cluster[...] are separate processes.
    is_local = plan.master.partition("[")[0] == "local"
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.ui.enabled", "false")
    for name, value in plan.conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(plan.conf.get("spark.log.level", "ERROR"))
    if not is_local:
        send_package(session)
    return session


def end_session(session: Any) -> None:
    """Stop Spark, which may have stopped already."""
    from py4j.protocol import Py4JError

    with warnings.catch_warnings(), contextlib.suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()


@dataclass(slots=True)
class TableSummary:
    """The rows that a run wrote to one table."""

    table: str
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    #: The rows by topic, or by date for traces, if the files are on this machine.
    rows_by: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _RunningQuery:
    """A query and its progress."""

    table: str
    query: Any
    before: dict[Path, int]
    rows: int = 0
    #: The number of messages that are not exported yet; None until a micro-batch shows it.
    waiting: int | None = None
    last_batch: int = -1
    #: The number of starts since the last micro-batch.
    starts: int = 1
    #: The ends of the queues when the job began, if this Spark ends a query after one micro-batch.
    #: The job starts the query again until it has reached these ends.
    target: dict[MessageQueue, int] | None = None
    #: The offset that the query had reached at its last start.
    end: str = ""


class ExportJob:
    """Runs a plan.

    :param progress: a function that is called when the progress changes, with the number of
        exported rows and the number of remaining ones. The latter is None until it is known for
        each table.
    """

    def __init__(
        self, plan: ExportPlan, session: Any, progress: Callable[[int, int | None], object],
    ) -> None:
        self._plan = plan
        self._session = session
        self._progress = progress
        self._stopping = False

    def stop(self) -> None:
        """End a run as soon as possible; the next run repeats an unfinished micro-batch."""
        self._stopping = True

    def run(self) -> list[TableSummary]:
        """Export until all messages are exported, or until the job is stopped.

        :raises ExportError: when a query fails, or another job writes to the same folder.
        """
        from py4j.protocol import Py4JError

        running: list[_RunningQuery] = []
        try:
            with locked(self._plan, self._session):
                self._export(running)
        except (Py4JError, OSError):
            # If a whole service is stopped, the JVM stops too. The next run repeats the work that
            # the JVM has not logged.
            if not self._stopping:
                raise
        return [self._summary(each) for each in running]

    def _export(self, running: list[_RunningQuery]) -> None:
        """Run the queries; adds them and their progress to the list."""
        try:
            for table in self._plan.tables:
                remove_leftovers(self._plan, table)
                before = written_files(self._plan, table)
                target = None if HAS_READ_LIMITS or self._plan.continuous else (
                    ends_of(self._plan, table))
                running.append(_RunningQuery(
                    table, start_writing(self._plan, table, self._frame(table)), before,
                    target=target))
            while not self._stopping:
                # The order matters: a query that fails between the two checks is started again.
                is_active = any(each.query.isActive for each in running)
                has_failed = any(each.query.exception() for each in running)
                self._look(running)
                if has_failed:
                    if not self._start_again(running):
                        break
                elif not is_active and not self._go_on(running):
                    break
                time.sleep(_POLL_S)
        finally:
            for each in running:
                each.query.stop()
        self._look(running)
        for each in running:
            error = each.query.exception()
            # Ctrl-C reaches the Python workers too, and the query that fails then is not an error.
            if error is not None and not self._stopping:
                raise ExportError(f"{each.table}: {_cause(str(error))}")

    def _start_again(self, running: Iterable[_RunningQuery]) -> bool:
        """Restart the queries that failed because a Python worker did not start in time.

        :returns: False when a query failed for another reason, or too often.
        """
        for each in running:
            error = each.query.exception()
            if error is None:
                continue
            if each.starts == STARTS or NO_WORKER not in str(error):
                return False
            log.warning("%s: a Python worker did not start in time (start %d of %d): the query "
                        "starts again", each.table, each.starts, STARTS)
            remove_leftovers(self._plan, each.table)
            each.query = start_writing(self._plan, each.table, self._frame(each.table))
            each.starts += 1
        return True

    def _go_on(self, running: Iterable[_RunningQuery]) -> bool:
        """Restart the queries that have made progress but have not reached their target.

        :returns: whether there was such a query.
        """
        has_restarted = False
        for each in running:
            last = each.query.lastProgress
            if each.target is None or not each.waiting or last is None:
                continue
            end = str(last["sources"][0]["endOffset"])
            if end != each.end:
                each.end = end
                each.query = start_writing(self._plan, each.table, self._frame(each.table))
                has_restarted = True
        return has_restarted

    def _frame(self, table: str) -> Any:
        """Make the stream of a table."""
        from pyspark.sql import functions as f

        plan = self._plan
        name, options = source_of(plan, table)
        reader = self._session.readStream.format(name).options(
            **options, startingOffsets="earliest",
            maxOffsetsPerTrigger=str(plan.batch_messages))
        return reader.load().withColumn("date", f.to_date("storeTimestamp"))

    def _look(self, running: Iterable[_RunningQuery]) -> None:
        """Update the progress of the queries, and report it if it has changed."""
        changed = False
        for each in running:
            for progress in each.query.recentProgress:
                if progress["batchId"] <= each.last_batch or not progress["numInputRows"]:
                    continue
                each.last_batch = progress["batchId"]
                each.rows += progress["numInputRows"]
                each.waiting = waiting(progress["sources"][0], each.target)
                each.starts = 1
                changed = True
            if each.target is not None and each.query.lastProgress is not None:
                # A micro-batch without rows may have advanced the offsets too.
                each.waiting = waiting(each.query.lastProgress["sources"][0], each.target)
        if changed:
            # A query that has ended without rows reports no backlog, so the backlog is 0.
            backlogs = [0 if each.waiting is None and not each.query.isActive else each.waiting
                        for each in running]
            reported = [count for count in backlogs if count is not None]
            self._progress(sum(each.rows for each in running),
                           sum(reported) if len(reported) == len(backlogs) else None)

    def _summary(self, each: _RunningQuery) -> TableSummary:
        import pyarrow.parquet as pq

        new = {path: size for path, size in written_files(self._plan, each.table).items()
               if path not in each.before}
        summary = TableSummary(each.table, each.rows, len(new), sum(new.values()))
        for path in new:
            name = _partition_of(path, "topic" if each.table == MESSAGES else "date")
            rows = pq.read_metadata(path).num_rows
            summary.rows_by[name] = summary.rows_by.get(name, 0) + rows
        return summary


def source_of(plan: ExportPlan, table: str) -> tuple[str, dict[str, str]]:
    """Return the format with which a table is read, and its options."""
    if table == MESSAGES:
        return "rocketmq", {**plan.connection, "subscribe": ",".join(plan.topics)}
    return "rocketmq_trace", dict(plan.connection)


def ends_of(plan: ExportPlan, table: str) -> dict[MessageQueue, int]:
    """Find the current ends of the queues of a table.

    :raises BrokerError: when a broker or name server does not answer.
    """
    name, given = source_of(plan, table)
    options = Options(given if name == "rocketmq" else message_options(given), STREAM_READ)
    with client_settings(options).client() as client:
        return {queue: client.max_offset(queue)
                for queue in Subscription(options).queues(client, refresh=True)}


def waiting(source: Any, target: dict[MessageQueue, int] | None = None) -> int | None:
    """Count the messages between the end of a micro-batch and the ends of the queues.

    :param target: the ends of the queues; None to use the ends in the progress.
    :returns: the count, or None if it is unknown.
    """
    # The progress of a repeated micro-batch lacks the ends, because Spark did not ask the source.
    lag = source_lag(source, latest=target)
    return None if lag is None else lag.total


def _partition_of(path: Path, name: str) -> str:
    for part in path.parts:
        if part.startswith(f"{name}="):
            return unquote(part.partition("=")[2])
    return ""


def _cause(text: str) -> str:
    """Return the line of a Python worker's error that describes the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own_lines = [line for line in lines if line.startswith("twistmq.")]
    return own_lines[-1] if own_lines else lines[0] if lines else "no reason is given"
