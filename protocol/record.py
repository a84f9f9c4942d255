"""The message record, which the commit log stores and which pull, view and query return unchanged.

All integers are big-endian. A record's fixed part is 91 bytes (V1, both addresses IPv4). V2 has
another magic number and a topic length of two bytes; a record is written as V2 only when its
topic's name is too long for V1. ``RECORD_LAYOUT`` is the layout, and the packers are built from it.
This is a leaf module of the hot path. It uses only the standard library, and it is typed so that
mypyc can compile it.

Records are read in several situations, and decoding all fields every time would be too slow.
Therefore the module offers several levels. Functions such as ``record_size`` read a single field at
a fixed position. ``check_record`` only determines whether a complete record starts at a position,
for example during recovery. ``usual_record`` recognises the most common form, V1 with IPv4
addresses, by its lengths, so that ``records_of`` can decode a pull response quickly.
``decode_record`` accepts every form, and its errors state the fault of a damaged record.

Source: MessageExtEncoder, MessageDecoder, MessageVersion, MessageSysFlag, CommitLog @5.3.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.protocol.big_endian import int16_at, int32_at
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.properties import TAGS, index_keys, parse_properties, tags_code

if TYPE_CHECKING:
    # Only mypyc uses this import.
    from mypy_extensions import i64

__all__ = [
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MessageRecord",
    "StoredMessage",
    "blank_record",
    "check_record",
    "decode_record",
    "encode_record",
    "ends_after_body",
    "has_queue_entry",
    "host_bytes",
    "host_parts",
    "host_text",
    "indexes_with",
    "properties_text",
    "record_again",
    "record_size",
    "records_of",
    "topic_part",
    "usual_record",
]

#: Magic numbers, int32: a record, a record with a long topic name, the filler at the end of a file.
MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

#: The bits of the system flag.
SYS_COMPRESSED: Final = 0x1
SYS_MULTI_TAGS: Final = 0x2
SYS_TRANSACTION_PREPARED: Final = 0x4
SYS_TRANSACTION_COMMIT: Final = 0x8
SYS_TRANSACTION_ROLLBACK: Final = 0xC
SYS_TRANSACTION_MASK: Final = 0xC
SYS_BORN_HOST_V6: Final = 0x10
SYS_STORE_HOST_V6: Final = 0x20
SYS_NEED_UNWRAP: Final = 0x40
SYS_INNER_BATCH: Final = 0x80
SYS_COMPRESSION_LZ4: Final = 0x100
SYS_COMPRESSION_ZSTD: Final = 0x200
SYS_COMPRESSION_ZLIB: Final = 0x300
SYS_COMPRESSION_MASK: Final = 0x700

#: The fields before the body, topic and properties: (name, struct format, bytes and meaning).
#: The system flag determines whether ``host`` has 8 bytes (IPv4 address, int32 port) or 20 (IPv6).
RECORD_LAYOUT: Final[tuple[tuple[str, str, str], ...]] = (
    ("size", "i", "4, the whole record, this field included"),
    ("magic", "i", "4, MAGIC_V1 or MAGIC_V2"),
    ("body_crc", "i", "4, CRC-32 of the body as stored, top bit cleared"),
    ("queue_id", "i", "4"),
    ("flag", "i", "4, the application's"),
    ("queue_offset", "q", "8, place in the consume queue; 0 for prepared and rollback"),
    ("physical_offset", "q", "8, place in the commit log"),
    ("sys_flag", "i", "4, SYS_* bits"),
    ("born_timestamp", "q", "8, ms, the client's clock"),
    ("born_host", "host", "8 or 20, the client"),
    ("store_timestamp", "q", "8, ms, the broker's clock"),
    ("store_host", "host", "8 or 20, the broker"),
    ("reconsume_times", "i", "4"),
    ("prepared_transaction_offset", "q", "8, the half message's place"),
    ("body_length", "i", "4, then the body; topic and properties follow"),
)

#: The positions of single fields, in bytes. Positions up to the born host do not depend on the
#: system flag; the positions of the body fields hold for two IPv4 addresses.
MAGIC_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
STORE_TIMESTAMP_POSITION: Final = 56
BODY_LENGTH_POSITION: Final = 84
BODY_POSITION: Final = 88

#: The maximum length of a topic in V1, of a topic in V2, and of a property string, in bytes.
TOPIC_LENGTH_V1_MAX: Final = 127
TOPIC_LENGTH_MAX: Final = 32767
PROPERTIES_LENGTH_MAX: Final = 32767
#: The smallest record: IPv4, V1, no body, no topic, no properties, in bytes.
RECORD_SIZE_MIN: Final = 91
#: The size of a blank record's head, which is always kept free at the end of a file, in bytes.
BLANK_SIZE_MIN: Final = 8

#: The results of check_record other than a size.
CHECK_FILE_END: Final = 0
CHECK_BAD: Final = -1

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_TWO_INTS: Final = struct.Struct(">ii")
_SHORT: Final = struct.Struct(">h")


def _prefix(born_format: str, store_format: str) -> struct.Struct:
    """Build the packer of the fixed part for one pair of address kinds."""
    formats = {"born_host": born_format, "store_host": store_format}
    return struct.Struct(
        ">" + "".join([formats.get(name, code) for name, code, _ in RECORD_LAYOUT])
    )


#: The fixed part, indexed by (sys_flag >> 4) & 3, because the two address bits are adjacent.
_PREFIX_V4: Final = _prefix("8s", "8s")
_PREFIXES: Final = (_PREFIX_V4, _prefix("20s", "8s"), _prefix("8s", "20s"), _prefix("20s", "20s"))
#: How many more bytes an IPv6 address takes than an IPv4 address.
_V6_MORE: Final = 12


class MessageRecord:
    """A message on its way into the store.

    The creator of the record gives the arguments of __init__; the store fills in the remaining
    attributes on append. ``message_count`` is the number of queue offsets that the record takes
    (more than one for an inner batch).

    :param properties: the properties as text; ignored when ``stored`` is given.
    :param stored: the properties of a plain message as ASCII bytes.
    """

    __slots__ = (
        "_properties",
        "_stored",
        "body",
        "born_host",
        "born_timestamp",
        "enters_queue",
        "flag",
        "is_plain",
        "keys",
        "message_count",
        "next_offset",
        "physical_offset",
        "prepared_transaction_offset",
        "queue",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_timestamp",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        keys: list[str],
        tags_code: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        message_count: int = 1,
        stored: bytes | None = None,
    ) -> None:
        #: ``before_append`` may change it, and the queue, to store the record elsewhere.
        self.topic: str = topic
        #: The queue number, from 0.
        self.queue_id: int = queue_id
        #: The body as the client sent it, compressed or not.
        self.body: bytes = body
        #: The properties, as text, as bytes, or both.
        self._properties: str | None = properties if stored is None else None
        self._stored: bytes | None = stored
        #: Whether no plugin claims any of its properties, so that they stay as they were sent.
        self.is_plain: bool = stored is not None
        #: When the client made the message, Unix ms.
        self.born_timestamp: int = born_timestamp
        #: The address of the client: 4 or 16 bytes of address and an int32 port.
        self.born_host: bytes = born_host
        #: The address of the broker, in the same form.
        self.store_host: bytes = store_host
        #: Index keys without the topic: UNIQ_KEY, then each of KEYS.
        self.keys: list[str] = keys
        #: The number in its queue entry: the hash of the tag, or 0 without a tag.
        self.tags_code: int = tags_code
        #: The application's flag.
        self.flag: int = flag
        #: Bits: 1 compressed body, 4, 8 and 12 the states of a transaction, ...
        self.sys_flag: int = sys_flag
        #: How often consumers have returned the message for a retry.
        self.reconsume_times: int = reconsume_times
        #: For a committed message, the position of its half message.
        self.prepared_transaction_offset: int = prepared_transaction_offset
        #: The number of messages in the record; more than 1 in an inner batch.
        self.message_count: int = message_count
        #: Whether consumers see it: a half message that waits for its commit has no queue offset.
        self.enters_queue: bool = True
        #: Its offset in its queue. The store sets this and the following attributes.
        self.queue_offset: int = 0
        #: Its position in the commit log, in bytes.
        self.physical_offset: int = 0
        #: Its size in bytes, as stored.
        self.size: int = 0
        #: When it was stored, Unix ms.
        self.store_timestamp: int = 0
        #: The position after this record in the commit log; when the log is flushed to it, the
        #: record is safe.
        self.next_offset: int = 0
        #: The store's queue for the topic and queue id, if known; out of date after a change of
        #: either.
        self.queue: object | None = None

    @property
    def properties(self) -> str:
        r"""As stored: name \x01 value \x02 repeated; ``wire.properties`` parses and changes
        them."""
        text = self._properties
        if text is None:
            assert self._stored is not None
            text = self._properties = self._stored.decode()
        return text

    @properties.setter
    def properties(self, text: str) -> None:
        self._properties = text
        self._stored = None
        self.is_plain = False

    @property
    def stored_properties(self) -> bytes:
        """The properties as the bytes that are stored."""
        stored = self._stored
        return utf8(self.properties) if stored is None else stored

    def __reduce__(self) -> tuple[object, ...]:
        return MessageRecord, (
            self.topic, self.queue_id, self.body, self._properties or "", self.born_timestamp,
            self.born_host, self.store_host, list(self.keys), self.tags_code, self.flag,
            self.sys_flag, self.reconsume_times, self.prepared_transaction_offset,
            self.message_count, self._stored,
        ), (self.is_plain, self.enters_queue, self.queue_offset, self.physical_offset, self.size,
            self.store_timestamp, self.next_offset)

    def __setstate__(self, state: tuple[bool, bool, int, int, int, int, int]) -> None:
        # The queue is not copied, because it is an object of the store.
        (self.is_plain, self.enters_queue, self.queue_offset, self.physical_offset, self.size,
         self.store_timestamp, self.next_offset) = state


class StoredMessage:
    """A record that was read from the store. It has the fields of RECORD_LAYOUT, unchangeable."""

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_timestamp",
        "flag",
        "magic",
        "physical_offset",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        size: int,
        magic: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        topic: str,
        properties: str,
    ) -> None:
        self.size: Final = size
        self.magic: Final = magic
        self.body_crc: Final = body_crc
        self.queue_id: Final = queue_id
        self.flag: Final = flag
        self.queue_offset: Final = queue_offset
        self.physical_offset: Final = physical_offset
        self.sys_flag: Final = sys_flag
        self.born_timestamp: Final = born_timestamp
        self.born_host: Final = born_host
        self.store_timestamp: Final = store_timestamp
        self.store_host: Final = store_host
        self.reconsume_times: Final = reconsume_times
        self.prepared_transaction_offset: Final = prepared_transaction_offset
        self.body: Final = body
        self.topic: Final = topic
        self.properties: Final = properties

    def properties_map(self) -> dict[str, str]:
        """Parse the properties; each call parses them again and returns a new dict."""
        return parse_properties(self.properties)

    def __reduce__(self) -> tuple[type[StoredMessage], tuple[object, ...]]:
        return StoredMessage, (
            self.size, self.magic, self.body_crc, self.queue_id, self.flag, self.queue_offset,
            self.physical_offset, self.sys_flag, self.born_timestamp, self.born_host,
            self.store_timestamp, self.store_host, self.reconsume_times,
            self.prepared_transaction_offset, self.body, self.topic, self.properties)


def indexes_with(records: Sequence[MessageRecord], mark: str) -> list[int]:
    """The indexes of the records whose properties contain the given text of a claimed property.

    :param mark: the beginning of a property name, or the whole name and the separator.
    """
    return [index for index, record in enumerate(records)
            if not record.is_plain and mark in record.properties]


def record_again(
    message: StoredMessage | MessageRecord, properties: dict[str, str]
) -> MessageRecord:
    """Make a new record, without a position, from a stored message, as its producer sent it.

    :param properties: the properties from which its keys and tag are taken.
    """
    return MessageRecord(
        message.topic, message.queue_id, message.body, message.properties,
        message.born_timestamp, message.born_host, message.store_host, index_keys(properties),
        tags_code(properties.get(TAGS)), message.flag, message.sys_flag, message.reconsume_times,
        message.prepared_transaction_offset)


def utf8(text: str) -> bytes:
    """Encode text as Java does: a lone surrogate, which has no UTF-8 form, becomes ``?``."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def encode_record(record: MessageRecord, topic: bytes = b"") -> bytes:
    """Encode a record whose offsets and store time are set; sets its size and address bits.

    :param topic: the result of ``topic_part`` for its topic; if empty, it is computed.
    :raises MessageIllegal: when the topic or the properties are too long, or a number does not fit
        its field; the record is not changed.
    """
    if not topic:
        topic = topic_part(record.topic)
    properties = record.stored_properties
    body = record.body
    born_host = record.born_host
    store_host = record.store_host
    sys_flag = record.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    prefix = _PREFIX_V4
    if len(born_host) != 8 or len(store_host) != 8:
        sys_flag |= _address_bits(born_host, store_host)
        prefix = _PREFIXES[(sys_flag >> 4) & 3]
    if len(properties) > PROPERTIES_LENGTH_MAX:
        raise MessageIllegal(
            f"properties of {len(properties)} bytes, {PROPERTIES_LENGTH_MAX} fit")
    magic = MAGIC_V1 if len(topic) <= TOPIC_LENGTH_V1_MAX + 1 else MAGIC_V2
    size = prefix.size + len(body) + len(topic) + 2 + len(properties)
    try:
        head = prefix.pack(
            size,
            magic,
            zlib.crc32(body) & 0x7FFFFFFF,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp,
            born_host,
            record.store_timestamp,
            store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise MessageIllegal(f"a number of the message does not fit its field: {error}") from None
    record.sys_flag = sys_flag
    record.size = size
    return b"".join((head, body, topic, _SHORT.pack(len(properties)), properties))


def topic_part(topic: str) -> bytes:
    """A topic's length and name in the form of a record.

    :raises MessageIllegal: when the name is too long.
    """
    name = utf8(topic)
    if len(name) > TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"topic of {len(name)} bytes, {TOPIC_LENGTH_MAX} fit")
    if len(name) > TOPIC_LENGTH_V1_MAX:
        return _SHORT.pack(len(name)) + name
    return bytes((len(name),)) + name


