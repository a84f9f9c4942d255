"""The codecs of bodies: Java's bodies, limits, missing packages, and serialisers."""

from __future__ import annotations

import base64
import lzma
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.client.base import codecs
from twistmq.client.base.codecs import (
    CODECS,
    FRAMES_MAX,
    Serialiser,
    check_codec,
    compress,
    decompress,
    json_of,
    msgpack_of,
    raw,
    text,
)
from twistmq.client.base.errors import OptionError, Undecodable
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_LZ4,
    SYS_COMPRESSION_ZLIB,
    SYS_COMPRESSION_ZSTD,
)

#: The packages of the extra.
PACKAGES: Final = ("lz4", "backports", "compression.zstd")
GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden" / "client"
FLAGS: Final = {"zlib": SYS_COMPRESSION_ZLIB, "lz4": SYS_COMPRESSION_LZ4,
                "zstd": SYS_COMPRESSION_ZSTD}


def java_bodies() -> Iterator[tuple[str, int, bytes]]:
    """The codec, the size and the compressed body of each case of the golden file."""
    for line in lzma.decompress((GOLDEN / "bodies.txt.xz").read_bytes()).decode().splitlines():
        name, _, size, body = line.split(" ")
        yield name.lower(), int(size), base64.b64decode(body)


def numbers(size: int) -> bytes:
    """Return the body that the Java program compresses."""
    return b"".join(b"%d " % number for number in range(size))[:size]


