"""The table of columns, and the options that select columns from it."""

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
        """Each name in the set is the name of a column."""
        self.assertLess(DERIVED_COLUMNS, {column.name for column in COLUMNS})


class SelectionTests(SynchronousTestCase):
    """The options that select columns."""

    def names(self, *args: str, **options: object) -> list[str]:
        return [column.name for column in select_columns(*args, **options)]  # type: ignore[arg-type]

    def test_the_default_columns_come_in_table_order(self) -> None:
        """Without options, the default columns are selected in the order of the table."""
        wanted = [column.name for column in COLUMNS if column.is_default]
        self.assertEqual(self.names(), wanted)
        self.assertEqual(self.names(" "), wanted)
        self.assertNotIn("shardingKey", wanted)

    def test_order_and_case(self) -> None:
        """Columns come in the requested order, and have their own names."""
        self.assertEqual(self.names("BODY, queueoffset,shardingKey"),
                         ["body", "queueOffset", "shardingKey"])

    def test_left_out(self) -> None:
        """Separate options leave out the body and the properties."""
        found = self.names(has_properties=False, has_body=False)
        self.assertEqual(set(self.names()) - set(found), {"body", "properties"})

    def test_body_as_text(self) -> None:
        """The option bodyFormat=string changes only the type of the body."""
        found = select_columns("topic,body", body_format="STRING")
        self.assertEqual([(column.name, column.type) for column in found],
                         [("topic", "string"), ("body", "string")])

    def test_each_mistake_names_its_option(self) -> None:
        """Each error names the option and the mistake."""
        cases = {
            "there is no column 'offset'": {"names": "topic,offset"},
            "topic is given twice": {"names": "topic,Topic"},
            "no column is left": {"names": "body", "has_body": False},
            "bodyFormat: 'json'": {"body_format": "json"},
            "propertiesAs: 'xml'": {"properties_as": "xml"},
        }
        for text, options in cases.items():
            error = self.assertRaises(ColumnsError, select_columns, **options)
            self.assertIn(text, str(error))