def _address_bits(born_host: bytes, store_host: bytes) -> int:
    """The system flag bits for two addresses of which at least one is not IPv4."""
    for host in (born_host, store_host):
        if len(host) not in (8, 20):
            raise MessageIllegal(f"a host of {len(host)} bytes, 8 and 20 are known")
    bits = SYS_BORN_HOST_V6 if len(born_host) == 20 else 0
    return bits | (SYS_STORE_HOST_V6 if len(store_host) == 20 else 0)


def encoded_size(record: MessageRecord) -> int:
    """The number of bytes that encode_record will make, without making them."""
    topic_length = len(utf8(record.topic))
    return (
        RECORD_SIZE_MIN
        - 16
        + len(record.born_host)
        + len(record.store_host)
        + len(record.body)
        + topic_length
        + (1 if topic_length > TOPIC_LENGTH_V1_MAX else 0)
        + len(record.stored_properties)
    )


def blank_record(size: int) -> bytes:
    """Make the head of the filler that ends a file.

    :param size: bytes left in the file, including the head; the bytes after the head are arbitrary.
    """
    assert size >= BLANK_SIZE_MIN, size
    return _TWO_INTS.pack(size, MAGIC_BLANK)


def has_queue_entry(sys_flag: int) -> bool:
    """Whether records of this kind enter their queue; half messages and rollbacks do not.

    A dispatch filter may exclude other records as well.
    """
    kind = sys_flag & SYS_TRANSACTION_MASK
    return kind != SYS_TRANSACTION_PREPARED and kind != SYS_TRANSACTION_ROLLBACK


