"""Sends: their queues, attempts and errors."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes, stored
from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import (
    Busy,
    Closed,
    Denied,
    NotSafe,
    OptionError,
    Rejected,
    RemotingSendError,
    SendFailed,
    TopicMissing,
    Unsupported,
)
from twistmq.client.base.interceptors import Interceptor, Interceptors
from twistmq.client.base.messages import Message, MessageQueue, SendResult, message_of
from twistmq.client.core.producer.outgoing_message import BODY_SIZE_MAX, ProducerOptions
from twistmq.client.core.producer.replies import prepare_request
from twistmq.client.core.producer.sender import (
    RETRY_CODES,
    TIMER_VERSION_MIN,
    Sender,
    TransactionChecks,
)
from twistmq.client.core.producer.transactions import prepare_half
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.bodies import TopicQueueMappingInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.properties import UNIQ_KEY, WAIT, parse_properties
from twistmq.protocol.record import SYS_COMPRESSED
from twistmq.protocol.topic_names import TEMPLATE_TOPIC

A, B = "10.0.0.2:10911", "10.0.0.3:10911"


class _Tagging(Interceptor):
    """Sets a tag that no subscription can name."""

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """Set it."""
        properties["TAGS"] = " late"


class SendCase(SynchronousTestCase):
    """A producer's core with two brokers."""

    def setUp(self) -> None:
        """Create the producer."""
        self.box = Box()
        self.box.servers[NAMESRV] = routes({"T": route({"a": A, "b": B})})
        self.box.servers[A] = self.box.servers[B] = stored
        ids = count()
        self.sender = Sender(self.box.core, ProducerOptions(group="g"),
                             lambda now_ms: f"ID{next(ids)}")

    def send(self, topic: str = "T", body: Any = b"1", **options: Any) -> SendResult:
        """Send and wait."""
        queue = options.pop("queue", None)
        ready = self.sender.prepare(Message(topic=topic, body=body, **options))
        return self.box.run(self.sender.send(ready, queue))

    def sends(self, address: str) -> int:
        """Return the number of sends to a broker."""
        return sum(where == address and command.code == RequestCode.SEND_MESSAGE_V2
                   for where, command in self.box.requests)


