"""The plugin beside others, and over restarts."""

from __future__ import annotations

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins.static_topic import plugin
from twistmq.plugins.static_topic.pulls import PULL_CODES
from twistmq.plugins.static_topic.sends import SEND_CODES
from twistmq.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from twistmq.protocol.codes import RequestCode


class PluginTests(ClusterCase):
    """The hooks of the plugin."""

    def test_mappings_are_in_registrations_and_in_the_reply_to_21(self) -> None:
        """21 tells the mappings, a registration, in either form, which queues are led."""
        self.updated(A, [item(0, A, 2, 0)], [item(0, A, 1, 0), item(1, B, 1, -1)])
        box = self.boxes[A]
        found = TopicConfigSerializeWrapper.decode(box.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
        assert found.topic_queue_mapping_detail_map is not None
        hosted = found.topic_queue_mapping_detail_map[TOPIC]["hostedQueues"]
        self.assertEqual(set(hosted), {"0", "1"})
        self.assertEqual(found.mapping_data_version, self.mappings().data_version)
        for compressed in (False, True):
            body = RegisterBrokerBody.decode(
                box.kernel.tables.registration(compressed)(), compressed)
            infos = body.topic_config_serialize_wrapper.topic_queue_mapping_info_map
            assert infos is not None
            self.assertEqual((infos[TOPIC].curr_id_map, infos[TOPIC].bname, infos[TOPIC].epoch,
                              infos[TOPIC].total_queues), ({0: 2}, A, 1, 4))

    def test_the_mapping_is_loaded_before_the_broker_answers(self) -> None:
        """The saved mapping is loaded before the broker serves requests."""
        self.updated(A, [item(0, B, 0, 0), item(1, A, 2, 10_000)])
        self.send(b"x")
        self.boxes[A].stop()
        self.boxes[A] = self.start(A, self.boxes[A].disk)
        self.assertEqual(self.send(b"y"), (0, 10_001))

    def test_without_others(self) -> None:
        """Without the plugin admin the requests 208 and 351 do not exist, and none are added."""
        box = KernelBox([("static_topic", plugin.Plugin)])
        self.addCleanup(box.stop)
        handlers = box.kernel.dispatcher.handlers
        self.assertNotIn(RequestCode.GET_TOPIC_CONFIG, handlers)
        self.assertIn(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, handlers)
        for code in (*SEND_CODES, *PULL_CODES):
            self.assertIn("static_topic", handlers[code].handle.__module__, msg=str(code))
        self.assertFalse(box.disk.exists("/store/config/topicQueueMapping.json"))
