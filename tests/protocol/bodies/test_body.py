"""Every body: Apache's bytes, those of other clients, and damaged ones.

Captured: tests/golden/json by Dialect.java, tests/golden/config by a broker that Fill.java used.
"""

import base64
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.protocol import bodies, json_dialect
from twistmq.protocol.bodies import (
    Body,
    BrokerData,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeType,
    DelayOffsetSerializeWrapper,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    MessageQueue,
    OffsetWrapper,
    ProducerData,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.bodies.body import DIALECT_SIZE_MAX, ODD_SIZE_MAX
from twistmq.protocol.errors import WireError

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


class SizeTests(SynchronousTestCase):
    """A body that is not plain JSON is decoded slowly, so the size of a peer's body has a limit."""

    def test_over_it_a_body_is_refused_unread(self) -> None:
        """Such a body above the limit is refused unread, and so is plain JSON of a wrong type."""
        table = ",".join(f'"T{number}@g":{{0:1}}' for number in range(40_000))
        data = f'{{"offsetTable":{{{table}}}}}'.encode()
        self.assertGreater(len(data), DIALECT_SIZE_MAX)
        error = self.assertRaises(WireError, ConsumerOffsetSerializeWrapper.decode, data)
        self.assertIn(f"{len(data)} bytes", str(error))
        saved = ConsumerOffsetSerializeWrapper.decode_saved(data)
        self.assertEqual(saved.offset_table["T39999@g"], {0: 1})
        self.assertEqual(ConsumerOffsetSerializeWrapper.decode_reply(data), saved)
        wrong = b'{"clientID":5,"x":"%s"}' % (b"x" * DIALECT_SIZE_MAX)
        self.assertRaises(WireError, HeartbeatData.decode, wrong)

    def test_rows_that_cannot_be_read(self) -> None:
        """Single rows are left out and named, even in a table of tables."""
        data = (b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:1,99999999999:2},'
                b'"U@g":{"0":100000000000000000000,"1":2},"V@g":7}}')
        self.assertRaises(WireError, ConsumerOffsetSerializeWrapper.decode_saved, data)
        saved, faults = ConsumerOffsetSerializeWrapper.decode_rows(data)
        self.assertEqual(saved.offset_table, {"T@g": {0: 1}, "U@g": {1: 2}})
        assert saved.data_version is not None
        self.assertEqual(saved.data_version.counter, 3)
        self.assertEqual([fault.partition(": ")[0] for fault in faults],
                         ["offsetTable['T@g']['99999999999']", "offsetTable['U@g']['0']",
                          "offsetTable['V@g']"])
        whole = b'{"offsetTable":{"T@g":{"0":1}}}'
        self.assertEqual(ConsumerOffsetSerializeWrapper.decode_rows(whole),
                         (ConsumerOffsetSerializeWrapper.decode_saved(whole), []))

    def test_more_than_rows_is_wrong(self) -> None:
        """An error outside single rows is raised: it may be in the JSON, the table or a member."""
        for data in (b"{", b"[]", b'{"offsetTable":5}', b'{"offsetTable":null}',
                     b'{"offsetTable":{"T@g":null}}', b'{"dataVersion":{"counter":"x"}}'):
            self.assertRaises(WireError, ConsumerOffsetSerializeWrapper.decode_rows, data)

    def test_odd_limit(self) -> None:
        """Liberties that Apache does not write make a body much slower to read."""
        data = b"{clientID:'c',x:'%s'}" % (b"x" * ODD_SIZE_MAX)
        error = self.assertRaises(WireError, HeartbeatData.decode, data)
        self.assertIn(f"{len(data)} bytes", str(error))
        self.assertEqual(HeartbeatData.decode_reply(data).client_id, "c")
        self.assertEqual(HeartbeatData.decode(data.replace(b"'", b'"').replace(
            b"clientID", b'"clientID"').replace(b",x", b',"x"')).client_id, "c")

    def test_numbers_as_keys(self) -> None:
        """Numbers have at most the digits of Java's, because larger ones can have equal hashes."""
        for key in (b'"%d"', b"%d"):
            body = b'{"brokerAddrs":{%b:"a"}}' % key
            self.assertEqual(BrokerData.decode(body % 2**60).broker_addrs, {2**60: "a"})
            self.assertRaises(WireError, BrokerData.decode, body % 2**63)

    def test_plain_json_has_no_limit_but_the_frames(self) -> None:
        """Plain JSON is limited only by the frame."""
        data = b'{"clientID":"c","x":"%s"}' % (b"x" * DIALECT_SIZE_MAX)
        self.assertEqual(HeartbeatData.decode(data).client_id, "c")

