"""Long registrations that are read in parts."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.bodies.registration import decoding_topics
from twistmq.protocol.bodies.table_parts import PART_BYTES, read_table
from twistmq.protocol.errors import WireError

#: So many topics make a body of several parts.
COUNT = 8 * PART_BYTES // 150
ATTRIBUTES = {"+a": '},"T1":{"', "+b": "}}", "+c": "\\\"},\"x\":{"}


def long_body(**fields: Any) -> RegisterBrokerBody:
    """Return a body with topics of one kind."""
    topics = {f"T{number}": TopicConfig(f"T{number}", number % 9, 4, **fields)
              for number in range(COUNT)}
    return RegisterBrokerBody(TopicConfigSerializeWrapper(topics, DataVersion(1, 2, 3)), ["f:1"])


def drain(data: bytes) -> tuple[RegisterBrokerBody, int]:
    """Read; :returns: the body, and how often the reading paused."""
    work = RegisterBrokerBody.decoding(data)
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def reordered(body: RegisterBrokerBody, *, last: str = "", indent: int | None = None) -> bytes:
    """The body as another writer might write it, one field of each topic the last."""
    plain = json.loads(body.encode())
    wrapper = plain["topicConfigSerializeWrapper"]
    for row in wrapper["topicConfigTable"].values():
        if last:
            row[last] = row.pop(last)
    wrapper["topicConfigTable"] = wrapper.pop("topicConfigTable")
    wrapper["topicQueueMappingInfoMap"] = {"S": {"topic": "S", "currIdMap": {"0": 1}}}
    return json.dumps(plain, indent=indent).encode()


class LongTableTests(SynchronousTestCase):
    """The method RegisterBrokerBody.decoding."""

    def test_decoding_in_parts_equals_one_call_of_the_decoder(self) -> None:
        """Parts of PART_BYTES give the same as one call of the decoder."""
        for body in (long_body(), long_body(attributes=ATTRIBUTES), long_body(order=True)):
            data = body.encode()
            found, pauses = drain(data)
            self.assertEqual(found, body)
            self.assertGreater(pauses, 5)
            self.assertLessEqual(abs(pauses - len(data) // PART_BYTES), 2)

    def test_topics_alone(self) -> None:
        """The bodies of brokers before 3.0.11 are read in parts as well."""
        wrapper = long_body().topic_config_serialize_wrapper
        work = decoding_topics(wrapper.encode())
        pauses = 0
        while True:
            try:
                next(work)
            except StopIteration as done:
                self.assertEqual(done.value, wrapper)
                break
            pauses += 1
        self.assertGreater(pauses, 5)
        other = b'{"topicQueueMappingDetailMap":{%b"":{}}}' % (b'"x":{},' * 90_000)
        with self.assertRaises(WireError):
            next(decoding_topics(other))

    def test_written_otherwise(self) -> None:
        """So it is with blanks, fields in any order, and members behind the table."""
        bodies = (long_body(), long_body(attributes={"+a": "b"}), long_body(attributes=ATTRIBUTES))
        for body, last, indent in drawn(itertools.product(
                bodies, ("topicName", "attributes", "order"), (None, 1))):
            data = reordered(body, last=last, indent=indent)
            found, pauses = drain(data)
            wrapper = found.topic_config_serialize_wrapper
            self.assertEqual(wrapper.topic_config_table,
                             body.topic_config_serialize_wrapper.topic_config_table)
            assert wrapper.topic_queue_mapping_info_map is not None
            self.assertEqual(wrapper.topic_queue_mapping_info_map["S"].curr_id_map, {0: 1})
            if not body.topic_config_serialize_wrapper.topic_config_table["T1"].attributes:
                self.assertGreater(pauses, 5, msg=f"{last} {indent}")

    def test_a_short_body_is_read_in_one_call(self) -> None:
        """A short body is read in one call."""
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfig("T")}))
        self.assertEqual(drain(body.encode()), (body, 0))

    def test_table_that_is_not_the_topics(self) -> None:
        """A member of that name at another place is not used."""
        body = long_body()
        other = b'{"extra":{"topicConfigTable":{%s}},' % b",".join(
            [b'"X%d":{"topicName":"X%d"}' % (number, number) for number in range(COUNT)])
        self.assertEqual(drain(other + body.encode()[1:])[0], body)
        self.assertEqual(drain(other + b'"filterServerList":[]}')[0], RegisterBrokerBody())

    def test_a_damaged_long_table_is_refused_wherever_the_damage_is(self) -> None:
        """Invalid JSON and wrong types are refused, wherever they are."""
        # Long enough not to be read as the dialect.
        data = long_body().encode() + b" " * 1_000
        refused = 0
        places = drawn(range(0, len(data) - 1_000, len(data) // 99))
        for place in places:
            for damage in (data[:place] + b" " * 1_000, data[:place] + b"\0" + data[place:],
                           data[:place] + b"}" + data[place:], data[:place] + data[place + 9:]):
                want: RegisterBrokerBody | None = None
                try:
                    want = msgspec.json.decode(damage, type=RegisterBrokerBody, strict=False)
                except msgspec.MsgspecError:
                    refused += 1
                    with self.assertRaises(WireError, msg=str(place)):
                        drain(damage)
                else:
                    # It was in a name.
                    self.assertEqual(drain(damage)[0], want)
        # Of the four damages at a place, the byte 0 is refused at least.
        self.assertGreaterEqual(refused, len(places))
        row = b'"T5":{"attributes":{},"order":false,"perm":6,'
        self.assertIn(row, data)
        for wrong in (row.replace(b"6", b"{}"), b'"T5":null,"T5x":{"topicName":"y",'):
            with self.assertRaises(WireError):
                drain(data.replace(row, wrong))

    def test_no_table(self) -> None:
        """A body without the table is not read in parts."""
        work = read_table(b"{}" + b" " * 100_000)
        with self.assertRaises(StopIteration) as raised:
            next(work)
        self.assertIsNone(raised.exception.value)
