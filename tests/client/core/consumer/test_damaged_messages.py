"""Damaged records in the answers to pulls and pops, with a clock of the test."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.fetcher import STOPPED_MS
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    encode_record,
)

QUEUE = MessageQueue("T", "a", 0)
BODY, SIZE, MAGIC, SYS_FLAG, LENGTH, CRC = 88, 0, 4, 36, 84, 8


def set_int(place: int, value: int) -> Callable[[bytes], bytes]:
    """Write an int32 into a record."""
    return lambda record: record[:place] + struct.pack(">i", value) + record[place + 4:]


def flip(record: bytes) -> bytes:
    """Change the body, and keep the CRC of the old one."""
    return record[:BODY] + bytes([record[BODY] ^ 1]) + record[BODY + 1:]


def as_batch(record: bytes) -> bytes:
    """Mark the record as an inner batch whose body is none."""
    return set_int(SYS_FLAG, SYS_INNER_BATCH | SYS_NEED_UNWRAP)(record)


def properties_longer(record: bytes) -> bytes:
    """Make the properties longer than the record."""
    at = BODY + struct.unpack(">i", record[LENGTH:BODY])[0]
    at += 1 + record[at]
    return record[:at] + b"\x7f\xff" + record[at + 2:]


#: What can be wrong with a record whose length can be read.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "body": flip, "CRC": set_int(CRC, 5), "magic": set_int(MAGIC, 0), "batch": as_batch,
    "length of the body": set_int(LENGTH, 1 << 20), "negative": set_int(LENGTH, -1),
    "properties": properties_longer,
}
#: What makes its length wrong too.
CUTS: dict[str, Callable[[bytes], bytes]] = {
    "zero": set_int(SIZE, 0), "negative": set_int(SIZE, -5), "beyond": set_int(SIZE, 1 << 30),
    "less": set_int(SIZE, 100), "into the next": set_int(SIZE, 150),
    "all": lambda record: b"\xff" * len(record),
}


def bodies(messages: list[ReceivedMessage[Any]]) -> list[object]:
    """The body of each message, or the offset of one that is damaged."""
    return [message.offset if message.damage else message.body for message in messages]


class DamagedTests(SynchronousTestCase):
    """Six messages in a queue, of which the third is damaged."""

    def box(self, damage: Callable[[bytes], bytes], bad: int = 2, **options: Any) -> GroupBox:
        """Return a member that has read all messages."""
        broker = GroupBroker(queues=1)
        for number in range(6):
            broker.put("T", 0, b"number %d" % number, "tag")
        self.records = broker.records["T", 0]
        self.whole = self.records[bad]
        self.records[bad] = damage(self.whole)
        box = GroupBox(broker, **options)
        self.said: list[str] = []
        with self.assertLogs("twistmq.client", "ERROR") as logs:
            box.start()
            box.advance(2000)
        self.said = logs.output
        return box

    def taken(self, box: GroupBox) -> list[ReceivedMessage[Any]]:
        """Take and finish all messages."""
        found: list[ReceivedMessage[Any]] = []
        while (batch := box.member.take(100)) is not None:
            found += batch.messages
            box.member.succeed(batch.assigned, batch.messages)
        return found

    def test_the_whole_ones_come_and_the_damaged_one_is_counted(self) -> None:
        """This is the default; a line has topic, broker, queue, offset, position and the cause."""
        for name, damage in (DAMAGES | CUTS).items():
            with self.subTest(damage=name):
                box = self.box(damage)
                self.assertEqual(bodies(self.taken(box)),
                                 [b"number %d" % number for number in (0, 1, 3, 4, 5)])
                self.assertEqual(box.member.damaged_count, 1)
                [line] = self.said
                place = "2" if name != "all" else "-1"
                self.assertIn(f"T, broker a, queue 0, offset 2, commit log offset {place}> is left "
                              "out: ", line)
                box.run(box.member.commit())
                self.assertEqual(box.broker.offsets["g", "T", 0], 6)

    def test_first_and_last(self) -> None:
        """The damaged message may be the first or the last one."""
        for bad in (0, 5):
            for damage in (flip, CUTS["zero"]):
                box = self.box(damage, bad)
                self.assertEqual(len(self.taken(box)), 5)
                box.broker.put("T", 0, b"next")
                # The pull that is held here has no answer.
                box.advance(40_000)
                self.assertEqual(bodies(self.taken(box)), [b"next"])
                box.run(box.member.commit())
                self.assertEqual(box.broker.offsets["g", "T", 0], 7)

    def test_the_queue_stops_where_the_option_says_so(self) -> None:
        """Earlier messages are delivered, and the group stops there until the record is mended."""
        for damage in (flip, CUTS["beyond"], CUTS["less"]):
            box = self.box(damage, damaged="stop")
            self.assertEqual(bodies(self.taken(box)), [b"number 0", b"number 1"])
            self.assertEqual(len(self.said), 1)
            self.assertIn("queue 0, offset 2, commit log offset 2>", self.said[0])
            box.run(box.member.commit())
            self.assertEqual((box.broker.offsets["g", "T", 0], box.member.damaged_count), (2, 0))
            before = len(box.requests)
            with self.assertNoLogs("twistmq.client", "WARNING"):
                box.advance(2 * STOPPED_MS)
            self.assertLess(len(box.requests) - before, 10)
            self.records[2] = self.whole
            box.advance(2 * STOPPED_MS)
            self.assertEqual(bodies(self.taken(box)), [b"number %d" % each for each in range(2, 6)])

    def test_it_is_handed_over_marked(self) -> None:
        """It is in its place; its fields are those that can be read, and its body is missing."""
        box = self.box(flip, damaged="deliver")
        found = self.taken(box)
        self.assertEqual(bodies(found), [b"number 0", b"number 1", 2, b"number 3", b"number 4",
                                         b"number 5"])
        damaged: Any = found[2]
        self.assertEqual((damaged.damage, damaged.tags, damaged.raw),
                         ("the body's CRC does not match", "tag", self.records[2]))
        for read in (lambda: damaged.body, lambda: damaged.value):
            self.assertIn("offset 2", str(self.assertRaises(Undecodable, read)))
        self.assertEqual([message.damage for message in found if message is not damaged], [""] * 5)
        for damage in CUTS.values():
            damaged = self.taken(self.box(damage, damaged="deliver"))[2]
            self.assertEqual((damaged.raw, damaged.offset, damaged.keys), (self.records[2], 2, []))

    def test_a_damaged_message_is_never_sent_back(self) -> None:
        """A copy would have a new CRC. It is delivered again here, and finally dropped."""
        box = self.box(flip, damaged="deliver", max_attempts=1)
        for attempt in (1, 2):
            batch = box.member.take(100)
            assert batch is not None
            for message in batch.messages:
                end = box.member.fail if message.damage else box.member.succeed
                end(batch.assigned, [message])
            self.assertEqual([each.attempt for each in batch.messages if each.damage], [attempt])
            box.advance(6000)
        self.assertIsNone(box.member.take(100))
        self.assertEqual(box.broker.sent_back, [])
        box.run(box.member.commit())
        self.assertEqual(box.broker.offsets["g", "T", 0], 6)

    def test_several_in_one_answer(self) -> None:
        """Each is counted, also one that hides the records after it."""
        broker = GroupBroker(queues=1)
        for number in range(40):
            broker.put("T", 0, b"%d" % number)
        records = broker.records["T", 0]
        for number, damage in ((0, flip), (1, CUTS["zero"]), (2, CUTS["into the next"]),
                               (3, as_batch), (20, CUTS["less"]), (39, CUTS["all"])):
            records[number] = damage(records[number])
        box = GroupBox(broker, pull_count=8)
        with self.assertLogs("twistmq.client", "ERROR") as logs:
            box.start()
            box.advance(20_000)
        self.assertEqual(sorted(box.take_all()), [*range(4, 20), *range(21, 39)])
        self.assertEqual((box.member.damaged_count, len(logs.output)), (6, 6))

    def test_a_tag_that_is_not_wanted(self) -> None:
        """A damaged message with another tag of the same hash does not belong to the group."""
        broker = GroupBroker(queues=1)
        for tag in ("Aa", "BB", "Aa"):
            broker.put("T", 0, b"5", tag)
        broker.records["T", 0][1] = flip(broker.records["T", 0][1])
        box = GroupBox(broker, expression="Aa", damaged="deliver")
        box.start()
        self.assertEqual(box.take_all(), [5, 5])

    def test_a_compressed_inner_batch(self) -> None:
        """It is decompressed, as in Apache's client."""
        import zlib

        broker = GroupBroker(queues=1)
        body = zlib.compress(encode_batch([(0, b"1", ""), (0, b"2", "")]))
        flags = SYS_INNER_BATCH | SYS_NEED_UNWRAP | SYS_COMPRESSED
        made = MessageRecord("T", 0, body, "", 1, bytes(8), bytes(8), [], sys_flag=flags)
        broker.records["T", 0].append(encode_record(made))
        box = GroupBox(broker)
        box.start()
        self.assertEqual(box.take_all(), [1, 2])
