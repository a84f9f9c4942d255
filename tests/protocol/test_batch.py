"""The body of a batch send, whole and damaged."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.batch import (
    BATCH_COUNT_MAX,
    count_batch,
    decode_batch,
    decode_batch_part,
    encode_batch,
    is_longer_batch,
)
from twistmq.protocol.errors import MessageIllegal

#: One message as MessageDecoder.encodeMessage lays it out: flag 7, body "hi", property a=9.
ONE = (
    struct.pack(">i", 22 + 2 + 4)  # total size
    + struct.pack(">ii", 0, 0)  # magic, crc: not used
    + struct.pack(">i", 7)  # flag
    + struct.pack(">i", 2)
    + b"hi"
    + struct.pack(">h", 4)
    + b"a\x019\x02"
)

#: (what is wrong, body, part of the error).
MALFORMED = [
    ("empty", b"", "no message"),
    ("one byte", b"\0", "too few"),
    ("head cut", ONE[:21], "too few"),
    ("tail cut", ONE[:-1], "size 28"),
    ("size zero", struct.pack(">i", 0) + ONE[4:], "size 0"),
    ("size negative", struct.pack(">i", -1) + ONE[4:], "size -1"),
    ("size too large", struct.pack(">i", 29) + ONE[4:], "size 29"),
    ("size too small", struct.pack(">i", 27) + ONE[4:], "properties length 4"),
    ("body negative", ONE[:16] + struct.pack(">i", -1) + ONE[20:], "body length -1"),
    ("body too long", ONE[:16] + struct.pack(">i", 7) + ONE[20:], "body length 7"),
    ("properties negative", ONE[:22] + struct.pack(">h", -1) + ONE[24:], "properties length -1"),
    ("second cut", ONE + ONE[:10], "message 1 of the batch, at byte 28"),
]


class BatchTests(SynchronousTestCase):
    """The functions decode_batch and encode_batch."""

    def test_decodes_one(self) -> None:
        """The layout of the notes gives flag, body and properties."""
        self.assertEqual(decode_batch(ONE), [(7, b"hi", "a\x019\x02")])

    def test_encodes_one(self) -> None:
        """The encoder gives the same bytes."""
        self.assertEqual(encode_batch([(7, b"hi", "a\x019\x02")]), ONE)

    def test_refuses_malformed(self) -> None:
        """The error of each kind of damage has its place."""
        for name, body, text in MALFORMED:
            for read in (decode_batch, count_batch):
                error = self.assertRaises(MessageIllegal, read, body)
                self.assertIn(text, str(error), msg=name)

    def test_a_batch_read_in_parts_is_the_same(self) -> None:
        """The result is the same, and an error has the number of the message."""
        whole = ONE * 5
        messages, position = decode_batch_part(whole, 0, 0, 3)
        self.assertEqual((len(messages), position), (3, 3 * len(ONE)))
        rest, position = decode_batch_part(whole, position, 3, 3)
        self.assertEqual((messages + rest, position), (decode_batch(whole), len(whole)))
        error = self.assertRaises(
            MessageIllegal, decode_batch_part, whole[:-1], 3 * len(ONE), 3, 3)
        self.assertIn("message 4 of the batch", str(error))

    def test_messages_are_counted_without_being_read(self) -> None:
        """Messages are counted without being read."""
        self.assertEqual(count_batch(ONE * 7), 7)
        for count, is_longer in ((6, True), (7, False), (8, False)):
            self.assertEqual(is_longer_batch(ONE * 7, count), is_longer, msg=str(count))
        # A body that is not a batch is not longer than any count, and takes no time.
        for size in (0, -1, 21, 2**31 - 1):
            body = struct.pack(">i", size) + bytes(2000)
            self.assertFalse(is_longer_batch(body, 5), msg=str(size))

    def test_one_message_beyond_apaches_count_is_refused(self) -> None:
        """As many messages as Apache's broker counts are accepted, and one more is not."""
        least = encode_batch([(0, b"", "")])
        most = least * BATCH_COUNT_MAX
        self.assertEqual((count_batch(most), len(decode_batch(most))),
                         (BATCH_COUNT_MAX, BATCH_COUNT_MAX))
        for read in (decode_batch, count_batch):
            error = self.assertRaises(MessageIllegal, read, most + least)
            self.assertIn("more than 32767", str(error))

    def test_refuses_every_cut(self) -> None:
        """A body cut anywhere but between messages is refused whole."""
        whole = ONE * 3
        for end in range(1, len(whole)):
            if end % len(ONE):
                self.assertRaises(MessageIllegal, decode_batch, whole[:end])

    def test_refuses_long_properties(self) -> None:
        """Properties that int16 cannot count are refused."""
        self.assertRaises(MessageIllegal, encode_batch, [(0, b"", "x" * 32768)])

    @given(st.binary(max_size=200))
    def test_never_fails_otherwise(self, body: bytes) -> None:
        """Any bytes give messages or MessageIllegal."""
        try:
            messages = decode_batch(body)
        except MessageIllegal:
            return
        self.assertTrue(messages)

    @given(
        st.lists(
            st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(), st.text(max_size=100)),
            min_size=1,
        )
    )
    def test_round_trip(self, messages: list[tuple[int, bytes, str]]) -> None:
        """Any messages are equal after encoding and decoding."""
        self.assertEqual(decode_batch(encode_batch(messages)), messages)
