"""Changes that a slave refuses."""

from __future__ import annotations

from tests.plugins.ha.group_case import GroupCase
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.wire.bodies import SubscriptionGroupConfig
from twistmq.broker.wire.headers.topic import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)


class RefusalTests(GroupCase):
    """Topics and groups are the master's."""

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