def record_size(buffer: bytes | bytearray | memoryview, position: int = 0) -> int:
    """Read the size field of a record that is known to start at a position."""
    size: int = _INT.unpack_from(buffer, position)[0]
    return size


def record_store_timestamp(buffer: bytes | bytearray | memoryview, position: int = 0) -> int:
    """Read when the record at a position was stored, in ms."""
    sys_flag: int = _INT.unpack_from(buffer, position + SYS_FLAG_POSITION)[0]
    at = position + STORE_TIMESTAMP_POSITION + (12 if sys_flag & SYS_BORN_HOST_V6 else 0)
    timestamp: int = _LONG.unpack_from(buffer, at)[0]
    return timestamp


def check_record(
    buffer: bytes | bytearray | memoryview, position: int = 0, check_crc: bool = True
) -> int:
    """Check the record that should start at a position, as recovery does.

    :returns: its size in bytes; CHECK_FILE_END for a blank record; CHECK_BAD for anything that is
        not a complete record (no magic, inconsistent lengths, a wrong CRC, a torn end).
    """
    remaining = len(buffer) - position
    if remaining < BLANK_SIZE_MIN:
        return CHECK_BAD
    size, magic = _TWO_INTS.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return CHECK_FILE_END
    if magic not in (MAGIC_V1, MAGIC_V2) or size < RECORD_SIZE_MIN or size > remaining:
        return CHECK_BAD
    try:
        _split(buffer, position, size, check_crc)
    except StoreDamaged:
        return CHECK_BAD
    record_size: int = size
    return record_size


