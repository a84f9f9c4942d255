"""The registration of a broker: both forms, older brokers, damage, and compression bombs."""

import base64
import struct
import zlib
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.protocol.bodies.registration import (
    MAPPING_VERSION_MIN,
    REGISTRATION_SIZE_MAX,
    _Reader,
)
from twistmq.protocol.errors import WireError

GOLDEN = Path(__file__).resolve().parents[2] / "golden/json/dialect-5.3.3.txt"

BODY = RegisterBrokerBody(
    TopicConfigSerializeWrapper(
        {"T": TopicConfig("T", 4, 8, 6, attributes={"message.type": "FIFO"})},
        DataVersion(0, 1_700_000_000_000, 2),
        topic_queue_mapping_info_map={
            "S": TopicQueueMappingInfo("S", total_queues=2, bname="broker-a", epoch=7,
                                       curr_id_map={0: 1})
        },
    ),
    ["127.0.0.1:1"],
)
INFLATED = zlib.decompress(BODY.encode(True))
#: The inflated body without its last part, as brokers before 5 send it.
OLD = INFLATED[: INFLATED.rindex(b'["127.0.0.1:1"]') + len(b'["127.0.0.1:1"]')]


def piece(data: bytes) -> bytes:
    """Return a piece with its length before it."""
    return struct.pack(">i", len(data)) + data


VERSION = piece(b'{"counter":2}')
NO_TOPICS = struct.pack(">i", 0)
ONE_TOPIC = struct.pack(">i", 1) + piece(b"T 1 1 6 SINGLE_TAG {}")
SERVERS = piece(b"[]")

#: (what is wrong, inflated body, part of the error).
MALFORMED = [
    ("empty", b"", "ends at byte 0"),
    ("length negative", struct.pack(">i", -1), "length -1 at byte 0"),
    ("length too large", struct.pack(">i", 2**31 - 1) + b"{}", "2147483647 bytes at 0"),
    ("length over the end", struct.pack(">i", 3) + b"{}", "length 3 at byte 0"),
    ("version no JSON", piece(b"x"), "DataVersion"),
    ("count negative", VERSION + struct.pack(">i", -1), "count -1"),
    ("count too large", VERSION + struct.pack(">i", 2**31 - 1) + bytes(99), "count 2147483647"),
    ("topic wrong", VERSION + struct.pack(">i", 1) + piece(b"T 1 1"), "3 of at least 5"),
    ("servers no JSON", VERSION + NO_TOPICS + piece(b"["), "filter servers"),
    ("servers no list", VERSION + NO_TOPICS + piece(b'{"a":1}'), "filter servers"),
    ("servers of numbers", VERSION + NO_TOPICS + piece(b"[1]"), "filter servers"),
    ("no mappings", VERSION + NO_TOPICS + SERVERS, "ends at byte"),
    ("mapping wrong", VERSION + ONE_TOPIC + SERVERS + struct.pack(">i", 1) + piece(b"[]"),
     "TopicQueueMappingInfo"),
]


def captured(name: str) -> bytes:
    """Return one of the captured cases."""
    rows = dict(line.split("\t") for line in GOLDEN.read_text().splitlines())
    return base64.b64decode(rows[name])


