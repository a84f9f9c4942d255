"""The table of columns, and what is made of it."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.spark_bridge.columns import (
    COLUMNS,
    DERIVED_COLUMNS,
    TRACE_COLUMNS,
    ColumnsError,
    arrow_schema,
    columns_page,
    default_columns,
    select_columns,
    spark_schema,
)

ROOT = Path(__file__).resolve().parents[2]


class SchemaTests(SynchronousTestCase):
    """Spark's schema and Arrow's."""

    def test_arrow_schema_is_the_one_spark_asks_for(self) -> None:
        """Names, order, types, nullability and children are those Spark makes of its schema."""
        from pyspark.sql.pandas.types import to_arrow_schema

        tables = {"all": COLUMNS, "default": default_columns(), "trace": TRACE_COLUMNS,
                  "text": select_columns("body,topic", body_format="string"),
                  "json": select_columns("properties", properties_as="string")}
        for name, columns in tables.items():
            asked = to_arrow_schema(spark_schema(columns), timezone="UTC")
            self.assertEqual(arrow_schema(columns), asked, msg=name)
            self.assertTrue(arrow_schema(columns).equals(asked, check_metadata=True), msg=name)

    def test_names_differ_whatever_their_case(self) -> None:
        """Spark finds columns without regard to case."""
        for columns in (COLUMNS, TRACE_COLUMNS):
            found = [column.name.lower() for column in columns]
            self.assertEqual(len(found), len(set(found)))

    def test_derived_columns_are_columns(self) -> None:
        """No name in the set is of nothing."""
        self.assertLess(DERIVED_COLUMNS, {column.name for column in COLUMNS})

    def test_page_is_what_the_rows_say(self) -> None:
        """The page is the one that is made from the rows now."""
        self.assertEqual((ROOT / "spark_bridge/COLUMNS.md").read_text(), columns_page(),
                         msg="write it again: python -m twistmq.spark_bridge.columns")


class SelectionTests(SynchronousTestCase):
    """The options that choose columns."""

    def names(self, *args: str, **options: object) -> list[str]:
        return [column.name for column in select_columns(*args, **options)]  # type: ignore[arg-type]

    def test_the_default_columns_come_in_table_order(self) -> None:
        """Without options, the default columns in the table's order."""
        wanted = [column.name for column in COLUMNS if column.is_default]
        self.assertEqual(self.names(), wanted)
        self.assertEqual(self.names(" "), wanted)
        self.assertNotIn("shardingKey", wanted)

    def test_order_and_case(self) -> None:
        """Columns come in the order that was asked for, by their own names."""
        self.assertEqual(self.names("BODY, queueoffset,shardingKey"),
                         ["body", "queueOffset", "shardingKey"])

    def test_left_out(self) -> None:
        """Body and properties can be left out by options of their own."""
        found = self.names(has_properties=False, has_body=False)
        self.assertEqual(set(self.names()) - set(found), {"body", "properties"})

    def test_body_as_text(self) -> None:
        """bodyFormat=string changes the body's type and nothing else."""
        found = select_columns("topic,body", body_format="STRING")
        self.assertEqual([(column.name, column.type) for column in found],
                         [("topic", "string"), ("body", "string")])

    def test_each_mistake_names_its_option(self) -> None:
        """Each names its option and what is wrong."""
        cases = {
            "there is no column 'offset'": {"names": "topic,offset"},
            "topic is there twice": {"names": "topic,Topic"},
            "no column is left": {"names": "body", "has_body": False},
            "bodyFormat: 'json'": {"body_format": "json"},
            "propertiesAs: 'xml'": {"properties_as": "xml"},
        }
        for text, options in cases.items():
            error = self.assertRaises(ColumnsError, select_columns, **options)
            self.assertIn(text, str(error))
