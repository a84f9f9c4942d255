"""Codecs of message bodies: compression, and serialisers between values and bodies.

The system flag of a record states whether its body is compressed, and with which algorithm.
Clients before 5.0 support only zlib, which has type 0 there. Python includes zlib. LZ4 (its frame
format) and Zstandard need packages that the extra ``compression`` installs; a package is imported
when a body needs it. Where pyarrow is installed, as it is with Spark, it decompresses both formats
without these packages.

The size of a decompressed body is bounded, even if the body itself states a larger size.

Source: Compressor and its classes, CompressionType, MessageSysFlag @5.3.3.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import msgspec.inspect

from twistmq.client.base.errors import OptionError, Undecodable
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_LZ4,
    SYS_COMPRESSION_MASK,
    SYS_COMPRESSION_ZLIB,
    SYS_COMPRESSION_ZSTD,
)

__all__ = ["BODY_SIZE_MAX", "CODECS", "FRAMES_MAX", "LEVEL", "Serialiser", "check_codec",
           "compress", "decompress", "json_of", "msgpack_of", "raw", "text"]

#: The maximum size of a decompressed body, in bytes. A broker accepts 4 MiB by default, compressed
#: or not: a larger body is not a normal message but was made to fill the memory of its readers.
BODY_SIZE_MAX: Final = 64 << 20
#: The maximum number of LZ4 or Zstandard frames in a body. Producers write one frame. An empty
#: frame has ten bytes, and a decompressor for it costs as much as kilobytes of data.
FRAMES_MAX: Final = 128
#: The number of bytes that a decompressor gets in one call.
_CHUNK_BYTES: Final = 64 << 10
#: The compression level, which is the default of the Java client; LZ4 does not use it.
#: Source: DefaultMQProducer.compressLevel.
LEVEL: Final = 5
_INSTALL: Final = "pip install 'twistmq[compression]'"


class Decompressor(Protocol):
    """Decompresses one stream piece by piece; the interface of Python's own modules."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end of the stream."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Decompress ``data``, and return at most ``max_length`` bytes."""


class Codec(msgspec.Struct, frozen=True):
    """One type of compression."""

    name: str
    #: The bits of the system flag that are set in addition to SYS_COMPRESSED.
    sys_flag: int
    #: Both functions raise ImportError if the package is missing.
    compress: Callable[[bytes, int], bytes]
    decompressor: Callable[[], Decompressor]


#: The names of the modules; Python includes Zstandard from version 3.14 on.
_LZ4: Final = "lz4.frame"
_ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


@cache
def _imported(name: str) -> ModuleType | str:
    """Return a module, or the reason why its import fails; the import is tried only once."""
    try:
        return import_module(name)
    except ImportError as error:
        return str(error)


def _module(name: str) -> Any:
    """Return a module of the extra; :raises ImportError: when it is not installed."""
    module = _imported(name)
    if isinstance(module, str):
        raise ImportError(module)
    return module


def _compress_lz4(body: bytes, level: int) -> bytes:
    # Java can only read frames whose blocks are independent.
    data: bytes = _module(_LZ4).compress(body, block_linked=False)
    return data


def _compress_zstd(body: bytes, level: int) -> bytes:
    data: bytes = _module(_ZSTD).compress(body, level)
    return data


def _decompressor_lz4() -> Decompressor:
    decompressor: Decompressor = _module(_LZ4).LZ4FrameDecompressor()
    return decompressor


def _decompressor_zstd() -> Decompressor:
    decompressor: Decompressor = _module(_ZSTD).ZstdDecompressor()
    return decompressor


#: The codecs by their names in options.
CODECS: Final = {codec.name: codec for codec in (
    Codec("zlib", SYS_COMPRESSION_ZLIB, zlib.compress, zlib.decompressobj),
    Codec("lz4", SYS_COMPRESSION_LZ4, _compress_lz4, _decompressor_lz4),
    Codec("zstd", SYS_COMPRESSION_ZSTD, _compress_zstd, _decompressor_zstd))}
_BY_FLAG: Final = {0: CODECS["zlib"], **{codec.sys_flag: codec for codec in CODECS.values()}}


def check_codec(name: str) -> None:
    """Check that a codec can be used.

    :raises OptionError: when the codec is unknown or its package is not installed.
    """
    codec = CODECS.get(name)
    if codec is None:
        raise OptionError(f"codec {name!r} is not known: {', '.join(CODECS)}")
    try:
        codec.compress(b"", LEVEL)
    except ImportError as error:
        raise OptionError(f"codec {name!r} needs a package ({error}): {_INSTALL}") from None


