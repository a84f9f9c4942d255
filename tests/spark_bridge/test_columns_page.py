"""The schemas of Spark, and the page of all columns."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.integrations.tables.columns import (
    COLUMNS,
    TRACE_COLUMNS,
    arrow_schema,
    default_columns,
    select_columns,
)
from twistmq.spark_bridge.columns_page import columns_page
from twistmq.spark_bridge.spark_schema import spark_schema

ROOT = Path(__file__).resolve().parents[2]


class SchemaTests(SynchronousTestCase):
    """The schemas of Spark and of Arrow."""

    def test_arrow_schema_is_the_one_spark_asks_for(self) -> None:
        """Names, order, types, nullability and children are equal."""
        from pyspark.sql.pandas.types import to_arrow_schema

        tables = {"all": COLUMNS, "default": default_columns(), "trace": TRACE_COLUMNS,
                  "text": select_columns("body,topic", body_format="string"),
                  "json": select_columns("properties", properties_as="string")}
        for name, columns in tables.items():
            asked = to_arrow_schema(spark_schema(columns), timezone="UTC")
            self.assertEqual(arrow_schema(columns), asked, msg=name)
            self.assertTrue(arrow_schema(columns).equals(asked, check_metadata=True), msg=name)

    def test_page_is_what_the_rows_say(self) -> None:
        """The page is the one that is made from the rows now."""
        self.assertEqual((ROOT / "spark_bridge/COLUMNS.md").read_text(), columns_page(),
                         msg="write it again: python -m twistmq.spark_bridge.columns_page")
