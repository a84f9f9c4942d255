"""The writers of an export: Parquet by Spark itself, Delta and Iceberg without a jar.

Each row is in the output once, no matter how often Spark tries a micro-batch. A Parquet file counts
only if the log that Spark keeps beside the files names it. A Delta or Iceberg table stores the
number of the micro-batch with each commit. For these two formats, each micro-batch passes through
the memory of the driver.

Source: DataStreamWriter of PySpark 4.3; CommitProperties of deltalake 1.6; Table of pyiceberg 0.12.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twistmq.spark_bridge.export_folder import counted_files
from twistmq.spark_bridge.export_plan import MESSAGES, ExportPlan

__all__ = ["partition_columns", "start_writing", "written_files"]

#: The property of an Iceberg snapshot that holds the number of its micro-batch.
_BATCH: Final = "twistmq.batch"


def partition_columns(table: str) -> list[str]:
    """Return the columns by which the files of a table are partitioned."""
    return ["topic", "date"] if table == MESSAGES else ["date"]


def start_writing(plan: ExportPlan, table: str, frame: Any) -> Any:
    """Start to write a stream into its table; :returns: the query."""
    trigger = {"processingTime": f"{plan.interval_ms} milliseconds"} if plan.continuous else {
        "availableNow": True}
    writer = frame.writeStream.queryName(f"export {table}").option(
        "checkpointLocation", plan.path("_checkpoint", table)).trigger(**trigger)
    if plan.format == "parquet":
        return writer.format("parquet").partitionBy(*partition_columns(table)).start(
            plan.path(table))
    append = _append_delta if plan.format == "delta" else _append_iceberg

    def write(batch: Any, batch_id: int) -> None:
        rows = batch.toArrow()
        if rows.num_rows:
            append(plan, table, rows, batch_id)

    return writer.foreachBatch(write).start()


def _append_delta(plan: ExportPlan, table: str, rows: Any, batch_id: int) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    path = plan.path(table)
    query = f"twistmq export {table}"
    if DeltaTable.is_deltatable(path):
        last = DeltaTable(path).transaction_version(query)
        if last is not None and last >= batch_id:
            return
    write_deltalake(path, rows, mode="append", partition_by=partition_columns(table),
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(query, batch_id)]))


def _append_iceberg(plan: ExportPlan, table: str, rows: Any, batch_id: int) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.transforms import IdentityTransform

    root = plan.local_output
    assert root is not None
    root.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("twistmq", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
    catalog.create_namespace_if_not_exists("twistmq")
    try:
        target = catalog.load_table(f"twistmq.{table}")
    except NoSuchTableError:
        with catalog.create_table_transaction(
                f"twistmq.{table}", rows.schema, location=f"{root.as_uri()}/{table}",
        ) as transaction, transaction.update_spec() as spec:
            for name in partition_columns(table):
                spec.add_field(name, IdentityTransform(), name)
        target = catalog.load_table(f"twistmq.{table}")
    marks = [snapshot.summary.get(_BATCH) for snapshot in target.snapshots() if snapshot.summary]
    done = [int(mark) for mark in marks if mark is not None]
    if done and max(done) >= batch_id:
        return
    target.append(rows, snapshot_properties={_BATCH: str(batch_id)})


def written_files(plan: ExportPlan, table: str) -> dict[Path, int]:
    """Return the valid data files of a table with their sizes; empty for a remote output."""
    if plan.local_output is None:
        return {}
    folder = Path(plan.path(table))
    if plan.format == "parquet":
        return counted_files(folder)
    finder: Callable[[Path], list[Path]] = _delta_files if plan.format == "delta" else \
        lambda where: sorted(where.glob("data/**/*.parquet"))
    return {path: path.stat().st_size for path in finder(folder)}


def _delta_files(folder: Path) -> list[Path]:
    from deltalake import DeltaTable

    return [folder / Path(uri).relative_to(folder) for uri in DeltaTable(folder).file_uris()] \
        if folder.exists() else []