def decode_record(
    buffer: bytes | bytearray | memoryview, position: int = 0, check_crc: bool = True
) -> StoredMessage:
    """Decode the record that starts at a position; the bytes after it are ignored.

    :raises StoreDamaged: when there is no complete record, its lengths are inconsistent, or its
        body does not match its CRC.
    """
    remaining = len(buffer) - position
    if position < 0 or remaining < RECORD_SIZE_MIN:
        raise StoreDamaged(f"no record at byte {position}: {remaining} bytes left")
    size, magic = _TWO_INTS.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise StoreDamaged(f"no record at byte {position}: magic {magic & 0xFFFFFFFF:#010x}")
    if size < RECORD_SIZE_MIN or size > remaining:
        raise StoreDamaged(f"record at byte {position}: size {size} of {remaining} bytes left")
    fixed, body, topic, properties = _split(buffer, position, size, check_crc)
    return StoredMessage(
        size,
        magic,
        fixed[2],
        fixed[3],
        fixed[4],
        fixed[5],
        fixed[6],
        fixed[7],
        fixed[8],
        fixed[9],
        fixed[10],
        fixed[11],
        fixed[12],
        fixed[13],
        body,
        topic,
        properties,
    )


def records_of(data: bytes) -> list[StoredMessage]:
    """Decode consecutive records, as the body of a pull response holds them.

    :raises StoreDamaged: as ``decode_record`` does.
    """
    records: list[StoredMessage] = []
    position = 0
    topic = ""
    topic_bytes = b""
    while position < len(data):
        fixed, at, end = usual_record(data, position)
        if end == 0:
            # The record does not have the usual form, or it is damaged.
            records.append(decode_record(data, position))
            position += records[-1].size
            continue
        body = data[position + BODY_POSITION : at]
        if body and zlib.crc32(body) & 0x7FFFFFFF != fixed[2]:
            raise StoreDamaged(f"record at byte {position}: the body's CRC does not match")
        properties = at + 3 + data[at]
        if data[at + 1 : properties - 2] != topic_bytes:
            topic_bytes = data[at + 1 : properties - 2]
            topic = str(topic_bytes, "utf-8", "replace")
        records.append(StoredMessage(
            fixed[0], fixed[1], fixed[2], fixed[3], fixed[4], fixed[5], fixed[6], fixed[7],
            fixed[8], fixed[9], fixed[10], fixed[11], fixed[12], fixed[13], body, topic,
            str(data[properties:end], "utf-8", "replace")))
        position = end
    return records


