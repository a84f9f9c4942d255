"""The schemas of Spark for the columns of a table, and the columns that such a schema requests.

Source: pyspark.sql.types of PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from twistmq.integrations.tables.columns import (
    BODY_STRING,
    COLUMNS,
    PROPERTIES_STRING,
    Column,
    ColumnsError,
)

__all__ = ["columns_of_schema", "spark_schema"]

#: The columns whose types options change, by name and type.
_OTHER_TYPES: Final = {(column.name, column.type): column
                       for column in (BODY_STRING, PROPERTIES_STRING)}


def spark_schema(columns: Iterable[Column]) -> Any:
    """Make the StructType of these columns."""
    from pyspark.sql import types

    types_by_name = {
        "string": types.StringType(), "int": types.IntegerType(), "bigint": types.LongType(),
        "timestamp": types.TimestampType(), "binary": types.BinaryType(),
        "boolean": types.BooleanType(),
        "array<string>": types.ArrayType(types.StringType()),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType(
        [types.StructField(column.name, types_by_name[column.type], column.nullable)
         for column in columns])


def columns_of_schema(schema: Any, table: Sequence[Column] = COLUMNS) -> list[Column]:
    """Find the columns that a StructType requests, with its nullability.

    :param table: the columns of the format.
    :raises ColumnsError: when a column is unknown or has another type.
    """
    by_name = {column.name: column for column in table}
    columns = []
    for field in schema.fields:
        column = by_name.get(field.name)
        if column is None:
            raise ColumnsError(f"column {field.name}: there is no such column, only "
                               + ", ".join(by_name))
        text = field.dataType.simpleString()
        column = _OTHER_TYPES.get((column.name, text), column)
        if field.dataType != spark_schema([column]).fields[0].dataType:
            raise ColumnsError(f"column {field.name}: its type is {column.type}, not {text}")
        columns.append(replace(column, nullable=field.nullable))
    return columns
