"""The request QUERY_ASSIGNMENT."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.pop.case import PopTestCase
from twistmq.broker.testing.kernel import Peer
from twistmq.plugins.pop.assignment import (
    Assignments,
    allocate_averagely,
    allocate_by_circle,
    allocate_for_pop,
)
from twistmq.protocol.bodies import MessageQueue, QueueData, TopicRouteData
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.log_rate import LINES_A_MINUTE

QUEUES = [MessageQueue("T", "b", queue_id) for queue_id in range(8)]


def ids(queues: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


class StrategyTests(SynchronousTestCase):
    """The shares that Apache's clients compute."""

    def test_allocate_averagely_gives_blocks_of_queues(self) -> None:
        """Members get blocks of queues, and the first members get one more."""
        self.assertEqual([ids(allocate_averagely(QUEUES, "abc", index)) for index in range(3)],
                         [[0, 1, 2], [3, 4, 5], [6, 7]])
        self.assertEqual([ids(allocate_averagely(QUEUES[:2], "abc", index)) for index in range(3)],
                         [[0], [1], []])

    def test_by_circle(self) -> None:
        """Members get queues in turn."""
        self.assertEqual([ids(allocate_by_circle(QUEUES, "abc", index)) for index in range(3)],
                         [[0, 3, 6], [1, 4, 7], [2, 5]])

    def test_every_member_gets_some_queue_to_pop(self) -> None:
        """Each member gets all queues, or the queues of some members, and at least one queue."""
        for share in (0, -1, 2, 9):
            self.assertEqual(set(ids(allocate_for_pop(
                allocate_averagely, QUEUES, "abc", 0, share))), {-1})
        self.assertEqual([sorted(ids(allocate_for_pop(
            allocate_averagely, QUEUES, "abcd", index, 1))) for index in range(4)],
                         [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [0, 1, 6, 7]])
        self.assertEqual([ids(allocate_for_pop(allocate_averagely, QUEUES[:2], "abcd", index, 1))
                          for index in range(4)], [[0], [1], [0], [1]])