def usual_record(data: bytes, position: int) -> tuple[tuple[Any, ...], int, int]:
    """Examine a record of V1 with IPv4 addresses, the form of most records.

    :returns: its fixed fields in the form that StoredMessage takes, followed by the length of the
        body; where its body ends; and where the record ends, in bytes. The last is 0 when the
        record has another form or is damaged.
    """
    if len(data) - position < RECORD_SIZE_MIN:
        return (), 0, 0
    fixed = _PREFIX_V4.unpack_from(data, position)
    size: int = fixed[0]
    body_length: int = fixed[14]
    end = position + size
    at = position + BODY_POSITION + body_length
    if (fixed[1] != MAGIC_V1 or fixed[7] & (SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
            or body_length < 0 or end > len(data) or not ends_after_body(data, at, end)):
        return (), 0, 0
    return fixed, at, end


def ends_after_body(data: bytes, at: i64, end: i64) -> bool:
    """Whether a V1 topic and properties that begin at ``at`` end where the record ends.

    :param end: the end of the record, within the data.
    """
    if at + 3 > end:
        return False
    topic_length: i64 = data[at]
    properties: i64 = at + 3 + topic_length
    if properties > end:
        return False
    high: i64 = data[properties - 2]
    low: i64 = data[properties - 1]
    return high <= 0x7F and properties + (high << 8 | low) == end


def properties_text(record: bytes) -> str:
    """Read the properties of a record without its other parts.

    :param record: a complete record.
    :raises StoreDamaged: when its lengths are inconsistent.
    """
    size: i64 = len(record)
    if size < RECORD_SIZE_MIN:
        raise StoreDamaged(f"no record: {size} bytes")
    sys_flag: i64 = record[SYS_FLAG_POSITION + 3]
    at: i64 = BODY_POSITION + _V6_MORE * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))
    if at > size:
        raise StoreDamaged(f"no record: {size} bytes")
    length: i64 = int32_at(record, at - 4)
    if length < 0 or at + length + 2 > size:
        raise StoreDamaged(f"record: body length {length} in size {size}")
    at += length
    if record[7] == MAGIC_V2 & 0xFF:
        length = int16_at(record, at)
        at += 2 + length
    else:
        length = record[at]
        at += 1 + length
    if length < 0 or at + 2 > size:
        raise StoreDamaged(f"record: topic length {length} in size {size}")
    length = int16_at(record, at)
    if at + 2 + length != size:
        raise StoreDamaged(f"record: properties length {length} in size {size}")
    text = record[at + 2:]
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")