def compress(body: bytes, name: str = "zlib", level: int = LEVEL) -> tuple[bytes, int]:
    """Compress a body; return the bytes and the bits to set in its system flag.

    :param name: the name of a codec that :func:`check_codec` accepted: "zlib", "lz4" or "zstd".
    :raises OptionError: when the codec is unknown.
    """
    if name not in CODECS:
        check_codec(name)
    codec = CODECS[name]
    return codec.compress(body, level), SYS_COMPRESSED | codec.sys_flag


def decompress(body: bytes, sys_flag: int, bytes_max: int = BODY_SIZE_MAX) -> bytes:
    """Decompress a body if its system flag marks it as compressed.

    :raises Undecodable: when the body cannot be decompressed, when it decompresses to more than
        ``bytes_max`` bytes, or when the package is missing.
    """
    if not sys_flag & SYS_COMPRESSED:
        return body
    codec = _BY_FLAG.get(sys_flag & SYS_COMPRESSION_MASK)
    if codec is None:
        raise Undecodable(f"compression type {(sys_flag & SYS_COMPRESSION_MASK) >> 8} is not known")
    try:
        data = _decompressed(codec, body, bytes_max + 1)
    except ImportError as error:
        raise Undecodable(
            f"{len(body)} bytes are compressed by {codec.name}, and its package is missing "
            f"({error}): {_INSTALL}") from None
    except Exception as error:  # each package raises its own error types
        raise Undecodable(
            f"{len(body)} bytes cannot be decompressed by {codec.name}: {error}") from None
    if len(data) > bytes_max:
        raise Undecodable(f"{len(body)} bytes decompress to more than {bytes_max}")
    return data


def _decompressed(codec: Codec, body: bytes, limit: int) -> bytes:
    """Decompress a body, and stop after ``limit`` bytes.

    :raises EOFError: when bytes are missing, and ValueError: when there are too many frames.
    """
    try:
        stream = codec.decompressor()
    except ImportError as error:
        return _by_arrow(codec.name, body, limit, error)
    if codec.name != "zlib":
        return _frames(codec, stream, body, limit)
    data = stream.decompress(body, limit)
    if not stream.eof and len(data) < limit:
        raise EOFError("the data ends too early")
    return data


def _frames(codec: Codec, stream: Decompressor, body: bytes, limit: int) -> bytes:
    """Decompress a body of LZ4 or Zstandard frames, which follow one another.

    A decompressor copies the bytes after its frame, so it gets the body one chunk at a time.
    """
    parts: list[bytes] = []
    remaining, position, frame_count = limit, 0, 1
    rest = b""
    while remaining > 0 and (rest or position < len(body)):
        if stream.eof:
            frame_count += 1
            if frame_count > FRAMES_MAX:
                raise ValueError(f"more than {FRAMES_MAX} frames")
            stream = codec.decompressor()
        data = rest
        if not data:
            data = body[position:position + _CHUNK_BYTES]
            position += _CHUNK_BYTES
        part = stream.decompress(data, remaining)
        rest = stream.unused_data if stream.eof else b""
        parts.append(part)
        remaining -= len(part)
    if not stream.eof and remaining > 0:
        raise EOFError("the data ends too early")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _by_arrow(name: str, body: bytes, limit: int, missing: ImportError) -> bytes:
    """Decompress with pyarrow; :raises ImportError: ``missing``, if pyarrow is not installed."""
    pyarrow = _imported("pyarrow")
    if isinstance(pyarrow, str):
        raise missing
    parts: list[bytes] = []
    remaining = limit
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(body), name) as stream:
        while remaining > 0 and (part := stream.read(min(remaining, 1 << 20))):
            parts.append(part)
            remaining -= len(part)
    return b"".join(parts)


# --- serialisers


class HasBytes(Protocol):
    """A message that was read, with a decompressed body."""

    @property
    def body(self) -> bytes:
        """The bytes."""


T = TypeVar("T")