class AttemptTests(SendCase):
    """Attempts and their errors."""

    def test_queues_take_turns_over_all_brokers(self) -> None:
        """Eighty sends give each of eight queues ten."""
        found = Counter(self.send().queue for _ in range(80))
        self.assertEqual(set(found.values()), {10})
        self.assertEqual(len(found), 8)

    def test_each_retry_code_goes_to_the_other_broker(self) -> None:
        """The refusals are those after which Apache's producer tries another broker.

        TOPIC_NOT_EXIST, SERVICE_NOT_AVAILABLE, SYSTEM_ERROR, SYSTEM_BUSY, NO_PERMISSION,
        NO_BUYER_ID, NOT_IN_CURRENT_UNIT; GO_AWAY is of the connection.
        """
        self.assertEqual(RETRY_CODES, {17, 14, 1, 2, 16, 204, 205, 1500})
        for code in (17, 14, 1, 2, 16, 204, 205):
            self.setUp()
            self.box.servers[A] = lambda command, code=code: (code, None, b"", "no")
            for _ in range(8):
                self.assertEqual(self.send().queue.broker_name, "b", msg=str(code))
        self.setUp()
        self.box.servers[A] = self.box.servers[B] = lambda command: (
            ResponseCode.MESSAGE_ILLEGAL, None, b"", "no")
        self.assertRaises(Rejected, self.send)
        self.assertEqual(self.sends(A) + self.sends(B), 1)

    def test_a_chosen_queue_of_a_broker_that_is_new(self) -> None:
        """The route is requested once more, whether the send has a response or not."""
        for oneway in (False, True):
            self.setUp()
            self.box.servers[NAMESRV] = routes({"T": route({"a": A})})
            self.send()
            self.box.servers[NAMESRV] = routes({"T": route({"a": A, "b": B})})
            ready = self.sender.prepare(Message(topic="T", body=b"1"))
            for number in (2, 3):
                new = MessageQueue("T", "b", number)
                if oneway:
                    self.box.run(self.sender.send_oneway(ready, new))
                    self.box.settle()
                else:
                    self.assertEqual(self.send(queue=new).queue, new)
            asked = [command.code for where, command in self.box.requests if where == NAMESRV]
            self.assertEqual((len(asked), self.sends(B)), (2, 2))
        error = self.assertRaises(SendFailed, self.send, queue=MessageQueue("T", "gone", 0))
        self.assertFalse(error.maybe_stored)
        self.assertIn("master of broker gone", str(error))

    def test_a_body_is_compressed_only_if_it_gets_shorter(self) -> None:
        """Random bytes of the greatest size are accepted by a broker with the same limit."""
        body = random.Random(1).randbytes(BODY_SIZE_MAX)
        for message, flag in ((body, 0), (b"a" * len(body), SYS_COMPRESSED)):
            ready = self.sender.prepare(Message("T", message))
            self.assertEqual(ready.sys_flag & SYS_COMPRESSED, flag)
            self.assertLessEqual(len(ready.body), BODY_SIZE_MAX)
            self.assertEqual(decompress(ready.body, ready.sys_flag), message)

    def test_all_attempts_are_told(self) -> None:
        """The error has the broker, the time and the reason of each attempt."""
        self.box.servers[A] = self.box.servers[B] = lambda command: (
            ResponseCode.SERVICE_NOT_AVAILABLE, None, b"", "not now")
        error = self.assertRaises(SendFailed, self.send)
        self.assertEqual(len(error.attempts), 3)
        self.assertEqual({attempt.broker_name for attempt in error.attempts}, {"a", "b"})
        self.assertFalse(error.maybe_stored)
        self.assertIsInstance(error, Busy)
        self.assertIn("not now", str(error))

    def test_a_send_without_a_reply_may_be_stored(self) -> None:
        """All attempts together end within the producer's time-out."""
        self.box.servers[A] = self.box.servers[B] = lambda command: None
        begin = self.box.clock.now_ms
        error = self.assertRaises(SendFailed, self.send)
        self.assertTrue(error.maybe_stored)
        self.assertIsInstance(error, TimeoutError)
        self.assertLessEqual(self.box.clock.now_ms - begin, 3050)

    def test_an_earlier_attempt_may_have_stored_it(self) -> None:
        """This is so whatever the last refusal is."""
        lost: list[str] = []

        def loses_the_first(address: str) -> Callable[[RemotingCommand], Answer]:
            def answer(command: RemotingCommand) -> Answer:
                if lost:
                    return ResponseCode.MESSAGE_ILLEGAL, None, b"", "no"
                lost.append(address)
                self.box.cut(address)
                return None

            return answer

        self.box.servers[A], self.box.servers[B] = loses_the_first(A), loses_the_first(B)
        error = self.assertRaises(SendFailed, self.send)
        self.assertEqual([type(attempt.error) for attempt in error.attempts],
                         [RemotingSendError, Rejected])
        self.assertTrue(error.maybe_stored)

    def test_a_send_ends_in_time_wherever_it_hangs(self) -> None:
        """It may hang at the name server, at connecting, or in any attempt."""
        def refuses_late(address: str) -> None:
            def refuse(command: RemotingCommand) -> Answer:
                self.box.tasks_later(1400, self.box.reply, address, command,
                                     ResponseCode.SERVICE_NOT_AVAILABLE, None)
                return None

            self.box.servers[address] = refuse

        def is_silent(address: str) -> None:
            self.box.servers[address] = lambda command: None

        def opens_no_connection(address: str) -> None:
            del self.box.servers[address]
            self.box.silent.add(address)

        for hangs, addresses, maybe_stored in (
                (is_silent, [NAMESRV], False), (opens_no_connection, [NAMESRV], False),
                (opens_no_connection, [A, B], False), (is_silent, [A, B], True),
                (refuses_late, [A, B], True)):
            self.setUp()
            for address in addresses:
                hangs(address)
            begin = self.box.clock.now_ms
            error = self.assertRaises(SendFailed, self.send)
            self.assertIn(self.box.clock.now_ms - begin, range(3000, 3051), msg=str(error))
            self.assertEqual(error.maybe_stored, maybe_stored, msg=str(error))
            self.assertEqual(isinstance(error, TimeoutError), hangs is not refuses_late,
                             msg=str(error))
        self.assertEqual(len(error.attempts), 3)

    def test_refused_connections_store_nothing(self) -> None:
        """No attempt was sent."""
        del self.box.servers[A], self.box.servers[B]
        error = self.assertRaises(SendFailed, self.send)
        self.assertFalse(error.maybe_stored)

    def test_one_broker_down_costs_no_message(self) -> None:
        """Its queues are avoided within a send."""
        del self.box.servers[A]
        self.assertEqual({self.send().queue.broker_name for _ in range(20)}, {"b"})

    def test_a_chosen_queue_is_tried_once(self) -> None:
        """The caller chose it, so no other queue is used."""
        self.box.servers[A] = lambda command: (
            ResponseCode.SERVICE_NOT_AVAILABLE, None, b"", "not now")
        self.assertRaises(Busy, self.send, queue=MessageQueue("T", "a", 1))
        self.assertEqual((self.sends(A), self.sends(B)), (1, 0))

    def test_a_topic_that_no_broker_makes_is_missing(self) -> None:
        """The name server knows neither the topic nor the template."""
        error = self.assertRaises(TopicMissing, self.send, "U")
        self.assertEqual(error.response_code, ResponseCode.TOPIC_NOT_EXIST)

    def test_a_new_topic_goes_to_the_queues_of_the_template(self) -> None:
        """It gets at most four queues."""
        self.box.servers[NAMESRV] = routes({TEMPLATE_TOPIC: route({"a": A}, queues=8)})
        found = {self.send("U").queue.queue_id for _ in range(16)}
        self.assertEqual(found, {0, 1, 2, 3})

    def test_sends_that_wait_for_a_route_stay_in_their_order(self) -> None:
        """This is so even if the route arrives before those that wait for it continue."""
        queue = MessageQueue("T", "a", 1)

        def begin(body: bytes) -> None:
            self.sender.begin(self.sender.prepare(Message(topic="T", body=body)),
                              lambda _: None, queue)

        self.box.core.routes.on_change.append(lambda _: begin(b"3"))
        begin(b"1")
        begin(b"2")
        self.box.advance(10)
        begin(b"4")
        self.box.advance(10)
        self.assertEqual([command.body for where, command in self.box.requests if where == A],
                         [b"1", b"2", b"3", b"4"])
        self.assertEqual(self.sender.finding, {})

    def test_brokers_without_a_master_or_permission_get_nothing(self) -> None:
        """Only queues with a master and the permission are chosen."""
        data = route({"a": A, "b": B})
        data.queue_datas[0].perm = 4
        self.box.servers[NAMESRV] = routes({"T": data})
        self.assertEqual({self.send().queue.broker_name for _ in range(8)}, {"b"})
        data = route({"a": A, "b": B})
        data.broker_datas[0].broker_addrs = {1: A}
        self.box.servers[NAMESRV] = routes({"V": data})
        self.assertEqual({self.send("V").queue.broker_name for _ in range(8)}, {"b"})

    def test_what_is_stored_but_not_safe_is_an_error_when_asked_for(self) -> None:
        """``require_safe`` raises an error with the result."""
        self.box.servers[A] = self.box.servers[B] = lambda command: (
            ResponseCode.FLUSH_DISK_TIMEOUT, stored(command)[1], b"", None)
        self.assertFalse(self.send().safe)
        self.sender = Sender(self.box.core, ProducerOptions(require_safe=True), lambda _: "ID")
        error = self.assertRaises(NotSafe, self.send)
        self.assertEqual(error.result.code, ResponseCode.FLUSH_DISK_TIMEOUT)

    def test_a_denied_send_is_tried_elsewhere_and_then_told(self) -> None:
        """A send in flight soon is not tried again after a refusal."""
        self.box.servers[A] = self.box.servers[B] = lambda command: (
            ResponseCode.NO_PERMISSION, None, b"", "no")
        outcomes: list[SendResult | Exception] = []
        self.sender.begin(self.sender.prepare(Message(topic="T", body=b"1")), outcomes.append)
        self.box.advance(10)
        self.assertIsInstance(outcomes[0], Denied)


