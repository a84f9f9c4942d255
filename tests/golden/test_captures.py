"""Our codecs with data of Apache's clients and servers: tests/golden/frames and store-edges."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.consume_queue import ENTRY, FILLER
from twistmq.broker.store.extension_unit import FILE_END, ExtensionUnit, is_address, place_of
from twistmq.broker.store.index_tail import HEADER, ITEM, ITEM_SIZE
from twistmq.plugins.admin.queues import ConsumeQueueData, QueryConsumeQueueResponseBody
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.registration import RegisterBrokerBody
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.namesrv import RegisterBrokerRequestHeader
from twistmq.protocol.headers.table import HEADERS
from twistmq.protocol.properties import java_string_hash, parse_properties
from twistmq.protocol.record import (
    CHECK_FILE_END,
    MAGIC_V2,
    MessageRecord,
    StoredMessage,
    check_record,
    decode_record,
    encode_record,
)

HERE = Path(__file__).resolve().parent


def rows(part: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The index rows of a part, each with its file's bytes."""
    for row in json.loads((HERE / part / "index.json").read_text())["files"]:
        yield row, (HERE / part / row["file"]).read_bytes()


def decode(data: bytes) -> RemotingCommand:
    """Return the only command of a capture."""
    (frame,) = FrameDecoder().feed(data)
    return decode_command(frame)


class IndexTests(SynchronousTestCase):
    """The list of captures agrees with the folder."""

    def test_every_file_is_listed(self) -> None:
        """Each file of the folder is in the index, and none is missing."""
        for part in ("frames", "store-edges", "store-batch", "extension", "filter", "metrics",
                     "mqadmin", "mqadmin-options", "trace", "client", "replication",
                     "dledger", "dledger-frames", "dledger-transcripts"):
            folder = HERE / part
            found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")
                     if path.is_file()}
            listed = {row["file"] for row, data in rows(part) if row["size"] == len(data)}
            self.assertEqual(found - {"index.json"}, listed, msg=part)


class FrameTests(SynchronousTestCase):
    """Every captured frame, requests of four clients and replies of Apache's servers."""

    def test_frames_come_whole_from_single_bytes(self) -> None:
        """However the bytes arrive, one frame is complete with the last of them."""
        for row, data in rows("frames"):
            decoder = FrameDecoder()
            early = [decoder.feed(data[at:at + 1]) for at in range(len(data) - 1)]
            self.assertFalse(any(early), msg=row["file"])
            self.assertEqual(len(decoder.feed(data[-1:])), 1, msg=row["file"])

    def test_headers_fit_their_classes(self) -> None:
        """Each request has the header of its code, and each successful reply that of the reply."""
        for row, data in rows("frames"):
            command = decode(data)
            is_request = row["file"].endswith(".request.bin")
            self.assertEqual(command.is_response, not is_request, msg=row["file"])
            if is_request:
                self.assertEqual(command.code, row["code"], msg=row["file"])
            pair = HEADERS.get(row["code"])
            if pair is None or (not is_request and command.code) or "no-" in row["file"]:
                continue
            header = command.header(pair.request if is_request else pair.response)
            self.assertIsNotNone(header, msg=row["file"])

    def test_bodies_are_read(self) -> None:
        """Every body that looks like JSON is some to the dialect's reader."""
        count = 0
        for row, data in rows("frames"):
            body = decode(data).body
            if body[:1] in (b"{", b"["):
                count += 1
                value = json_dialect.decode(body)
                self.assertTrue(isinstance(value, dict | list), msg=row["file"])
        self.assertGreater(count, 30)

    def test_pulled_records(self) -> None:
        """The body of a pull's answer is records, one after the other, with right CRCs."""
        count = 0
        for row, data in rows("frames"):
            if row["code"] != 11 or not row["file"].endswith("-0.reply.bin"):
                continue
            body = decode(data).body
            at = 0
            while at < len(body):
                message = decode_record(body, at)
                self.assertEqual(encode_record(record_of(message)), body[at:at + message.size],
                                 msg=f"{row['file']} at {at}")
                at += message.size
                count += 1
            self.assertEqual(at, len(body), msg=row["file"])
        self.assertGreater(count, 3)

    def test_plain_and_compressed_registrations_name_the_brokers_own_topics(self) -> None:
        """Plain and compressed registrations name the broker's own topics."""
        count = 0
        for row, data in rows("frames"):
            if row["code"] != 103 or not row["file"].endswith("request.bin"):
                continue
            count += 1
            command = decode(data)
            header = command.header(RegisterBrokerRequestHeader)
            # 5.3.3 says "false" of a body that it compresses.
            compressed = "compressed" in row["file"]
            self.assertEqual(header.compressed, "4.9.4" in row["file"], msg=row["file"])
            body = RegisterBrokerBody.decode(command.body, compressed, command.version)
            table = body.topic_config_serialize_wrapper.topic_config_table
            self.assertIn("TBW102", table, msg=row["file"])
            self.assertIn("BenchmarkTest", table, msg=row["file"])
        self.assertEqual(count, 5)


