"""The body a broker registers with, in its two forms.

Plain, it is JSON. Compressed, it is a zlib stream of

    int32 length + DataVersion as JSON
    int32 count, then for each topic int32 length + TopicConfig as text
    int32 length + filter servers as a JSON list
    int32 count, then for each int32 length + TopicQueueMappingInfo as JSON (brokers from 5.0.0 on)

with big-endian integers. Source: RegisterBrokerBody @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import Final, Self

import msgspec

from twistmq.broker.errors import WireError
from twistmq.broker.pauses import without_pauses
from twistmq.broker.wire import json_dialect
from twistmq.broker.wire.bodies.body import Body
from twistmq.broker.wire.bodies.table_parts import PART_BYTES, LongTable, read_table
from twistmq.broker.wire.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.broker.wire.frame import FRAME_SIZE_MAX

__all__ = ["MAPPING_VERSION_MIN", "REGISTRATION_SIZE_MAX", "RegisterBrokerBody"]

#: MQVersion V5_0_0's ordinal: brokers from here on end a compressed body with the mappings.
MAPPING_VERSION_MIN: Final = 413
#: Largest size of a compressed body when it is inflated, bytes: no more than one that is not
#: compressed can have. A topic takes about 100; zeros inflate to a thousand times their frame.
REGISTRATION_SIZE_MAX: Final = FRAME_SIZE_MAX

#: Topics of a compressed body that are read without a pause: half a millisecond.
_PART_COUNT: Final = 128

_INT: Final = struct.Struct(">i")


class RegisterBrokerBody(Body):
    """The topics of a broker, and its filter servers."""

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

        :param broker_version: of the request's header; older brokers send no mappings.
        :raises WireError: when it does not inflate, inflates to more than
            REGISTRATION_SIZE_MAX, or a part of it is not what it should be.
        """
        return without_pauses(cls.decoding(data, compressed, broker_version))

    @classmethod
    def decoding(
        cls, data: bytes, compressed: bool = False, broker_version: int = MAPPING_VERSION_MIN
    ) -> Generator[None, None, Self]:
        """Do what :meth:`decode` does; yields where it can pause."""
        if not compressed:
            return (yield from cls._decoding_plain(data))
        reader = _Reader(_inflate(data))
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.decode(reader.piece()))
        for number, piece in enumerate(reader.pieces()):
            topic = TopicConfig.decode_text(piece.decode("utf-8", "replace"))
            wrapper.topic_config_table[topic.topic_name] = topic
            if number % _PART_COUNT == _PART_COUNT - 1:
                yield
        filter_servers = _filter_servers(reader.piece())
        if broker_version >= MAPPING_VERSION_MIN:
            mappings = [TopicQueueMappingInfo.decode(piece) for piece in reader.pieces()]
            wrapper.topic_queue_mapping_info_map = {each.topic: each for each in mappings}
        return cls(wrapper, filter_servers)

    @classmethod
    def _decoding_plain(cls, data: bytes) -> Generator[None, None, Self]:
        if len(data) > 2 * PART_BYTES:
            table = yield from read_table(data)
            if table is not None:
                try:
                    body = super().decode(table.rest)
                except WireError:
                    return super().decode(data)
                wrapper = body.topic_config_serialize_wrapper
                if LongTable.is_probe(wrapper.topic_config_table):
                    wrapper.topic_config_table = table.topics
                    return body
        return super().decode(data)


def _piece(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _pieces(items: Sequence[bytes]) -> bytes:
    return _INT.pack(len(items)) + b"".join([_piece(item) for item in items])


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, REGISTRATION_SIZE_MAX)
    except zlib.error as error:
        raise WireError(f"compressed registration: {error}") from None
    if inflater.unconsumed_tail:
        raise WireError(f"compressed registration is over {REGISTRATION_SIZE_MAX} bytes")
    return inflated


def _filter_servers(data: bytes) -> list[str]:
    try:
        return msgspec.convert(json_dialect.decode(data) or [], list[str])
    except (json_dialect.JsonDialectError, msgspec.MsgspecError) as error:
        raise WireError(f"filter servers of a registration: {error}") from None


class _Reader:
    """Takes one piece after the other from an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _int(self) -> int:
        if len(self._data) - self._position < 4:
            raise WireError(f"compressed registration ends at byte {self._position}")
        number: int = _INT.unpack_from(self._data, self._position)[0]
        self._position += 4
        return number

    def piece(self) -> bytes:
        size = self._int()
        start = self._position
        if size < 0 or size > len(self._data) - start:
            raise WireError(f"compressed registration: length {size} at byte {start - 4}")
        self._position = start + size
        return self._data[start : self._position]

    def pieces(self) -> Iterator[bytes]:
        """Each as it is asked for: of millions that are nothing, the first is refused."""
        count = self._int()
        if count < 0 or count > (len(self._data) - self._position) // 4:
            raise WireError(f"compressed registration: count {count} at {self._position - 4}")
        for _ in range(count):
            yield self.piece()