class HangTests(SendCase):
    """One of two brokers accepts requests and answers none."""

    def setUp(self) -> None:
        """Let the first broker hang."""
        super().setUp()
        self.box.servers[A] = lambda command: None

    def took(self, **options: Any) -> tuple[str, float]:
        """Send; the broker that stored it, and how long that took, ms."""
        begin = self.box.clock.now_ms
        result = self.send(**options)
        return result.queue.broker_name, self.box.clock.now_ms - begin

    def test_it_takes_a_share_of_the_time_of_a_send_and_is_left_out_then(self) -> None:
        """Half of three seconds, once; later sends of all kinds do not go there."""
        took = [self.took() for _ in range(2)]
        self.assertEqual({name for name, _ in took}, {"b"})
        self.assertIn(max(time for _, time in took), range(1500, 1550))
        before = self.sends(A)
        self.assertEqual({self.took() for _ in range(20)}, {("b", 0)})
        outcomes: list[SendResult | Exception] = []
        for number in range(20):
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"1")),
                                   outcomes.append)
            self.box.run(self.sender.send_oneway(
                self.sender.prepare(Message(topic="T", body=b"2"))))
            self.box.run(self.sender.send(self.sender.prepare_batch(
                [Message(topic="T", body=b"%d" % number)])))
        self.box.advance(10)
        self.assertEqual(len(outcomes), 20)
        self.assertTrue(all(isinstance(each, SendResult) for each in outcomes))
        self.assertEqual(self.sends(A), before)

    def test_messages_that_nothing_waits_for_reach_the_other(self) -> None:
        """Messages that were in flight to it are included."""
        outcomes: list[SendResult | Exception] = []
        for _ in range(50):
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"1")),
                                   outcomes.append)
        self.box.advance(1600)
        self.assertEqual(len(outcomes), 50)
        self.assertTrue(all(isinstance(each, SendResult) for each in outcomes))

    def test_it_comes_back_when_a_probe_reaches_it_after_a_while(self) -> None:
        """Ten seconds at least, and as long as it hangs."""
        for _ in range(2):
            self.send()
        before = self.sends(A)
        self.box.advance(60_000)
        self.assertEqual({self.took() for _ in range(20)}, {("b", 0)})
        self.assertEqual(self.sends(A), before)
        self.box.servers[A] = lambda command: (
            (0, None, b"", None) if command.code == RequestCode.GET_MAX_OFFSET
            else stored(command))
        self.box.advance(30_000)
        self.assertEqual({self.took()[0] for _ in range(20)}, {"a", "b"})
        self.assertFalse(self.sender.faults.is_active)

    def test_without_another_broker_an_attempt_has_all_the_time(self) -> None:
        """This holds for a chosen queue, a sharding key, a single broker, and two that hang."""
        slow = 2500

        def answer_late(address: str) -> None:
            def answer(command: RemotingCommand) -> Answer:
                self.box.tasks_later(slow, self.box.reply, address, command, 0,
                                     stored(command)[1])
                return None

            self.box.servers[address] = answer

        answer_late(A)
        self.assertEqual(self.took(queue=MessageQueue("T", "a", 1)), ("a", slow))
        keys = {self.took(sharding_key=str(number)) for number in range(8)}
        self.assertIn(("a", slow), keys)
        self.box.servers[NAMESRV] = routes({"U": route({"a": A})})
        self.assertEqual(self.took(topic="U"), ("a", slow))
        self.setUp()
        answer_late(B)
        for _ in range(2):
            # The first one that hangs is known after the first send.
            with contextlib.suppress(SendFailed):
                self.send()
        self.box.advance(1)
        self.assertEqual(self.sends(A), 1)

    def test_three_brokers_of_which_two_hang(self) -> None:
        """Each has a third of the time, and the third broker has the rest."""
        third = "10.0.0.4:10911"
        self.box.servers[NAMESRV] = routes({"T": route({"a": A, "b": B, "c": third})})
        self.box.servers[B] = lambda command: None
        self.box.servers[third] = stored
        took = [self.took() for _ in range(3)]
        self.assertEqual({name for name, _ in took}, {"c"})
        self.assertLess(max(time for _, time in took), 2100)

    def test_a_static_topic_has_it_left_out_by_the_owner_of_its_queues(self) -> None:
        """Its logical queues have another broker name."""
        data = route({"a": A, "b": B})
        data.topic_queue_mapping_by_broker = {
            name: TopicQueueMappingInfo(topic="S", scope="s", bname=name, epoch=1, total_queues=2,
                                        curr_id_map={number: 0})
            for number, name in enumerate("ab")}
        self.box.servers[NAMESRV] = routes({"S": data})
        took = [self.took(topic="S") for _ in range(4)]
        self.assertEqual({name for name, _ in took}, {"b"})
        self.assertLess(sum(time for _, time in took), 1600)
        self.assertEqual(self.sends(A), 1)

    def test_the_bound_of_an_attempt_is_an_option(self) -> None:
        """It corresponds to sendMsgMaxTimeoutPerRequest of Apache's client."""
        self.sender = build_producer(self.box.core, {"attempt_timeout_s": 0.2})
        took = [self.took() for _ in range(2)]
        self.assertEqual({name for name, _ in took}, {"b"})
        self.assertIn(max(time for _, time in took), range(200, 250))

    def test_the_question_for_the_version_is_within_the_time_of_a_timed_message(self) -> None:
        """A broker that answers no heartbeat costs a share, and both no more than the time."""
        deliver: Any = {"delay_s": 5}

        def answers(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.HEART_BEAT:
                return 0, None, b"", None
            return stored(command)

        self.box.servers[B] = answers
        self.box.core.add(self.sender)
        took = [self.took(**deliver) for _ in range(2)]
        self.assertEqual({name for name, _ in took}, {"b"})
        self.assertLess(max(time for _, time in took), 1600)
        self.setUp()
        self.box.core.add(self.sender)
        self.box.servers[B] = lambda command: None
        begin = self.box.clock.now_ms
        self.assertRaises(SendFailed, self.send, **deliver)
        self.assertIn(self.box.clock.now_ms - begin, range(3000, 3051))

    def test_the_question_for_the_version_counts_for_its_attempt(self) -> None:
        """A broker that reports its version late and then hangs has no second share."""
        def says_its_version(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.HEART_BEAT:
                self.box.tasks_later(700, self.box.reply, A, command, 0, None)
            return None

        self.box.servers[A] = says_its_version
        self.box.core.add(self.sender)
        took = [self.took(delay_s=5) for _ in range(2)]
        self.assertEqual({name for name, _ in took}, {"b"})
        self.assertIn(max(time for _, time in took), range(1500, 1550))


class BusyTests(SendCase):
    """Brokers that refuse a message because they have too many."""

    def is_busy(self, address: str, code: int = ResponseCode.SYSTEM_BUSY) -> None:
        """Let a broker refuse every message because it is busy."""
        self.box.servers[address] = lambda command: (
            (code, None, b"", "[PC_SYNCHRONIZED]broker busy")
            if command.code == RequestCode.SEND_MESSAGE_V2 else stored(command))

    def test_a_message_waits_until_the_broker_takes_it(self) -> None:
        """This holds for each such refusal, with and without a chosen queue, awaited or not."""
        for code in (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL,
                     ResponseCode.SYSTEM_ERROR):
            for queue in (MessageQueue("T", "a", 1), None):
                self.setUp()
                self.is_busy(A, code)
                self.is_busy(B, code)
                self.box.tasks_later(2000, self.box.servers.__setitem__, A, stored)
                self.box.tasks_later(2000, self.box.servers.__setitem__, B, stored)
                outcomes: list[SendResult | Exception] = []
                self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"1")),
                                       outcomes.append, queue)
                self.box.advance(1900)
                self.assertEqual(outcomes, [])
                self.box.advance(1000)
                self.assertIsInstance(outcomes[0], SendResult)
                self.assertLess(self.sends(A) + self.sends(B), 16)

    def test_one_that_is_never_taken_fails_in_its_time(self) -> None:
        """With the refusal; not even one message may be stored."""
        self.is_busy(A)
        self.is_busy(B)
        begin = self.box.clock.now_ms
        self.assertRaises(Busy, self.send, queue=MessageQueue("T", "a", 1))
        self.assertIn(self.box.clock.now_ms - begin, range(2950, 3100))
        error = self.assertRaises(SendFailed, self.send)
        self.assertFalse(error.maybe_stored)
        self.assertIn("busy", str(error))

    def test_another_broker_takes_it_at_once(self) -> None:
        """Only one of the two is busy, so no send waits, and it is avoided for a while."""
        self.is_busy(A)
        begin = self.box.clock.now_ms
        for _ in range(20):
            self.assertEqual(self.send().queue.broker_name, "b")
        self.assertEqual(self.box.clock.now_ms, begin)
        self.assertLess(self.sends(A), 3)

    def test_without_retries_the_refusal_is_told_at_once(self) -> None:
        """The program repeats the send itself."""
        self.sender = Sender(self.box.core, ProducerOptions(retries=0), lambda _: "ID")
        self.is_busy(A)
        self.assertRaises(Busy, self.send, queue=MessageQueue("T", "a", 1))
        self.assertEqual(self.sends(A), 1)

    def test_a_burst_gets_through_a_broker_that_takes_little(self) -> None:
        """It refuses more than forty at a time, so fewer are in flight for a while."""
        self.box.servers[NAMESRV] = routes({"T": route({"a": A})})
        under_way, most, refused = 0, [0], 0

        def ended(command: RemotingCommand, code: int) -> None:
            nonlocal under_way
            under_way -= 1
            self.box.reply(A, command, code, stored(command)[1] if not code else None)

        def answer(command: RemotingCommand) -> Answer:
            nonlocal under_way, refused
            if command.code != RequestCode.SEND_MESSAGE_V2:
                return stored(command)
            under_way += 1
            most[-1] = max(most[-1], under_way)
            code = ResponseCode.SYSTEM_BUSY if under_way > 40 else ResponseCode.SUCCESS
            refused += bool(code)
            self.box.tasks_later(20, ended, command, code)
            return None

        self.box.servers[A] = answer
        bodies: list[int] = []
        outcomes: list[SendResult | Exception] = []
        for number in range(1000):
            bodies.append(number)
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"%d" % number)),
                                   outcomes.append)
        self.box.advance(200)
        most.append(0)
        self.box.advance(3000)
        self.assertEqual(len(outcomes), 1000)
        self.assertEqual([each for each in outcomes if isinstance(each, Exception)], [])
        self.assertLess(most[-1], 300)
        self.assertLess(refused, 3000)
        self.box.advance(30_000)
        self.assertEqual(self.sender.gates, {})
        self.assertEqual(self.box.core.sends_under_way, 0)

    def test_a_broker_that_has_room_again_soon_gets_many(self) -> None:
        """It refused everything for a second, so few were in flight to it."""
        self.box.servers[NAMESRV] = routes({"T": route({"a": A})})

        def answer(command: RemotingCommand) -> Answer:
            self.box.tasks_later(20, self.box.reply, A, command, 0, stored(command)[1])
            return None

        self.is_busy(A)
        self.box.tasks_later(1000, self.box.servers.__setitem__, A, answer)
        outcomes: list[SendResult | Exception] = []
        for number in range(2000):
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"%d" % number)),
                                   outcomes.append)
        self.box.advance(2400)
        self.assertEqual(len(outcomes), 2000)
        self.assertEqual([each for each in outcomes if isinstance(each, Exception)], [])

    def test_more_are_under_way_with_each_that_was_stored(self) -> None:
        """After two seconds eight may be in flight; with eight for good it would be too slow."""
        self.box.servers[NAMESRV] = routes({"T": route({"a": A})})

        def answer(command: RemotingCommand) -> Answer:
            self.box.tasks_later(20, self.box.reply, A, command, 0, stored(command)[1])
            return None

        self.is_busy(A)
        outcomes: list[SendResult | Exception] = []
        for number in range(1000):
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"%d" % number)),
                                   outcomes.append)
        self.box.advance(2000)
        self.box.requests.clear()
        self.box.servers[A] = answer
        while not self.sends(A):
            self.box.advance(1)
        self.assertLess(self.sends(A), 30)
        self.box.advance(1000)
        self.assertEqual(len(outcomes), 1000)
        self.assertEqual([each for each in outcomes if isinstance(each, Exception)], [])

    def test_a_close_ends_those_that_wait(self) -> None:
        """Their callers get an error."""
        self.is_busy(A)
        outcomes: list[SendResult | Exception] = []
        for _ in range(3):
            self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"1")),
                                   outcomes.append, MessageQueue("T", "a", 1))
        self.box.advance(20)
        self.assertEqual(outcomes, [])
        self.box.run(self.box.core.close())
        self.assertEqual([type(each) for each in outcomes], [Closed] * 3)


