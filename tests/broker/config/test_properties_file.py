"""Java's properties format, as java.util.Properties reads it, and as we write it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.properties_file import decode_properties, parse_properties, with_changes
from twistmq.broker.errors import SettingsError

#: (case, text, entries); java.util.Properties of JDK 17 reads the same pairs from each.
CASES = [
    ("equals sign", "a=1\n", {"a": "1"}),
    ("colon", "a:1\n", {"a": "1"}),
    ("blank as separator", "a 1\n", {"a": "1"}),
    ("blanks around the separator", "  a \t= \t1\n", {"a": "1"}),
    ("a second separator belongs to the value", "a==1\nb: =2", {"a": "=1", "b": "=2"}),
    ("trailing blanks are kept", "a=1 \n", {"a": "1 "}),
    ("no value", "a\nb=\n", {"a": "", "b": ""}),
    ("no key", "=1\n", {"": "1"}),
    ("comments", "#a=1\n!b=2\n  # c=3\n\n \t\nd=4#5\n", {"d": "4#5"}),
    ("a comment is not continued", "# x \\\na=1\n", {"a": "1"}),
    ("continued", "a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
    ("an even number of backslashes does not continue", "a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("continued at the end of the file", "a=1\\", {"a": "1"}),
    ("a continued key", "na\\\n  me=1", {"name": "1"}),
    ("a comment sign in a continuation is text", "a=1\\\n#2\n", {"a": "1#2"}),
    ("a lone backslash before an empty line is nothing", "\\\n\na=1", {"a": "1"}),
    ("escaped separators", "a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
    ("control escapes", "a=\\t\\n\\r\\f|", {"a": "\t\n\r\f|"}),
    ("other escapes are the character", "a=\\q\\\\\\\"", {"a": 'q\\"'}),
    ("unicode escapes", "caf\\u00e9=\\u4f60\\uD83D\\uDE00", {"caf\u00e9": "\u4f60\U0001f600"}),
    ("carriage returns end lines", "a=1\rb=2\r\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("other separators of lines do not", "a=1\x0b2\u20283\x854", {"a": "1\x0b2\u20283\x854"}),
    ("the last of two", "a=1\na=2\n", {"a": "2"}),
]


def pairs(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse_properties(text)}


class ParsePropertiesTests(SynchronousTestCase):
    """The parser."""

    def test_each_form_of_the_grammar_is_parsed(self) -> None:
        """Each form of the grammar is parsed."""
        for case, text, expected in CASES:
            self.assertEqual(pairs(text), expected, msg=case)

    def test_an_entry_knows_its_lines(self) -> None:
        """An entry has the numbers of its lines, with comments and joined lines counted."""
        text = "# one\n\na=1\\\n 2\nb=3\n"
        lines = [(entry.key, entry.first, entry.last) for entry in parse_properties(text)]
        self.assertEqual(lines, [("a", 3, 4), ("b", 5, 5)])

    def test_bad_escape_names_the_place(self) -> None:
        """The error of a broken Unicode escape names its place."""
        for text in ("ok=1\na=\\u12x4\n", "ok=1\na=\\u12"):
            error = self.assertRaises(SettingsError, parse_properties, text, "broker.conf")
            self.assertIn("broker.conf:2", str(error))

    def test_utf_8_is_read_as_utf_8(self) -> None:
        """UTF-8 is read as UTF-8, and other bytes as Latin-1."""
        self.assertEqual(decode_properties("a=\u4f60".encode()), ("a=\u4f60", "utf-8"))
        self.assertEqual(decode_properties(b"a=\xe9"), ("a=\xe9", "latin-1"))


class WithChangesTests(SynchronousTestCase):
    """The changes of a text."""

    def test_keeps_the_rest(self) -> None:
        """Only the lines of changed keys change; a new key is added at the end."""
        text = "# mine\n\na = 1\\\n  2\n  b: 3  \n! end\n"
        self.assertEqual(with_changes(text, {"a": "9", "c": "7"}),
                         "# mine\n\na=9\n  b: 3  \n! end\nc=7\n")

    def test_changes_the_entry_that_counts(self) -> None:
        """Of two entries with one key, the later one is changed."""
        self.assertEqual(pairs(with_changes("a=1\nb=2\na=3\n", {"a": "4"})), {"a": "4", "b": "2"})

    def test_without_a_change_the_text_stays(self) -> None:
        """Without changes the text stays as it is, except that its last line is ended."""
        self.assertEqual(with_changes("a=1", {}), "a=1\n")
        self.assertEqual(with_changes("", {}), "")

    def test_after_an_open_end(self) -> None:
        """A new key is not joined to a last line that ends with a backslash."""
        for text in ("a=1\\", "a=1\\\n", "a=1\\\n\n"):
            self.assertEqual(pairs(with_changes(text, {"b": "2"})), {"a": "1", "b": "2"}, msg=text)

    @given(st.dictionaries(st.text(), st.text(), max_size=4),
           st.dictionaries(st.text(), st.text(), max_size=4))
    def test_reads_back(self, before: dict[str, str], changes: dict[str, str]) -> None:
        """Any keys and values are read back as they were written over an existing text."""
        text = with_changes(with_changes("# first\n", before), changes)
        self.assertEqual(pairs(text), before | changes)
        self.assertTrue(text.isascii())
