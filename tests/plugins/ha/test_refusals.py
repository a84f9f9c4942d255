"""Changes that a slave refuses."""

from __future__ import annotations

import json
from operator import ne

from tests.plugins.ha.group_case import GroupCase
from twistmq.plugins import pop
from twistmq.plugins.static_topic.plugin import Plugin as StaticTopics
from twistmq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import CloneGroupOffsetRequestHeader
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)


class RefusalTests(GroupCase):
    """Topics and groups are changed only at the master."""

    plugins = (*GroupCase.plugins, ("pop", pop.Plugin), ("static_topic", StaticTopics))

    def test_topics_and_groups_are_changed_on_the_master_only(self) -> None:
        """A slave refuses it, and once it is master it does it."""
        create = CreateTopicRequestHeader(
            topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG")
        requests = (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, create, b""),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
             SubscriptionGroupConfig("g").encode()),
            (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"), b""),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP,
             DeleteSubscriptionGroupRequestHeader(group_name="g"), b""))
        for code, header, body in requests:
            reply = self.slave.ask(code, header, body)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("from slave broker", reply.remark or "")
            self.assertEqual(self.master.ask(code, header, body).code, ResponseCode.SUCCESS)
        self.assertNotIn("T", self.slave.kernel.topic_config.table)
        self.slave.kernel.set_role("ASYNC_MASTER", 0)
        for code, header, body in requests:
            self.assertEqual(self.slave.ask(code, header, body).code, ResponseCode.SUCCESS)

    def test_each_change_of_a_copied_table_is_refused(self) -> None:
        """Nine requests of the kernel and of plugins are refused, and none of them changes
        anything.
        """
        kernel = self.slave.kernel
        plain, static = (CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=count, write_queue_nums=count,
            perm=6, topic_filter_type="SINGLE_TAG") for topic, count in (("N", 4), ("S", 0)))
        mapping = {"topic": "S", "bname": kernel.broker_name, "epoch": 1}
        topics = {"topicConfigList": [{"topicName": "L", "readQueueNums": 4, "writeQueueNums": 4}]}
        groups = SubscriptionGroupList([SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h")])
        mode = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
        kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        kernel.subscription_group.update(SubscriptionGroupConfig("old"), {})
        kernel.consumer_offset.commit("peer", "old", "T", 0, 0)
        requests: dict[int, tuple[CommandHeader | None, bytes]] = {
            17: (plain, b""),
            18: (None, json.dumps(topics).encode()),
            513: (static, json.dumps(mapping).encode()),
            215: (DeleteTopicRequestHeader(topic="T"), b""),
            200: (None, SubscriptionGroupConfig("g").encode()),
            225: (None, groups.encode()),
            207: (DeleteSubscriptionGroupRequestHeader(group_name="old"), b""),
            401: (None, json.dumps(mode).encode()),
            314: (CloneGroupOffsetRequestHeader(src_group="old", dest_group="new", topic="T"), b"")}

        def tables() -> tuple[object, ...]:
            return (set(kernel.topic_config.table), set(kernel.subscription_group.table),
                    set(kernel.consumer_offset.table),
                    self.slave.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body)

        before = tables()
        for code, (header, body) in requests.items():
            reply = self.slave.ask(code, header, body)
            self.assertEqual((code, reply.code), (code, ResponseCode.SYSTEM_ERROR))
            self.assertEqual(
                reply.remark, "Can't modify topic or subscription group from slave broker, please "
                              "execute it from master broker.")
        self.assertEqual(tables(), before)
        # The requests are good ones: a master does what they ask.
        kernel.set_role("ASYNC_MASTER", 0)
        for code in (17, 18, 513, 200, 225, 401, 314, 215, 207):
            reply = self.slave.ask(code, *requests[code])
            self.assertEqual((code, reply.code, reply.remark), (code, ResponseCode.SUCCESS, None))
        self.assertTrue(all(map(ne, tables(), before)), (tables(), before))
