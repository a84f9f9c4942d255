"""Records for the tests of tables, and the row that each of them must become.

This module is imported by tests, and skips them if the extra ``arrow`` is not installed.
"""

from __future__ import annotations

import random
import zlib
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any
from unittest import SkipTest

from twistmq.protocol import properties as names
from twistmq.protocol import record
from twistmq.protocol.message_id import offset_message_id

if find_spec("pyarrow") is None:
    raise SkipTest("the extra arrow is not installed: pip install 'twistmq[arrow]'")

HOST = record.host_bytes("127.0.0.1", 10911)
_HOSTS = [HOST, record.host_bytes("10.1.2.3", 4711), record.host_bytes("fe80::1", 99)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encoded(topic: str = "T", body: bytes = b"hello", properties: str = "", *, queue_id: int = 0,
            queue_offset: int = 0, physical_offset: int = 0, stored_ms: int = 1_700_000_000_500,
            born_ms: int = 1_700_000_000_000, born_host: bytes = HOST, store_host: bytes = HOST,
            flag: int = 0, sys_flag: int = 0, reconsume_times: int = 0,
            prepared_transaction_offset: int = 0) -> bytes:
    """Return one stored record."""
    made = record.MessageRecord(
        topic, queue_id, body, properties, born_ms, born_host, store_host, [], flag=flag,
        sys_flag=sys_flag, reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset)
    made.queue_offset, made.physical_offset = queue_offset, physical_offset
    made.store_timestamp = stored_ms
    return record.encode_record(made)


def random_records(seed: int, count: int, irregular: bool = True) -> list[bytes]:
    """Return records of every kind: long topics, both kinds of addresses, compressed bodies, odd
    properties.
    """
    import pyarrow as pa

    rng = random.Random(seed)
    found, place = [], 0
    for index in range(count):
        body = rng.randbytes(rng.choice([0, 1, 7, 300])) + b"a" * rng.randrange(500)
        sys_flag = rng.choice([0, 0, 8])
        if rng.random() < 0.4:
            kind = rng.choice(["", "lz4", "zstd", "zlib"])
            body = pa.compress(body, kind, asbytes=True) if kind in ("lz4", "zstd") \
                else zlib.compress(body)
            sys_flag |= 1 | {"": 0, "lz4": 0x100, "zstd": 0x200, "zlib": 0x300}[kind]
        pairs = [f"{names.UNIQ_KEY}\x01ID{index}\x02", "grün\x01süß\x02", "a\x01" + "9\x02"]
        if rng.random() < 0.5:
            pairs.append(f"{names.TAGS}\x01Tag{rng.randrange(3)}\x02")
        if rng.random() < 0.5:
            keys = rng.choice(["k", "k1 k2", " k1  k2 ", "ü x"])
            pairs.append(f"{names.KEYS}\x01{keys}\x02")
        if rng.random() < 0.3:
            pairs += [f"{names.SHARDING_KEY}\x01s\x02", f"{names.DELAY}\x013\x02",
                      f"{names.TIMER_DELIVER_MS}\x011700000000123\x02"]
        if irregular and rng.random() < 0.3:
            pairs.append(rng.choice([
                "a\x01again\x02", "\x01x\x02", "empty\x01\x02", "none\x02", "b\x01c\x01d\x02",
                "\x02\x02", f"{names.DELAY}\x01x\x02"]))
        rng.shuffle(pairs)
        text = "".join(pairs if rng.random() < 0.9 else [])
        if irregular and rng.random() < 0.2:
            text = text.removesuffix("\x02")
        found.append(encoded(
            rng.choice(["T", "topic_2", "%RETRY%" + "g" * 200]), body, text,
            queue_id=rng.randrange(8), queue_offset=rng.randrange(1 << 40), physical_offset=place,
            stored_ms=1_700_000_000_000 + index, born_ms=rng.randrange(1 << 41),
            born_host=rng.choice(_HOSTS), store_host=rng.choice(_HOSTS), flag=rng.randrange(-9, 9),
            sys_flag=sys_flag, reconsume_times=rng.randrange(17),
            prepared_transaction_offset=rng.randrange(1 << 40)))
        place += len(found[-1])
    return found


def unpacked(body: bytes, sys_flag: int) -> bytes:
    """Return a body of ``random_records`` as it was before its compression."""
    import pyarrow as pa

    if not sys_flag & 1:
        return body
    kind = sys_flag >> 8 & 7
    if kind in (0, 3):
        return zlib.decompress(body)
    with pa.CompressedInputStream(pa.BufferReader(body), {1: "lz4", 2: "zstd"}[kind]) as stream:
        return bytes(stream.read())


def row(stored: bytes, broker_name: str | None = None) -> dict[str, Any]:
    """Return the row that a record must become, with every column, from the decoder of single
    records.
    """
    message = record.decode_record(stored)
    fields = message.properties_map()
    keys = fields.get(names.KEYS)
    delay = fields.get(names.DELAY, "")
    deliver = fields.get(names.TIMER_DELIVER_MS)
    return {
        "topic": message.topic, "brokerName": broker_name, "queueId": message.queue_id,
        "queueOffset": message.queue_offset, "commitLogOffset": message.physical_offset,
        "msgId": fields.get(names.UNIQ_KEY),
        "offsetMsgId": offset_message_id(message.store_host, message.physical_offset),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "tags": fields.get(names.TAGS), "body": unpacked(message.body, message.sys_flag),
        "properties": fields, "flag": message.flag, "sysFlag": message.sys_flag,
        "bornTimestamp": _EPOCH + timedelta(milliseconds=message.born_timestamp),
        "storeTimestamp": _EPOCH + timedelta(milliseconds=message.store_timestamp),
        "bornHost": record.host_text(message.born_host),
        "storeHost": record.host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "storeSize": message.size, "bodyCRC": message.body_crc,
        "shardingKey": fields.get(names.SHARDING_KEY),
        "delayLevel": int(delay) if delay.isdecimal() else None,
        "deliverTime": None if deliver is None else _EPOCH + timedelta(milliseconds=int(deliver)),
        "damage": None,
    }
