"""Frames that arrive whole or byte by byte, with bytes after them, and every malformed one."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.frame import (
    FRAME_SIZE_MAX,
    JSON,
    LONG_FRAME_HEADER_SIZE_MAX,
    LONG_FRAME_SIZE_MAX,
    ROCKETMQ,
    Frame,
    FrameDecoder,
    encode_frame,
)

#: (name, bytes on the wire, the frames they are).
FRAMES: list[tuple[str, bytes, list[Frame]]] = [
    ("empty header and body", struct.pack(">iI", 4, 0), [(JSON, b"", b"")]),
    ("header only", struct.pack(">iI", 6, 2) + b"{}", [(JSON, b"{}", b"")]),
    ("body only", struct.pack(">iI", 7, 0) + b"abc", [(JSON, b"", b"abc")]),
    ("both", struct.pack(">iI", 9, 2) + b"{}abc", [(JSON, b"{}", b"abc")]),
    ("binary", struct.pack(">iI", 9, 1 << 24 | 2) + b"hhabc", [(ROCKETMQ, b"hh", b"abc")]),
    ("two", (struct.pack(">iI", 5, 1) + b"a") + (struct.pack(">iI", 5, 0) + b"b"),
     [(JSON, b"a", b""), (JSON, b"", b"b")]),
    ("body that looks like a frame", struct.pack(">iI", 12, 0) + struct.pack(">iI", 4, 0),
     [(JSON, b"", struct.pack(">iI", 4, 0))]),
]

#: (what is wrong, the first eight bytes, part of the failure).
MALFORMED = [
    ("length zero", struct.pack(">iI", 0, 0), "length 0 is less than 4"),
    ("length three", struct.pack(">iI", 3, 0), "length 3 is less than 4"),
    ("length negative", struct.pack(">iI", -1, 0), "length -1 is less than 4"),
    ("length over the limit", struct.pack(">iI", FRAME_SIZE_MAX + 1, 0), "over the limit"),
    ("length of text", b"GET / HT", "over the limit"),
    ("header longer than the frame", struct.pack(">iI", 10, 7), "header length 7 is more"),
    ("serialise type 2", struct.pack(">iI", 10, 2 << 24), "serialise type 2"),
    ("serialise type 255", struct.pack(">iI", 10, 255 << 24), "serialise type 255"),
]

frames = st.lists(
    st.tuples(st.sampled_from([JSON, ROCKETMQ]), st.binary(max_size=40), st.binary(max_size=40)),
    max_size=6,
)


class LongFrameTests(SynchronousTestCase):
    """Frames that are longer than they may be, and passed over."""

    def setUp(self) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self.answer = True
        self.decoder = FrameDecoder(self.pass_over)

    def pass_over(self, serialize_type: int, header: bytes) -> bool:
        self.asked.append((serialize_type, header))
        return self.answer

    def test_what_is_behind_is_read(self) -> None:
        """The body is dropped however it arrives, and the next frame is read."""
        body = bytes(FRAME_SIZE_MAX)
        long = struct.pack(">iI", 4 + 2 + len(body), 2) + b"{}" + body
        stream = encode_frame(JSON, b"a", b"b") + long + long + encode_frame(ROCKETMQ, b"c", b"d")
        expected = [(JSON, b"a", b"b"), (ROCKETMQ, b"c", b"d")]
        self.assertEqual(self.decoder.feed(stream), expected)
        for size in (65_536, 1_000_003, FRAME_SIZE_MAX + 1):
            found: list[Frame] = []
            for start in range(0, len(stream), size):
                found += self.decoder.feed(stream[start:start + size])
                self.assertLess(self.decoder.pending_bytes, 20)
            self.assertEqual(found, expected, msg=str(size))
        first = b"".join([stream[i:i + 1] for i in range(40)])
        found = [frame for i in range(40) for frame in self.decoder.feed(first[i:i + 1])]
        found += self.decoder.feed(stream[40:])
        self.assertEqual(found, expected)
        self.assertEqual(self.asked, [(JSON, b"{}")] * 10)
        self.assertEqual((self.decoder.failure, self.decoder.pending_bytes), ("", 0))

    def test_who_does_not_want_it(self) -> None:
        """The stream is broken then, as for a caller that is not asked."""
        self.answer = False
        long = struct.pack(">iI", FRAME_SIZE_MAX + 1, 2) + b"{}"
        self.assertEqual(self.decoder.feed(long), [])
        self.assertIn("over the limit", self.decoder.failure)

    def test_what_is_no_frame_is_not_waited_for(self) -> None:
        """Bytes of another protocol do not begin a frame of a gigabyte."""
        for data in (b"GET / HT", struct.pack(">iI", LONG_FRAME_SIZE_MAX + 1, 2),
                     struct.pack(">iI", FRAME_SIZE_MAX + 1, LONG_FRAME_HEADER_SIZE_MAX + 1),
                     struct.pack(">iI", FRAME_SIZE_MAX + 1, 2 << 24)):
            decoder = FrameDecoder(self.pass_over)
            self.assertEqual(decoder.feed(data), [])
            self.assertNotEqual(decoder.failure, "", msg=repr(data))
        self.assertEqual(self.asked, [])


class FrameDecoderTests(SynchronousTestCase):
    """The class FrameDecoder."""

    def test_bytes_that_come_at_once_give_their_frames(self) -> None:
        """Bytes that arrive together give their frames."""
        for name, data, expected in FRAMES:
            decoder = FrameDecoder()
            self.assertEqual(decoder.feed(data), expected, msg=name)
            self.assertEqual((decoder.failure, decoder.pending_bytes), ("", 0), msg=name)

    def test_byte_by_byte(self) -> None:
        """Single bytes give the same frames, each with its last byte."""
        for name, data, expected in FRAMES:
            decoder = FrameDecoder()
            got = [frame for i in range(len(data)) for frame in decoder.feed(data[i : i + 1])]
            self.assertEqual(got, expected, msg=name)
            self.assertEqual((decoder.failure, decoder.pending_bytes), ("", 0), msg=name)

    def test_trailing_bytes(self) -> None:
        """A piece of the next frame waits and is counted."""
        following = encode_frame(JSON, b"{}", b"body")
        for name, data, expected in FRAMES:
            for cut in range(1, len(following)):
                decoder = FrameDecoder()
                self.assertEqual(decoder.feed(data + following[:cut]), expected, msg=name)
                self.assertEqual(decoder.pending_bytes, cut, msg=name)
                self.assertEqual(decoder.feed(following[cut:]), [(JSON, b"{}", b"body")], msg=name)

    def test_frames_before_a_broken_one_are_given_and_none_after(self) -> None:
        """The error names the rule; whole frames before it are returned."""
        good = encode_frame(JSON, b"{}", b"")
        for name, data, text in MALFORMED:
            decoder = FrameDecoder()
            self.assertEqual(decoder.feed(good + data), [(JSON, b"{}", b"")], msg=name)
            self.assertIn(text, decoder.failure, msg=name)
            self.assertEqual(decoder.feed(good), [], msg=name)
            self.assertEqual(decoder.pending_bytes, 0, msg=name)

    def test_malformed_byte_by_byte(self) -> None:
        """A malformed frame is recognised by its first eight bytes."""
        for name, data, text in MALFORMED:
            decoder = FrameDecoder()
            for i in range(7):
                decoder.feed(data[i : i + 1])
                self.assertEqual(decoder.failure, "", msg=name)
            self.assertEqual(decoder.feed(data[7:]), [], msg=name)
            self.assertIn(text, decoder.failure, msg=name)

    def test_largest_frame(self) -> None:
        """A frame of the largest length passes, in pieces as a connection reads them."""
        body = bytes(FRAME_SIZE_MAX - 4)
        data = encode_frame(JSON, b"", body)
        decoder = FrameDecoder()
        got = [frame for i in range(0, len(data), 65536)
               for frame in decoder.feed(data[i : i + 65536])]
        self.assertEqual([(kind, header, len(rest)) for kind, header, rest in got],
                         [(JSON, b"", len(body))])
        self.assertEqual(decoder.failure, "")

    @given(frames, st.lists(st.integers(1, 30), min_size=1, max_size=20))
    def test_any_cut(self, expected: list[Frame], sizes: list[int]) -> None:
        """The frames are the same, wherever the stream is cut."""
        data = b"".join(encode_frame(*frame) for frame in expected)
        decoder = FrameDecoder()
        got: list[Frame] = []
        position = turn = 0
        while position < len(data):
            size = sizes[turn % len(sizes)]
            got += decoder.feed(data[position : position + size])
            position += size
            turn += 1
        self.assertEqual(got, expected)
        self.assertEqual(decoder.pending_bytes, 0)

    @given(st.lists(st.binary(max_size=40), max_size=10))
    def test_any_bytes(self, pieces: list[bytes]) -> None:
        """Any bytes give frames that encode to a beginning of them, or an error."""
        decoder = FrameDecoder()
        got = [frame for piece in pieces for frame in decoder.feed(piece)]
        data = b"".join(pieces)
        again = b"".join(encode_frame(*frame) for frame in got)
        self.assertTrue(data.startswith(again))
        if not decoder.failure:
            self.assertEqual(decoder.pending_bytes, len(data) - len(again))