def record_of(message: StoredMessage) -> MessageRecord:
    """Return the input of the encoder that gives the record of a stored message."""
    record = MessageRecord(
        message.topic, message.queue_id, message.body, message.properties, message.born_timestamp,
        message.born_host, message.store_host, [], flag=message.flag, sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset)
    record.queue_offset = message.queue_offset
    record.physical_offset = message.physical_offset
    record.store_timestamp = message.store_timestamp
    return record


class ExtensionTests(SynchronousTestCase):
    """A queue and its extension."""

    def setUp(self) -> None:
        self.files = {row["file"]: data for row, data in rows("extension")}

    def units(self, topic: str) -> list[ExtensionUnit]:
        """Return the units to which the entries of a queue refer."""
        found = []
        for _, _, code in ENTRY.iter_unpack(self.files[f"{topic}/queue.bin"]):
            self.assertTrue(is_address(code))
            place = place_of(code)
            data = self.files[f"{topic}/{place - place % 1024:020d}"]
            unit = ExtensionUnit.decode(data, place % 1024)
            assert unit is not None
            self.assertEqual(data[place % 1024:place % 1024 + unit.size], unit.encode())
            found.append(unit)
        return found

    def test_each_unit_has_its_messages_tag_time_and_bit(self) -> None:
        """Each has the tag and the time of its message, and the bit of the group."""
        units = self.units("GoldenExtension")
        self.assertEqual([unit.tags_code for unit in units],
                         [java_string_hash(f"Tag{number % 3}") for number in range(32)])
        self.assertEqual([any(unit.bitmap) for unit in units],
                         [number > 5 for number in range(32)])
        self.assertEqual({len(unit.bitmap) for unit in units}, {14})
        self.assertEqual(units, sorted(units, key=lambda unit: unit.store_time))
        plain = self.units("GoldenExtensionPlain")
        self.assertEqual([(unit.tags_code, unit.bitmap) for unit in plain], [(ord("T"), b""),
                                                                             (0, b"")])

    def test_end_of_a_file(self) -> None:
        """A mark and zeros behind the last unit that leaves four bytes."""
        first = self.files[f"GoldenExtension/{0:020d}"]
        self.assertEqual(first[30 * 34:], FILE_END + bytes(2))

    def test_our_answer_to_321_equals_the_capture(self) -> None:
        """The entries have the same descriptions."""
        body = QueryConsumeQueueResponseBody.decode(self.files["answer-321.json"])
        entries = ENTRY.iter_unpack(self.files["GoldenExtension/queue.bin"])
        units = self.units("GoldenExtension")

        class Wants:
            """The filter of the group, as the bitmap has it."""

            def match_queue_entry(self, tags_code: int, store_time: int | None = None,
                                  bitmap: bytes | None = None) -> bool:
                return any(bitmap or b"")

            def match_record(self, record: bytes | memoryview) -> bool:
                return True

        self.assertEqual(body.queue_data, [
            ConsumeQueueData.of(entry, unit, Wants(), True)
            for entry, unit in zip(entries, units, strict=True)][:8])


