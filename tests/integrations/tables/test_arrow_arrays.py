"""Arrow arrays are made and read without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from twisted.trial.unittest import SynchronousTestCase

import tests
from twistmq.integrations.tables.arrow_arrays import (
    binary_array,
    flag_array,
    flags_of,
    number_array,
    numbers_of,
    text_array,
)

#: A program that builds batches of all columns, with a module in place of pandas.
BUILD = """
import sys
from tests.integrations.tables.records import random_records
from twistmq.integrations.tables.columns import (
    BODY_STRING, COLUMNS, PROPERTIES_STRING, select_columns)
from twistmq.integrations.tables.record_batches import BatchBuilder, RowFilter

for columns in (COLUMNS, [BODY_STRING, PROPERTIES_STRING]):
    for is_irregular in (False, True):
        builder = BatchBuilder(columns, RowFilter(topics_but=str.isspace))
        for seed in range(3):
            for broker in ("a", "b"):
                builder.add(b"".join(random_records(seed, 40, irregular=is_irregular)), broker)
        assert builder.batch().num_rows
assert not BatchBuilder(COLUMNS).batch().num_rows
print("pandas" in sys.modules or hasattr(sys, "has_tried_pandas"))
"""


class ArrowArrayTests(SynchronousTestCase):
    """The functions of arrow_arrays."""

    def check(self, array: object, values: list[object], type_: object) -> None:
        array.validate(full=True)  # type: ignore[attr-defined]
        self.assertEqual(array, pa.array(values, type_))

    def test_numbers(self) -> None:
        """Numbers of each size, with and without nulls, also if the memory is not contiguous."""
        for type_, name in ((pa.int32(), "i4"), (pa.int64(), "i8"), (pa.uint32(), "u4"),
                            (pa.float64(), "f8")):
            values = np.arange(20, dtype=name)
            self.check(number_array(values), list(range(20)), type_)
            self.check(number_array(values[::2]), list(range(0, 20, 2)), type_)
            self.check(number_array(values[:0]), [], type_)
            self.check(number_array(values[:3], np.array([False, True, False])), [0, None, 2],
                       type_)
            array = number_array(values)
            self.assertEqual(numbers_of(array).tolist(), list(range(20)))
            self.assertEqual(numbers_of(array[3:7]).tolist(), [3, 4, 5, 6])
            self.assertEqual(numbers_of(array[:0]).tolist(), [])

    def test_flags(self) -> None:
        """The bits of a byte are in the order of Arrow."""
        values = np.array([True, False, False, True, True, False, False, False, True, True])
        array = flag_array(values)
        self.check(array, values.tolist(), pa.bool_())
        self.assertEqual(flags_of(array).tolist(), values.tolist())
        self.assertEqual(flags_of(array[3:]).tolist(), values[3:].tolist())
        self.check(flag_array(values[:0]), [], pa.bool_())
        self.assertEqual(flags_of(array[:0]).tolist(), [])

    def test_texts_and_bytes(self) -> None:
        """A value may be empty or null."""
        cases: list[list[str | None]] = [
            ["a", "", "größer", None, "e"], ["a", "b"], [], [None]]
        for texts in cases:
            self.check(text_array(texts), list(texts), pa.string())
            values = [None if text is None else text.encode() for text in texts]
            self.check(binary_array(values), list(values), pa.binary())

    def test_batches_are_built_without_pandas(self) -> None:
        """Its import takes a second and 40 MB, and data frames are not needed for a batch."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "pandas.py").write_text("import sys\nsys.has_tried_pandas = True\n")
        root = Path(tests.__file__).parents[1]
        done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True,
                              env={"PYTHONPATH": f"{folder.absolute()}:{root}"}, timeout=60)
        self.assertEqual((done.stdout, done.stderr), ("False\n", ""))
