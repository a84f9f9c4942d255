"""Requests that read the tables: their responses, the forms of these, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.namesrv.kv_config import ORDER_TOPIC_NAMESPACE
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.testing.name_server import PortlessNameServer, make_registration
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper, TopicRouteData
from twistmq.protocol.bodies.route import STANDARD_JSON_VERSION_MIN
from twistmq.protocol.codes import RequestCode, ResponseCode

ADDRESS = "10.0.0.1:10911"


class RouteRequestsCase(SynchronousTestCase):
    """A name server that knows one broker with the topics T and U."""

    def setUp(self) -> None:
        self.server = PortlessNameServer(now_ms=1000)
        self.server.routes.register(make_registration(), 0)

    def route(
        self, topic: str = "T", fields: dict[str, str] | None = None, *, version: int = 479,
        now_ms: int = 0,
    ) -> Reply:
        """Ask for a route; ``fields`` beside the topic by their wire names."""
        return self.server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC,
                               {"topic": topic, **(fields or {})}, version=version, now_ms=now_ms)

    def answer(self, code: int, **fields: str) -> Any:
        """Return the body of a successful response."""
        reply = self.server.ask(code, fields)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        return json_dialect.decode(reply.body)


class RouteRequestTests(RouteRequestsCase):
    """The request 105."""

    def test_clients_from_4_9_4_on_get_plain_json(self) -> None:
        """Every key is quoted, so that any language reads it."""
        route = msgspec.json.decode(self.route(version=STANDARD_JSON_VERSION_MIN).body)
        self.assertEqual(route, {
            "brokerDatas": [{"brokerAddrs": {"0": ADDRESS}, "brokerName": "a", "cluster": "C",
                             "enableActingMaster": False}],
            "filterServerTable": {},
            "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": 4,
                            "topicSysFlag": 0, "writeQueueNums": 4}]})

    def test_older_clients_get_bare_keys_unless_they_ask(self) -> None:
        """The Go client reads numbers as keys without quotes; it can ask for plain JSON."""
        old = self.route(version=STANDARD_JSON_VERSION_MIN - 1).body
        self.assertIn(b'"brokerAddrs":{0:"', old)
        asked = self.route(fields={"acceptStandardJsonOnly": "true"}, version=317).body
        self.assertIn(b'"brokerAddrs":{"0":"', asked)

    def test_no_route_says_what_apache_says(self) -> None:
        """Clients read the code and show the remark."""
        reply = self.route("none")
        self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(
            reply.remark, "No topic route info in name server for the topic: none\nSee "
            "https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.")

    def test_ordered_topics_carry_their_configuration(self) -> None:
        """This is so if orderMessageEnable is set and a configuration exists."""
        self.server.kv_config.put(ORDER_TOPIC_NAMESPACE, "T", "a:4")
        for enabled, topic, expected in [("false", "T", None), ("true", "T", "a:4"),
                                         ("true", "U", None)]:
            self.server.settings.update({"orderMessageEnable": enabled})
            route = TopicRouteData.decode(self.route(topic).body)
            self.assertEqual(route.order_topic_conf, expected, msg=f"{enabled} {topic}")

    def test_a_server_that_waits_refuses_for_its_time(self) -> None:
        """From the start on; brokers register meanwhile."""
        self.server.settings.update({"needWaitForService": "true", "waitSecondsForService": "2"})
        reply = self.route(now_ms=2999)
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_ERROR, "name server not ready"))
        self.assertEqual(self.route(now_ms=3000).code, ResponseCode.SUCCESS)

    def test_a_zone_is_asked_for_with_two_fields(self) -> None:
        """Without a name or with another mode the whole route is given, in the asker's form."""
        cases: list[tuple[dict[str, str], int]] = [
            ({"__ZONE_MODE": "true", "__ZONE_NAME": "z"}, 0),
            ({"__ZONE_MODE": "true", "__ZONE_NAME": " "}, 1),
            ({"__ZONE_MODE": "true"}, 1),
            ({"__ZONE_MODE": "no", "__ZONE_NAME": "z"}, 1),
            ({"__ZONE_NAME": "z"}, 1),
        ]
        for fields, count in cases:
            route = msgspec.json.decode(self.route(fields=fields).body)
            self.assertEqual(len(route["brokerDatas"]), count, msg=str(fields))


