"""Name servers that are down, return and are replaced, with a clock of the test."""

from __future__ import annotations

from collections import Counter
from http.client import BadStatusLine
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.client.http_page import HttpPage
from tests.client.core.box import NAMESRV, Answer, Box, route, routes, stored
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.client.base.errors import NoRoute, RemotingTimeout, SendFailed, Unsupported
from twistmq.client.base.messages import Message, MessageQueue, SendResult
from twistmq.client.core.connection.client import ClientCore, ClientOptions
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.client.shell.lookup import fetch_name_servers
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingConnectError

MINUTE_MS = 60_000
NAMES = ("10.0.0.7:9876", "10.0.0.8:9876", "10.0.0.9:9876")


def producer(box: Box) -> Sender:
    """A producer's core, which is a member of its group."""
    ids = count()
    sender = Sender(box.core, ProducerOptions(group="p"), lambda now_ms: f"ID{next(ids)}")
    box.core.add(sender)
    return sender


def send(box: Box, sender: Sender, topic: str) -> SendResult:
    """Send a message and wait."""
    return box.run(sender.send(sender.prepare(Message(topic=topic, body=b"1"))))


def asked(box: Box, address: str) -> int:
    """Return the number of route requests to a name server."""
    return sum(where == address and command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
               for where, command in box.requests)


class ChoiceTests(SynchronousTestCase):
    """The choice of the first name server."""

    def test_each_client_begins_with_one_that_it_draws(self) -> None:
        """Otherwise the first one of the list would serve all clients."""
        for number, address in enumerate(NAMES):
            box = Box(name_servers=NAMES)
            box.core = ClientCore(ClientOptions(name_servers=NAMES, client_id="10.0.0.1@test"),
                                  box.clock, lambda bound, number=number: number % bound)
            box.engine = box.core.engine
            box.servers[BROKER] = stored
            for each in NAMES:
                box.servers[each] = routes({"T": route({"a": BROKER})})
            send(box, producer(box), "T")
            self.assertEqual([asked(box, each) for each in NAMES],
                             [int(each == address) for each in NAMES])


