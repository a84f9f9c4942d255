"""The resources and actions that requests need in ACL 2.0, compared with Apache's broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl import named
from twistmq.acl.access_table import ACCESS, Action, Kind, RequestedAccess
from twistmq.acl.errors import AclError
from twistmq.acl.needed import needed_access, requested_topics, values_that_decide
from twistmq.broker.api.errors import MessageIllegal
from twistmq.protocol.batch import decode_batch, encode_batch
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)

#: What the table of Apache 5.3.3 and 5.5.0 has for the codes that we serve: the resources by field,
#: ``field:kind``, and the actions, one of which is enough. C stands for the cluster.
APACHE: Mapping[int, tuple[str, str]] = {
    10: ("topic:T", "PUB"), 11: ("topic:T consumerGroup:G", "SUB"), 12: ("topic:T", "SUB GET"),
    14: ("topic:T consumerGroup:G", "SUB GET"), 15: ("topic:T consumerGroup:G", "SUB UPDATE"),
    17: ("topic:T", "CREATE"), 29: ("topic:T", "GET"), 30: ("topic:T", "GET"),
    31: ("topic:T", "GET"), 32: ("topic:T", "GET"), 35: ("consumerGroup:G", "SUB"),
    36: ("group:G", "SUB"), 38: ("consumerGroup:G", "SUB GET"), 202: ("topic:T", "GET"),
    203: ("consumerGroup:G", "GET"), 204: ("C", "GET"), 207: ("groupName:G", "DELETE"),
    208: ("topic:T consumerGroup:G topicList:T", "GET"), 215: ("topic:T", "DELETE"),
    222: ("topic:T group:G", "UPDATE"), 223: ("topic:T group:G", "GET"), 300: ("topic:T", "GET"),
    303: ("topic:T group:G", "GET"), 307: ("consumerGroup:G", "GET"),
    308: ("topic:T compareGroup:G filterGroups:G", "GET"),
    309: ("topic:T consumerGroup:G", "SUB"), 310: ("b:T", "PUB"), 320: ("b:T", "PUB"),
    315: ("C", "GET"), 317: ("C", "GET"), 321: ("topic:T consumerGroup:G", "GET"),
    323: ("topic:T", "UPDATE"), 328: ("C", "GET"), 343: ("group:G", "GET"),
    345: ("topic:T group:G", "GET"), 351: ("topic:T", "GET"), 352: ("group:G", "GET"),
    353: ("topic:T group:G", "UPDATE"), 370: ("topic:T", "PUB"), 905: ("C", "UPDATE"),
    906: ("C", "UPDATE"), 908: ("C", "UPDATE"), 1008: ("C", "UPDATE"),
    200050: ("topic:T consumerGroup:G", "SUB"), 200051: ("topic:T consumerGroup:G", "SUB"),
    200052: ("topic:T consumerGroup:G", "SUB"), 200053: ("topic:T consumerGroup:G", "SUB"),
    200054: ("topic:T consumerGroup:G", "SUB"), 200055: ("topic:T consumerGroup:G", "GET"),
}
#: Codes for which Apache has no annotation, or whose body or handler names more than its table.
MORE_THAN_APACHE = {
    18, 21, 25, 26, 28, 33, 34, 37, 41, 42, 43, 45, 46, 50, 51, 52, 53, 54, 60, 61, 200, 201, 225,
    305, 306, 314, 316, 324, 325, 329, 361, 400, 401, 402, 513, 907, 200056, 200151}
SUB, PUB, GET, UPDATE, CREATE = (
    (action,) for action in (Action.SUB, Action.PUB, Action.GET, Action.UPDATE, Action.CREATE))


def topic(name: str, actions: tuple[Action, ...] = SUB) -> RequestedAccess:
    return RequestedAccess(Kind.TOPIC, name, actions)


def group(name: str, actions: tuple[Action, ...] = SUB) -> RequestedAccess:
    return RequestedAccess(Kind.GROUP, name, actions)


def needed(
    code: int, fields: Mapping[str, str], body: bytes = b"", **more: Any
) -> list[RequestedAccess]:
    wanted = needed_access(code, fields, body, "c", **more)
    assert wanted is not None, code
    return list(wanted)


class NeededTests(SynchronousTestCase):
    """The resources of requests, and the actions, one of which is enough."""

    def test_headers_need_what_apache_requires(self) -> None:
        """Each code needs the resources and the actions of Apache's annotations."""
        kinds = {"T": Kind.TOPIC, "G": Kind.GROUP}
        for code, (resources, actions) in APACHE.items():
            allowed = {Action[name] for name in actions.split()}
            pairs = [pair.split(":") for pair in resources.split() if ":" in pair]
            fields = {field: f"n-{field}" for field, _ in pairs}
            expected = [(kinds[kind], f"n-{field}") for field, kind in pairs] or [
                (Kind.CLUSTER, "c")]
            wanted = needed(code, fields)
            self.assertEqual([(kind, name) for kind, name, _ in wanted], expected, msg=str(code))
            for each in wanted:
                self.assertEqual(set(each.actions), allowed, msg=str(code))

    def test_every_row_is_compared_with_apache(self) -> None:
        """A new code is either in Apache's table or in the list of those that need more."""
        self.assertEqual({code for code in ACCESS if code < 3000 or code > 3999},
                         APACHE.keys() | MORE_THAN_APACHE)
        self.assertEqual(APACHE.keys() & MORE_THAN_APACHE, set())

    def test_a_code_without_a_row_is_for_super_users(self) -> None:
        """None tells the caller that no policy is enough."""
        self.assertIsNone(needed_access(29_999, {"topic": "T"}, b"", "c"))
        self.assertIsNone(values_that_decide(29_999, {"topic": "T"}, b""))

    def test_a_missing_name_needs_a_policy_for_every_name(self) -> None:
        """A request without the fields of its row is not open to everyone."""
        self.assertEqual(needed(11, {}), [topic(""), group("")])
        self.assertEqual(needed(310, {}), [topic("", PUB)])
        self.assertEqual(needed(208, {"consumerGroup": "g"}), [group("g", GET)])
        self.assertEqual(needed(35, {"producerGroup": "p"}), [])
        self.assertEqual(needed(305, {}), [])

    def test_lists_of_names(self) -> None:
        """Each name in a field with several counts, and an empty part names nothing."""
        self.assertEqual(needed(208, {"consumerGroup": "g", "topicList": "T;;U"}),
                         [group("g", GET), topic("T", GET), topic("U", GET)])
        self.assertEqual(needed(308, {"topic": "T", "compareGroup": "g", "filterGroups": "h,g,i"}),
                         [topic("T", GET), *(group(name, GET) for name in "ghi")])

    def test_retry_topics_count_as_groups(self) -> None:
        """The retry topic of a group is the group, and its pop retry topic also the topic."""
        self.assertEqual(needed(11, {"topic": "%RETRY%g", "consumerGroup": "g"}), [group("g")])
        self.assertEqual(needed(11, {"topic": "%RETRY%h", "consumerGroup": "g"}),
                         [group("h"), group("g")])
        self.assertEqual(needed(30, {"topic": "%RETRY%g"}), [group("g", GET)])
        for name in ("%RETRY%g_T", "%RETRY%g+T"):
            self.assertEqual(needed(200051, {"topic": name, "consumerGroup": "g"}),
                             [topic("T"), group("g")])
        self.assertEqual(needed(310, {"b": "%RETRY%g", "a": "p"}), [group("g"), group("p")])
        self.assertEqual(needed(10, {"topic": "%RETRY%g", "group": "p", "producerGroup": "q"}),
                         [group("g"), group("p"), group("q")])

    def test_topics_of_properties(self) -> None:
        """A recalled message and light queues need PUB, also in the messages of a batch."""
        properties = "TIMER_DEL_UNIQKEY\x01B+KEY\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
        more = [topic("B", PUB), topic("%LMQ%a", PUB)]
        for code, name, field, own in ((10, "topic", "properties", [topic("T", PUB)]),
                                       (310, "b", "i", [topic("T", PUB)]),
                                       (324, "topic", "properties", []), (325, "b", "i", [])):
            self.assertEqual(needed(code, {name: "T", field: properties}), own + more)
            self.assertIsNone(values_that_decide(code, {name: "T", field: properties}, b""))
        batch = encode_batch([(0, b"x", properties)])
        for code, name, field in ((10, "topic", "batch"), (320, "b", "m")):
            self.assertEqual(needed(code, {name: "T", field: "true"}, batch),
                             [topic("T", PUB), *more])
            self.assertEqual(needed(code, {name: "T", field: "false"}, batch), [topic("T", PUB)])

    def test_a_batch_is_read_last(self) -> None:
        """A caller that stops at the topic of the header does not read the messages."""
        calls: list[bytes] = []

        def count(body: bytes) -> list[tuple[int, bytes, str]]:
            calls.append(body)
            return decode_batch(body)

        self.patch(named, "decode_batch", count)
        batch = encode_batch([(0, b"x", "INNER_MULTI_DISPATCH\x01%LMQ%a\x02")])
        wanted = needed_access(320, {"b": "T", "m": "true"}, batch, "c")
        assert wanted is not None
        self.assertEqual((next(wanted), calls), (topic("T", PUB), []))
        self.assertEqual((next(wanted), calls), (topic("%LMQ%a", PUB), [batch]))
        self.assertRaises(MessageIllegal, needed, 320, {"b": "T", "m": "true"}, batch,
                          body_size_max=len(batch) - 1)
        self.assertRaises(AclError, needed, 320, {"b": "T", "m": "true"}, batch[:-1])

    def test_bodies(self) -> None:
        """The names in bodies count, each once; an empty heartbeat needs nothing."""
        heartbeat = HeartbeatData("c", consumer_data_set=(
            ConsumerData("g", subscription_data_set=(
                SubscriptionData("T"), SubscriptionData("%RETRY%g"))),)).encode()
        self.assertEqual(needed(34, {}, heartbeat), [group("g"), topic("T")])
        self.assertEqual(needed(34, {}, HeartbeatData("c").encode()), [])
        lock = LockBatchRequestBody(
            "g", "c", mq_set=(MessageQueue("T", "b", 0),)).encode_standard()
        self.assertEqual(needed(41, {}, lock), [group("g"), topic("T")])
        mode = b'{"topic":"T","consumerGroup":"g","mode":"POP"}'
        self.assertEqual(needed(400, {}, mode), [topic("T"), group("g")])
        self.assertEqual(needed(401, {}, mode), [topic("T", UPDATE), group("g", UPDATE)])
        self.assertEqual(needed(200151, {}, b'{"acks":[{"t":"T","c":"g"},{"t":"T","c":"g"}]}'),
                         [topic("T"), group("g")])
        self.assertEqual(needed(18, {}, b'{"topicConfigList":[{"topicName":"T"},'
                                        b'{"topicName":"U","perm":6}]}'),
                         [topic("T", CREATE), topic("U", CREATE)])
        self.assertEqual(needed(200, {}, b'{"groupName":"g","retryMaxTimes":3}'),
                         [group("g", CREATE)])
        self.assertEqual(needed(225, {}, b'{"groupConfigList":[{"groupName":"g"}]}'),
                         [group("g", CREATE)])
        for code in (18, 34, 41, 42, 200, 225, 400, 401, 200151):
            self.assertRaises(AclError, needed, code, {}, b"{")

    def test_stacks_need_the_cluster(self) -> None:
        """The stacks of a consumer show its whole process."""
        fields = {"consumerGroup": "g", "jstackEnable": "true"}
        self.assertEqual(needed(307, fields), [
            group("g", GET), RequestedAccess(Kind.CLUSTER, "c", GET)])
        self.assertIsNone(values_that_decide(307, fields, b""))

    def test_values_decide_only_when_nothing_else_does(self) -> None:
        """The group filter of 308 also counts, so its requests are not remembered."""
        fields = {"topic": "T", "compareGroup": "g", "consumerGroup": "g"}
        self.assertEqual(values_that_decide(11, fields, b""), (11, "T", "g"))
        self.assertIsNone(values_that_decide(308, fields, b""))

    def test_resources_found_by_handlers(self) -> None:
        """They need what the row says about the stored message."""
        self.assertEqual(list(requested_topics(33, (), ["T"], ())),
                         [topic("T", (Action.SUB, Action.GET))])
        self.assertEqual(list(requested_topics(36, (), ["T", "%RETRY%g_U"], ["g"])),
                         [group("g"), topic("T"), topic("U")])
        self.assertEqual(list(requested_topics(37, ["T", "%RETRY%h"], (), ())),
                         [topic("T", PUB), group("h")])
        self.assertEqual(list(requested_topics(309, (), ["T"], ())), [topic("T")])
