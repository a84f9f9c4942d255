"""The requests of mqadmin about groups."""

from __future__ import annotations

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_any
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import (
    ConsumerData,
    ConsumeStats,
    GroupForbidden,
    HeartbeatData,
    MessageQueue,
    OffsetWrapper,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicList,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import UpdateGroupForbiddenRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.topic import (
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)


class GroupQuestionsTests(SynchronousTestCase):
    """The requests 201 and 352."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)

    def test_every_group_the_systems_own_among_them(self) -> None:
        """The response has every group, also the system's groups, and the version of the table."""
        group = SubscriptionGroupConfig("g", retry_max_times=3)
        self.box.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
        reply = self.box.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        wrapper = SubscriptionGroupWrapper.decode(reply.body)
        self.assertEqual(wrapper.subscription_group_table["g"], group)
        self.assertIn("TOOLS_CONSUMER", wrapper.subscription_group_table)
        self.assertEqual(wrapper.data_version.counter, 1)

    def test_rows_are_kept_until_a_group_changes(self) -> None:
        """The second answer has the change of a group, and not the row of the first answer."""
        def answer() -> dict[str, SubscriptionGroupConfig]:
            body = self.box.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
            table = SubscriptionGroupWrapper.decode(body).subscription_group_table
            return {name: config for name, config in table.items() if name.startswith("g")}

        groups = self.box.kernel.subscription_group
        for name in ("g1", "g2", "g3"):
            groups.find(name)
        self.assertEqual(sorted(answer()), ["g1", "g2", "g3"])
        groups.update(SubscriptionGroupConfig("g1", retry_max_times=3), {})
        groups.disable_consume("g2")
        groups.delete("g3")
        self.assertEqual(answer(), {
            "g1": SubscriptionGroupConfig("g1", retry_max_times=3),
            "g2": SubscriptionGroupConfig("g2", consume_enable=False)})

    def test_all_of_many(self) -> None:
        """Many groups are encoded in slices; a group that is added meanwhile has a
        later version.
        """
        table = self.box.kernel.subscription_group
        for index in range(1000):
            table.table[f"g{index}"] = SubscriptionGroupConfig(f"g{index}")
        ticks = count(self.box.now_ms)
        self.box.clock = lambda: next(ticks)
        peer = self.box.peer()
        self.assertIsNone(self.box.send(peer, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        task, = (task for task in self.box.kernel.periodic_tasks
                 if task.name == "continue long work")
        task.run(0)
        table.find("new")
        for _ in range(1000):
            task.run(0)
        wrapper = SubscriptionGroupWrapper.decode(self.box.late_replies(peer)[0].body)
        self.assertLessEqual({f"g{index}" for index in range(1000)},
                             wrapper.subscription_group_table.keys())
        self.assertNotIn("new", wrapper.subscription_group_table)
        self.assertEqual(table.data_version.counter, wrapper.data_version.counter + 1)

    def test_a_group_that_is_not_there_is_made(self) -> None:
        """An unknown group is created, as it is for a consumer."""
        header = GetSubscriptionGroupConfigRequestHeader(group="g")
        reply = self.box.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        self.assertEqual(SubscriptionGroupConfig.decode(reply.body), SubscriptionGroupConfig("g"))
        self.assertIn("g", self.box.kernel.subscription_group.table)

    def test_one_that_may_not_be_made(self) -> None:
        """If groups are not created automatically, an unknown group is reported as missing."""
        box = KernelBox([("admin", admin.Plugin)], {"autoCreateSubscriptionGroup": "false"})
        self.addCleanup(box.stop)
        header = GetSubscriptionGroupConfigRequestHeader(group="g")
        reply = box.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker"))


class ConsumedTests(SynchronousTestCase):
    """The requests 343 and 345 about the topics that a group consumes."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)

    def test_all_topics_with_offsets_of_the_group_are_returned(self) -> None:
        """The response has the topics in which the group has an offset, and the
        name of the broker.
        """
        for group, topic in (("g", "T"), ("g", "U"), ("h", "V")):
            self.box.kernel.consumer_offset.commit("here", group, topic, 0, 1)
        for group, topics in (("g", {"T", "U"}), ("h", {"V"}), ("nope", set())):
            reply = self.box.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER,
                                 QueryTopicsByConsumerRequestHeader(group=group))
            self.assertEqual(TopicList.decode(reply.body), TopicList(topics, "127.0.0.1:10911"))

    def test_the_subscription_of_a_group_to_a_topic_is_returned(self) -> None:
        """For an unknown topic or group, or without a topic, the response has no subscription."""
        wanted = SubscriptionData("T", "a || b", {"a", "b"}, {97, 98}, 5)
        heartbeat = HeartbeatData("client", consumer_data_set=(
            ConsumerData("g", subscription_data_set=(wanted,)),))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())
        for group, topic, subscription in (("g", "T", wanted), ("g", "U", None), ("g", None, None),
                                           ("h", "T", None)):
            reply = self.box.ask(
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
                QuerySubscriptionByConsumerRequestHeader(group=group, topic=topic))
            self.assertEqual(QuerySubscriptionResponseBody.decode(reply.body),
                             QuerySubscriptionResponseBody(subscription, group, topic))


class ForbiddenTests(SynchronousTestCase):
    """The request 353."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)
        self.box.kernel.append([message("T")])
        self.box.kernel.topic_config.update(TopicConfig("T", 1, 1), {})
        heartbeat = HeartbeatData("client", consumer_data_set=(
            ConsumerData("g", subscription_data_set=(SubscriptionData("T"),)),))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())

    def ask(
        self, readable: bool | None, *, group: str = "g", topic: str = "T"
    ) -> RemotingCommand:
        return self.box.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
                            UpdateGroupForbiddenRequestHeader(
                                group=group, topic=topic, readable=readable))

    def pull(self) -> int:
        header = PullMessageRequestHeader(
            consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0)
        return self.box.ask(RequestCode.PULL_MESSAGE, header).code

    def test_forbidden_and_allowed(self) -> None:
        """The pulls of the group from the topic are refused until they are allowed again."""
        for readable, code in ((None, ResponseCode.SUCCESS), (False, ResponseCode.NO_PERMISSION),
                               (True, ResponseCode.SUCCESS)):
            reply = self.ask(readable)
            self.assertEqual(GroupForbidden.decode(reply.body),
                             GroupForbidden("T", "g", readable is not False))
            self.assertEqual(GroupForbidden.decode(self.ask(None).body).readable,
                             readable is not False)
            self.assertEqual(self.pull(), code)

    def test_it_is_saved(self) -> None:
        """The response is sent when the table is saved."""
        self.ask(False)
        saved = self.box.disk.read_file("/store/config/subscriptionGroup.json")
        self.assertEqual(SubscriptionGroupWrapper.decode_saved(saved).forbidden_table,
                         {"g": {"T": 4}})

    def test_names_that_cannot_be(self) -> None:
        """Invalid names are not kept."""
        for group, topic in (("a*b", "T"), ("g", "a*b"), ("g", " ")):
            self.assertEqual(self.ask(False, group=group, topic=topic).code,
                             ResponseCode.INVALID_PARAMETER)
        self.assertEqual(self.box.kernel.subscription_group.forbidden, {})


class ProgressTests(SynchronousTestCase):
    """The request 208."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)
        kernel = self.box.kernel
        for topic in ("T", "U"):
            kernel.topic_config.create_in_send_back(topic, 2, 6, 0)
            kernel.append([message(topic), message(topic)])
        kernel.consumer_offset.commit("here", "g", "T", 0, 1)
        kernel.consumer_offset.commit("here", "g", "gone", 0, 1)

    def progress(self, **fields: str) -> ConsumeStats:
        header = GetConsumeStatsRequestHeader(consumer_group="g", **fields)
        reply = self.box.ask(RequestCode.GET_CONSUME_STATS, header)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return ConsumeStats.decode(reply.body)

    def topics(self, **fields: str) -> list[str]:
        return sorted({queue.topic for queue in self.progress(**fields).offset_table})

    def subscribe(self, *topics: str) -> None:
        subscriptions = tuple(SubscriptionData(topic) for topic in topics)
        heartbeat = HeartbeatData("client", consumer_data_set=(
            ConsumerData("g", subscription_data_set=subscriptions),))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard())

    def test_how_far_the_group_is_in_each_queue(self) -> None:
        """The response has the offset of the group in each queue, and the time of
        its last message.
        """
        self.assertEqual(self.progress().offset_table, {
            MessageQueue("T", "broker-a", 0): OffsetWrapper(2, 1, 1, self.box.now_ms),
            MessageQueue("T", "broker-a", 1): OffsetWrapper(0, 0, 0, 0),
        })

    def test_messages_the_group_has_and_did_not_say_it_consumed_are_between(self) -> None:
        """Messages that were delivered and not committed are between two offsets of
        the response.
        """
        header = PullMessageRequestHeader(
            consumer_group="g", topic="T", queue_id=0, queue_offset=1, max_msg_nums=32, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0)
        self.assertEqual(self.box.ask(RequestCode.PULL_MESSAGE, header).code, ResponseCode.SUCCESS)
        progress = self.progress().offset_table[MessageQueue("T", "broker-a", 0)]
        self.assertEqual((progress.consumer_offset, progress.pull_offset), (1, 2))

    def test_one_topic(self) -> None:
        """A topic that the request names is shown even if the group has no offset in it."""
        self.assertEqual(self.topics(topic="U"), ["U"])

    def test_list_of_topics(self) -> None:
        """A list of topics replaces the single topic; unknown topics are left out."""
        self.assertEqual(self.topics(topic="U", topic_list="T;nothing;"), ["T"])

    def test_a_live_group_is_shown_the_topics_it_subscribes_to(self) -> None:
        """A live group is shown the topics it subscribes to; a list is shown as it is."""
        self.subscribe("U")
        self.assertEqual(self.topics(), [])
        self.assertEqual(self.topics(topic="T"), [])
        self.assertEqual(self.topics(topic="U"), ["U"])
        self.assertEqual(self.topics(topic_list="T;U"), ["T", "U"])

    def test_the_rates_of_all_its_topics_together(self) -> None:
        """The rate is the sum over all topics of the group."""
        stats = self.box.kernel.stats
        count_any(stats)
        stats.messages_got("g", "T", 20, 10)
        stats.messages_got("g", "U", 10, 10)
        self.box.now_ms += 10_000
        self.assertEqual(self.progress(topic_list="T;U").consume_tps, 3.0)
