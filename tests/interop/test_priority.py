"""Priority messages compared with Apache's 5.5.0: its client, and the answers of its broker."""

from __future__ import annotations

from typing import Final

from tests.interop.clients import HERE, JavaTestCase, client_home, java_classes, run
from tests.interop.peer import class_path, java_command
from tests.interop.popper import Popper
from tests.interop.servers import servers
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

TOPIC: Final = "Priorities"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
#: The priority of a message, its other properties, and the queue for which it was sent.
SENDS: Final = (
    ("0", {}, 2), ("3", {}, 0), ("99", {}, 0), ("-1", {}, 2), ("high", {}, 1), ("+1", {}, 0),
    ("2147483648", {}, 1), ("3", {"__SHARDINGKEY": "k"}, 1), ("2", {"TRAN_MSG": "false"}, 0),
    ("3", {"DELAY": "1"}, 0))


class PriorityTests(JavaTestCase):
    """The same requests to both brokers."""

    version = "5.5.0"

    def answers(self, namesrv: str, broker: str) -> dict[str, object]:
        """Send all requests to a broker; :returns: its answers by request."""
        found: dict[str, object] = {}
        with RawClient(broker, 30) as client:
            found["topic"] = client.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                    topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                    perm=6, topic_filter_type="SINGLE_TAG", order=False,
                    attributes="+message.type=PRIORITY")).code
            for percent in ("101", "100"):
                reply = client.request(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                    SubscriptionGroupConfig("p", attributes={"+priority.factor": percent}).encode())
                found[f"factor {percent}"] = reply.code
            for number, (priority, more, queue_id) in enumerate(SENDS):
                header = client.send(TOPIC, b"%d" % number, queue_id=queue_id,
                                     properties={PRIORITY: priority, **more})
                found[f"queue of {priority} {more}"] = header.queue_id
            found["java"] = self.sends(namesrv)
            popper = Popper(client, TOPIC, "broker-peer", "p")
            bodies: list[bytes] = []
            while popped := popper.pop(4):
                bodies += [each.body for each in popped]
            found["order"] = bodies
            found["kept"] = [
                {message.body: message.properties_map().get(PRIORITY)
                 for message in client.pull(TOPIC, queue_id=queue_id)} for queue_id in range(4)]
        return found

    def sends(self, namesrv: str) -> str:
        """Send with Apache's client; :returns: the queues."""
        classes = java_classes(self.version, HERE / "priority_java")
        with client_home() as home:
            command = java_command(home, [str(classes), class_path(self.version)])
            return run([*command, "PrioritySends", namesrv, TOPIC], 120).splitlines()[-1]

    def test_both_brokers_answer_alike(self) -> None:
        """Queues, properties and the order of pops are the same as in Apache's broker 5.5.0."""
        with servers(self.folder / "ours", "brokerName=broker-peer") as running:
            ours = self.answers(running.namesrv, f"127.0.0.1:{running.broker_port}")
        peer = self.start_apache()
        theirs = self.answers(peer.namesrv_address, f"127.0.0.1:{peer.broker_port}")
        self.assertEqual(ours, theirs)
        self.assertEqual(ours["java"], "queues 0 1 2 3 3 0 1 2 3 3")