#: Every body class, by name.
BODIES: dict[str, type[Body]] = {
    name: value for name in bodies.__all__
    if isinstance(value := getattr(bodies, name), type) and issubclass(value, Body)
    and value is not Body
}

#: Bodies whose maps have object keys, which plain JSON holds as text.
OBJECT_KEYS = ("TopicStatsTable", "ConsumeStats", "ConsumerRunningInfo", "ResetOffsetBody",
               "GetConsumerStatusBody")

CONFIG_FILES: dict[str, type[Body]] = {
    "consumerOffset": ConsumerOffsetSerializeWrapper,
    "delayOffset": DelayOffsetSerializeWrapper,
    "subscriptionGroup": SubscriptionGroupWrapper,
    "topics": TopicConfigSerializeWrapper,
}

SUBSCRIPTION = SubscriptionData(
    topic="T", sub_string="a || b", tags_set={"a", "b"}, code_set={97, 98}, sub_version=17
)
CONSUMER = ConsumerData(
    group_name="G", consume_type=ConsumeType.CONSUME_PASSIVELY,
    message_model=MessageModel.CLUSTERING,
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    subscription_data_set=(SUBSCRIPTION,),
)
HEARTBEAT = HeartbeatData(
    client_id="C", producer_data_set=(ProducerData("P"),), consumer_data_set=(CONSUMER,)
)

#: The same heartbeat as clients of each kind write it.
HEARTBEATS = {
    "Java 4.9": b'{"clientID":"C","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET'
    b'","consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG",'
    b'"subString":"a || b","subVersion":17,"tagsSet":["a","b"],"topic":"T"}],"unitMode":false}],'
    b'"producerDataSet":[{"groupName":"P"}]}',
    "Go, whose codes are text": b'{"clientID":"C","producerDataSet":[{"groupName":"P"}],'
    b'"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":'
    b'"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":['
    b'{"classFilterMode":false,"topic":"T","subString":"a || b","tagsSet":["a","b"],'
    b'"codeSet":["97","98"],"subVersion":17,"expressionType":"TAG"}],"unitMode":false}]}',
    "C++, which leaves out and writes numbers as text": b'{"clientID":"C","consumerDataSet":['
    b'{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
    b'"groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{"codeSet":["97","98"],'
    b'"subString":"a || b","subVersion":"17","tagsSet":["a","b"],"topic":"T"}]}],'
    b'"producerDataSet":[{"groupName":"P"}]}\n',
    "numbered enums and nulls": b'{"clientID":"C","consumerDataSet":[{"consumeFromWhere":0,'
    b'"consumeType":1,"groupName":"G","messageModel":1,"unitMode":null,"subscriptionDataSet":['
    b'null,{"codeSet":[97,98],"subString":"a || b","subVersion":17,"tagsSet":["a","b"],'
    b'"topic":"T","expressionType":null}]}],"producerDataSet":[{"groupName":"P"}],"x":{"y":[1]}}',
    "bare names": b"{clientID:'C',consumerDataSet:[{consumeFromWhere:'CONSUME_FROM_LAST_OFFSET',"
    b"consumeType:'CONSUME_PASSIVELY',groupName:'G',messageModel:'CLUSTERING',subscriptionDataSet:"
    b"[{codeSet:[97,98],subString:'a || b',subVersion:17,tagsSet:['a','b'],topic:'T'},]}],"
    b"producerDataSet:[{groupName:'P'}]}",
}

