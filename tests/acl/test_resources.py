"""The permissions that each request needs."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.errors import AclError
from twistmq.acl.named import NAMES_MAX
from twistmq.acl.permissions import Permission
from twistmq.acl.resources import (
    CLUSTER,
    Needed,
    PopRetries,
    deciding_values,
    needed_by_batch_header,
    needed_resources,
    touched_resources,
)
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)
from twistmq.protocol.codes import RequestCode

PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.ANY
TOPIC_AND_GROUP = {"topic": "T", "consumerGroup": "g", "queueId": "0"}
BOTH: Needed = {"T": SUB, "%RETRY%g": SUB}
LOOKS: Needed = {"T": ANY, "%RETRY%g": SUB}
POPS: Needed = {**BOTH, PopRetries("T", "g"): SUB}
ADMIN: Needed = {CLUSTER: ANY}


#: The code, the fields and the needed permissions of requests.
ROWS: Sequence[tuple[int, dict[str, str], Needed]] = (
    (10, {"topic": "T", "producerGroup": "p"}, {"T": PUB}),
    (310, {"b": "T", "a": "p"}, {"T": PUB}),
    (320, {"b": "T", "a": "p"}, {"T": PUB}),
    (36, {"group": "g", "offset": "0"}, {"%RETRY%g": SUB}),
    (11, TOPIC_AND_GROUP, BOTH), (361, TOPIC_AND_GROUP, BOTH),
    (15, TOPIC_AND_GROUP, BOTH), (200050, TOPIC_AND_GROUP, POPS),
    (200051, TOPIC_AND_GROUP, POPS), (200052, TOPIC_AND_GROUP, POPS),
    (200053, TOPIC_AND_GROUP, POPS), (200054, TOPIC_AND_GROUP, POPS),
    (200055, TOPIC_AND_GROUP, POPS), (200050, {"topic": "T"}, {"T": SUB}),
    (12, {"topic": "T", "key": "k"}, {"T": SUB}),
    (35, {"consumerGroup": "g", "producerGroup": "p"}, {"%RETRY%g": SUB}),
    (35, {"producerGroup": "p"}, {}),
    (38, {"consumerGroup": "g"}, {"%RETRY%g": SUB}),
    (15, {"consumerGroup": "g"}, {"%RETRY%g": SUB}),
    (222, {"topic": "T", "group": "g", "timestamp": "0"}, BOTH),
    (314, {"topic": "T", "srcGroup": "h", "destGroup": "g"}, {**BOTH, "%RETRY%h": SUB}),
    (314, {"srcGroup": "h", "destGroup": "g"}, {"%RETRY%g": SUB, "%RETRY%h": SUB}),
    (309, {**TOPIC_AND_GROUP, "msgId": "x"}, BOTH),
    (321, TOPIC_AND_GROUP, BOTH), (370, {"topic": "T"}, {"T": PUB}),
    (14, TOPIC_AND_GROUP, LOOKS), (29, {"topic": "T"}, {"T": ANY}),
    (30, {"topic": "T"}, {"T": ANY}), (31, {"topic": "T"}, {"T": ANY}),
    (32, {"topic": "%DLQ%g"}, {"%DLQ%g": ANY}),
    (202, {"topic": "T"}, {"T": ANY}), (203, {"consumerGroup": "g"}, {"%RETRY%g": SUB}),
    (208, TOPIC_AND_GROUP, LOOKS),
    (208, {"consumerGroup": "g", "topicList": "T;;U"}, {**LOOKS, "U": ANY}),
    (223, {"topic": "T", "group": "g"}, LOOKS), (300, {"topic": "T"}, {"T": ANY}),
    (303, {"topic": "T", "group": "g"}, LOOKS),
    (307, {"consumerGroup": "g", "clientId": "c"}, {"%RETRY%g": SUB}),
    (307, {"consumerGroup": "g", "jstackEnable": "true"}, {"%RETRY%g": SUB, **ADMIN}),
    (308, {"topic": "T", "compareGroup": "g"}, LOOKS), (343, {"group": "g"}, {"%RETRY%g": SUB}),
    (345, {"topic": "T", "group": "g"}, LOOKS), (351, {"topic": "T"}, {"T": ANY}),
    (352, {"group": "g"}, {"%RETRY%g": SUB}), (305, {}, {}), (9999, {"topic": "T"}, {}),
    *[(code, {"topic": "T", "group": "g"}, ADMIN) for code in (
        17, 18, 21, 25, 26, 28, 43, 45, 50, 51, 52, 53, 54, 60, 61, 200, 201, 204, 207, 215, 225,
        306, 315, 316, 317, 323, 328, 329, 353, 402, 513, 905, 906, 907, 908, 1008, 200056)],
    (10, {}, {}), (310, {}, {}),
)


class NeededTests(SynchronousTestCase):
    """One row for each code."""

    def test_every_code_with_a_row_needs_its_resources(self) -> None:
        """Each code with a row is tried with and without the fields of its row."""
        for code, fields, needed in ROWS:
            self.assertEqual(needed_resources(code, fields, b""), needed, msg=f"{code} {fields}")

    def test_deciding_values(self) -> None:
        """Requests with the same values need the same permissions; if more decides, there are no
        such values.
        """
        known: dict[object, Needed] = {}
        sends = [(code, {topic: name, group: "g"}) for code, topic, group in (
            (10, "topic", "group"), (10, "topic", "producerGroup"), (310, "b", "a"),
            (320, "b", "a")) for name in ("T", "%RETRY%g", "%RETRY%h")]
        for code, fields in [*[(code, fields) for code, fields, _ in ROWS], *sends]:
            less = [{name: fields[name] for name in fields if name != left_out}
                    for left_out in fields]
            other = [{**fields, name: value} for name in ("", *fields)
                     for value in ("", "other", "%RETRY%g_T")]
            for changed in (fields, *less, *other):
                needed = needed_resources(code, changed, b"")
                values = deciding_values(code, changed, b"")
                if values is not None:
                    self.assertEqual(known.setdefault(values, needed), needed, msg=str(values))
        self.assertGreater(len(known), 40)
        for code in (10, 34, 200151, 9999):
            self.assertIsNone(deciding_values(code, TOPIC_AND_GROUP, b""), msg=str(code))

    def test_a_recall_needs_the_topic_of_the_recalled_message(self) -> None:
        """A message that recalls a timed message needs its topic, whatever code sends it."""
        properties = "KEYS\x01k\x02TIMER_DEL_UNIQKEY\x01B+KEY\x02"
        for code, topic, field, own in ((10, "topic", "properties", {"T": PUB}),
                                        (310, "b", "i", {"T": PUB}), (320, "b", "i", {"T": PUB}),
                                        (324, "topic", "properties", {}), (325, "b", "i", {})):
            fields = {topic: "T", field: properties}
            self.assertEqual(needed_resources(code, fields, b""), {**own, "B": PUB}, msg=str(code))
            self.assertIsNone(deciding_values(code, fields, b""))
            fields[field] = "KEYS\x01TIMER_DEL_UNIQKEY\x02"
            self.assertEqual(needed_resources(code, fields, b""), own)
        batch = encode_batch([(0, b"x", ""), (0, b"x", properties)])
        for code, field, is_batch in ((10, "batch", "TRUE"), (310, "m", "1"), (320, "m", "true")):
            fields = {"topic": "T", "b": "T", field: is_batch}
            self.assertEqual(needed_resources(code, fields, batch), {"T": PUB, "B": PUB})
            self.assertIsNone(deciding_values(code, fields, batch))
            self.assertRaises(AclError, needed_resources, code, fields, batch[:-1])

    def test_taken_back_from(self) -> None:
        """Each topic that the text could mean counts, and a text that could mean too many is
        refused.
        """
        def needed(text: str) -> Needed:
            return needed_resources(
                310, {"b": "T", "i": f"TIMER_DEL_UNIQKEY\x01{text}\x02"}, b"")

        self.assertEqual(needed("KEY"), {"T": PUB})
        self.assertEqual(needed("B+C+KEY"), {"T": PUB, "B": PUB, "B+C": PUB})
        self.assertEqual(needed("%RETRY%g+KEY"), {"T": PUB, "%RETRY%g": SUB})
        self.assertRaises(AclError, needed, "B" + "+x" * 100)

    def test_light_queues_are_topics_that_are_written_to(self) -> None:
        """A message that goes into light queues needs each of them, also in a batch."""
        properties = "KEYS\x01k\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b,\x02"
        light: Needed = {"%LMQ%a": PUB, "%LMQ%b": PUB}
        for code, topic, field, own in ((10, "topic", "properties", {"T": PUB}),
                                        (310, "b", "i", {"T": PUB}), (320, "b", "i", {"T": PUB}),
                                        (324, "topic", "properties", {}), (325, "b", "i", {})):
            fields = {topic: "T", field: properties}
            self.assertEqual(needed_resources(code, fields, b""), {**own, **light}, msg=str(code))
            self.assertIsNone(deciding_values(code, fields, b""))
        batch = encode_batch([(0, b"x", ""), (0, b"x", properties)])
        for code, field in ((10, "batch"), (310, "m"), (320, "m")):
            fields = {"topic": "T", "b": "T", field: "true"}
            self.assertEqual(needed_resources(code, fields, batch), {"T": PUB, **light})
            self.assertIsNone(deciding_values(code, fields, batch))

    def test_too_many_names(self) -> None:
        """The messages of a request may name a bounded number of topics; equal names count once."""
        def named(begin: int, end: int) -> tuple[int, bytes, str]:
            names = ",".join([f"%{number:x}" for number in range(begin, end)])
            return 0, b"x", f"INNER_MULTI_DISPATCH\x01{names}\x02"

        half = NAMES_MAX // 2
        fields = {"b": "T", "m": "true"}
        messages = [named(0, half), named(half, NAMES_MAX), named(0, half)]
        self.assertEqual(len(needed_resources(320, fields, encode_batch(messages))),
                         NAMES_MAX + 1)
        messages.append(named(NAMES_MAX, NAMES_MAX + 1))
        self.assertRaises(AclError, needed_resources, 320, fields, encode_batch(messages))
        self.assertRaises(AclError, needed_resources, 310,
                          {"b": "T", "i": named(0, NAMES_MAX + 1)[2]}, b"")

    def test_what_the_header_of_a_batch_needs(self) -> None:
        """The header's needs are known before the messages are read, and only for a batch that
        names topics.
        """
        marked, plain = b"INNER_MULTI_DISPATCH", encode_batch([(0, b"x", "KEYS\x01k\x02")])
        for code, topic, batch, group in ((10, "topic", "batch", "producerGroup"),
                                          (310, "b", "m", "a"), (320, "b", "m", "a")):
            fields = {topic: "T", batch: "true", group: "g"}
            self.assertEqual(needed_by_batch_header(code, fields, marked), {"T": PUB})
            self.assertIsNone(needed_by_batch_header(code, fields, plain))
            self.assertIsNone(needed_by_batch_header(code, {topic: "T"}, marked))
            fields[topic] = "%RETRY%h"
            self.assertEqual(needed_by_batch_header(code, fields, marked),
                             {"%RETRY%h": SUB, "%RETRY%g": SUB})
        self.assertIsNone(needed_by_batch_header(11, TOPIC_AND_GROUP, marked))

    def test_a_checked_subscription_needs_its_group_and_topic(self) -> None:
        """A client that asks whether a subscription is valid must have the permissions for it."""
        body = CheckClientRequestBody("c", "g", SubscriptionData("T")).encode_standard()
        self.assertEqual(needed_resources(46, {}, body), BOTH)
        self.assertEqual(needed_resources(46, {}, b""), {})
        self.assertRaises(AclError, needed_resources, 46, {}, b"{")

    def test_queue_requests_need_read_permission(self) -> None:
        """Requests that lock or divide queues need the permission to read them."""
        queues = (MessageQueue("T", "b", 0), MessageQueue("U", "b", 0),
                  MessageQueue("%RETRY%g", "b", 0))
        lock = LockBatchRequestBody("g", "c", mq_set=queues).encode_standard()
        for code in (41, 42):
            self.assertEqual(needed_resources(code, {}, lock), {**BOTH, "U": SUB})
        for code in (400, 401):
            body = b'{"topic":"T","consumerGroup":"g","clientId":"c","mode":"POP"}'
            self.assertEqual(needed_resources(code, {}, body), BOTH)
        for code in (41, 42, 400, 401):
            self.assertRaises(AclError, needed_resources, code, {}, b"{")

    def test_resources_found_by_handlers_count_as_those_of_headers(self) -> None:
        """The resources that handlers find count like the resources in headers."""
        self.assertEqual(touched_resources(["T", "%RETRY%g"], (), ()), {"T": PUB, "%RETRY%g": SUB})
        self.assertEqual(touched_resources((), ["%RETRY%g_T", "U"], ["g"]), {**POPS, "U": SUB})
        self.assertEqual(touched_resources((), ["%RETRY%h_T"], ["g"]),
                         {"%RETRY%h_T": SUB, "%RETRY%g": SUB})

    def test_retry_topics(self) -> None:
        """A send to a retry topic counts as consumption, for the group of the topic and for the
        sender's group.
        """
        both = {"%RETRY%g": SUB, "%RETRY%other": SUB}
        self.assertEqual(needed_resources(310, {"b": "%RETRY%g", "a": "g"}, b""), {"%RETRY%g": SUB})
        self.assertEqual(needed_resources(310, {"b": "%RETRY%g", "a": "other"}, b""), both)
        self.assertEqual(needed_resources(320, {"b": "%RETRY%g", "a": "other"}, b""), both)
        self.assertEqual(
            needed_resources(10, {"topic": "%RETRY%g", "producerGroup": "other"}, b""), both)
        self.assertEqual(needed_resources(10, {"topic": "%RETRY%g", "group": "other"}, b""), both)

    def test_retries_of_pops(self) -> None:
        """A pop retry topic counts as its topic and group, and as no other group."""
        for topic in ("%RETRY%g_T", "%RETRY%g+T"):
            self.assertEqual(needed_resources(
                200051, {"topic": topic, "consumerGroup": "g"}, b""), POPS)
        self.assertEqual(needed_resources(
            200051, {"topic": "%RETRY%other_T", "consumerGroup": "g"}, b""),
            {"%RETRY%other_T": SUB, "%RETRY%g": SUB, PopRetries("%RETRY%other_T", "g"): SUB})

    def test_batch_of_acknowledgements(self) -> None:
        """The topic and the group of each acknowledgement count, under either name."""
        body = (b'{"brokerName":"b","acks":[{"t":"T","c":"g","r":"1","b":"AQ=="},'
                b'{"topic":"U","consumerGroup":"h"}]}')
        both_topics: Needed = {**POPS, "U": SUB, "%RETRY%h": SUB, PopRetries("U", "h"): SUB}
        self.assertEqual(needed_resources(200151, {}, body), both_topics)
        # The handler chooses one of two names, so both of them count.
        for both in (b'"t":"T","topic":"U"', b'"topic":"U","t":"T"'):
            self.assertEqual(
                needed_resources(200151, {}, b'{"acks":[{"c":"h","consumerGroup":"g",%b}]}' % both),
                {**both_topics, PopRetries("T", "h"): SUB, PopRetries("U", "g"): SUB})
        for wrong in (b"", b"x", b'{"acks":[{"t":1}]}', b'{"acks":{}}'):
            self.assertRaises(AclError, needed_resources, 200151, {}, wrong)

    def test_a_heartbeat_needs_groups_and_subscribed_topics(self) -> None:
        """Consumer groups and their subscriptions count; producers need nothing."""
        subscriptions = (SubscriptionData("T"), SubscriptionData("%RETRY%g"))
        body = HeartbeatData("c", consumer_data_set=(
            ConsumerData("g", subscription_data_set=subscriptions), ConsumerData("h")))
        self.assertEqual(needed_resources(RequestCode.HEART_BEAT, {}, body.encode()),
                         {"%RETRY%g": SUB, "T": SUB, "%RETRY%h": SUB})
        self.assertEqual(needed_resources(34, {}, HeartbeatData("c").encode()), {})

    def test_unreadable_heartbeat(self) -> None:
        """An unreadable body does not count as an empty one."""
        for body in (b"", b"{junk", b"[]"):
            self.assertRaises(AclError, needed_resources, 34, {}, body)