class StoreEdgeTests(SynchronousTestCase):
    """Special cases of the formats of a store."""

    def setUp(self) -> None:
        """Read every file of the part."""
        self.files = {row["file"]: (row, data) for row, data in rows("store-edges")}

    def test_record_with_a_long_topic(self) -> None:
        """The V2 record is read, and written again byte for byte."""
        _, data = self.files["v2-record.bin"]
        self.assertEqual(struct.unpack_from(">i", data, 4)[0], MAGIC_V2)
        message = decode_record(data)
        self.assertEqual(message.topic, "%RETRY%" + "g" * 125)
        self.assertEqual(check_record(data), len(data))
        self.assertEqual(encode_record(record_of(message)), data)
        self.assertNotEqual(check_record(data), CHECK_FILE_END)

    def test_entries_whose_messages_are_gone_are_filler(self) -> None:
        """Entries of deleted messages are fillers; real ones follow them."""
        _, data = self.files["queue-with-filler.bin"]
        units = [data[at:at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]
        fillers = [unit == FILLER for unit in units]
        first = fillers.index(False)
        self.assertGreater(first, 0)
        self.assertNotIn(True, fillers[first:])
        places = [ENTRY.unpack(unit)[0] for unit in units[first:]]
        self.assertEqual(places, sorted(places))
        self.assertEqual(ENTRY.unpack(units[first])[2], java_string_hash("T"))

    def test_index_of_the_default_size(self) -> None:
        """Slots and items of each key are where our hash looks for them."""
        header_row, header = self.files["index/header.bin"]
        items_row, items = self.files["index/items.bin"]
        slots_row, text = self.files["index/slots.json"]
        slots = dict(json.loads(text))
        slot_count = (items_row["source_offset"] - slots_row["source_offset"]) // 4
        *_, used, count = HEADER.unpack(header)
        self.assertEqual(len(slots), used)
        self.assertEqual(len(items), count * ITEM_SIZE)
        self.assertEqual(header_row["source_offset"], 0)
        for number in range(40):
            key_hash = abs(java_string_hash(f"GoldenEdges#key{number}"))
            item = slots[key_hash % slot_count]
            self.assertEqual(ITEM.unpack_from(items, item * ITEM_SIZE)[0], key_hash)
        shared = abs(java_string_hash("GoldenEdges#shared"))
        self.assertGreaterEqual(self.chain(items, slots[shared % slot_count]), 40)

    @staticmethod
    def chain(items: bytes, item: int) -> int:
        """Return the number of items in the chain of a slot."""
        count = 0
        while item:
            count += 1
            item = ITEM.unpack_from(items, item * ITEM_SIZE)[3]
        return count

    def test_small_files(self) -> None:
        """abort has the process id, lock its word, checkpoint five times of which two are set."""
        self.assertTrue(self.files["abort"][1].decode().isdigit())
        self.assertEqual(self.files["lock"][1], b"lock")
        _, data = self.files["checkpoint"]
        checkpoint = Checkpoint.decode(data, "checkpoint")
        self.assertEqual(checkpoint.encode(), data)
        self.assertGreater(checkpoint.physic_msg_timestamp, 0)
        self.assertGreater(checkpoint.logics_msg_timestamp, 0)

    def test_configuration_files(self) -> None:
        """Every file is read; the offsets have numbers as keys."""
        names = [name for name in self.files if name.startswith("config/")]
        self.assertGreater(len(names), 6)
        for name in names:
            if name != "config/timercheck":  # Binary.
                table = json_dialect.decode(self.files[name][1])
                self.assertTrue(table and isinstance(table, dict), msg=name)
        offsets = json_dialect.decode(self.files["config/consumerOffset.json"][1])["offsetTable"]
        self.assertIn({0: 17}, offsets.values())


class PropertyTests(SynchronousTestCase):
    """The properties that clients set."""

    def test_unicode_properties(self) -> None:
        """The Java client's property outside ASCII arrives in both encodings of the header."""
        for part in ("java-json", "java-rocketmq"):
            data = (HERE / "frames" / part / "310-send-v2-0.request.bin").read_bytes()
            properties = parse_properties(decode(data).fields()["i"])
            self.assertEqual(properties["имя"], "значение ☃", msg=part)
            self.assertEqual(properties["KEYS"], "key1 ключ2", msg=part)
