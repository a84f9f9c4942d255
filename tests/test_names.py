"""Names must say what a value, a class or a module is; the rule and its lists are
in ``names.py``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.names import ALLOWED, ROOT, gerunds, unknown_words, vague_names


class NameTests(SynchronousTestCase):
    """All modules of the product."""

    def test_no_name_is_a_participle_or_an_adverb(self) -> None:
        """A variable, an attribute, a parameter and a function have other names."""
        self.assertEqual([f"{path}:{line}: {name}" for path, line, name in vague_names()], [])

    def test_no_class_and_no_module_is_a_gerund(self) -> None:
        """The name is an agent noun, or the noun of the content."""
        self.assertEqual([f"{path}:{line}: {name}" for path, line, name in gerunds()], [])

    def test_a_public_name_of_one_word_is_a_word_of_the_field(self) -> None:
        """The list of these words is ``one_word_names.txt``."""
        self.assertEqual([f"{path}:{line}: {name}" for path, line, name in unknown_words()], [])

    def test_each_exception_is_needed(self) -> None:
        """A file without such a name must be removed from the list."""
        for path, (names, _) in ALLOWED.items():
            text = (ROOT / path).read_text()
            for name in names:
                self.assertIn(name, text, msg=path)