#: (what is wrong, body class, bytes).
MALFORMED: list[tuple[str, type[Body], bytes]] = [
    ("empty", HeartbeatData, b""),
    ("null", HeartbeatData, b"null"),
    ("list", HeartbeatData, b"[]"),
    ("cut", HeartbeatData, HEARTBEATS["Java 4.9"][:-2]),
    ("no client id", HeartbeatData, b"{}"),
    ("not UTF-8", HeartbeatData, b'{"clientID":"\xff"}'),
    ("object for a list", HeartbeatData, b'{"clientID":"C","consumerDataSet":{"a":1}}'),
    ("unknown enum", HeartbeatData,
     b'{"clientID":"C","consumerDataSet":[{"groupName":"G","consumeType":"X"}]}'),
    ("enum out of range", HeartbeatData,
     b'{"clientID":"C","consumerDataSet":[{"groupName":"G","consumeType":9}]}'),
    ("code over 32 bits", SubscriptionData, b'{"topic":"T","codeSet":[2147483648]}'),
    ("deep", HeartbeatData, b'{"clientID":"C","x":' + b"[" * 100_000),
    ("deep but closed", HeartbeatData,
     b'{"clientID":"C","x":' + b"[" * 3000 + b"]" * 3000 + b"}"),
    ("queue without topic", ConsumeStats, b'{"offsetTable":{{"queueId":0}:{}}}'),
    ("text for a queue", ConsumeStats, b'{"offsetTable":{"T":{}}}'),
    ("text for an offset", ConsumerOffsetSerializeWrapper, b'{"offsetTable":{"T@G":{0:"x"}}}'),
    ("text for a queue id", ConsumerOffsetSerializeWrapper, b'{"offsetTable":{"T@G":{"a":1}}}'),
    ("topic filter unknown", TopicConfig, b'{"topicName":"T","topicFilterType":"NO_TAG"}'),
]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def strategy_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field's type."""
    match kind:
        case msgspec.inspect.IntType():
            return st.integers(-(2**63) if kind.ge is None else kind.ge,
                               2**63 - 1 if kind.le is None else kind.le)
        case msgspec.inspect.StrType():
            return text
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.AnyType():
            return st.dictionaries(text, st.integers(0, 9), max_size=2)
        case msgspec.inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case msgspec.inspect.UnionType():
            return st.one_of([strategy_of(each) for each in kind.types])
        case msgspec.inspect.ListType():
            return st.lists(strategy_of(kind.item_type), max_size=2)
        case msgspec.inspect.VarTupleType():
            return st.lists(strategy_of(kind.item_type), max_size=2).map(tuple)
        case msgspec.inspect.SetType():
            return st.sets(strategy_of(kind.item_type), max_size=3)
        case msgspec.inspect.DictType():
            return st.dictionaries(
                strategy_of(kind.key_type), strategy_of(kind.value_type), max_size=2
            )
        case msgspec.inspect.StructType():
            return st.builds(
                kind.cls, **{field.name: strategy_of(field.type) for field in kind.fields}
            )
    raise AssertionError(f"no strategy for {kind}")


any_body = st.sampled_from(sorted(BODIES)).flatmap(
    lambda name: strategy_of(msgspec.inspect.type_info(BODIES[name]))
)


def golden() -> dict[str, bytes]:
    """Return the captured bodies of Apache's, by name."""
    rows = [line.split("\t") for line in
            (GOLDEN / "json/dialect-5.3.3.txt").read_text().splitlines()]
    return {name: base64.b64decode(value) for name, value in rows}


