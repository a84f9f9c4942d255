"""The names in a namespace, and a client with one."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import running_broker
from twistmq.broker.testing.raw_client import records_of
from twistmq.client import Client, Producer
from twistmq.client.base.namespace import Namespace
from twistmq.protocol.bodies import MessageQueue

#: (inside, as brokers know it), as Java's NamespaceUtil wraps them.
TOPICS = (
    ("orders", "N%orders"), ("%RETRY%g", "%RETRY%N%g"), ("%DLQ%g", "%DLQ%N%g"),
    ("TBW102", "TBW102"), ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"), ("", ""),
)


class NamespaceTests(SynchronousTestCase):
    """Names are wrapped and unwrapped."""

    def test_names_are_wrapped_once_and_system_names_never(self) -> None:
        """Behind a prefix, not of the system, and once only."""
        named = Namespace("N")
        for inside, outside in TOPICS:
            self.assertEqual(named.topic(inside), outside)
            self.assertEqual(named.topic(outside), outside)
            self.assertEqual(named.without(outside), inside)
            self.assertTrue(named.contains(outside))
        self.assertEqual(named.group("g"), "N%g")
        self.assertEqual(named.group("CID_RMQ_SYS_TRANS"), "CID_RMQ_SYS_TRANS")
        self.assertFalse(named.contains("orders"))
        self.assertFalse(named.contains("M%orders"))

    def test_without_a_namespace_names_stay_as_they_are(self) -> None:
        """Without a namespace every name stays as it is."""
        none = Namespace("")
        for name in ("orders", "M%orders", "%RETRY%g"):
            self.assertEqual((none.topic(name), none.without(name), none.contains(name)),
                             (name, name, True))

    def test_a_client_sends_and_commits_inside_its_namespace(self) -> None:
        """Messages and offsets belong to the namespace; nothing is stored under the short names."""
        with running_broker() as broker, \
                Client(broker.namesrv_address, namespace="N") as inside, \
                Client(broker.namesrv_address) as outside:
            Producer(client=outside).send("orders", b"outside")
            sent = Producer(client=inside).send("orders", b"inside")
            self.assertEqual(sent.queue.topic, "orders")
            [record] = records_of(inside.pull(sent.queue, 0, group="g").body)
            self.assertEqual((record.topic, record.body), ("N%orders", b"inside"))
            inside.commit_group_offset("g", sent.queue, 1)
            queue = MessageQueue("N%orders", sent.queue.broker_name, sent.queue.queue_id)
            self.assertEqual(outside.group_offset("N%g", queue), 1)
            self.assertEqual(inside.group_offset("g", sent.queue), 1)
            self.assertIsNone(outside.group_offset("g", queue))
            self.assertIn("orders", inside.topics())
            self.assertNotIn("N%orders", inside.topics())
            self.assertIn("N%orders", outside.topics())
