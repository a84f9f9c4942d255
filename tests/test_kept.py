"""Servers that the tests of a module share: they start once, and end with the module."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import TestCase

from twisted.trial.unittest import SynchronousTestCase

from tests import conftest
from tests.interop.kept import at_once, end_others, kept


def case_of(module: str) -> TestCase:
    """Return a test case of a module."""
    made: TestCase = type("Case", (TestCase,), {"__module__": module})()
    return made


class KeptTests(SynchronousTestCase):
    """Servers that are created once, and the time of their end."""

    def setUp(self) -> None:
        """Check that no server is kept before and after each test."""
        end_others("")
        self.addCleanup(end_others, "")
        self.ended: list[Path] = []

    def make(self, folder: Path, stack: ExitStack) -> Path:
        """Create a folder that exists until its end, which is recorded."""
        self.assertTrue(folder.is_dir())
        stack.callback(self.ended.append, folder)
        return folder

    def test_tests_of_a_module_share_one_start(self) -> None:
        """The second caller gets the same object; each function creates one."""
        make, other = self.make, lambda folder, stack: "other"
        first = kept(case_of("a"), make)
        self.assertEqual(kept(case_of("a"), other), "other")
        self.assertEqual((kept(case_of("a"), make), self.ended), (first, []))

    def test_a_test_of_another_module_ends_what_is_kept(self) -> None:
        """The test need not ask for servers; tests of the module end nothing."""
        first = kept(case_of("a"), self.make)
        end_others("a")
        self.assertEqual(self.ended, [])
        second = kept(case_of("b"), self.make)
        self.assertEqual((self.ended, first.exists(), second.exists()), ([first], False, True))
        end_others("c")
        self.assertEqual((self.ended, second.exists()), ([first, second], False))

    def test_pytest_ends_what_is_kept_after_the_last_test_of_a_file(self) -> None:
        """They are not ended between two tests of the file."""
        item: Any = SimpleNamespace(path=Path("test_a.py"))
        other: Any = SimpleNamespace(path=Path("test_b.py"))
        for following in (other, None):
            first = kept(case_of("a"), self.make)
            conftest.pytest_runtest_teardown(item, item)
            self.assertTrue(first.exists())
            conftest.pytest_runtest_teardown(item, following)
            self.assertFalse(first.exists())

    def test_a_start_that_fails_ends_what_it_began_and_is_tried_again(self) -> None:
        """A server that was started before the one that fails is ended."""
        def make(folder: Path, stack: ExitStack) -> Path:
            self.make(folder, stack)
            if len(self.ended) < 1:
                raise ZeroDivisionError
            return folder

        case = case_of("a")
        self.assertRaises(ZeroDivisionError, kept, case, make)
        self.assertEqual(len(self.ended), 1)
        self.assertFalse(self.ended[0].exists())
        self.assertTrue(kept(case, make).exists())

    def test_the_end_waits_for_rounds_whose_outcomes_are_kept_by_name(self) -> None:
        """An output, and the error of a round that fails."""
        def fails() -> str:
            raise ZeroDivisionError

        with ExitStack() as stack:
            rounds = at_once(stack, {"good": lambda: "ok", "bad": fails})
        self.assertTrue(all(each.done() for each in rounds.values()))
        self.assertEqual(rounds["good"].result(), "ok")
        self.assertIsInstance(rounds["bad"].exception(), ZeroDivisionError)
