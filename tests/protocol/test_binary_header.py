"""The binary header: its layout, and every length that points outside it."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.binary_header import (
    LANGUAGES,
    BinaryHeaderError,
    decode_binary_header,
    encode_binary_header,
    parse_pairs,
)

#: code 310, JAVA, version 479, opaque 12, flag 2, remark "no", pairs {"a": "g"}.
PAIR = struct.pack(">h", 1) + b"a" + struct.pack(">i", 1) + b"g"
WHOLE = (
    struct.pack(">hbhii", 310, 0, 479, 12, 2)
    + struct.pack(">i", 2) + b"no"
    + struct.pack(">i", len(PAIR)) + PAIR
)
FIXED = WHOLE[:13]

#: (what is wrong, header, part of the error).
MALFORMED = [
    ("empty", b"", "0 bytes"),
    ("short", WHOLE[:20], "20 bytes"),
    ("remark negative", FIXED + struct.pack(">ii", -1, 0), "remark length -1"),
    ("remark too long", FIXED + struct.pack(">ii", 1, 0), "remark length 1"),
    ("remark not UTF-8", FIXED + struct.pack(">i", 1) + b"\xff" + struct.pack(">i", 0), "UTF-8"),
    ("pairs negative", FIXED + struct.pack(">ii", 0, -1), "extFields length -1"),
    ("pairs too long", FIXED + struct.pack(">ii", 0, 1), "extFields length 1"),
]

#: (what is wrong, pairs, part of the error).
MALFORMED_PAIRS = [
    ("one byte", b"\0", "inside a name's length"),
    ("name too long", struct.pack(">h", 9) + b"a", "name length 9"),
    ("name negative", struct.pack(">h", -1) + bytes(70000), "name length 65535"),
    ("no value length", struct.pack(">h", 1) + b"a\0\0", "name length 1"),
    ("value too long", struct.pack(">h", 1) + b"a" + struct.pack(">i", 2) + b"g", "value length 2"),
    ("value negative", struct.pack(">h", 1) + b"a" + struct.pack(">i", -1), "value length"),
    ("name not UTF-8", struct.pack(">h", 1) + b"\xff" + struct.pack(">i", 0), "UTF-8"),
    ("value not UTF-8", PAIR[:-1] + b"\xff", "UTF-8"),
    ("second cut", PAIR + PAIR[:-1], "value length 1"),
]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


class BinaryHeaderTests(SynchronousTestCase):
    """decode_binary_header, parse_pairs and encode_binary_header."""

    def test_the_layout_of_the_notes_gives_each_field(self) -> None:
        """The bytes of the layout in the notes give each field."""
        self.assertEqual(decode_binary_header(WHOLE), (310, "JAVA", 479, 12, 2, "no", PAIR))
        self.assertEqual(parse_pairs(PAIR), {"a": "g"})

    def test_encoding_gives_the_same_bytes(self) -> None:
        """The encoder gives the same bytes."""
        self.assertEqual(encode_binary_header(310, "JAVA", 479, 12, 2, "no", {"a": "g"}), WHOLE)

    def test_nothing_given(self) -> None:
        """A length of 0 means no remark or no fields."""
        data = encode_binary_header(1, "JAVA", 479, 12, 0, None, {})
        self.assertEqual(len(data), 21)
        self.assertEqual(decode_binary_header(data)[5:], (None, b""))
        self.assertEqual(parse_pairs(b""), {})

    def test_an_unknown_language_is_other(self) -> None:
        """Each language keeps its name; an unknown number or name is OTHER."""
        for number, name in enumerate(LANGUAGES):
            data = encode_binary_header(1, name, 0, 0, 0, None, {})
            self.assertEqual((data[2], decode_binary_header(data)[1]), (number, name))
        unknown = WHOLE[:2] + b"\x63" + WHOLE[3:]
        self.assertEqual(decode_binary_header(unknown)[1], "OTHER")
        self.assertEqual(encode_binary_header(1, "COBOL", 0, 0, 0, None, {})[2],
                         LANGUAGES.index("OTHER"))

    def test_each_wrong_length_is_refused_with_its_name(self) -> None:
        """The error names the wrong length."""
        for name, data, part in MALFORMED:
            error = self.assertRaises(BinaryHeaderError, decode_binary_header, data)
            self.assertIn(part, str(error), msg=name)

    def test_malformed_pairs(self) -> None:
        """A wrong length of a pair is refused as well."""
        for name, data, part in MALFORMED_PAIRS:
            error = self.assertRaises(BinaryHeaderError, parse_pairs, data)
            self.assertIn(part, str(error), msg=name)

    @given(int16, st.sampled_from(LANGUAGES), int16, int32, int32, st.none() | text,
           st.dictionaries(text, text, max_size=5))
    def test_round_trip(
        self, code: int, language: str, version: int, opaque: int, flag: int, remark: str | None,
        fields: dict[str, str],
    ) -> None:
        """A header is equal after encoding and decoding; an empty remark becomes None."""
        data = encode_binary_header(code, language, version, opaque, flag, remark, fields)
        *common, pairs = decode_binary_header(data)
        self.assertEqual(common, [code, language, version, opaque, flag, remark or None])
        self.assertEqual(parse_pairs(pairs), fields)

    @given(st.binary(max_size=60), st.integers(0, len(WHOLE)), st.binary(max_size=4))
    def test_any_bytes(self, data: bytes, place: int, patch: bytes) -> None:
        """Random bytes, and a good header with random bytes, are decoded or refused."""
        for header in (data, WHOLE[:place] + patch + WHOLE[place + len(patch) :]):
            try:
                parse_pairs(decode_binary_header(header)[-1])
            except BinaryHeaderError:
                continue
