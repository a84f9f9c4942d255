"""Keyword arguments as options."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.arrow.option_values import option_texts
from twistmq.integrations.tables.options import OPTIONS, OptionError

NAMES = ("startingOffsets", "startingOffsetsByTimestamp", "tls.caFile", "columns", "includeBody",
         "startingTimestamp", "waitStoreOK")
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


class OptionTextsTests(SynchronousTestCase):
    """``option_texts``."""

    def test_names(self) -> None:
        """Names may be written as in Python or as in the bridge, and an unknown name stays
        unchanged.
        """
        self.assertEqual(
            option_texts({"tls_ca_file": "a", "columns": "b", "startingOffsets": "c",
                          "wait_store_ok": "d", "no_such": "e"}, NAMES),
            {"tls.caFile": "a", "columns": "b", "startingOffsets": "c", "waitStoreOK": "d",
             "no_such": "e"})

    def test_no_two_options_have_one_name(self) -> None:
        """Two options never differ only by the underscores in their names."""
        names = {option.name for option in OPTIONS}
        plain = {name.replace(".", "").lower() for name in names}
        self.assertEqual(len(plain), len(names))

    def test_values(self) -> None:
        """Each type has a text, and None has no value."""
        cases: dict[str, Any] = {
            "a": "a", "true": True, "false": False, "7": 7, "a,b": ["a", "b"], "c": ("c",),
            "2026-01-31T12:00:00+00:00": MOMENT, '{"T": {"b": {"0": 5}}}': {"T": {"b": {0: 5}}},
            '{"T": "2026-01-31T12:00:00+00:00"}': {"T": MOMENT}}
        for text, value in cases.items():
            self.assertEqual(option_texts({"columns": value}, NAMES), {"columns": text})
        self.assertEqual(option_texts({"columns": None}, NAMES), {})

    def test_values_without_a_text(self) -> None:
        """Each of these values is refused, and the error names the option."""
        circle: dict[str, Any] = {}
        circle["T"] = circle
        values: list[Any] = [1.5, b"a", [1], {1, 2}, MOMENT.date(), MOMENT.replace(tzinfo=None),
                             {"T": b"a"}, {"T": MOMENT.replace(tzinfo=None)}, circle,
                             {("a",): 1}]
        for value in values:
            error = self.assertRaises(OptionError, option_texts, {"columns": value}, NAMES)
            self.assertTrue(str(error).startswith("option columns: "), msg=repr(value))