class RegisterBrokerBodyTests(SynchronousTestCase):
    """The class RegisterBrokerBody."""

    def test_compressed_as_apache(self) -> None:
        """The compressed body that Apache wrote is read, and written as the same bytes."""
        data = captured("RegisterBrokerBody.compressed")
        self.assertEqual(RegisterBrokerBody.decode(data, True, 479), BODY)
        self.assertEqual(BODY.encode(True), data)

    def test_plain_as_apache(self) -> None:
        """The plain form is equal as well, and has the version of the mappings."""
        data = captured("RegisterBrokerBody")
        body = RegisterBrokerBody.decode(data)
        wrapper = body.topic_config_serialize_wrapper
        self.assertEqual(wrapper.mapping_data_version, DataVersion(0, 1_700_000_000_001, 4))
        self.assertEqual(body.encode(), data)
        wrapper.mapping_data_version = wrapper.topic_queue_mapping_detail_map = None
        self.assertEqual(body, BODY)

    def test_older_brokers(self) -> None:
        """A body of a broker before 5 ends without mappings; that of a newer one must not."""
        data = zlib.compress(OLD)
        wrapper = RegisterBrokerBody.decode(
            data, True, MAPPING_VERSION_MIN - 1
        ).topic_config_serialize_wrapper
        self.assertEqual(list(wrapper.topic_config_table), ["T"])
        self.assertIsNone(wrapper.topic_queue_mapping_info_map)
        self.assertRaises(WireError, RegisterBrokerBody.decode, data, True, MAPPING_VERSION_MIN)

    def test_plain_of_older_brokers(self) -> None:
        """A plain body of 4.9 has no attributes and no mappings."""
        body = RegisterBrokerBody.decode(
            b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
            b'"timestamp":5},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":4,'
            b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
            b'"writeQueueNums":4}}}}'
        )
        self.assertEqual(body, RegisterBrokerBody(TopicConfigSerializeWrapper(
            {"T": TopicConfig("T", 4, 4)}, DataVersion(0, 5, 1))))

    def test_each_malformed_part_is_refused_with_its_name(self) -> None:
        """The error names the malformed part."""
        for name, inflated, part in MALFORMED:
            error = self.assertRaises(
                WireError, RegisterBrokerBody.decode, zlib.compress(inflated), True, 479
            )
            self.assertIn(part, str(error), msg=name)

    def test_every_cut(self) -> None:
        """A body that is cut anywhere, before or after it was compressed, is refused."""
        for end in range(len(INFLATED)):
            self.assertRaises(WireError, RegisterBrokerBody.decode,
                              zlib.compress(INFLATED[:end]), True, 479)
        for data in (b"", b"\0", b"no zlib at all", b"\x78\xda\xff\xff"):
            self.assertRaises(WireError, RegisterBrokerBody.decode, data, True, 479)

    def test_a_body_that_inflates_without_end_is_refused_at_the_limit(self) -> None:
        """A body that inflates without end is refused at the limit."""
        bomb = zlib.compress(bytes(REGISTRATION_SIZE_MAX + 1), 9)
        self.assertLess(len(bomb), 100_000)
        error = self.assertRaises(WireError, RegisterBrokerBody.decode, bomb, True, 479)
        self.assertIn("over", str(error))

    def test_millions_of_nothing(self) -> None:
        """Of millions of invalid topics only the first is examined."""
        version = DataVersion().encode()
        head = struct.pack(">i", len(version)) + version
        count = (REGISTRATION_SIZE_MAX - len(head) - 4) // 4
        bomb = zlib.compress(head + struct.pack(">i", count) + bytes(4 * count))
        cut: list[bytes] = []
        piece = _Reader.piece

        def counted(reader: _Reader, size_max: int) -> bytes:
            cut.append(piece(reader, size_max))
            return cut[-1]

        self.patch(_Reader, "piece", counted)
        self.assertRaises(WireError, RegisterBrokerBody.decode, bomb, True, 479)
        self.assertEqual(cut, [version, b""])

    def steps(self, data: bytes, compressed: bool) -> tuple[int, str]:
        """Return the number of pauses of the reading, and its error, or an empty text."""
        work = RegisterBrokerBody.decoding(data, compressed)
        for pauses in count():
            try:
                next(work)
            except StopIteration:
                return pauses, ""
            except WireError as error:
                return pauses, str(error)
        raise AssertionError

    def test_long_parts_are_refused(self) -> None:
        """A part that is longer than necessary is refused."""
        many = b",".join([b'"%d":"1"' % number for number in range(3000)])
        for what, inflated, reason in (
            ("version", piece(b"{%b}" % many), "the limit is 1024"),
            ("topic", VERSION + struct.pack(">i", 1) + piece(b"T 1 1 6 SINGLE_TAG {%b}" % many),
             "the limit is 16384"),
            ("servers", VERSION + NO_TOPICS + piece(b"[%b]" % b",".join([b'""'] * 9000)),
             "the limit is"),
            ("mapping of nothing", VERSION + NO_TOPICS + SERVERS + struct.pack(">i", 1)
             + piece(b"{}"), "count 1"),
            ("mapping", VERSION + ONE_TOPIC + SERVERS + struct.pack(">i", 1)
             + piece(b"{}" + b" " * 300_000), "the limit is 262144"),
        ):
            self.assertIn(reason, self.steps(zlib.compress(inflated), True)[1], msg=what)

    def test_others_have_turns(self) -> None:
        """While much is inflated, and while many mappings and long topics are read."""
        self.assertGreater(self.steps(zlib.compress(bytes(10_000_000)), True)[0], 30)
        topics = [b"T%d 1 1 6 SINGLE_TAG {}" % number for number in range(2000)]
        mappings = [b'{"topic":"T%d"}' % number for number in range(2000)]
        body = VERSION + struct.pack(">i", 2000) + b"".join(map(piece, topics))
        few = self.steps(zlib.compress(body + SERVERS + NO_TOPICS), True)
        many = self.steps(zlib.compress(
            body + SERVERS + struct.pack(">i", 2000) + b"".join(map(piece, mappings))), True)
        self.assertEqual((few[1], many[1]), ("", ""))
        self.assertGreaterEqual(many[0] - few[0], 15)
        long = [b"T%d 1 1 6 SINGLE_TAG {}%b" % (number, b" " * 16_000) for number in range(50)]
        pauses, reason = self.steps(zlib.compress(
            VERSION + struct.pack(">i", 50) + b"".join(map(piece, long)) + SERVERS + NO_TOPICS),
            True)
        self.assertEqual(reason, "")
        self.assertGreaterEqual(pauses, 24)

    def test_what_cannot_be_read_in_parts(self) -> None:
        """A plain body that is long for another reason than its topics is refused unread."""
        mappings = b",".join([b'"T%d":{"topic":"T%d"}' % (n, n) for n in range(30_000)])
        escaped = b",".join([b'"\\u0054%d":{"topicName":"T%d"}' % (n, n) for n in range(20_000)])
        for what, body in (
            ("nothing", b'{"x":[%b1]}' % (b"1," * 300_000)),
            ("servers", b'{"filterServerList":[%b""]}' % (b'"",' * 200_000)),
            ("mappings", b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{%b}}}'
             % mappings),
            ("escaped", b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}' % escaped),
        ):
            self.assertGreater(len(body), 512 * 1024)
            pauses, reason = self.steps(body, False)
            self.assertIn("cannot be read in parts", reason, msg=what)
            self.assertEqual(pauses, 0, msg=what)

    @given(st.integers(0, len(INFLATED) - 1), st.binary(max_size=6))
    def test_a_damaged_body_is_read_or_is_a_wireerror(self, place: int, patch: bytes) -> None:
        """Any damage leaves a readable body or raises a WireError."""
        data = INFLATED[:place] + patch + INFLATED[place + len(patch) :]
        for version in (MAPPING_VERSION_MIN - 1, MAPPING_VERSION_MIN):
            try:
                RegisterBrokerBody.decode(zlib.compress(data), True, version)
            except WireError:
                continue
