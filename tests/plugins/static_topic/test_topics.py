"""Requests that create, change, delete and describe static topics."""

from __future__ import annotations

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item, part_lists
from twistmq.plugins.static_topic.checks import MappingError
from twistmq.plugins.static_topic.mapping import (
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from twistmq.protocol.bodies import (
    ConsumeStats,
    MessageQueue,
    RegisterBrokerBody,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicConfigRequestHeader,
)

FIRST = item(0, A, 0, 0)


class UpdateTests(ClusterCase):
    """The request 513, UPDATE_AND_CREATE_STATIC_TOPIC."""

    def test_topic_and_mapping_are_there(self) -> None:
        """The topic and its mapping are saved, and the name servers get both."""
        told: list[dict[int, int]] = []
        kernel = self.boxes[A].kernel

        def listen() -> None:
            tables = kernel.topic_config.topic_tables()
            kernel.hooks.complete_topic_tables(tables, registering=True)
            found = tables.topic_queue_mapping_info_map
            told.append(found[TOPIC].curr_id_map if found else {})

        self.boxes[A].host.on_topic_change.append(listen)
        version = kernel.topic_config.data_version.counter
        self.updated(A, [FIRST], [item(0, B, 0, 0)])
        self.assertEqual(told, [{0: 0}])
        config = kernel.topic_config.get(TOPIC)
        assert config is not None
        self.assertEqual((config.read_queue_nums, config.write_queue_nums, config.perm), (4, 4, 6))
        self.assertGreater(kernel.topic_config.data_version.counter, version)
        for name in ("topics.json", "topicQueueMapping.json"):
            self.assertIn(b'"S"', self.boxes[A].disk.read_file(f"/store/config/{name}"))
        self.assertEqual(self.mappings().data_version.counter, 1)

    def test_refused_mapping(self) -> None:
        """Nothing changes, not even the settings of the topic."""
        self.updated(A, [FIRST], epoch=5)
        for hosted, epoch, queues, why in (
            ({0: [FIRST]}, 4, 4, "Can't accept data with small epoch 4 < 5"),
            ({}, 5, 4, "Cannot accept equal epoch with null data"),
            ({0: [item(-1, A, 0, 0)]}, 6, 8, "should not be negative"),
        ):
            reply = self.update(A, hosted, epoch=epoch, queues=queues)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(why, reply.remark or "")
        self.assertEqual(self.mappings().table[TOPIC].epoch, 5)
        config = self.boxes[A].kernel.topic_config.get(TOPIC)
        assert config is not None
        self.assertEqual(config.write_queue_nums, 4)

    def test_numbers_that_nobody_could_read(self) -> None:
        """They would be saved, registered and sent to clients."""
        long_name = "b" * 256
        for hosted, fields in (
            ({99_999_999_999: [FIRST]}, {}), ({4: [FIRST]}, {}), ({-1: [FIRST]}, {}),
            ({0: [item(0, A, 2**40, 0)]}, {}), ({0: [item(0, A, 4, 0)]}, {}),
            ({0: [item(0, B, 16_384, 0)]}, {}),
            ({0: [item(2**31, A, 0, 0)]}, {}),
            ({0: [item(0, A, 0, 10**20)]}, {}), ({0: [item(0, A, 0, 2**62)]}, {}),
            ({0: [item(0, A, 0, -2)]}, {}),
            ({0: [item(0, A, 0, 0, start_offset=10**20)]}, {}),
            ({0: [item(0, A, 0, 0, start_offset=2**62)]}, {}),
            ({0: [item(0, A, 0, 0, end_offset=2**62)]}, {}),
            ({0: [item(0, A, 0, 0, end_offset=-5)]}, {}),
            ({0: [item(0, A, 0, 0, time_of_start=2**63)]}, {}),
            ({0: [item(0, long_name, 0, 0)]}, {}),
            ({0: [item(gen, A, 0, gen) for gen in range(1001)]}, {}),
            ({}, {"total": -1}), ({}, {"total": 16_385}), ({}, {"epoch": 2**63}),
        ):
            for force in (False, True):
                reply = self.update(A, hosted, force=force, **fields)
                self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=str(hosted)[:99])
                self.assertTrue(reply.remark)
        scope = b'{"topic":"S","bname":"broker-a","scope":"%b"}' % (b"s" * 256)
        self.assertEqual(self.update(A, {}, body=scope).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.mappings().table, {})
        self.assertIsNone(self.boxes[A].kernel.topic_config.get(TOPIC))

    def test_no_more_than_a_registration_holds(self) -> None:
        """A topic that would make the registration too long is refused; the others
        stay registered.
        """
        count = 16_384
        hosted = {number: [item(0, A, number, 0)] for number in range(count)}
        kept = self.mappings()
        for name, is_refused in (("S0", False), ("S1", True), ("S0", False)):
            detail = TopicQueueMappingDetail(
                topic=name, total_queues=count, bname=A, epoch=1, hosted_queues=hosted)
            if is_refused:
                error = self.assertRaises(MappingError, kept.checked, detail, False, count)
                self.assertIn("in a registration", str(error))
            else:
                kept.put(kept.checked(detail, False, count))
        kernel = self.boxes[A].kernel
        RegisterBrokerBody.decode(kernel.tables.registration(False)())

    def test_an_older_mapping_is_taken(self) -> None:
        """An older mapping is accepted, and queues that it leaves out remain."""
        self.updated(A, [FIRST], [item(0, A, 1, 0)], epoch=5)
        reply = self.update(A, {0: [item(3, A, 2, 0)]}, epoch=4, force=True)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.mappings().table[TOPIC].hosted_queues,
                         part_lists([item(3, A, 2, 0)], [item(0, A, 1, 0)]))

    def test_refused_requests(self) -> None:
        """Names and numbers that cannot be, bodies of others."""
        invalid = ResponseCode.INVALID_PARAMETER
        for reply, code in (
            (self.update(A, {}, topic="a b"), invalid),
            (self.update(A, {}, topic="TBW102"), invalid),
            (self.update(A, {}, queues=-1), invalid), (self.update(A, {}, queues=10**6), invalid),
            (self.update(A, {}, body=b""), ResponseCode.SYSTEM_ERROR),
            (self.update(A, {}, body=b'{"topic":"T"}'), invalid),
            (self.update(A, {}, body=b'{"topic":"S","bname":"x"}'), ResponseCode.SYSTEM_ERROR),
        ):
            self.assertEqual(reply.code, code, msg=reply.remark)
            self.assertTrue(reply.remark)
        self.assertEqual(self.mappings().table, {})
        self.assertIsNone(self.boxes[A].kernel.topic_config.get(TOPIC))

    def test_bare_keys(self) -> None:
        """The broker accepts the body of a Java client, which has bare keys."""
        body = (b'{"bname":"broker-a","currIdMap":{},"dirty":false,"epoch":7,"hostedQueues":{1:[{'
                b'"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":2,'
                b'"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},"scope":"__global__",'
                b'"topic":"S","totalQueues":2}')
        self.assertEqual(self.update(A, {}, body=body).code, ResponseCode.SUCCESS)
        self.assertEqual(self.mappings().table[TOPIC].hosted_queues, {1: [item(0, A, 2, 0)]})
        self.assertEqual(self.mappings().table[TOPIC].encode(), body)


