"""The parts of the Python Data Source API that are newer than PySpark 4.0, or stand-ins for them.

This module detects features instead of versions, because the PySpark of a platform may have newer
features than its version number suggests. If the installed PySpark lacks a class, this module
provides one in its place, so the code of the readers and writers is the same on every PySpark.

=====================================  ==========================================================
``DataSourceStreamArrowWriter``        from 4.1 on
``ReadLimit``, ``ReadAllAvailable``,   from 4.2 on; before that a stream reader sets its own limit
``ReadMaxRows``, ``ReadMaxBytes``
``SupportsTriggerAvailableNow``        from 4.2 on; before that Spark asks for one offset only
=====================================  ==========================================================

Source: pyspark.sql.datasource, pyspark.sql.streaming.datasource and
pyspark.sql.worker.write_into_data_source of PySpark 4.0, 4.1, 4.2 and 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import datasource

__all__ = ["HAS_READ_LIMITS", "DataSourceStreamArrowWriter",
           "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows",
           "SupportsTriggerAvailableNow"]


class _ReadLimit:
    """Stands in for a limit of a micro-batch."""


@dataclass
class _ReadAllAvailable(_ReadLimit):
    """Stands in for the absence of a limit."""


@dataclass
class _ReadMaxRows(_ReadLimit):
    """Stands in for a limit in rows."""

    max_rows: int


@dataclass
class _ReadMaxBytes(_ReadLimit):
    """Stands in for a limit in bytes."""

    max_bytes: int


class _SupportsTriggerAvailableNow:
    """Stands in for the mixin that a newer Spark looks for."""


class _StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
    """A stream writer that receives record batches on a PySpark without a class for this.

    PySpark 4.0 passes record batches to each writer that is a DataSourceArrowWriter, in batches and
    in streams. Only the signatures of ``commit`` and ``abort`` differ between the two kinds of
    writers; subclasses define both methods as a stream writer does.
    """


def _new(module: Any, name: str, stand_in: Any) -> Any:
    """Return the class of the installed PySpark, or its stand-in."""
    return getattr(module, name, stand_in)


try:
    from pyspark.sql.streaming import datasource as _streaming
except ImportError:
    _streaming = None

#: Whether Spark requests limited micro-batches from a stream until it has read all: from 4.2 on.
HAS_READ_LIMITS: Final = _streaming is not None
ReadLimit: Any = _new(_streaming, "ReadLimit", _ReadLimit)
ReadAllAvailable: Any = _new(_streaming, "ReadAllAvailable", _ReadAllAvailable)
ReadMaxRows: Any = _new(_streaming, "ReadMaxRows", _ReadMaxRows)
ReadMaxBytes: Any = _new(_streaming, "ReadMaxBytes", _ReadMaxBytes)
SupportsTriggerAvailableNow: Any = _new(
    _streaming, "SupportsTriggerAvailableNow", _SupportsTriggerAvailableNow)
DataSourceStreamArrowWriter: Any = _new(
    datasource, "DataSourceStreamArrowWriter", _StreamArrowWriter)
