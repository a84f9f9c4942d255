"""The registration body of a broker, in its two forms.

The plain form is JSON. The compressed form is a zlib stream of

    int32 length + DataVersion as JSON
    int32 count, then for each topic int32 length + TopicConfig as text
    int32 length + filter servers as a JSON list
    int32 count, then for each int32 length + TopicQueueMappingInfo as JSON (brokers from 5.0.0 on)

with big-endian integers. Source: RegisterBrokerBody @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, Self, TypeVar

import msgspec

from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.body import DIALECT_SIZE_MAX, Body
from twistmq.protocol.bodies.table_parts import PART_BYTES, LongTable, read_table
from twistmq.protocol.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.protocol.errors import WireError
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.limits import DATA_VERSION_SIZE_MAX, FILTER_SERVERS_MAX, ROUTE_TEXT_SIZE_MAX
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["MAPPING_VERSION_MIN", "REGISTRATION_SIZE_MAX", "RegisterBrokerBody",
           "decoding_topics"]

T = TypeVar("T")

#: The ordinal of MQVersion V5_0_0; since then a compressed body ends with the mappings.
MAPPING_VERSION_MIN: Final = 413
#: The maximum size of a compressed body after inflating, bytes, which is the limit of plain bodies
#: too. A topic takes about 100; zeros inflate to a thousand times the size of their frame.
REGISTRATION_SIZE_MAX: Final = FRAME_SIZE_MAX

#: The topics of a compressed body, and their bytes, between two pauses: half a millisecond.
_PART_COUNT: Final = 128
_PART_SIZE_BYTES: Final = 16 * 1024
#: The maximum size of a body that is read in one call, bytes, because its topics cannot be split:
#: up to 50 ms. No broker writes such a body.
_WHOLE_SIZE_MAX: Final = 512 * 1024
#: The number of bytes that are inflated between two pauses: half a millisecond.
_INFLATE_SIZE_BYTES: Final = 256 * 1024
#: The maximum size of a topic in a compressed body: its name, four numbers, and its attributes.
_TOPIC_SIZE_MAX: Final = 16 * 1024
#: The maximum size of the filter servers, bytes, when every character is escaped.
_FILTER_SERVERS_SIZE_MAX: Final = 6 * FILTER_SERVERS_MAX * (ROUTE_TEXT_SIZE_MAX + 3)

_INT: Final = struct.Struct(">i")


class RegisterBrokerBody(Body):
    """The topics and filter servers of a broker."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)

    def encode(self, compressed: bool = False) -> bytes:
        """Write the body, as JSON or compressed."""
        if not compressed:
            return json_dialect.encode(self, quote_int_keys=False)
        wrapper = self.topic_config_serialize_wrapper
        topics = [each.encode_text().encode() for each in wrapper.topic_config_table.values()]
        mappings = (wrapper.topic_queue_mapping_info_map or {}).values()
        parts = [
            _piece(wrapper.data_version.encode()),
            _pieces(topics),
            _piece(json_dialect.encode(self.filter_server_list, quote_int_keys=False)),
            _pieces([each.encode() for each in mappings]),
        ]
        return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)

    @classmethod
    def decode(
        cls, data: bytes, compressed: bool = False, broker_version: int = MAPPING_VERSION_MIN
    ) -> Self:
        """Read the body of a registration.

        :param broker_version: the version in the request's header; older brokers send no mappings.
        :raises WireError: when it cannot be inflated, inflates to more than REGISTRATION_SIZE_MAX,
            or a part of it is invalid.
        """
        return run_to_completion(cls.decoding(data, compressed, broker_version))

    @classmethod
    def decoding(
        cls, data: bytes, compressed: bool = False, broker_version: int = MAPPING_VERSION_MIN
    ) -> Generator[None, None, Self]:
        """Do the work of :meth:`decode`, and yield wherever it can pause."""
        if not compressed:
            return (yield from _in_parts(
                super().decode, data, lambda body: body.topic_config_serialize_wrapper))
        reader = _Reader((yield from _inflating(data)))
        wrapper = TopicConfigSerializeWrapper(
            data_version=DataVersion.decode(reader.piece(DATA_VERSION_SIZE_MAX)))
        turn = _Turn()
        for piece in reader.pieces(_TOPIC_SIZE_MAX):
            topic = TopicConfig.decode_text(piece.decode("utf-8", "replace"))
            wrapper.topic_config_table[topic.topic_name] = topic
            if turn.is_over(piece):
                yield
        filter_servers = _filter_servers(reader.piece(_FILTER_SERVERS_SIZE_MAX))
        if broker_version >= MAPPING_VERSION_MIN:
            mappings = wrapper.topic_queue_mapping_info_map = {}
            # Each mapping belongs to one of the topics above, so more mappings would only cost
            # time.
            for piece in reader.pieces(DIALECT_SIZE_MAX, len(wrapper.topic_config_table)):
                mapping = TopicQueueMappingInfo.decode(piece)
                mappings[mapping.topic] = mapping
                if turn.is_over(piece):
                    yield
        return cls(wrapper, filter_servers)