class AssignmentTests(PopTestCase):
    """The request and its response."""

    def setUp(self) -> None:
        super().setUp()
        self.send(b"x")
        self.peers = [self.join(client) for client in ("c1", "c2")]

    def join(self, client: str) -> Peer:
        peer = self.box.peer()
        self.box.ask(RequestCode.HEART_BEAT, None, json.dumps({
            "clientID": client, "producerDataSet": [], "consumerDataSet": [{
                "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}]}],
        }).encode(), peer)
        return peer

    def query(self, client: str = "c1", **change: str) -> bytes:
        body = {"topic": "T", "consumerGroup": "g", "clientId": client, "strategyName": "AVG",
                "messageModel": "CLUSTERING", **change}
        return self.box.ask(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode()).body

    def queues(self, client: str = "c1", **change: str) -> list[tuple[str, int, str]] | None:
        """Return (broker, queue, mode) for a consumer; None if there is no answer."""
        found = json.loads(self.query(client, **change)).get("messageQueueAssignments")
        return None if found is None else [
            (each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"])
            for each in found]

    def pop_mode(self, share: int = 0) -> None:
        self.box.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
            "topic": "T", "consumerGroup": "g", "mode": "POP",
            "popShareQueueNum": share}).encode())

    def test_each_member_gets_its_share_of_queues(self) -> None:
        """Each member gets its share of the queues."""
        self.assertEqual(self.queues("c1"), [("broker-a", 0, "PULL"), ("broker-a", 1, "PULL")])
        self.assertEqual(self.queues("c2"), [("broker-a", 2, "PULL"), ("broker-a", 3, "PULL")])

    def test_all_members_pop_all_queues(self) -> None:
        """All members pop all queues; the response has the same bytes as in Apache 5.3.3."""
        self.pop_mode()
        self.assertEqual(self.query(), (
            b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":-1,'
            b'"topic":"T"},"mode":"POP"}]}'))

    def test_a_broadcast_member_gets_all_queues(self) -> None:
        """A broadcast member gets all queues, and with a setting every member does."""
        self.assertEqual(len(self.queues(messageModel="BROADCASTING") or ()), 4)
        self.restart(serverLoadBalancerEnable="false")
        self.join("c1")
        self.assertEqual(len(self.queues() or ()), 4)

    def test_lines_of_the_log(self) -> None:
        """Requests without an answer do not fill the log, however many they are."""
        with capturedLogs() as events:
            for _ in range(50):
                self.assertIsNone(self.queues(strategyName="NOPE"))
        self.assertEqual(len([event for event in events
                              if event["log_level"] is LogLevel.warn]), LINES_A_MINUTE)

    def test_nobody_can_say(self) -> None:
        """For an unknown topic, group or strategy the client keeps its assignment."""
        for change in ({"topic": "no"}, {"consumerGroup": "no"}, {"strategyName": "no"}):
            self.assertEqual(self.query(**change), b"{}", msg=str(change))

    def test_not_a_member(self) -> None:
        """A client that is not a member gets no queues."""
        self.assertEqual(self.queues("stranger"), [])

    def test_queues_of_all_brokers(self) -> None:
        """The queues of all brokers come from the name servers, and are kept for a while."""
        asked: list[str] = []
        answers: list[TopicRouteData | BrokerError | None] = [
            BrokerError("no name server"), None,
            TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6), QueueData("a", 2, 2, 6),
                                        QueueData("closed", 4, 4, 2)])]

        async def find(topic: str) -> TopicRouteData | None:
            asked.append(topic)
            answer = answers[len(asked) - 1]
            if isinstance(answer, BrokerError):
                raise answer
            return answer

        self.box.host.has_name_servers = True
        self.box.host.find_route = find
        self.assertEqual([self.queues(), self.queues()], [None, None])
        for _ in range(2):
            self.assertEqual(self.queues("c1"), [("a", 0, "PULL"), ("a", 1, "PULL")])
            self.assertEqual(self.queues("c2"), [("b", 0, "PULL")])
        self.assertEqual(len(asked), 3)
        answers.append(BrokerError("no name server"))
        self.box.now_ms += 30_001
        # What was known goes on to hold.
        self.assertEqual(self.queues("c2"), [("b", 0, "PULL")])
        self.assertEqual(len(asked), 4)

    def test_only_topics_that_are_there(self) -> None:
        """Nothing is kept for a missing topic, and an invalid name is not looked up."""
        asked: list[str] = []
        routes: dict[str, TopicRouteData] = {}

        async def find(topic: str) -> TopicRouteData | None:
            asked.append(topic)
            return routes.get(topic)

        self.box.host.has_name_servers = True
        self.box.host.find_route = find
        for topic in ("nowhere", "t" * 256, "a/b", "..", ""):
            self.assertIsNone(self.queues(topic=topic))
        self.assertEqual(asked, ["nowhere"])
        routes["T"] = TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)])
        self.queues()
        self.assertEqual(list(self.assignments._routes), ["T"])
        # It is gone.
        del routes["T"]
        self.box.now_ms += 30_001
        self.assertIsNone(self.queues())
        self.assertEqual(list(self.assignments._routes), [])

    @property
    def assignments(self) -> Assignments:
        handle = self.box.kernel.dispatcher.handlers[RequestCode.QUERY_ASSIGNMENT].handle
        found: Assignments = handle.__self__  # type: ignore[attr-defined]
        return found

    def test_slow_name_server(self) -> None:
        """The response waits for the response of the name server."""
        waiting: Deferred[TopicRouteData] = Deferred()

        async def find(topic: str) -> TopicRouteData | None:
            return await waiting

        self.box.host.has_name_servers = True
        self.box.host.find_route = find
        peer = self.box.peer()
        body = json.dumps({"topic": "T", "consumerGroup": "g", "clientId": "c1",
                           "strategyName": "AVG"}).encode()
        self.assertIsNone(self.box.send(peer, RequestCode.QUERY_ASSIGNMENT, None, body))
        waiting.callback(TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)]))
        [reply] = self.box.late_replies(peer)
        self.assertIn(b'"brokerName":"b"', reply.body)
