"""Bodies that are packed."""

from __future__ import annotations

import zlib

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge.records import unpacked
from twistmq.spark_bridge import bodies


class DecompressTests(SynchronousTestCase):
    """One body."""

    def test_each_type(self) -> None:
        """zlib with and without its number, LZ4 frames and ZSTD; what is not packed is kept."""
        import pyarrow as pa

        body = b"message " * 1000
        packed = {0x001: zlib.compress(body), 0x301: zlib.compress(body),
                  0x101: pa.compress(body, "lz4", asbytes=True),
                  0x201: pa.compress(body, "zstd", asbytes=True), 0x300: body, 0: body}
        for sys_flag, data in packed.items():
            self.assertEqual(bodies.decompress(data, sys_flag), body, msg=hex(sys_flag))
            self.assertEqual(unpacked(data, sys_flag), body, msg=hex(sys_flag))

    def test_a_body_made_to_fill_memory(self) -> None:
        """What unpacks to more than the limit is refused before it is all there."""
        import pyarrow as pa

        self.patch(bodies, "BODY_SIZE_MAX", 1000)
        for sys_flag, pack in ((1, zlib.compress), (0x101, lambda data: pa.compress(
                data, "lz4", asbytes=True))):
            self.assertEqual(len(bodies.decompress(pack(bytes(1000)), sys_flag)), 1000)
            error = self.assertRaises(bodies.BodyError, bodies.decompress, pack(bytes(1001)),
                                      sys_flag)
            self.assertIn("more than 1000", str(error))