class OtherRequestTests(ClusterCase):
    """The requests 215, 351 and 208."""

    def setUp(self) -> None:
        super().setUp()
        self.updated(A, [FIRST])

    def test_the_mapping_goes_with_the_topic(self) -> None:
        """The mapping is deleted with its topic, before the name servers are informed."""
        tables: list[int] = []
        self.boxes[A].host.on_topic_change.append(
            lambda: tables.append(len(self.mappings().table)))
        header = DeleteTopicRequestHeader(topic=TOPIC)
        self.assertEqual(self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header).code, 0)
        self.assertEqual((tables, self.mappings().table), ([0], {}))
        self.assertNotIn(b'"S"', self.boxes[A].disk.read_file(
            "/store/config/topicQueueMapping.json"))
        # It can be made anew as an ordinary topic.
        create = CreateTopicRequestHeader(TOPIC, "TBW102", 4, 4, 6, "SINGLE_TAG")
        self.assertEqual(self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create).code, 0)
        self.assertEqual(self.send(b"x", 3), (3, 0))

    def test_the_configuration_shows_the_logical_queues(self) -> None:
        """The response has the logical queues."""
        header = GetTopicConfigRequestHeader(topic=TOPIC)
        reply = self.ask(RequestCode.GET_TOPIC_CONFIG, header, lo="true")
        found = TopicConfigAndQueueMapping.decode(reply.body)
        self.assertEqual((found.topic_name, found.write_queue_nums, found.mapping_detail),
                         (TOPIC, 4, self.mappings().table[TOPIC]))
        for extra in ({}, {"lo": "false"}):
            plain = self.ask(RequestCode.GET_TOPIC_CONFIG, header, **extra)
            self.assertNotIn(b"mappingDetail", plain.body)
            self.assertEqual(TopicConfig.decode(plain.body).write_queue_nums, 4)
        missing = self.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader("no"),
                           lo="true")
        self.assertEqual(missing.code, ResponseCode.TOPIC_NOT_EXIST)

    def test_1_where_a_group_has_no_offset(self) -> None:
        """The offset is -1 for a group without one; for other topics it is 0 as before."""
        kernel = self.boxes[A].kernel
        kernel.topic_config.update(TopicConfig("T", 1, 1), {})
        for topic in (TOPIC, "T"):
            kernel.consumer_offset.commit("me", "g", topic, 2 if topic == TOPIC else 5, 0)
        for topic, expected in ((TOPIC, [-1, -1, 0, -1]), ("T", [0])):
            reply = self.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(
                consumer_group="g", topic=topic))
            table = ConsumeStats.decode(reply.body).offset_table
            self.assertEqual([table[MessageQueue(topic, A, queue)].consumer_offset
                              for queue in range(len(expected))], expected, msg=topic)
