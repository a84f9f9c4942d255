"""The queues of a route for senders and readers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.core.connection.routes import Route
from twistmq.protocol.bodies import (
    BrokerData,
    MessageQueue,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)

READ, WRITE = 4, 2


def data_of(
    brokers: dict[str, list[int]], *, read: int = 2, write: int = 2, perm: int = READ | WRITE,
    order: str | None = None,
) -> TopicRouteData:
    """Return the data of a route.

    :param brokers: the ids of the brokers of each name.
    """
    return TopicRouteData(
        order_topic_conf=order,
        queue_datas=[QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write,
                               perm=perm) for name in brokers],
        broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={
            broker_id: f"10.0.0.{broker_id}:1" for broker_id in ids})
            for name, ids in brokers.items()])


class QueueTests(SynchronousTestCase):
    """The functions ``write_queues`` and ``read_queues``."""

    def names(self, queues: list[MessageQueue]) -> list[tuple[str, int]]:
        """Return the broker name and the id of each queue."""
        return [(queue.broker_name, queue.queue_id) for queue in queues]

    def test_a_broker_without_a_master_is_read_but_not_written(self) -> None:
        """A slave would refuse a send."""
        route = Route("t", data_of({"a": [0, 1], "b": [1]}, write=1))
        self.assertEqual(self.names(route.write_queues), [("a", 0)])
        self.assertEqual(self.names(route.read_queues),
                         [("a", 0), ("a", 1), ("b", 0), ("b", 1)])

    def test_queues_without_the_permission_are_left_out(self) -> None:
        """Reading and writing have different bits."""
        self.assertEqual(Route("t", data_of({"a": [0]}, perm=READ)).write_queues, [])
        self.assertEqual(Route("t", data_of({"a": [0]}, perm=WRITE)).read_queues, [])

    def test_the_configuration_of_an_ordered_topic_has_its_write_queues(self) -> None:
        """They remain while a broker is down, so that a key keeps its queue."""
        route = Route("t", data_of({"a": [0]}, order="a:1;gone:2;broken"))
        self.assertTrue(route.is_ordered)
        self.assertEqual(self.names(route.write_queues), [("a", 0), ("gone", 0), ("gone", 1)])
        self.assertEqual(self.names(route.read_queues), [("a", 0), ("a", 1)])

    def test_a_static_topic_has_logical_queues_of_the_newest_owner(self) -> None:
        """Queue 1 was moved from a to b, whose mapping is newer."""
        data = data_of({"a": [0], "b": [0]})
        data.topic_queue_mapping_by_broker = {
            "a": TopicQueueMappingInfo(topic="t", scope="s", bname="a", epoch=1, total_queues=2,
                                       curr_id_map={0: 0, 1: 1}),
            "b": TopicQueueMappingInfo(topic="t", scope="s", bname="b", epoch=2, total_queues=2,
                                       curr_id_map={1: 0})}
        route = Route("t", data)
        queues = [MessageQueue("t", "__syslo__s__", queue_id) for queue_id in range(2)]
        self.assertEqual((route.write_queues, route.read_queues), (queues, queues))
        self.assertEqual([route.owners[queue] for queue in queues], ["a", "b"])

    def test_a_new_topic_has_at_most_four_and_as_many_queues_as_the_template_reads(self) -> None:
        """Apache's broker does the same, whatever the template's number of write queues is."""
        for read, expected in ((8, 4), (3, 3)):
            template = Route("TBW102", data_of({"a": [0]}, read=read, write=1))
            self.assertEqual(self.names(template.template_for("new").write_queues),
                             [("a", queue_id) for queue_id in range(expected)])
