"""The requests about topics and groups: 17, 18, 21, 200, 207, 215 and 225."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_put
from twistmq.broker.constants import TOPIC_QUEUES_MAX, TOPIC_ROWS_KEPT, TOPIC_ROWS_SIZE_MAX
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.protocol.bodies import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)

GOOD = (ResponseCode.SUCCESS, None)


class RequestCase(SynchronousTestCase):
    """A broker, and the number of its registrations."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.told = 0
        self.box.host.on_topic_change.append(self.tell)

    def tell(self) -> None:
        self.told += 1

    def create(self, topic: str = "T", **fields: Any) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(**{
            "topic": topic, "default_topic": "TBW102", "read_queue_nums": 4,
            "write_queue_nums": 4, "perm": 6, "topic_filter_type": "SINGLE_TAG", **fields}))
        return reply.code, reply.remark

    def delete(self, topic: str) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.DELETE_TOPIC_IN_BROKER,
                             DeleteTopicRequestHeader(topic=topic))
        return reply.code, reply.remark

    def group(self, body: bytes) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        return reply.code, reply.remark

    def saved(self, name: str) -> Any:
        """Return the content of a file in the config folder."""
        return json.loads(self.box.disk.read_file(f"/store/config/{name}"))


class CreateTopicTests(RequestCase):
    """The request 17."""

    def test_creation_and_change(self) -> None:
        """The topic is created as requested, saved, and registered each time."""
        self.assertEqual(self.create(perm=4, order=True, topic_sys_flag=1), GOOD)
        self.assertEqual(self.kernel.topic_config.get("T"),
                         TopicConfig("T", 4, 4, 4, topic_sys_flag=1, order=True))
        self.assertEqual(self.create(read_queue_nums=8, write_queue_nums=2), GOOD)
        self.assertEqual(self.kernel.topic_config.get("T"), TopicConfig("T", 8, 2, 6))
        self.assertEqual(self.saved("topics.json")["topicConfigTable"]["T"]["readQueueNums"], 8)
        self.assertEqual(self.told, 2)

    def test_creating_the_same_topic_again_changes_nothing(self) -> None:
        """A request without a change causes no registration."""
        self.create(attributes="+message.type=FIFO")
        version = self.kernel.topic_config.data_version.counter
        self.assertEqual(self.create(), GOOD)
        self.assertEqual(self.kernel.topic_config.data_version.counter, version)
        self.assertEqual(self.told, 1)

    def test_attributes_are_set_at_creation_and_kept_by_other_changes(self) -> None:
        """They are set at the creation, changed later, and kept by other changes."""
        self.assertEqual(self.create(attributes="+message.type=FIFO,+queue.type=SimpleCQ"), GOOD)
        self.assertEqual(self.create(attributes="+message.type=DELAY"), GOOD)
        self.assertEqual(self.create(read_queue_nums=5), GOOD)
        self.assertEqual(self.kernel.topic_config.get("T"), TopicConfig(
            "T", 5, 4, attributes={"message.type": "DELAY", "queue.type": "SimpleCQ"}))

    def test_attributes_refused(self) -> None:
        """A wrong change refuses the whole request."""
        self.create()
        for attributes, code, remark in (
            ("+queue.type=SimpleCQ", ResponseCode.SYSTEM_ERROR,
             "attempt to update an unchangeable attribute. key: queue.type"),
            ("message.type", ResponseCode.SYSTEM_ERROR,
             "delete attribute format is wrong: message.type"),
            ("+message.type=MIXED", ResponseCode.INVALID_PARAMETER,
             "MIXED message type is not supported."),
        ):
            self.assertEqual(self.create(read_queue_nums=1, attributes=attributes), (code, remark))
        self.assertEqual(self.kernel.topic_config.get("T"), TopicConfig("T", 4, 4))
        self.assertEqual(self.told, 1)

    def test_bad_names_and_the_systems_are_refused_with_apaches_code(self) -> None:
        """Bad names and the system's are refused with Apache's code and remarks."""
        for topic, remark in (
            (" ", "The specified topic is blank."),
            ("a*b", "The specified topic contains illegal characters, "
                    "allowing only ^[%|a-zA-Z0-9_-]+$"),
            ("x" * 128, "The specified topic is longer than topic max length."),
            ("TBW102", "The topic[TBW102] is conflict with system topic."),
            ("broker-a", "The topic[broker-a] is conflict with system topic."),
            ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ):
            self.assertEqual(self.create(topic), (ResponseCode.INVALID_PARAMETER, remark))
        self.assertEqual(self.create("%RETRY%G"), GOOD)
        self.assertEqual(self.told, 1)

    def test_zero_queues_are_accepted_and_negative_numbers_refused(self) -> None:
        """Zero queues are accepted, and negative numbers are not."""
        self.assertEqual(self.create(read_queue_nums=0, write_queue_nums=0), GOOD)
        for fields in ({"read_queue_nums": -1}, {"write_queue_nums": -1}):
            self.assertEqual(self.create("U", **fields)[0], ResponseCode.INVALID_PARAMETER)
        self.assertIsNone(self.kernel.topic_config.get("U"))

    def test_answered_once_name_servers_know(self) -> None:
        """A tool that asks for the route next must find it."""
        waiting: Deferred[None] = Deferred()
        self.box.host.on_topic_change.append(lambda: waiting)
        peer = self.box.peer()
        header = CreateTopicRequestHeader(
            topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG")
        self.assertIsNone(self.box.send(peer, RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        self.assertEqual(self.box.late_replies(peer), [])
        waiting.callback(None)
        reply, = self.box.late_replies(peer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def test_name_server_that_fails(self) -> None:
        """The topic is created in spite of it, and the response says so."""
        waiting: Deferred[None] = Deferred()
        self.box.host.on_topic_change.append(lambda: waiting)
        peer = self.box.peer()
        self.assertIsNone(self.box.send(
            peer, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T")))
        waiting.errback(RuntimeError("no name server"))
        reply, = self.box.late_replies(peer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)


class CreateTopicsTests(RequestCase):
    """The request 18."""

    def create_all(self, *configs: TopicConfig) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                             body=CreateTopicListRequestBody(list(configs)).encode_standard())
        return reply.code, reply.remark

    def test_several_topics_are_created_and_registered_once(self) -> None:
        """All are created or changed, even after an unchanged one, and registered once."""
        self.create("T")
        config = TopicConfig("U", 2, 2, attributes={"+message.type": "FIFO"})
        self.assertEqual(self.create_all(TopicConfig("T", 4, 4), config), GOOD)
        self.assertEqual(self.kernel.topic_config.get("U"),
                         TopicConfig("U", 2, 2, attributes={"message.type": "FIFO"}))
        self.assertEqual(self.told, 2)
        self.assertEqual(self.create_all(TopicConfig("T", 4, 4), TopicConfig("U", 2, 2)), GOOD)
        self.assertEqual(self.told, 2)

    def test_a_topic_that_would_not_be_compacted_is_not_created(self) -> None:
        """A topic that would not be compacted is not created, one by one or in a list."""
        refused = (ResponseCode.SYSTEM_ERROR, "cleanup.policy=COMPACTION: topics are not compacted "
                                              "here, DELETE is what there is")
        asked = "+cleanup.policy=COMPACTION"
        self.assertEqual(self.create(attributes=asked), refused)
        self.assertEqual(self.create_all(TopicConfig("T", attributes={
            "+cleanup.policy": "COMPACTION"})), refused)
        self.assertIsNone(self.kernel.topic_config.get("T"))
        self.assertEqual(self.create(attributes="+cleanup.policy=DELETE"), GOOD)

    def test_one_that_cannot_be(self) -> None:
        """A wrong name, number or type of one refuses all."""
        for wrong, remark in (
            (TopicConfig(" "), "The specified topic is blank."),
            (TopicConfig("TBW102"), "The topic[TBW102] is conflict with system topic."),
            (TopicConfig("U", -1), "The numbers of queues must not be negative."),
            (TopicConfig("U", attributes={"+message.type": "MIXED"}),
             "MIXED message type is not supported."),
        ):
            self.assertEqual(self.create_all(TopicConfig("T"), wrong),
                             (ResponseCode.INVALID_PARAMETER, remark))
        self.assertIsNone(self.kernel.topic_config.get("T"))

    def test_one_whose_attributes_are_refused(self) -> None:
        """The topics before it are created, saved and registered."""
        answer = self.create_all(TopicConfig("T"), TopicConfig("U", attributes={"+nope": "1"}))
        self.assertEqual(answer, (ResponseCode.SYSTEM_ERROR, "unsupported key: nope"))
        self.assertIn("T", self.saved("topics.json")["topicConfigTable"])
        self.assertIsNone(self.kernel.topic_config.get("U"))
        self.assertEqual(self.told, 1)

    def test_topics_beyond_the_limit_are_all_refused(self) -> None:
        """Topics that could not be registered are refused together, with the reason."""
        most = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT
        self.kernel.topic_config.rows_size = most - 500
        code, remark = self.create_all(*(TopicConfig(f"T{number}") for number in range(9)))
        self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("topics", remark or "")
        self.assertIsNone(self.kernel.topic_config.get("T0"))
        self.kernel.topic_config.rows_size = most - 5
        self.assertEqual(self.create("T0")[0], ResponseCode.SYSTEM_ERROR)
        self.assertIsNone(self.kernel.topic_config.get("T0"))
        self.assertEqual(self.told, 0)

    def test_many_take_turns(self) -> None:
        """Many topics are created in steps; the response follows when all are saved."""
        clock = iter(range(self.box.now_ms, self.box.now_ms + 10**6))
        self.box.clock = lambda: next(clock)
        peer = self.box.peer()
        body = CreateTopicListRequestBody([TopicConfig(f"T{number}") for number in range(200)])
        self.assertIsNone(self.box.send(
            peer, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode()))
        self.assertIsNone(self.kernel.topic_config.get("T199"))
        steps = 0
        while not peer.written:
            self.kernel.background.step(self.box.now_ms)
            steps += 1
        self.assertGreater(steps, 5)
        [reply] = self.box.late_replies(peer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn("T199", self.saved("topics.json")["topicConfigTable"])
        self.assertEqual(self.told, 1)

    def test_broken_body(self) -> None:
        """It is refused with a reason."""
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=b"[")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("CreateTopicListRequestBody", reply.remark or "")


class QueueCountTests(RequestCase):
    """The number of queues of a topic."""

    def test_the_number_of_queues_is_limited(self) -> None:
        """So many and no more; the same for the topic of a group's retries."""
        most = TOPIC_QUEUES_MAX
        self.assertEqual(self.create(read_queue_nums=most, write_queue_nums=most), GOOD)
        refused = (ResponseCode.INVALID_PARAMETER,
                   f"The numbers of queues must not be over {most}.")
        self.assertEqual(self.create("U", read_queue_nums=most + 1), refused)
        self.assertEqual(self.create("U", write_queue_nums=2**31 - 1), refused)
        self.assertIsNone(self.kernel.topic_config.get("U"))
        config = SubscriptionGroupConfig("G", retry_queue_nums=most + 1)
        self.assertEqual(self.group(config.encode()), refused)
        topic = self.kernel.topic_config.create_in_send_back("%RETRY%G", most + 1, 6, 0)
        self.assertEqual(topic.write_queue_nums, most)


class SaveTests(RequestCase):
    """The number of saves."""

    def syncs(self) -> int:
        return self.box.disk.sync_count  # type: ignore[attr-defined, no-any-return]

    def test_groups_of_one_request(self) -> None:
        """A list of groups is saved once, before it is answered."""
        self.assertEqual(self.group(SubscriptionGroupConfig("G").encode()), GOOD)
        before = self.syncs()
        self.assertEqual(self.group(SubscriptionGroupConfig("H").encode()), GOOD)
        one = self.syncs() - before
        body = SubscriptionGroupList([SubscriptionGroupConfig(f"G{n}") for n in range(50)])
        reply = self.box.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                             body=body.encode())
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.syncs() - before, 2 * one)
        self.assertIn("G49", self.saved("subscriptionGroup.json")["subscriptionGroupTable"])

    def test_groups_made_on_demand(self) -> None:
        """Groups that came to be are saved together, soon, and at a stop."""
        table = self.kernel.subscription_group
        self.group(SubscriptionGroupConfig("G").encode())
        before = self.syncs()
        for number in range(50):
            table.find(f"G{number}")
        self.assertEqual(self.syncs(), before)
        self.kernel.saves.step(self.box.now_ms)
        self.assertIn("G49", self.saved("subscriptionGroup.json")["subscriptionGroupTable"])
        after = self.syncs()
        self.kernel.saves.step(self.box.now_ms)
        self.assertEqual(self.syncs(), after)
        table.find("last")
        self.box.stop()
        self.assertIn("last", self.saved("subscriptionGroup.json")["subscriptionGroupTable"])


class DeleteTopicTests(RequestCase):
    """The request 215."""

    def test_everything_goes(self) -> None:
        """The topic, its offsets, queues and statistics are deleted; name servers are informed."""
        self.create("T")
        self.create("U")
        kernel = self.kernel
        for topic in ("T", "U"):
            kernel.append([message(topic)])
            count_put(kernel.stats, {topic: (1, 1)})
            kernel.consumer_offset.commit("here", "G", topic, 0, 1)
        self.assertEqual(self.delete("T"), GOOD)
        self.assertEqual(kernel.consumer_offset.topics_of_group("G"), {"U"})
        self.assertEqual([kernel.store.queues.max_offset(topic, 0) for topic in ("T", "U")],
                         [0, 1])
        self.assertEqual([kernel.stats.sums("TOPIC_PUT", topic).count for topic in ("T", "U")],
                         [0, 1])
        self.assertNotIn("T", self.saved("topics.json")["topicConfigTable"])
        self.assertEqual(self.told, 3)

    def test_created_again(self) -> None:
        """A topic of the same name begins at 0."""
        self.create("T")
        self.kernel.append([message("T"), message("T")])
        self.delete("T")
        self.create("T")
        record = message("T", b"new")
        self.kernel.append([record])
        self.assertEqual(record.queue_offset, 0)

    def test_deleting_a_missing_topic_succeeds(self) -> None:
        """The response is a success."""
        self.assertEqual(self.delete("nope"), GOOD)

    def test_a_blank_name_and_system_topics_stay(self) -> None:
        """A blank name and system topics are refused with Apache's code and remarks."""
        self.assertEqual(self.delete(" "), (ResponseCode.INVALID_PARAMETER,
                                            "The specified topic is blank."))
        for topic in ("TBW102", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"):
            self.assertEqual(self.delete(topic), (
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic."))
            self.assertIsNotNone(self.kernel.topic_config.get(topic))


class AllTopicsTests(RequestCase):
    """The request 21."""

    def test_all_topics_come_with_the_version(self) -> None:
        """The response has all topics, the version, and the empty tables of static topics."""
        self.create("T", attributes="+message.type=FIFO")
        reply = self.box.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        body = TopicConfigSerializeWrapper.decode(reply.body)
        self.assertEqual(body.topic_config_table, self.kernel.topic_config.table)
        self.assertEqual(body.data_version, self.kernel.topic_config.data_version)
        self.assertEqual(json.loads(reply.body).keys(), {
            "dataVersion", "mappingDataVersion", "topicConfigTable", "topicQueueMappingDetailMap",
            "topicQueueMappingInfoMap"})


class GroupTests(RequestCase):
    """The requests 200, 207 and 225."""

    def test_creation_and_change(self) -> None:
        """The group has the fields of the body, and defaults for missing fields; it is saved."""
        body = SubscriptionGroupConfig("G", retry_max_times=3, consume_enable=False)
        self.assertEqual(self.group(body.encode()), GOOD)
        self.assertEqual(self.kernel.subscription_group.table["G"], body)
        self.assertEqual(self.group(b'{"groupName":"G","retryQueueNums":2}'), GOOD)
        self.assertEqual(self.kernel.subscription_group.table["G"],
                         SubscriptionGroupConfig("G", retry_queue_nums=2))
        saved = self.saved("subscriptionGroup.json")["subscriptionGroupTable"]
        self.assertEqual(saved["G"]["retryQueueNums"], 2)

    def test_more_retry_queues(self) -> None:
        """The retry topic gets more queues at once, and keeps them at a smaller number."""
        told: list[int] = []
        self.box.host.on_topic_change.append(lambda: told.append(1))
        topics = self.kernel.topic_config
        topics.create_in_send_back("%RETRY%G", 1, 6, 0)
        for number, expected in ((1, 1), (4, 4), (2, 4)):
            body = SubscriptionGroupConfig("G", retry_queue_nums=number)
            self.assertEqual(self.group(body.encode()), GOOD)
            self.assertEqual(topics.table["%RETRY%G"],
                             TopicConfig("%RETRY%G", expected, expected, 6))
        self.assertEqual(told, [1])
        self.assertEqual(self.group(b'{"groupName":"H","retryQueueNums":4}'), GOOD)
        self.assertNotIn("%RETRY%H", topics.table)

    def test_bad_bodies(self) -> None:
        """Invalid names and broken bodies are refused, and nothing is created."""
        before = dict(self.kernel.subscription_group.table)
        for body in (b'{"groupName":" "}', b'{"groupName":"a*b"}',
                     b'{"groupName":"%b"}' % (b"g" * 256)):
            self.assertEqual(self.group(body)[0], ResponseCode.INVALID_PARAMETER, body)
        for body in (b"", b"{", b"[]", b"{}", b'{"groupName":5}',
                     b'{"groupName":"G","retryQueueNums":"many"}',
                     b'{"groupName":"G","attributes":{"+nope":"1"}}'):
            self.assertEqual(self.group(body)[0], ResponseCode.SYSTEM_ERROR, body)
        self.assertEqual(self.kernel.subscription_group.table, before)

    def test_several_groups_are_created_all_or_none(self) -> None:
        """If one name is invalid, none is created."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        groups = [SubscriptionGroupConfig("G", retry_max_times=3), SubscriptionGroupConfig("H")]
        wrong = SubscriptionGroupList([*groups, SubscriptionGroupConfig("a*b")])
        self.assertEqual(self.box.ask(code, body=wrong.encode_standard()).code,
                         ResponseCode.INVALID_PARAMETER)
        self.assertNotIn("G", self.kernel.subscription_group.table)
        reply = self.box.ask(code, body=SubscriptionGroupList(groups).encode_standard())
        self.assertEqual((reply.code, reply.remark), GOOD)
        self.assertEqual(self.kernel.subscription_group.table["G"].retry_max_times, 3)
        self.assertIn("H", self.kernel.subscription_group.table)

    def remove(self, group: str, clean_offset: bool) -> RemotingCommand:
        return self.box.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP,
                            DeleteSubscriptionGroupRequestHeader(
                                group_name=group, clean_offset=clean_offset))

    def test_a_group_goes_with_its_statistics(self) -> None:
        """The statistics are deleted with the group, and its offsets on request."""
        kernel = self.kernel
        for clean_offset, left in ((False, {"T"}), (True, set())):
            kernel.subscription_group.find("G")
            kernel.consumer_offset.commit("here", "G", "T", 0, 1)
            kernel.consumer_offset.commit("here", "H", "T", 0, 1)
            kernel.stats.messages_got("G", "T", 1, 1)
            reply = self.remove("G", clean_offset)
            self.assertEqual((reply.code, reply.remark), GOOD)
            self.assertNotIn("G", kernel.subscription_group.table)
            self.assertEqual(kernel.consumer_offset.topics_of_group("G"), left)
            self.assertEqual(kernel.stats.sums("GROUP_GET", "T", "G").count, 0)
        self.assertEqual(kernel.consumer_offset.topics_of_group("H"), {"T"})

    def test_deletion_of_what_is_not_there(self) -> None:
        """The response is a success, and remaining offsets are deleted."""
        self.kernel.consumer_offset.commit("here", "G", "T", 0, 1)
        self.assertEqual(self.remove("G", True).code, ResponseCode.SUCCESS)
        self.assertEqual(self.kernel.consumer_offset.topics_of_group("G"), set())