class BodyTests(SynchronousTestCase):
    """The class Body and all its subclasses."""

    def test_as_apache(self) -> None:
        """Each captured body is read and written again with the same bytes."""
        seen = set()
        for name, data in golden().items():
            class_name, _, form = name.partition(".")
            body_type = BODIES.get(class_name)
            if body_type is None or form in ("compressed", "text"):
                continue
            if form == "standard" and class_name in OBJECT_KEYS:
                continue
            body = body_type.decode(data)
            if form.endswith("standard"):
                written = body.encode_standard()
            elif form.endswith("pretty"):
                written = body.encode_pretty()
            else:
                written = body.encode()
            self.assertEqual(written, data, msg=name)
            seen.add(class_name)
        self.assertGreater(len(seen), 20)

    def test_object_keys_in_standard_form(self) -> None:
        """Maps with object keys are written for readers of plain JSON as Apache writes them."""
        cases = golden()
        for name in OBJECT_KEYS:
            self.assertEqual(BODIES[name].decode(cases[name]).encode_standard(),
                             cases[f"{name}.standard"], msg=name)

    def test_config_files(self) -> None:
        """Files of a 5.3.3 broker, read and written, are the same files; 4.9.4's are read."""
        for name, body_type in CONFIG_FILES.items():
            data = (GOLDEN / f"config/5.3.3/{name}.json").read_bytes()
            self.assertEqual(body_type.decode(data).encode_pretty(), data, msg=name)
            old = body_type.decode((GOLDEN / f"config/4.9.4/{name}.json").read_bytes())
            again = body_type.decode(old.encode_pretty())
            self.assertEqual(again, old, msg=name)

    def test_old_config_files(self) -> None:
        """Fields that a 4.9.4 broker does not write have Java's defaults."""
        data = (GOLDEN / "config/4.9.4/subscriptionGroup.json").read_bytes()
        groups = SubscriptionGroupWrapper.decode(data).subscription_group_table
        self.assertEqual(groups["G"], SubscriptionGroupConfig("G"))
        data = (GOLDEN / "config/4.9.4/topics.json").read_bytes()
        topics = TopicConfigSerializeWrapper.decode(data).topic_config_table
        self.assertEqual(topics["T"], TopicConfig("T", 4, 4))
        data = (GOLDEN / "config/4.9.4/consumerOffset.json").read_bytes()
        offsets = ConsumerOffsetSerializeWrapper.decode(data)
        self.assertEqual(sum(offsets.offset_table["T@G"].values()), 10)
        self.assertIsNone(offsets.data_version)

    def test_clients_of_every_kind_say_the_same_with_different_bytes(self) -> None:
        """Clients of every kind say the same with different bytes."""
        for name, data in HEARTBEATS.items():
            self.assertEqual(HeartbeatData.decode(data), HEARTBEAT, msg=name)

    def test_a_missing_heartbeat_field_has_javas_default(self) -> None:
        """A missing field of a heartbeat has Java's default."""
        body = HeartbeatData.decode(b'{"clientID":"C","consumerDataSet":[{"groupName":"G",'
                                    b'"consumeFromWhere":"","subscriptionDataSet":[{"topic":"T"}'
                                    b']}]}')
        subscription = SubscriptionData("T", "*", set(), set(), 0, False, "TAG")
        self.assertEqual(body.consumer_data_set,
                         (ConsumerData("G", None, None, None, (subscription,), False),))
        self.assertEqual((body.heartbeat_fingerprint, body.without_sub), (0, False))

    def test_queues_as_keys(self) -> None:
        """A map by queue is read and written with its bare keys."""
        queue = MessageQueue("T", "broker-a", 3)
        data = b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:5}}'
        self.assertEqual(ResetOffsetBody.decode(data), ResetOffsetBody({queue: 5}))
        self.assertEqual(ResetOffsetBody({queue: 5}).encode(), data)
        stats = ConsumeStats({queue: OffsetWrapper(9, 5)}, 1.5)
        self.assertEqual(ConsumeStats.decode(stats.encode()), stats)

    def test_queues_in_a_list(self) -> None:
        """A lock request is read with a queue id as text too."""
        body = LockBatchRequestBody.decode(
            b'{"clientId":"C","consumerGroup":"G","mqSet":[{"brokerName":"b","queueId":"1",'
            b'"topic":"T"},{"brokerName":"b","topic":"T"}]}'
        )
        self.assertEqual(body.mq_set, (MessageQueue("T", "b", 1), MessageQueue("T", "b", 0)))

    def test_a_malformed_body_is_a_wire_error_that_names_it(self) -> None:
        """The error is a WireError that names the body."""
        for name, body_type, data in MALFORMED:
            with self.assertRaises(WireError, msg=name) as caught:
                body_type.decode(data)
            self.assertIn(body_type.__name__, str(caught.exception), msg=name)

    def test_a_prepared_decoder(self) -> None:
        """The first body does not have to make it."""
        class Fresh(Body):
            number: int = 0

        Fresh.prepare()
        with patch.object(msgspec.json, "Decoder", side_effect=AssertionError):
            self.assertEqual(Fresh.decode(b'{"number":7}'), Fresh(7))

    @settings(max_examples=examples(300))
    @given(any_body)
    def test_round_trip(self, body: Body) -> None:
        """Every body of every class is read as it was written, in both layouts."""
        for data in (body.encode(), body.encode_pretty()):
            self.assertEqual(type(body).decode(data), body)

    @settings(max_examples=examples(200))
    @given(any_body, st.data())
    def test_a_damaged_body_is_read_or_a_wire_error(self, body: Body, data: st.DataObject) -> None:
        """Any damage leaves a readable body or raises a WireError."""
        encoded = bytearray(body.encode())
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"{", b"}", b"[", b"null", b"0", b'"', b"-1", b"\xff", b"{a:1}"])
        )
        try:
            type(body).decode(bytes(encoded))
        except WireError:
            return

    @settings(max_examples=examples(200))
    @given(st.sampled_from(sorted(BODIES)), st.data())
    def test_any_values(self, name: str, data: st.DataObject) -> None:
        """Any JSON with the right names is read or raises a WireError."""
        values = st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | text,
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(text | st.integers(), inner, max_size=3),
            max_leaves=4,
        )
        names = [field.encode_name for field in msgspec.structs.fields(BODIES[name])]
        value = data.draw(st.dictionaries(st.sampled_from(names), values, max_size=4))
        try:
            BODIES[name].decode(json_dialect.encode(value, quote_int_keys=False))
        except WireError:
            return
