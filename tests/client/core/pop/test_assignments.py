"""The sources that a member pops."""

from __future__ import annotations

import json

from tests.client.core.box import NAMESRV, route, routes
from tests.client.core.pop.pop_case import PopCase
from tests.client.core.pop_box import BROKER, PopBox, PopBroker
from twistmq.client.base.errors import Unsupported
from twistmq.client.core.consumer.strategies import AveragelyByCircle
from twistmq.protocol.bodies import (
    MessageQueue,
)
from twistmq.protocol.codes import RequestCode, ResponseCode


class StrategyTests(PopCase):
    """The option ``strategy``: the broker divides the queues by it."""

    def test_the_broker_is_told_its_name(self) -> None:
        """Java's default is AVG."""
        for options, name in (({}, "AVG"), ({"strategy": AveragelyByCircle()}, "AVG_BY_CIRCLE")):
            box = self.start(**options)
            questions = [json.loads(command.body) for _, command in box.requests
                         if command.code == RequestCode.QUERY_ASSIGNMENT]
            self.assertEqual({each["strategyName"] for each in questions}, {name})
            self.assertEqual({each["consumerGroup"] for each in questions}, {"g"})


class AssignmentTests(PopCase):
    """The queues of each broker that are popped."""

    def test_without_a_mode_all_queues_of_all_brokers_are_popped(self) -> None:
        """The member gets one entry for each broker, and the listeners are called."""
        told: list[list[MessageQueue]] = []
        box = PopBox(on_assigned=told.append)
        other = PopBroker(box.clock, "b")
        box.servers["10.0.0.3:10911"] = other
        box.servers[NAMESRV] = routes({"T": route({"a": BROKER, "b": "10.0.0.3:10911"}, 2)})
        box.broker.put(b"1")
        other.put(b"2")
        box.start()
        both = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
        self.assertEqual((box.member.assigned(), told), (both, [both]))
        box.demand()
        self.assertEqual(sorted(box.take_all()), [1, 2])

    def test_the_mode_of_the_group_is_followed_while_it_runs(self) -> None:
        """An administrator has each member pop some queues, and then all again."""
        told: list[tuple[str, list[MessageQueue]]] = []
        box = self.start(on_assigned=lambda queues: told.append(("got", queues)),
                         on_lost=lambda queues: told.append(("lost", queues)))
        one, all_of_it = MessageQueue("T", "a", 1), MessageQueue("T", "a", -1)
        box.broker.assignments = [{"messageQueue": {
            "topic": "T", "brokerName": "a", "queueId": 1}, "mode": "POP"}]
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [one])
        box.demand()
        self.assertEqual(box.take_all(), [1, 3, 5, 7, 9])
        self.assertEqual([pop.queue_id for pop in box.broker.pops], [1])
        box.broker.refusals = {RequestCode.QUERY_ASSIGNMENT: ResponseCode.SYSTEM_ERROR}
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [one])
        box.broker.refusals, box.broker.assignments = {}, None
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [all_of_it])
        self.assertEqual(told[1:], [("lost", [all_of_it]), ("got", [one]),
                                    ("lost", [one]), ("got", [all_of_it])])

    def test_a_broker_without_pop_is_refused_at_the_start(self) -> None:
        """The error names the alternative, and the member leaves the group."""
        box = PopBox()
        box.broker.refusals = {
            RequestCode.QUERY_ASSIGNMENT: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        with self.assertRaises(Unsupported) as caught:
            box.run(box.member.start())
        self.assertIn("RocketMQ 5.0", str(caught.exception))
        self.assertEqual((box.core.members, box.broker.members), ([], set()))
