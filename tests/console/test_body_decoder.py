"""Bodies for display."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.body_decoder import TEXT_CHARS_MAX, _decoded, body_preview


class BodyTests(SynchronousTestCase):
    """Bodies of strangers."""

    def test_kinds(self) -> None:
        """Each body has the kind that it reads as."""
        for body, kind, text in (
                (b"", "empty", ""), (b"hello\nyou", "text", "hello\nyou"),
                ("gr\u00fc\u00dfe".encode(), "text", "gr\u00fc\u00dfe"),
                (b'{"a":[1,2]}', "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
                (b"{not json", "text", "{not json"),
                (msgspec.msgpack.encode({"a": b"\xff"}), "msgpack", '{\n  "a": "ff"\n}'),
                (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
                (b"\xff\xfe\x00", "bytes", f"00000000  {'ff fe 00':<48} ..."),
                (b"a\x1b[31m", "bytes", f"00000000  {'61 1b 5b 33 31 6d':<48} a.[31m")):
            decoded = _decoded(body)
            self.assertEqual((decoded.kind, decoded.text, decoded.size), (kind, text, len(body)),
                             msg=repr(body))

    def test_large_and_deep_bodies(self) -> None:
        """The text of such a body is cut, and the page still gives the size of the whole body."""
        large = _decoded("\u20ac".encode() * 2_000_000)
        self.assertEqual((large.kind, len(large.text), large.is_cut, large.size),
                         ("text", TEXT_CHARS_MAX, True, 6_000_000))
        packed = _decoded(b"\xff" * 4_000_000)
        self.assertEqual((packed.kind, packed.is_cut), ("bytes", True))
        self.assertLess(len(packed.text), 30_000)
        self.assertEqual(_decoded(b"[" * 100_000).kind, "text")
        self.assertEqual(_decoded(b"\x91" * 100_000).kind, "bytes")

    def test_previews_are_one_short_line(self) -> None:
        """A list has a line for each message."""
        self.assertEqual(body_preview(_decoded(b"a\n b")), "a b")
        self.assertEqual(body_preview(_decoded(b"\x00\x01")), "2 bytes")
        self.assertEqual(body_preview(_decoded(b"x" * 500)), "x" * 160 + "...")