class AbsenceTests(SynchronousTestCase):
    """Name servers that do not answer."""

    def test_one_of_three_that_is_dead_costs_one_attempt(self) -> None:
        """It may refuse or be silent; only one of the others is asked."""
        for is_silent in (False, True):
            box = Box(name_servers=NAMES)
            if is_silent:
                box.silent.add(NAMES[0])
            for address in NAMES[1:]:
                box.servers[address] = routes({"T": route({"a": BROKER})})
            box.servers[BROKER] = stored
            sender = producer(box)
            for minute in range(10):
                send(box, sender, "T")
                box.advance(MINUTE_MS)
                self.assertEqual(box.connects.count(NAMES[0]), 1, msg=f"minute {minute}")
            self.assertGreaterEqual(asked(box, NAMES[1]), 20)
            self.assertEqual(asked(box, NAMES[2]), 0)

    def test_a_broker_in_place_of_a_name_server(self) -> None:
        """The client asks the next address. If none is left, the error names the mistake."""
        def unsupported(command: RemotingCommand) -> Answer:
            return (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None, b"",
                    f"request type {command.code} not supported")

        box = Box(name_servers=NAMES[:2])
        box.servers[NAMES[0]] = unsupported
        box.servers[NAMES[1]] = routes({"T": route({"a": BROKER})})
        box.servers[BROKER] = stored
        send(box, producer(box), "T")
        box.servers[NAMES[1]] = unsupported
        for code in (RequestCode.GET_BROKER_CLUSTER_INFO,
                     RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER):
            with self.assertRaises(RemotingConnectError) as caught:
                box.run(box.core.ask_name_server(code))
            self.assertIn(f"10.0.0.7:9876 answered 3: request type {code} not supported, so it is "
                          "not a name server; it may be a broker", str(caught.exception))
        with self.assertRaises(Unsupported):
            box.run(box.core.ask_name_server(RequestCode.GET_KV_CONFIG))

    def test_known_topics_go_on_for_ten_minutes_without_any(self) -> None:
        """Sends and consumption continue; a new topic has no route until one returns."""
        box = GroupBox()
        box.start()
        sender = producer(box)
        answer = box.servers.pop(NAMESRV)
        box.cut(NAMESRV)
        serve = box.broker

        def keep(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                serve.put("T", int(command.fields()["e"]), command.body)
                box.tasks_later(1, box.cut, BROKER)
                return stored(command)
            return serve(command)

        box.servers[BROKER] = keep
        for minute in range(10):
            # Each lost connection is opened again without a name server.
            send(box, sender, "T")
            box.advance(MINUTE_MS)
            batch = box.member.take(10)
            assert batch is not None, f"minute {minute}"
            box.member.succeed(batch.assigned, batch.messages)
            error = self.assertRaises(SendFailed, send, box, sender, "New")
            self.assertEqual({type(each.error) for each in error.attempts}, {NoRoute})
            self.assertIn(NAMESRV, str(error))
            self.assertFalse(error.maybe_stored)
            self.assertRaises(RemotingConnectError, box.run, box.core.routes.find("New"))
        self.assertEqual(len(box.member.assigned_queues), 4)
        box.servers[NAMESRV] = lambda command: routes(
            {"New": route({"a": BROKER})})(command) if command.fields()["topic"] == "New" else (
            answer(command))
        self.assertEqual(send(box, sender, "New").queue.topic, "New")
        box.route.queue_datas[0].read_queue_nums = 6
        box.advance(35_000)
        self.assertEqual(len(box.member.assigned_queues), 6)


class HangTests(SynchronousTestCase):
    """Name servers that accept requests and answer none, such as stopped processes."""

    def box(self, hanging: int, known: int = 3, **options: Any) -> Box:
        """Return a client whose first name servers hang; the others answer."""
        box = Box(name_servers=NAMES[:known], **options)
        for address in NAMES[:hanging]:
            box.servers[address] = lambda _: None
        for address in NAMES[hanging:known]:
            box.servers[address] = routes({"T": route({"a": BROKER}), "U": route({"a": BROKER})})
        return box

    def took_ms(self, box: Box, topic: str) -> float:
        """Return the time that a route request takes."""
        begin = box.clock.now_ms
        box.run(box.core.routes.find(topic, again=True))
        return box.clock.now_ms - begin

    def test_the_next_one_is_asked_after_half_a_second(self) -> None:
        """This is so whatever the time-out is; the silent one is asked last from then on."""
        for timeout_ms in (3_000, 60_000):
            box = self.box(1, timeout_ms=timeout_ms)
            self.assertEqual([self.took_ms(box, topic) for topic in "TUTU"], [500, 0, 0, 0])
            self.assertEqual((asked(box, NAMES[0]), asked(box, NAMES[2])), (1, 0))

    def test_two_of_three_hang(self) -> None:
        """Each costs half a second, once."""
        box = self.box(2)
        self.assertEqual([self.took_ms(box, topic) for topic in "TUTU"], [1000, 0, 0, 0])

    def test_all_hang(self) -> None:
        """The request ends after its time-out, and the error names each of them."""
        for number in (1, 2, 3):
            box = self.box(number, number, retries=0)
            begin = box.clock.now_ms
            error = self.assertRaises(RemotingTimeout, box.run, box.core.routes.find("T"))
            self.assertIsInstance(error, TimeoutError)
            self.assertIn(int(box.clock.now_ms - begin), range(3000, 3050))
            for address in NAMES[:number]:
                self.assertIn(address, str(error))

    def test_a_call_with_retries_ends_in_the_time_of_its_attempts(self) -> None:
        """A call does not repeat the retries of its route request in each of its own attempts."""
        box = self.box(1, 1, timeout_ms=1000, retries=2)
        begin = box.clock.now_ms
        self.assertRaises(TimeoutError, box.run, Queries(box.core).max_offset(
            MessageQueue("T", "a", 0)))
        self.assertIn(int(box.clock.now_ms - begin), range(3400, 3650))

    def test_a_slow_answer_counts(self) -> None:
        """If the others hang or refuse, an answer after two seconds is in time."""
        for others_hang in (False, True):
            box = self.box(3 if others_hang else 1)
            if not others_hang:
                del box.servers[NAMES[1]], box.servers[NAMES[2]]
            slow = routes({"T": route({"a": BROKER})})

            def later(command: RemotingCommand, box: Box = box, slow: Any = slow) -> Answer:
                code, header, body, _ = slow(command)
                box.tasks_later(2000, box.reply, NAMES[0], command, code, header, body)
                return None

            box.servers[NAMES[0]] = later
            self.assertEqual(self.took_ms(box, "T"), 2000)

    def test_a_tool_that_tries_once(self) -> None:
        """Other requests than those for routes behave in the same way."""
        box = self.box(1, retries=0)
        box.servers[NAMES[1]] = lambda _: (0, None, b"{}", None)
        begin = box.clock.now_ms
        box.run(box.core.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
        self.assertEqual(box.clock.now_ms - begin, 500)


class ListTests(SynchronousTestCase):
    """The name servers and topics that are asked, and their times."""

    def test_an_address_server_changes_the_list(self) -> None:
        """It is asked 10 s after the start and every two minutes; without an answer
        the list stays.
        """
        page = HttpPage(NAMES[0])
        self.addCleanup(page.stop)
        box = Box(fetch_name_servers, name_servers=(), name_server_url=f"http://{page.address}/nsaddr")
        for address in NAMES:
            box.servers[address] = routes({"T": route({"a": BROKER})})
        box.run(box.core.routes.find("T"))
        self.assertEqual((len(page.requests), asked(box, NAMES[0])), (1, 1))
        box.core.routes.follow("T")
        box.advance(9_000)
        self.assertEqual(len(page.requests), 1)
        box.advance(2_000)
        self.assertEqual(len(page.requests), 2)
        page.text = f"{NAMES[1]};{NAMES[2]}"
        box.advance(118_000)
        self.assertEqual((len(page.requests), asked(box, NAMES[1])), (2, 0))
        box.advance(32_000)
        before = asked(box, NAMES[0])
        self.assertEqual((len(page.requests), asked(box, NAMES[1])), (3, 1))
        page.status = 500
        box.advance(10 * MINUTE_MS)
        self.assertEqual((len(page.requests), asked(box, NAMES[0])), (8, before))
        self.assertEqual(asked(box, NAMES[1]), 21)

    def test_an_address_server_that_answers_nonsense_is_asked_again(self) -> None:
        """An unexpected error does not end the requests."""
        answers: list[list[str] | Exception] = [[NAMES[0]], BadStatusLine("x"), [NAMES[1]]]

        def fetch(url: str) -> list[str]:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        box = Box(fetch, name_servers=(), name_server_url="http://10.0.0.5/nsaddr")
        for address in NAMES:
            box.servers[address] = routes({"T": route({"a": BROKER})})
        with self.assertLogs("twistmq.client", "ERROR") as logged:
            box.run(box.core.routes.find("T"))
            box.advance(3 * MINUTE_MS)
        self.assertIn("BadStatusLine", logged.output[0])
        self.assertEqual(answers, [])

    def test_routes_of_topics_in_use_are_asked_for_each_half_minute(self) -> None:
        """A route is not requested again after a mere look-up, or when its consumer is closed."""
        box = GroupBox()
        box.start()
        sender = producer(box)
        box.servers[NAMESRV] = routes({"T": box.route, "U": route({"a": BROKER}),
                                       "V": route({"a": BROKER}), "W": route({"a": BROKER})})
        serve = box.broker
        box.servers[BROKER] = lambda command: (
            stored(command) if command.code == RequestCode.SEND_MESSAGE_V2 else serve(command))
        send(box, sender, "U")
        box.run(box.core.routes.find("V"))

        def counts() -> Counter[str]:
            box.requests.clear()
            box.advance(10 * MINUTE_MS)
            return Counter(command.fields()["topic"] for where, command in box.requests
                           if where == NAMESRV)

        found = counts()
        self.assertEqual((found["T"], found["U"], found["V"]), (20, 20, 0))
        box.member.subscribe(subscription("W", None))
        box.advance(MINUTE_MS)
        found = counts()
        self.assertEqual((found["T"], found["W"]), (20, 20))
        box.run(box.member.close())
        found = counts()
        self.assertEqual((found["T"], found["U"], found["V"]), (0, 20, 0))