def decoding_topics(data: bytes) -> Generator[None, None, TopicConfigSerializeWrapper]:
    """Read the registration of a broker before 3.0.11; yields wherever it can pause.

    :raises WireError: as :meth:`RegisterBrokerBody.decode`.
    """
    return (yield from _in_parts(TopicConfigSerializeWrapper.decode, data, lambda body: body))


def _in_parts(
    decode: Callable[[bytes], T], data: bytes,
    wrapper_of: Callable[[T], TopicConfigSerializeWrapper],
) -> Generator[None, None, T]:
    """Read a body that consists mostly of topics.

    :param decode: reads the body in one call.
    :param wrapper_of: returns the part with the topics.
    :raises WireError: when it is not a registration, or it is long and has no table that can be
        read in parts.
    """
    if len(data) > 2 * PART_BYTES:
        table = yield from read_table(data)
        if table is not None and len(table.rest) <= DIALECT_SIZE_MAX:
            try:
                body = decode(table.rest)
            except WireError:
                pass
            else:
                wrapper = wrapper_of(body)
                if LongTable.is_probe(wrapper.topic_config_table):
                    wrapper.topic_config_table = table.topics
                    return body
        if len(data) > _WHOLE_SIZE_MAX:
            raise WireError(f"registration of {len(data)} bytes: it has more than its topics, or "
                            "they cannot be read in parts")
    return decode(data)


class _Turn:
    """Counts the topics and bytes that were read since the last pause."""

    def __init__(self) -> None:
        self._count = 0
        self._size_bytes = 0

    def is_over(self, piece: bytes) -> bool:
        """Whether to pause after a piece."""
        self._count += 1
        self._size_bytes += len(piece)
        if self._count < _PART_COUNT and self._size_bytes < _PART_SIZE_BYTES:
            return False
        self._count = self._size_bytes = 0
        return True


def _piece(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _pieces(items: Sequence[bytes]) -> bytes:
    return _INT.pack(len(items)) + b"".join([_piece(item) for item in items])


def _inflating(data: bytes) -> Generator[None, None, bytes]:
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size_bytes = 0
    remaining = data
    while remaining and not inflater.eof:
        try:
            part = inflater.decompress(remaining, _INFLATE_SIZE_BYTES)
        except zlib.error as error:
            raise WireError(f"compressed registration: {error}") from None
        remaining = inflater.unconsumed_tail
        size_bytes += len(part)
        if size_bytes > REGISTRATION_SIZE_MAX:
            raise WireError(f"compressed registration is over {REGISTRATION_SIZE_MAX} bytes")
        parts.append(part)
        if remaining:
            yield
    return b"".join(parts)


def _filter_servers(data: bytes) -> list[str]:
    try:
        return msgspec.convert(json_dialect.decode(data) or [], list[str])
    except (json_dialect.JsonDialectError, msgspec.MsgspecError) as error:
        raise WireError(f"filter servers of a registration: {error}") from None


class _Reader:
    """Takes one piece after another from an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _int(self) -> int:
        if len(self._data) - self._position < 4:
            raise WireError(f"compressed registration ends at byte {self._position}")
        number: int = _INT.unpack_from(self._data, self._position)[0]
        self._position += 4
        return number

    def piece(self, size_max: int) -> bytes:
        """The next piece; :raises WireError: when it is longer than such a piece can be."""
        size = self._int()
        start = self._position
        if size > size_max:
            raise WireError(f"compressed registration: {size} bytes at {start - 4}, the limit is "
                            f"{size_max}")
        if size < 0 or size > len(self._data) - start:
            raise WireError(f"compressed registration: length {size} at byte {start - 4}")
        self._position = start + size
        return self._data[start : self._position]

    def pieces(self, size_max: int, count_max: int = REGISTRATION_SIZE_MAX) -> Iterator[bytes]:
        """The pieces of a list, one by one on request, so that an invalid one ends it at once."""
        count = self._int()
        if not 0 <= count <= min(count_max, (len(self._data) - self._position) // 4):
            raise WireError(f"compressed registration: count {count} at {self._position - 4}")
        for _ in range(count):
            yield self.piece(size_max)
