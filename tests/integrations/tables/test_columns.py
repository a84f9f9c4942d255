"""The table of columns, and the options that choose from it."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.tables.columns import (
    COLUMNS,
    DERIVED_COLUMNS,
    TRACE_COLUMNS,
    ColumnsError,
    select_columns,
)


class TableTests(SynchronousTestCase):
    """The rows of the table."""

    def test_names_differ_whatever_their_case(self) -> None:
        """Spark finds columns without regard to case."""
        for columns in (COLUMNS, TRACE_COLUMNS):
            found = [column.name.lower() for column in columns]
            self.assertEqual(len(found), len(set(found)))

    def test_derived_columns_are_columns(self) -> None:
        """No name in the set is of nothing."""
        self.assertLess(DERIVED_COLUMNS, {column.name for column in COLUMNS})


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