class PrepareTests(SendCase):
    """Messages that can be sent."""

    def test_every_message_has_a_unique_id(self) -> None:
        """The id is sent as a property and returned in the result."""
        result = self.send()
        [sent] = [command for where, command in self.box.requests
                  if command.code == RequestCode.SEND_MESSAGE_V2]
        self.assertEqual(parse_properties(sent.fields()["i"])[UNIQ_KEY], result.id)

    def test_a_broker_before_5_0_gets_no_timed_message(self) -> None:
        """It would deliver the message at once; it supports levels."""
        self.box.core.versions.update({A: TIMER_VERSION_MIN - 1, B: TIMER_VERSION_MIN - 1})
        for options in ({"delay_s": 2.5}, {"deliver_at": 2_000_000_000.0}):
            self.assertRaises(Unsupported, self.send, **options)
            ready = self.sender.prepare(Message(topic="T", body=b"1", **options))
            self.assertRaises(Unsupported, self.box.run, self.sender.send_oneway(ready, None))
            outcomes: list[SendResult | Exception] = []
            self.sender.begin_soon(ready, outcomes.append)
            self.box.advance(100)
            self.assertEqual([type(each) for each in outcomes], [Unsupported])
        self.assertEqual(self.sends(A) + self.sends(B), 0)
        self.send(delay_level=3)
        self.assertEqual(self.sends(A) + self.sends(B), 1)
        self.box.core.versions.update({A: TIMER_VERSION_MIN, B: TIMER_VERSION_MIN})
        self.send(delay_s=2.5)
        self.assertEqual(self.sends(A) + self.sends(B), 2)

    def test_each_time_goes_out_as_javas_property(self) -> None:
        """A level, a number of milliseconds, and a moment in either form."""
        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        unix_ms = int(moment.timestamp() * 1000)
        self.box.core.versions.update({A: TIMER_VERSION_MIN, B: TIMER_VERSION_MIN})
        for options, name, value in (
            ({"delay_level": 3}, "DELAY", "3"), ({"delay_s": 2.5}, "TIMER_DELAY_MS", "2500"),
            ({"deliver_at": moment}, "TIMER_DELIVER_MS", str(unix_ms)),
            ({"deliver_at": unix_ms / 1000}, "TIMER_DELIVER_MS", str(unix_ms)),
        ):
            self.box.requests.clear()
            self.send(**options)
            [sent] = [command for where, command in self.box.requests
                      if command.code == RequestCode.SEND_MESSAGE_V2]
            found = parse_properties(sent.fields()["i"])
            self.assertEqual({key: text for key, text in found.items()
                              if key == "DELAY" or key.startswith("TIMER_")}, {name: value})

    def test_a_priority_goes_out_as_javas_property(self) -> None:
        """The message is sent alone, because a batch has one queue for all its messages."""
        for priority in (0, 3, 2**31 - 1):
            self.box.requests.clear()
            self.send(priority=priority)
            [sent] = [command for where, command in self.box.requests
                      if command.code == RequestCode.SEND_MESSAGE_V2]
            found = parse_properties(sent.fields()["i"])
            self.assertEqual(found["_SYS_MSG_PRIORITY_"], str(priority))
        batching = Sender(self.box.core, ProducerOptions(group="t", auto_batch=True),
                          lambda now_ms: "ID")
        self.assertTrue(batching.prepare(Message("T", b"1")).may_be_batched)
        message = Message("T", b"1", priority=0)
        self.assertFalse(batching.preparer.is_plain(message))
        self.assertFalse(batching.prepare(message).may_be_batched)

    def test_a_priority_that_the_broker_would_ignore_is_refused(self) -> None:
        """An invalid priority is refused, and so is one beside a queue, a key or a delay."""
        queue = MessageQueue("T", A, 0)
        for options in ({"priority": -1}, {"priority": 2**31}, {"priority": "1"},
                        {"priority": True}, {"priority": 1, "sharding_key": "k"},
                        {"priority": 1, "delay_level": 1}, {"priority": 1, "delay_s": 1}):
            self.assertRaises(OptionError, self.send, **options)
        for message, body, options in ((Message("T", b"1", priority=0), b"", {}),
                                       ("T", b"1", {"priority": 0})):
            self.assertRaises(OptionError, message_of, message, body, options, queue)
        self.assertRaises(OptionError, self.sender.preparer.prepare_batch,
                          [Message("T", b"1"), Message("T", b"2", priority=1)])
        transactional = Sender(self.box.core, ProducerOptions(group="t"), lambda now_ms: "ID")
        transactional.checks = cast(TransactionChecks, object())
        self.assertRaises(OptionError, prepare_half, transactional, Message("T", b"1", priority=0))
        self.assertEqual(self.box.requests, [])

    def test_what_no_broker_takes_is_refused_before_it_is_sent(self) -> None:
        """Names, sizes, types and times are checked."""
        for options in ({"topic": "a b"}, {"topic": "x" * 128}, {"topic": "SELF_TEST_TOPIC"},
                        {"body": b""}, {"body": b"1" * (4 << 20 | 1)}, {"body": "text"},
                        {"properties": {"a": "\x01"}}, {"properties": {"": "1"}},
                        {"delay_level": 1, "delay_s": 5}, {"delay_s": -1}, {"delay_s": "5"},
                        {"delay_s": float("nan")}, {"deliver_at": 1_800_000_000_000}):
            self.assertRaises(OptionError, self.send, **options)
        self.assertEqual(self.box.requests, [])

    def test_what_nothing_could_find_again_is_refused(self) -> None:
        """A key with a blank would be two, and a subscription could not name the tag."""
        refused: list[dict[str, Any]] = [
            *({"tags": tag} for tag in ("a||b", "x || y", "||", "*", " a", "a ", "a\t", "\na",
                                        "\u3000a", "a\xa0", "\x03a", "a\0", "\x01", "\ud800")),
            *({"keys": keys} for keys in (
                ["a b"], ["a", "b "], [" "], [""], ["a", ""], "a b", [b"a"], ["a\x01"],
                ["a\x02b"], ["\udc00"], [None], 7)),
            {"properties": {"TAGS": "a||b"}}, {"properties": {"TAGS": " a"}},
            {"properties": {"p": "\ud800"}}, {"properties": {"\ud800": "p"}},
            {"properties": {"p": 1}}, {"properties": {"p": ""}},
            {"tags": 5}, {"tags": ["a"]}, {"sharding_key": "\x02"}]
        transactional = Sender(self.box.core, ProducerOptions(group="t"), lambda now_ms: "ID")
        transactional.checks = cast(TransactionChecks, object())
        for options in refused:
            with self.subTest(**options):
                one = Message("T", b"1", **options)
                self.assertRaises(OptionError, self.sender.prepare, one)
                self.assertRaises(OptionError, self.sender.prepare_batch, [one])
                self.assertRaises(OptionError, prepare_half, transactional, one)
                self.assertRaises(OptionError, prepare_request, self.sender, one, 3000)
        self.assertEqual(self.box.requests, [])

    def test_what_can_be_found_again_is_sent_as_it_is(self) -> None:
        """Inner blanks of a tag, single bars, tabs in a key; KEYS of a message that was read."""
        for options, name, value in (
            ({"tags": "ü ñ"}, "TAGS", "ü ñ"), ({"tags": "a|b"}, "TAGS", "a|b"),
            ({"tags": "a*"}, "TAGS", "a*"), ({"keys": "one"}, "KEYS", "one"),
            ({"keys": ["one", "t\two"]}, "KEYS", "one t\two"),
            ({"properties": {"KEYS": "one two"}}, "KEYS", "one two"),
            ({"tags": "", "keys": [], "sharding_key": ""}, "WAIT", "true"),
        ):
            ready = self.sender.prepare(Message("T", b"1", **options))
            self.assertEqual(parse_properties(ready.properties)[name], value)

    def test_what_an_interceptor_adds_is_looked_at_too(self) -> None:
        """An invalid tag is undone and logged, and the message keeps its own."""
        self.box.core.interceptors = Interceptors([_Tagging()])
        sender = Sender(self.box.core, ProducerOptions(group="g"), lambda now_ms: "ID")
        with self.assertLogs("twistmq.client", "ERROR") as logged:
            ready = [sender.prepare(Message("T", b"1", tags=tags)) for tags in ("", "own")]
        self.assertEqual([parse_properties(each.properties).get("TAGS") for each in ready],
                         [None, "own"])
        self.assertIn("tag ' late'", logged.output[0])

    def test_a_batch_is_one_request_with_an_id_each(self) -> None:
        """Its result has all ids, separated by commas."""
        batch = self.sender.prepare_batch([Message(topic="T", body=b"1"),
                                           Message(topic="T", body=b"2")])
        result = self.box.run(self.sender.send(batch))
        self.assertEqual(result.id, "ID0,ID1")
        [sent] = [command for _, command in self.box.requests
                  if command.code == RequestCode.SEND_BATCH_MESSAGE]
        self.assertEqual(sent.fields()["m"], "true")
        # Apache's brokers would give an id of the batch to each message.
        self.assertEqual(parse_properties(sent.fields()["i"]), {WAIT: "true"})
        self.assertEqual([parse_properties(text)[UNIQ_KEY]
                          for _, _, text in decode_batch(sent.body)], ["ID0", "ID1"])

    def test_messages_that_do_not_go_together_are_no_batch(self) -> None:
        """A batch has one topic, one wait, and no delays."""
        one = Message(topic="T", body=b"1")
        for other in (Message(topic="U", body=b"1"), Message(topic="T", body=b"1", delay_level=1),
                      Message(topic="T", body=b"1", wait_stored=False),
                      Message(topic="T", body=b"1" * (4 << 20))):
            self.assertRaises(OptionError, self.sender.prepare_batch, [one, other])
        self.assertRaises(OptionError, self.sender.prepare_batch, [])