class ReadRequestTests(RouteRequestsCase):
    """Requests 106, 206, 224, 304, 311, 312, 313 and 901."""

    def test_the_cluster_is_answered_with_bare_keys(self) -> None:
        """As with Apache, this is so for any version."""
        reply = self.server.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertEqual(
            reply.body, b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911"},'
            b'"brokerName":"a","cluster":"C","enableActingMaster":false}},'
            b'"clusterAddrTable":{"C":["a"]}}')

    def test_a_group_is_answered_with_bare_keys(self) -> None:
        """An unknown group has no members."""
        reply = self.server.ask(RequestCode.GET_BROKER_MEMBER_GROUP,
                                {"clusterName": "C", "brokerName": "a"})
        self.assertEqual(
            reply.body, b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911"},'
            b'"brokerName":"a","cluster":"C"}}')
        group = self.answer(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="D", brokerName="z")
        self.assertEqual(group, {"brokerMemberGroup": {
            "brokerAddrs": {}, "brokerName": "z", "cluster": "D"}})

    def test_lists_of_topics(self) -> None:
        """The name server lists all topics, the topics of a cluster, and the system topics."""
        code = RequestCode
        self.assertEqual(self.answer(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
                         {"topicList": ["T", "U"]})
        self.assertEqual(self.answer(code.GET_TOPICS_BY_CLUSTER, cluster="C"),
                         {"topicList": ["T", "U"]})
        self.assertEqual(self.answer(code.GET_TOPICS_BY_CLUSTER, cluster="D"), {"topicList": []})
        self.assertEqual(self.answer(code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
                         {"brokerAddr": ADDRESS, "topicList": ["C", "a"]})

    def test_lists_by_flags(self) -> None:
        """The flags are 1 for unit, 2 for unit-subscribed, and 3 for both."""
        topics = TopicConfigSerializeWrapper(
            {f"F{flags}": TopicConfig(f"F{flags}", topic_sys_flag=flags) for flags in range(4)})
        other = make_registration("10.0.0.2:10911", name="b")
        self.server.routes.register(replace(other, topics=topics), 0)
        code = RequestCode
        self.assertEqual(self.answer(code.GET_UNIT_TOPIC_LIST), {"topicList": ["F1", "F3"]})
        self.assertEqual(self.answer(code.GET_HAS_UNIT_SUB_TOPIC_LIST),
                         {"topicList": ["F2", "F3"]})
        self.assertEqual(self.answer(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
                         {"topicList": ["F2"]})

    def test_lists_can_be_switched_off(self) -> None:
        """One setting is for the list of all topics, another for the others but the system's."""
        code = RequestCode
        others = [code.GET_TOPICS_BY_CLUSTER, code.GET_UNIT_TOPIC_LIST,
                  code.GET_HAS_UNIT_SUB_TOPIC_LIST, code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST]
        everything = code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        for setting, disabled in [("enableAllTopicList", [everything]),
                                  ("enableTopicList", others)]:
            self.server.settings.update({"enableAllTopicList": "true", "enableTopicList": "true",
                                         setting: "false"})
            for each in [everything, *others, code.GET_SYSTEM_TOPIC_LIST_FROM_NS]:
                reply = self.server.ask(each, {"cluster": "C"})
                expected = ((ResponseCode.SYSTEM_ERROR, "disable") if each in disabled
                            else (ResponseCode.SUCCESS, None))
                self.assertEqual((reply.code, reply.remark), expected, msg=f"{setting} {each}")
