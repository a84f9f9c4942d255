"""Topics, stores and traces as streams of Arrow record batches, without Spark and without a JVM.

    from twistmq.integrations.arrow import read_messages

    orders = read_messages("127.0.0.1:9876", "orders")
    duckdb.sql("SELECT tags, count(*) FROM orders GROUP BY tags")

Each function returns a ``pyarrow.RecordBatchReader``, which DuckDB, Polars, pandas and other
libraries read batch by batch.
"""

from __future__ import annotations

from twistmq.integrations.arrow.reads import read_messages, read_store, read_traces
from twistmq.integrations.tables.availability import StillAway
from twistmq.integrations.tables.columns import ColumnsError
from twistmq.integrations.tables.data_loss import DataLoss
from twistmq.integrations.tables.options import OptionError
from twistmq.integrations.tables.queue_reader import ReadFailed
from twistmq.integrations.tables.record_batches import BodyUnreadable
from twistmq.integrations.tables.store_read import LostFile
from twistmq.integrations.tables.subscription import NothingSince, TopicMissing
from twistmq.protocol.errors import StoreDamaged, StoreError

__all__ = ["BodyUnreadable", "ColumnsError", "DataLoss", "LostFile", "NothingSince", "OptionError",
           "ReadFailed", "StillAway", "StoreDamaged", "StoreError", "TopicMissing",
           "read_messages", "read_store", "read_traces"]
