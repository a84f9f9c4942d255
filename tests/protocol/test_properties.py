"""Property texts, and the hashes that are computed for every message."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol import properties
from twistmq.protocol.properties import (
    format_properties,
    index_keys,
    java_hash_joined,
    java_string_hash,
    parse_properties,
    pick_marks,
    pick_properties,
    tags_code,
)

#: What may stand in a name or a value: everything but the two separators.
_TEXT = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1)

#: (property string, what a broker reads from it), checked against Apache's decoder's rules.
PARSE_CASES = [
    ("", {}),
    ("\x02", {}),
    ("a\x019\x02", {"a": "9"}),
    ("a\x019", {"a": "9"}),
    ("a\x01\x02b\x012\x02", {"b": "2"}),
    ("\x01v\x02b\x012\x02", {"b": "2"}),
    ("novalue\x02b\x012\x02", {"b": "2"}),
    ("a\x01x\x01y\x02", {"a": "x\x01y"}),
    ("a\x011\x02a\x012\x02", {"a": "2"}),
    ("a\x011\x02\x02b\x012", {"a": "1", "b": "2"}),
    ("k\x01été 消息\x02", {"k": "été 消息"}),
]

#: (text, String.hashCode in Java).
HASH_CASES = [
    ("", 0),
    ("a", 97),
    ("TagA", 2598919),
    ("hello", 99162322),
    ("TopicTest#k1", 2746024),
    ("polygenelubricants", -2147483648),
    ("é", 233),
    ("消息", 893927),
    ("\U0001f600", 1772899),
    ("\ud83d", 55357),
]


def _reference_hash(text: str) -> int:
    """Return the hash by its definition."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = 31 * code + int.from_bytes(data[position : position + 2], "big")
    return (code + 2**31) % 2**32 - 2**31


class PropertiesTests(SynchronousTestCase):
    """The parser and the formatter of property texts."""

    def test_parses_as_apache_does(self) -> None:
        """Empty names and values are dropped, the last separator is optional."""
        for text, expected in PARSE_CASES:
            self.assertEqual(parse_properties(text), expected, msg=repr(text))

    def test_closes_every_pair(self) -> None:
        """The text ends with a separator, as a 5.x client writes it."""
        self.assertEqual(format_properties({"a": "1", "b": "2"}), "a\x011\x02b\x012\x02")

    @given(st.text("ab\x01\x02"))
    def test_picks_what_it_parses(self, text: str) -> None:
        """In any text, some names have the same values as after a full parse."""
        names = ("a", "b", "ab", "ba")
        parsed, picked = parse_properties(text), pick_properties(text, pick_marks(names))
        for name in names:
            self.assertEqual(picked.get(name), parsed.get(name), msg=f"{name} of {text!r}")

    @given(st.dictionaries(_TEXT, _TEXT))
    def test_round_trip(self, values: dict[str, str]) -> None:
        """Any names and values without separators survive."""
        self.assertEqual(parse_properties(format_properties(values)), values)

    def test_lists_index_keys_in_order(self) -> None:
        """UNIQ_KEY comes first; empty keys between blanks are ignored."""
        found = index_keys({"KEYS": "k1  k2 ", "UNIQ_KEY": "U"})
        self.assertEqual(found, ["U", "k1", "k2"])
        self.assertEqual(index_keys({"KEYS": "one"}), ["one"])
        self.assertEqual(index_keys({"TAGS": "t"}), [])

    def test_names_are_distinct(self) -> None:
        """No two constants are for one property."""
        names = [value for name, value in vars(properties).items() if name.isupper()]
        self.assertEqual(len(names), len(set(names)))


class HashTests(SynchronousTestCase):
    """The hash of a Java string."""

    def test_known_hashes(self) -> None:
        """Values a JVM computed, a lone surrogate and a pair among them."""
        for text, expected in HASH_CASES:
            self.assertEqual(java_string_hash(text), expected, msg=repr(text))

    @given(st.text())
    def test_agrees_with_the_definition(self, text: str) -> None:
        """The shortcut for ASCII and the general path give one result."""
        self.assertEqual(java_string_hash(text), _reference_hash(text))

    @given(st.text(), st.text())
    def test_a_known_prefix_saves_its_characters(self, prefix: str, text: str) -> None:
        """A known prefix saves its characters, not correctness."""
        joined = java_hash_joined(java_string_hash(prefix), text)
        self.assertEqual(joined, _reference_hash(prefix + text))

    def test_no_tag_is_zero(self) -> None:
        """Neither None nor the empty tag has a code."""
        self.assertEqual([tags_code(None), tags_code(""), tags_code("TagA")], [0, 0, 2598919])
