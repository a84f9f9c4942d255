"""Frames, commands, properties and records, as bytes.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.protocol import properties
from twistmq.protocol.addresses import split_address
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    VERSION,
    RemotingCommand,
    decode_command,
    encode_reply,
)
from twistmq.protocol.decimal_text import PORT_MAX, whole_number
from twistmq.protocol.flags import (
    BROKER_ID_MAX,
    MASTER_ID,
    PERM_READ,
    PERM_READ_WRITE,
    PERM_WRITE,
    PULL_COMMIT_OFFSET,
    PULL_SUSPEND,
    UNIT_SUB,
)
from twistmq.protocol.frame import FRAME_SIZE_MAX, JSON, ROCKETMQ, Frame, encode_frame
from twistmq.protocol.frame_peek import BINARY_BEGIN, sketch
from twistmq.protocol.header import Int32, Int64
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.lazy_properties import LazyProperties
from twistmq.protocol.message_id import offset_message_id, parse_offset_message_id
from twistmq.protocol.properties import (
    DELAY,
    NAME_VALUE_SEPARATOR,
    RETRY_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TRAN_MSG,
    WAIT,
    index_keys,
    java_string_hash,
    tags_code,
)
from twistmq.protocol.record import (
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH_MAX,
    QUEUE_OFFSET_POSITION,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_INNER_BATCH,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    encode_record,
    has_queue_entry,
    host_text,
    indexes_with,
    record_again,
    utf8,
)
from twistmq.protocol.signature import ACCESS_KEY, Credentials, Signer

__all__ = [
    "ACCESS_KEY",
    "BINARY_BEGIN",
    "BROKER_ID_MAX",
    "DELAY",
    "FRAME_SIZE_MAX",
    "JSON",
    "MASTER_ID",
    "NAME_VALUE_SEPARATOR",
    "ONEWAY_FLAG",
    "PERM_READ",
    "PERM_READ_WRITE",
    "PERM_WRITE",
    "PHYSICAL_OFFSET_POSITION",
    "PORT_MAX",
    "PROPERTIES_LENGTH_MAX",
    "PULL_COMMIT_OFFSET",
    "PULL_SUSPEND",
    "QUEUE_OFFSET_POSITION",
    "RESPONSE_FLAG",
    "RETRY_TOPIC",
    "ROCKETMQ",
    "SYS_COMPRESSED",
    "SYS_COMPRESSION_MASK",
    "SYS_INNER_BATCH",
    "SYS_TRANSACTION_COMMIT",
    "SYS_TRANSACTION_MASK",
    "SYS_TRANSACTION_ROLLBACK",
    "TAGS",
    "TIMER_DEL_UNIQKEY",
    "TRAN_MSG",
    "UNIT_SUB",
    "VERSION",
    "WAIT",
    "Credentials",
    "Frame",
    "Int32",
    "Int64",
    "LazyProperties",
    "RemotingCommand",
    "Signer",
    "decode_batch",
    "decode_command",
    "encode_frame",
    "encode_pretty_row",
    "encode_record",
    "encode_reply",
    "has_queue_entry",
    "host_text",
    "index_keys",
    "indexes_with",
    "java_string_hash",
    "offset_message_id",
    "parse_offset_message_id",
    "properties",
    "record_again",
    "sketch",
    "split_address",
    "tags_code",
    "utf8",
    "whole_number",
]
