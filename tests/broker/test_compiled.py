"""Whether the hot modules are compiled."""

from __future__ import annotations

from importlib import import_module

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.compiled import COMPILED_MODULES, compiled_modules, describe_build


class CompiledTests(SynchronousTestCase):
    """What is said is what runs."""

    def test_all_or_none(self) -> None:
        """The modules need each other: all of them are compiled, or none is."""
        self.assertIn(compiled_modules(), ([], list(COMPILED_MODULES)))

    def test_it_says_what_is_imported(self) -> None:
        """A module counts as compiled when its import gives an extension."""
        for name in COMPILED_MODULES:
            file = import_module(name).__file__ or ""
            self.assertEqual(name in compiled_modules(), file.endswith(".so"), msg=name)

    def test_the_version_line_names_the_form(self) -> None:
        """The version line names the form."""
        count = len(COMPILED_MODULES)
        expected = f"compiled: {count} of {count} modules" if compiled_modules() else "pure Python"
        self.assertEqual(describe_build(), expected)
