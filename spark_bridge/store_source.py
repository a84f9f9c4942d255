"""``format("rocketmq_store")``: reads messages from commit-log files, without a broker.

Tasks read the files independently of each other, and several tasks share a large file. Only Spark
processes import this module; the broker never does.

Source: DataSource, DataSourceReader of PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.integrations.tables.store_options import StoreOptions
from twistmq.integrations.tables.store_read import StoreRead
from twistmq.spark_bridge.spark_schema import columns_of_schema, spark_schema

__all__ = ["StoreReader", "StoreSource"]


class StoreSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> Any:
        return spark_schema(StoreOptions.read(self.options).columns)

    def reader(self, schema: Any) -> StoreReader:
        options = StoreOptions.read(self.options)
        return StoreReader(replace(options, columns=tuple(columns_of_schema(schema))))


class _Piece(InputPartition):
    """A piece to read; ``value`` is the LogPiece."""


class StoreReader(DataSourceReader):
    """Reads a store; Spark pickles the reader for the tasks."""

    def __init__(self, options: StoreOptions) -> None:
        self._store = StoreRead(options)

    def partitions(self) -> list[InputPartition]:
        return [_Piece(piece) for piece in self._store.pieces()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If a store has no file, Spark reads a partition without a value.
        return iter(()) if partition.value is None else self._store.batches(partition.value)
