"""The stream between a slave and its master, in parts of any size."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.ha.frames import (
    BODY_SIZE_MAX,
    HEAD_SIZE,
    Frame,
    FrameReader,
    ReportReader,
    StreamBroken,
    encode_head,
    encode_report,
)

FILE_SIZE = 1 << 21


class BytesTests(SynchronousTestCase):
    """The bytes that Apache's brokers send, as they were captured."""

    def test_as_java_writes_them(self) -> None:
        """The request of an empty slave, a heartbeat, the head of a transfer."""
        self.assertEqual(encode_report(0).hex(), "0000000000000000")
        self.assertEqual(encode_head(2818960, 0).hex(), "00000000002b039000000000")
        self.assertEqual(encode_head(2818048, 912).hex(), "00000000002b000000000390")

    def test_what_cannot_be_sent(self) -> None:
        """An offset before the log, and a frame that is too long for a Java slave, are errors."""
        self.assertRaises(AssertionError, encode_report, -1)
        for offset, size in ((-1, 0), (0, -1), (0, BODY_SIZE_MAX + 1)):
            self.assertRaises(AssertionError, encode_head, offset, size)


class ReportReaderTests(SynchronousTestCase):
    """The reports that a master reads."""

    def test_split_at_every_byte(self) -> None:
        """The reports are the same, however their bytes are split."""
        wanted = [0, 912, 2**62, -5]
        data = b"".join(each.to_bytes(8, "big", signed=True) for each in wanted)
        for split in range(len(data) + 1):
            reader = ReportReader()
            self.assertEqual(reader.feed(data[:split]) + reader.feed(data[split:]), wanted)
        reader = ReportReader()
        self.assertEqual([each for at in range(len(data)) for each in reader.feed(
            data[at : at + 1])], wanted)


class FrameReaderTests(SynchronousTestCase):
    """The frames that a slave reads."""

    def setUp(self) -> None:
        self.frames = [Frame(2818048, b"a" * 912), Frame(2818960, b""), Frame(2818960, b"b" * 7),
                       Frame(2 * FILE_SIZE - 3, b"ccc"), Frame(2 * FILE_SIZE, b"d")]
        self.data = b"".join(encode_head(each.offset, len(each.data)) + each.data
                             for each in self.frames)

    def test_split_at_every_byte(self) -> None:
        """The frames are the same, however their bytes are split, and no byte remains."""
        for split in range(len(self.data) + 1):
            reader = FrameReader(FILE_SIZE)
            self.assertEqual(
                reader.feed(self.data[:split]) + reader.feed(self.data[split:]), self.frames)
            self.assertEqual(reader.pending_bytes, 0)

    def test_parts_of_random_sizes(self) -> None:
        """The frames are read in parts as a socket delivers them."""
        for seed in range(200):
            chance, reader, at = random.Random(seed), FrameReader(FILE_SIZE), 0
            frames: list[Frame] = []
            while at < len(self.data):
                size = chance.choice((1, 2, 11, 12, 13, 300, 1000))
                frames += reader.feed(self.data[at : at + size])
                at += size
            self.assertEqual(frames, self.frames)

    def test_a_head_that_cannot_be_is_refused_at_once(self) -> None:
        """Before a byte behind it is waited for: a negative place or size, one that is too long."""
        good = encode_head(0, 2) + b"xy"
        for bad in (b"\xff" * HEAD_SIZE, b"HTTP/1.1 400 Bad", bytes(8) + b"\xff\xff\xff\xff",
                    bytes(8) + (BODY_SIZE_MAX + 1).to_bytes(4, "big")):
            self.assertRaises(StreamBroken, FrameReader(1 << 30).feed, good + bad)

    def test_a_frame_over_the_end_of_a_file_names_the_setting(self) -> None:
        """A master whose files have another size would be cut at the wrong positions."""
        reader = FrameReader(FILE_SIZE)
        error = self.assertRaises(StreamBroken, reader.feed, encode_head(FILE_SIZE - 3, 4))
        self.assertIn("mappedFileSizeCommitLog", str(error))