class CompressionTests(SynchronousTestCase):
    """Bodies of our codecs and of Java's."""

    def test_bodies_of_java_decompress(self) -> None:
        """Java compressed them with each codec, including empty and large ones."""
        names = set()
        for name, size, body in java_bodies():
            names.add(name)
            self.assertEqual(decompress(body, SYS_COMPRESSED | FLAGS[name]), numbers(size),
                             msg=f"{name} {size}")
        self.assertEqual(names, set(CODECS))

    @given(st.sampled_from(sorted(CODECS)), st.binary(max_size=3000), st.integers(1, 9))
    def test_a_body_comes_back(self, name: str, body: bytes, level: int) -> None:
        """A body is the same after compression at any level; the flag has the codec."""
        packed, sys_flag = compress(body, name, level)
        self.assertEqual(sys_flag, SYS_COMPRESSED | FLAGS[name])
        self.assertEqual(decompress(packed, sys_flag), body)

    def test_blocks_of_lz4_are_independent(self) -> None:
        """Java's reader refuses frames with the bit of linked blocks."""
        packed, _ = compress(numbers(300_000), "lz4")
        self.assertTrue(packed[4] & 0x20)

    def test_type_0_is_zlib_and_a_plain_body_is_left_as_it_is(self) -> None:
        """Clients before 5.0 set no type; a type without the bit has no meaning."""
        self.assertEqual(decompress(zlib.compress(b"a"), SYS_COMPRESSED), b"a")
        self.assertEqual(decompress(b"a", SYS_COMPRESSION_LZ4), b"a")

    def test_frames_that_follow_each_other_are_one_body(self) -> None:
        """A body of LZ4 or Zstandard may have several frames, as Java's streams have."""
        for name in ("lz4", "zstd"):
            packed = compress(b"a" * 10, name)[0] + compress(b"b" * 10, name)[0]
            flag = SYS_COMPRESSED | FLAGS[name]
            self.assertEqual(decompress(packed, flag), b"a" * 10 + b"b" * 10)
            self.assertRaises(Undecodable, decompress, packed, flag, 19)

    def test_a_body_of_many_empty_frames_costs_little(self) -> None:
        """A megabyte of them once took five seconds of CPU for each read of one message."""
        for name in ("lz4", "zstd"):
            frame, sys_flag = compress(b"", name)
            few = frame * (FRAMES_MAX - 1) + compress(b"x", name)[0]
            self.assertEqual(decompress(few, sys_flag), b"x")
            begin = time.process_time()
            error = self.assertRaises(Undecodable, decompress, frame * 400_000, sys_flag)
            self.assertLess(time.process_time() - begin, 0.5)
            self.assertIn("more than 128 frames", str(error))

    def test_a_long_frame_is_decompressed_in_chunks(self) -> None:
        """Frames may end and begin anywhere in a chunk."""
        parts = [random.Random(number).randbytes(size) for number, size in enumerate(
            (200_000, 1, 65_536, 70_000))]
        for name in ("lz4", "zstd"):
            flag = SYS_COMPRESSED | FLAGS[name]
            packed = b"".join(compress(part, name)[0] for part in parts)
            self.assertEqual(decompress(packed, flag), b"".join(parts))
            self.assertRaises(Undecodable, decompress, packed[:-1], flag)
            self.assertRaises(Undecodable, decompress, packed + b"x", flag)

    def test_a_body_made_to_fill_memory_is_refused(self) -> None:
        """It is not decompressed beyond the limit; a body at the limit is accepted."""
        for name in CODECS:
            packed, sys_flag = compress(bytes(100_000), name)
            self.assertEqual(len(decompress(packed, sys_flag, 100_000)), 100_000)
            error = self.assertRaises(Undecodable, decompress, packed, sys_flag, 99_999)
            self.assertIn("more than 99999", str(error))

    def test_a_refused_body_does_not_fill_memory_before(self) -> None:
        """Of 32 MiB no more than the limit is in memory at any time."""
        for name in CODECS:
            packed, sys_flag = compress(bytes(32 << 20), name)
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            self.assertRaises(Undecodable, decompress, packed, sys_flag, 1000)
            self.assertLess(tracemalloc.get_traced_memory()[1], 4 << 20, msg=name)
            tracemalloc.stop()

    def test_a_damaged_body_is_refused(self) -> None:
        """Cut short, of another format, of a type that does not exist."""
        for name in CODECS:
            packed, sys_flag = compress(numbers(1000), name)
            for body in (packed[:-5], packed[:len(packed) // 2], b"", b"no such format"):
                error = self.assertRaises(Undecodable, decompress, body, sys_flag)
                self.assertIn(name, str(error))
        error = self.assertRaises(Undecodable, decompress, b"", SYS_COMPRESSED | 0x400)
        self.assertIn("type 4", str(error))

    def test_a_codec_is_checked_before_it_is_used(self) -> None:
        """A name that is not a codec's is refused, and the error has the names of all codecs."""
        for name in CODECS:
            check_codec(name)
        error = self.assertRaises(OptionError, check_codec, "gzip")
        self.assertIn("zlib, lz4, zstd", str(error))


class MissingTests(SynchronousTestCase):
    """An installation without the extra."""

    def hide(self, *names: str) -> None:
        """Let imports of these modules fail."""
        self.addCleanup(codecs._imported.cache_clear)
        codecs._imported.cache_clear()
        for name in names:
            for each in [name, *(known for known in sys.modules if known.startswith(f"{name}."))]:
                self.patch_module(each)

    def patch_module(self, name: str) -> None:
        """Hide one module until the end of the test."""
        before = sys.modules.get(name)
        self.addCleanup(self.restore, name, before)
        sys.modules[name] = None  # type: ignore[assignment]

    def restore(self, name: str, module: Any) -> None:
        """Make it available again."""
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module

    def test_the_error_names_the_extra(self) -> None:
        """A producer with such a codec is refused, and such a body is not decoded."""
        packed = {name: compress(b"body", name) for name in ("lz4", "zstd")}
        self.hide(*PACKAGES, "pyarrow")
        for name, (body, sys_flag) in packed.items():
            error: Exception = self.assertRaises(OptionError, check_codec, name)
            self.assertIn("twistmq[compression]", str(error))
            error = self.assertRaises(Undecodable, decompress, body, sys_flag)
            self.assertIn("twistmq[compression]", str(error))
            self.assertIn(name, str(error))
        self.assertEqual(decompress(*compress(b"body")), b"body")

    def test_where_arrow_is_installed_it_decompresses_them(self) -> None:
        """With Spark no package more is needed to read, by the same bounds."""
        if find_spec("pyarrow") is None:
            raise SkipTest("the extra spark is not installed: no pyarrow")
        packed = {name: compress(bytes(1000), name) for name in ("lz4", "zstd")}
        self.hide(*PACKAGES)
        for name, (body, sys_flag) in packed.items():
            self.assertEqual(decompress(body, sys_flag, 1000), bytes(1000))
            error: Exception = self.assertRaises(Undecodable, decompress, body, sys_flag, 999)
            self.assertIn("more than 999", str(error))
            error = self.assertRaises(Undecodable, decompress, b"no such format", sys_flag)
            self.assertIn(name, str(error))

    def test_a_codec_is_imported_when_a_body_needs_it(self) -> None:
        """Importing the module needs no package but msgspec."""
        code = ("import sys, twistmq.client.base.codecs; "
                "print([name for name in ('lz4', 'backports.zstd', 'pyarrow', 'twisted') "
                "if name in sys.modules])")
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                check=True).stdout
        self.assertEqual(output.strip(), "[]")


@dataclass
class Order:
    """A value."""

    number: int
    text: str = ""


@dataclass
class Read:
    """A received message."""

    body: Any


class SerialiserTests(SynchronousTestCase):
    """Values and bodies."""

    def test_values_come_back(self) -> None:
        """Text, bytes, and JSON of dataclasses and of plain types."""
        cases: list[tuple[Serialiser[Any], Any, bytes]] = [
            (text, "größe", "größe".encode()), (raw, b"\xff", b"\xff"),
            (json_of(Order), Order(1, "a"), b'{"number":1,"text":"a"}'),
            (json_of(list[int]), [1, 2], b"[1,2]")]
        for serialiser, value, body in cases:
            self.assertEqual(serialiser.encode(value), body)
            self.assertEqual(serialiser.decode(Read(body)), value)
            self.assertEqual(serialiser(Read(body)), value)

    def test_message_pack_has_the_rules_of_json(self) -> None:
        """MessagePack refuses the same values, bodies and types as JSON; its bodies are smaller."""
        orders = msgpack_of(Order)
        body = orders.encode(Order(1, "a"))
        self.assertEqual(body, b"\x82\xa6number\x01\xa4text\xa1a")
        self.assertEqual(orders(Read(body)), Order(1, "a"))
        self.assertEqual(pickle.loads(pickle.dumps(orders)).encode(Order(1, "a")), body)
        error = self.assertRaises(Undecodable, orders, Read(b"{}"))
        self.assertIn("MessagePack of Order", str(error))
        self.assertRaises(OptionError, orders.encode, {"number": 1})
        self.assertRaises(OptionError, msgpack_of, Thread)

    def test_a_body_of_no_value_is_undecodable(self) -> None:
        """The error has the expected type and the place."""
        error = self.assertRaises(Undecodable, json_of(Order), Read(b'{"number":"x"}'))
        self.assertIn("JSON of Order", str(error))
        self.assertIn("$.number", str(error))
        self.assertRaises(Undecodable, json_of(Order), Read(b"{"))
        self.assertRaises(Undecodable, text, Read(b"\xff"))

    def test_a_value_without_a_body_is_refused(self) -> None:
        """The error has the type of the value."""
        error = self.assertRaises(OptionError, json_of(object).encode, object())
        self.assertIn("object", str(error))
        self.assertRaises(OptionError, text.encode, 5)

    def test_json_is_sent_only_of_values_of_its_type(self) -> None:
        """Every consumer would fail to read another value, or would read another type."""
        for kind, value in ((Order, {"number": 1}), (Order, b"raw"), (Order, Order("x")),
                            (str, b"raw"), (int, "1")):
            self.assertRaises(OptionError, json_of(kind).encode, value)
        for kind, value in ((float, 3), (list[int], (1, 2)), (object, [1]), (Any, {"a": 1}),
                            (Order | None, None), (dict, {"a": 1})):
            self.assertTrue(json_of(kind).encode(value))

    def test_a_type_without_json_is_refused_at_once(self) -> None:
        """The same is true if the type is a part of another one."""
        for kind in (Thread, list[Thread], dict[str, Thread], 5):
            self.assertRaises(OptionError, json_of, kind)
