"""The page of behaviour rows names tests that exist."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests import reference_rows
from tests.reference_rows import LATER, PAGE, Row, faults_of, read_page

_HERE = "`test_reference_rows.py::PageTests`"
_METHOD = "`test_reference_rows.py::PageTests::test_every_row_is_shown`"


class PageTests(SynchronousTestCase):
    """The page REFERENCE_ROWS.md."""

    def test_every_row_is_shown(self) -> None:
        """Each row has tests that are collected, or a reason; none is missing."""
        page = read_page(PAGE.read_text())
        self.assertEqual(faults_of(page), [])
        self.assertEqual(len(page.rows), sum(page.sizes.values()))
        self.assertEqual(set(page.sizes), {row.part for row in page.rows})

    def test_every_subject_is_waited_for(self) -> None:
        """A subject for which no row waits must be removed."""
        page = read_page(PAGE.read_text())
        waited = {row.shown.partition(":")[2].strip() for row in page.rows if row.kind == "later"}
        self.assertEqual(waited, LATER)


class FaultTests(SynchronousTestCase):
    """The faults that the script finds."""

    def faults(self, *shown: str, size: int | None = None) -> list[str]:
        """The faults of a page with one part of these rows."""
        rows = "".join(f"| {number} | it does | {text} |\n" for number, text in enumerate(shown, 1))
        size = len(shown) if size is None else size
        return faults_of(read_page(f"## part: Its name ({size} rows)\n\n{rows}"))

    def test_classes_methods_several_of_them(self) -> None:
        """Classes, methods, several of them, and both kinds of reasons are accepted."""
        self.patch(reference_rows, "LATER", frozenset({"peace"}))
        self.assertEqual(self.faults(_HERE, f"{_HERE}, {_METHOD}", "later: peace",
                                     "not: because"),
                         [])

    def test_missing_rows(self) -> None:
        """A fault says that the number of rows differs from the size of the part."""
        self.assertEqual(self.faults(_HERE, size=3), ["part: 1 rows of 3, look at [2, 3]"])
        self.assertEqual(self.faults(_HERE, _HERE, size=1), ["part: 2 rows of 1, look at [2]"])

    def test_a_row_without_test_or_reason_is_a_fault(self) -> None:
        """The column is empty, has words, words beside a test, an empty reason, or
        a wrong subject.
        """
        for shown in ("", "soon", f"{_HERE} and more", "not:", "later: some day"):
            self.assertEqual(len(self.faults(shown)), 1, msg=shown)

    def test_tests_that_are_not_there(self) -> None:
        """A module, class or method is missing; a class is no TestCase, or has no tests."""
        for shown in ("`test_nowhere.py::PageTests`", "`test_reference_rows.py::Nobody`",
                      _METHOD.replace("every", "no"), "`test_reference_rows.py::Row`",
                      "`interop/clients.py::JavaTestCase`"):
            self.assertEqual(len(self.faults(shown)), 1, msg=shown)

    def test_each_kind_of_fault_of_a_row_is_found(self) -> None:
        """Each fault of a row is tested."""
        self.assertEqual([Row("part", 1, shown).kind for shown in (_HERE, "later: x", "not: y")],
                         ["tests", "later", "not"])