class Serialiser(Generic[T]):
    """Converts values to bodies and bodies to values.

    A consumer takes a serialiser as its option ``decode``, so a serialiser can be called with a
    message. A producer takes it as ``encode``.

    :param name: the name that error texts use.
    """

    __slots__ = ("_from_bytes", "_name", "_to_bytes")

    def __init__(
        self, name: str, to_bytes: Callable[[T], bytes], from_bytes: Callable[[bytes], T]
    ) -> None:
        if not (callable(to_bytes) and callable(from_bytes)):
            raise OptionError(f"serialiser {name}: give two functions, one that makes bytes of a "
                              "value and one that makes a value of bytes")
        self._name = name
        self._to_bytes = to_bytes
        self._from_bytes = from_bytes

    def __repr__(self) -> str:
        return self._name

    def encode(self, value: T) -> bytes:
        """Return the body for a value; :raises OptionError: when it cannot be encoded."""
        try:
            return self._to_bytes(value)
        except Exception as error:  # a type that cannot be encoded raises many kinds of errors
            raise OptionError(
                f"a {type(value).__name__} cannot be sent as {self._name}: {error}") from None

    def decode(self, message: HasBytes) -> T:
        """Return the value of a message; :raises Undecodable: when its body encodes no value."""
        try:
            return self._from_bytes(message.body)
        except Exception as error:  # a validator of the type may raise anything
            raise Undecodable(f"not {self._name}: {error}") from None

    __call__ = decode


def _to_utf8(value: str) -> bytes:
    return value.encode()


def _from_utf8(body: bytes) -> str:
    return body.decode()


#: Text in UTF-8.
text: Final[Serialiser[str]] = Serialiser("text", _to_utf8, _from_utf8)
#: The bytes themselves.
raw: Final[Serialiser[bytes]] = Serialiser("raw", bytes, bytes)


def json_of(kind: type[T]) -> Serialiser[T]:
    """JSON of a type: a dataclass, a msgspec Struct, a TypedDict, list, dict, int and so on.

    If the type has dicts with integer keys or sets of integers, and the senders are not trusted,
    these integers need bounds (``msgspec.Meta``). An attacker can choose integers of any size so
    that their hashes are equal, and then building the dict takes quadratic time.

    A value is sent only if its body can be read as the type again. A dict is not sent in place of
    a dataclass, for example.

    :raises OptionError: when JSON has no values of the type.
    """
    return _TypedSerialiser(kind, "JSON", msgspec.json, json_of)


def msgpack_of(kind: type[T]) -> Serialiser[T]:
    """MessagePack of a type: like :func:`json_of`, with bodies that are smaller and not text.

    :raises OptionError: when MessagePack has no values of the type.
    """
    return _TypedSerialiser(kind, "MessagePack", msgspec.msgpack, msgpack_of)


class _TypedSerialiser(Serialiser[T]):
    """A format of msgspec for one type; a pickled copy builds its own encoder and decoder.

    :param codec: the module of the format, ``msgspec.json`` or ``msgspec.msgpack``.
    :param make: makes the serialiser of another process.
    """

    __slots__ = ("_kind", "_make", "_write")

    def __init__(
        self, kind: type[T], format_name: str, codec: Any,
        make: Callable[[type[T]], Serialiser[T]],
    ) -> None:
        name = f"{format_name} of {getattr(kind, '__name__', kind)}"
        try:
            read = codec.Decoder(kind).decode
            fault = _unreadable(msgspec.inspect.type_info(kind), set())
        except TypeError as error:
            raise OptionError(f"{name}: {error}") from None
        if fault is not None and kind is not object:
            raise OptionError(f"{name}: {format_name} has no values of the class {fault.__name__}")
        self._kind = kind
        self._make = make
        self._write: Callable[[T], bytes] = codec.Encoder().encode
        super().__init__(name, self._checked_body, read)

    def _checked_body(self, value: T) -> bytes:
        """Return the body for a value; :raises ValueError: when it is not a value of the type."""
        body = self._write(value)
        copy: object = self._from_bytes(body)
        if isinstance(value, type(copy)) or self._kind in (Any, object):
            return body
        for kinds in ((int, float), (list, tuple, set, frozenset)):
            if isinstance(value, kinds) and isinstance(copy, kinds):
                return body
        raise ValueError(f"a consumer would read it as {type(copy).__name__}")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[type[T]]]:
        return self._make, (self._kind,)


def _unreadable(info: object, seen: set[int]) -> type | None:
    """Return a class that msgspec does not know, from its description of a type."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if isinstance(info, msgspec.Struct):
        parts: tuple[object, ...] = msgspec.structs.astuple(info)
    else:
        parts = info if isinstance(info, tuple) else ()
    return next((each for part in parts if (each := _unreadable(part, seen)) is not None), None)
