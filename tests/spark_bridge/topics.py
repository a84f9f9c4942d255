"""Schemas of Spark, and topics with messages, for the tests of sources and sinks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)

__all__ = ["pa", "schema_of"]

#: pyarrow, pyspark.sql.datasource and pyspark.sql.types, imported after what skips without them.
pa: Any = import_module("pyarrow")
_types: Any = import_module("pyspark.sql.types")


def schema_of(**types: str) -> Any:
    """A StructType, of the simple types that DDL names."""
    def made(name: str) -> Any:
        if name.startswith("array<"):
            return _types.ArrayType(made(name[len("array<"):-1]))
        if name.startswith("map<string,"):
            return _types.MapType(_types.StringType(), made(name[len("map<string,"):-1]))
        if name.startswith("struct<a:"):
            return _types.StructType([_types.StructField("a", made(name[len("struct<a:"):-1]))])
        return {"string": _types.StringType, "binary": _types.BinaryType,
                "int": _types.IntegerType, "bigint": _types.LongType,
                "timestamp": _types.TimestampType}[name]()

    return _types.StructType([_types.StructField(name, made(kind))
                              for name, kind in types.items()])
