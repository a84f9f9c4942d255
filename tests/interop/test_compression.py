"""The Java client reads bodies that our client has compressed."""

from __future__ import annotations

import base64
import zlib

from tests.interop.clients import JavaTestCase, java_program
from twistmq.client.base.codecs import CODECS, compress


class CompressionTests(JavaTestCase):
    """The module client/base/codecs.py."""

    def test_java_reads_bodies_of_each_codec(self) -> None:
        """The Java client decompresses them to the same bytes, empty and large ones too."""
        bodies = [b"", b"a", b"message " * 10_000, bytes(range(256)) * 20]
        lines = [f"{name.upper()} {base64.b64encode(compress(body, name)[0]).decode()}\n"
                 for name in CODECS for body in bodies]
        (self.folder / "bodies").write_text("".join(lines))
        told = java_program(self.version, "Compression", "read", str(self.folder / "bodies"))
        self.assertEqual(told.splitlines(), [
            f"{len(body)} {zlib.crc32(body)}" for _ in CODECS for body in bodies])