def _split(
    buffer: bytes | bytearray | memoryview, position: int, size: int, check_crc: bool
) -> tuple[tuple[Any, ...], bytes, str, str]:
    """Split a record of a known size into its fixed fields, body, topic and properties."""
    sys_flag: int = _INT.unpack_from(buffer, position + SYS_FLAG_POSITION)[0]
    prefix = _PREFIXES[(sys_flag >> 4) & 3]
    at = position + prefix.size
    end = position + size
    if at > end:
        raise StoreDamaged(f"record at byte {position}: size {size} is shorter than its head")
    fixed = prefix.unpack_from(buffer, position)
    body_length: int = fixed[14]
    long_topic = fixed[1] == MAGIC_V2
    rest = end - at - body_length - (4 if long_topic else 3)
    if body_length < 0 or rest < 0:
        raise StoreDamaged(f"record at byte {position}: body length {body_length} in size {size}")
    body = bytes(buffer[at : at + body_length])
    at += body_length
    if long_topic:
        topic_length: int = _SHORT.unpack_from(buffer, at)[0]
        at += 2
    else:
        topic_length = buffer[at]
        at += 1
    if topic_length < 0 or topic_length > rest:
        raise StoreDamaged(f"record at byte {position}: topic length {topic_length} in size {size}")
    topic = str(buffer[at : at + topic_length], "utf-8", "replace")
    at += topic_length
    properties_length: int = _SHORT.unpack_from(buffer, at)[0]
    at += 2
    if properties_length < 0 or at + properties_length != end:
        raise StoreDamaged(
            f"record at byte {position}: properties length {properties_length} in size {size}"
        )
    if check_crc and body_length and zlib.crc32(body) & 0x7FFFFFFF != fixed[2]:
        raise StoreDamaged(f"record at byte {position}: the body's CRC does not match")
    return fixed, body, topic, str(buffer[at:end], "utf-8", "replace")


def host_bytes(ip: str, port: int) -> bytes:
    """Encode an address in the form of a record: 4 or 16 bytes and an int32 port, big-endian.

    :raises ValueError: when the text is not a numeric address.
    """
    # Few programs read addresses, and the module takes long to load.
    from ipaddress import ip_address

    return ip_address(ip.partition("%")[0]).packed + _INT.pack(port)


def host_parts(host: bytes) -> tuple[str, int]:
    """Decode an address of a record.

    :returns: (ip, port).
    """
    from ipaddress import ip_address

    assert len(host) in (8, 20), len(host)
    port: int = _INT.unpack_from(host, len(host) - 4)[0]
    return str(ip_address(host[:-4])), port


def host_text(host: bytes) -> str:
    """Format an address as ``ip:port``, with an IPv6 address in brackets."""
    ip, port = host_parts(host)
    return f"[{ip}]:{port}" if len(host) == 20 else f"{ip}:{port}"


assert _PREFIX_V4.size == RECORD_SIZE_MIN - 3
assert [each.size - BODY_POSITION for each in _PREFIXES] == [0, _V6_MORE, _V6_MORE, 2 * _V6_MORE]
assert BODY_POSITION <= RECORD_SIZE_MIN
