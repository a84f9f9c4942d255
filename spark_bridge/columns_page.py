"""Writes COLUMNS.md: the columns of messages and of trace events, and of the rows of a write.

``python -m twistmq.spark_bridge.columns_page > spark_bridge/COLUMNS.md`` writes the page, and a
test compares the page with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twistmq.integrations.tables.columns import COLUMNS, DERIVED_COLUMNS, TRACE_COLUMNS, Column
from twistmq.spark_bridge.rows import SINK_COLUMNS

__all__ = ["columns_page"]

_HEAD: Final = """\
# Columns

Written by `python -m twistmq.spark_bridge.columns_page` from the rows in
`integrations/tables/columns.py`. Times are microseconds in UTC, as in Spark; the times of RocketMQ
are whole milliseconds.

`.option("columns", "topic,queueOffset,body")` selects columns and their order. The options
`includeProperties=false` and `includeBody=false` leave these two columns out, `bodyFormat=string`
makes the body a string, and `propertiesAs=string` makes the properties a JSON object. Reading is
fastest without `properties` and the columns that are derived from it: %s.
"""


def columns_page() -> str:
    """Generate the page of all columns."""
    derived = ", ".join(f"`{column.name}`" for column in COLUMNS
                        if column.name in DERIVED_COLUMNS - {"properties"})
    parts = [_HEAD % derived,
             "## Messages: `rocketmq` and `rocketmq_store`\n", _table(COLUMNS),
             "## Trace events: `rocketmq_trace`\n", _table(TRACE_COLUMNS),
             _SINK_HEAD, _sink_table()]
    return "\n".join(parts)


_SINK_HEAD: Final = """\
## Rows to write: `rocketmq`

A row needs a `body`, and a topic from the column or the option. A null means that the message does
not have this field. An empty string in `tags`, `keys`, `shardingKey` or a value of `properties`
means the same. Any other column is an error.
"""


def _sink_table() -> str:
    lines = ["| column | type | part of the message |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {' or '.join(types)} | {meaning} |"
              for name, (types, meaning) in SINK_COLUMNS.items()]
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[Column]) -> str:
    with_default = any(not column.is_default for column in columns)
    lines = ["| column | type | null | " + ("by default | " if with_default else "") + "meaning |",
             "| --- | --- | --- | " + ("--- | " if with_default else "") + "--- |"]
    for column in columns:
        shown = ("yes | " if column.is_default else "no | ") if with_default else ""
        lines.append(f"| `{column.name}` | {column.type} | "
                     f"{'yes' if column.nullable else ''} | {shown}{column.meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(columns_page(), end="")
