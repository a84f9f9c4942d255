"""The lines that ``twistmq produce`` reads."""

from __future__ import annotations

import io
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.commands import lines
from twistmq.client.commands.lines import read_messages


class _Pieces(io.BytesIO):
    """A pipe that delivers a few bytes at a time.

    :param size: how many.
    """

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(self._size, size if size and size > 0 else self._size))


def bodies(data: bytes, size: int = 1 << 16, delimiter: bytes = b"\n", **how: Any) -> list[bytes]:
    """The bodies of the messages in a file that is read in such pieces."""
    return [message.body for message in read_messages(
        [_Pieces(data, size)], "T", delimiter, b"", {}, "", how.get("is_json", False), 0)]


class PartTests(SynchronousTestCase):
    """Messages in a file."""

    def test_delimiters_are_found_wherever_a_read_ends(self) -> None:
        """A delimiter may have several bytes, and the last message may lack it."""
        for delimiter in (b"\n", b"::", b"abab"):
            parts = [b"one", b"", b"t" * 50, b"aba", b"last"]
            data = delimiter.join(parts)
            for size in range(1, 12):
                self.assertEqual(bodies(data, size, delimiter),
                                 [part for part in data.split(delimiter) if part],
                                 msg=f"{delimiter!r} {size}")

    def test_a_long_line_is_not_searched_again_for_each_read(self) -> None:
        """Only the bytes of the last read are copied and searched."""
        data = b"x" * 300_000
        searched: list[int] = []

        class Counted(bytearray):
            def find(self, sub: Any, *bounds: Any) -> int:
                searched.append(len(self) - bounds[0])
                return super().find(sub, *bounds)

        vars(lines)["bytearray"] = Counted
        self.addCleanup(vars(lines).pop, "bytearray")
        self.assertEqual(bodies(data, 1000), [data])
        self.assertEqual(sum(searched), len(data))

    def test_a_line_longer_than_any_message_is_refused(self) -> None:
        """Before all of it is read; the lines in front of it are messages."""
        self.patch(lines, "_PART_SIZE_MAX", 1000)
        self.assertEqual(bodies(b"x" * 1000, 100), [b"x" * 1000])
        found: list[bytes] = []
        file = _Pieces(b"a\nb\n" + b"x" * 5000, 100)
        with self.assertRaises(ValueError) as caught:
            for message in read_messages([file], "T", b"\n", b"", {}, "", False, 0):
                found.append(message.body)
        self.assertIn("line 3 has over 1000 bytes", str(caught.exception))
        self.assertEqual(found, [b"a", b"b"])
        self.assertLess(file.tell(), 1200)

    def test_deep_json_names_its_line(self) -> None:
        """Deep JSON is treated like any other line that is not a message."""
        error = self.assertRaises(ValueError, bodies, b'{"body":"x"}\n' + b"[" * 100_000,
                                  is_json=True)
        self.assertIn("line 2: its brackets are nested too deep", str(error))
