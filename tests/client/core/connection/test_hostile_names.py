"""Name servers that lie: the error of a send has the server and its text; others are asked."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, stored
from twistmq.client.base.errors import SendFailed
from twistmq.client.base.messages import Message, SendResult
from twistmq.client.core.connection.routes import QUEUES_MAX, Routes
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError

BROKER = "10.0.0.1:10911"
_ROUTE = ('{"orderTopicConf":%s,"queueDatas":[{"brokerName":"b","readQueueNums":%d,'
          '"writeQueueNums":%d,"perm":6,"topicSysFlag":0}],"brokerDatas":[{"cluster":"c",'
          '"brokerName":"b","brokerAddrs":{%s}}]}')


def body(queues: int = 1, addresses: str = f'0:"{BROKER}"', order: str = "null") -> bytes:
    """Return the body of a route with one broker."""
    return (_ROUTE % (order, queues, queues, addresses)).encode()


#: Bodies of answers, and a part of the error.
BODIES: list[tuple[bytes, str]] = [
    (b"hello", "its answer cannot be read"),
    (b"", "its answer cannot be read"),
    (b"[]", "its answer cannot be read"),
    (b"null", "its answer cannot be read"),
    (b"[" * 100_000, "its answer cannot be read"),
    (b'{"queueDatas":{"a":1},"brokerDatas":"x"}', "its answer cannot be read"),
    (b'{"x":"' + b"y" * (16 << 20) + b'"}', "frame length"),
    (body(addresses='"x":"10.0.0.1:1"'), "its answer cannot be read"),
    (body(10**9), f"1000000000 queues of topic t, of {QUEUES_MAX} at most"),
    (body(2**31), "its answer cannot be read"),
    (body(order='"b:9999999999"'), f" queues of topic t, of {QUEUES_MAX} at most"),
    (b'{"brokerDatas":[%s]}' % b",".join([b'{"brokerName":"b"}'] * 5000), "5000 brokers of topic"),
    (body(-4), "has no queue that may be written to"),
    (b'{"queueDatas":null,"brokerDatas":null}', "has no queue that may be written to"),
    (body(addresses='1:"10.0.0.1:1"'), "have no master now: b"),
    (body(addresses='0:null'), "have no master now: b"),
    (body(addresses='0:"hello"'), "connect to hello failed"),
    (body(addresses=f'0:"{NAMESRV}"'), f"{NAMESRV}: its answer cannot be read"),
    (body(addresses=r'0:"h\u001b[2J\nforged"'), r"connect to h\x1b[2J forged failed"),
    (body(order=r'"\u001b[2J:1"'), r"the name '\x1b[2J' of a broker of topic t is not printable"),
    (body().replace(b'"b"', br'"a\u202e"'), r"the name 'a\u202e' of a broker of topic t is not"),
]


class NameServerTests(SynchronousTestCase):
    """One name server, or two of which one lies."""

    def send(self, box: Box) -> SendResult:
        """Send a message to topic t."""
        sender = build_producer(box.core, {})
        box.engine.tasks.on_failure = None
        return box.run(sender.send(sender.prepare(Message("t", b"x"))))

    def test_each_lie_ends_in_an_error_with_the_topic(self) -> None:
        """The send ends within its time and its number of attempts."""
        for data, text in BODIES:
            box = Box()
            box.servers[NAMESRV] = lambda _, data=data: (0, None, data, None)  # type: ignore[misc]
            error = self.assertRaises(SendFailed, self.send, box)
            self.assertIn("topic t", str(error), data[:80])
            self.assertIn(text, str(error), data[:80])
            self.assertTrue(str(error).isprintable(), data[:80])
            self.assertLess(len(box.requests), 20)

    def test_a_name_server_that_lies_gives_way_to_the_next(self) -> None:
        """The other one is asked first from then on."""
        for data, text in BODIES:
            if text.startswith(NAMESRV) or not ("cannot be read" in text or "at most" in text):
                continue
            box = Box()
            other = "10.0.0.8:9876"
            box.core.names.addresses = [NAMESRV, other]
            box.servers[NAMESRV] = lambda _, data=data: (0, None, data, None)  # type: ignore[misc]
            box.servers[other] = lambda _: (
                0, None, route({"b": BROKER}, 1).encode_standard(), None)
            box.servers[BROKER] = stored
            self.assertEqual(self.send(box).queue.broker_name, "b")
            self.assertEqual(box.core.names.addresses, [other, NAMESRV])

    def test_a_lie_leaves_the_route_that_is_known(self) -> None:
        """A lie has the same effect as a name server that does not answer."""
        box = Box()
        answers: list[bytes] = [body(), body(10**9)]

        def name_server(request: RemotingCommand) -> Answer:
            return 0, None, answers.pop(0) if len(answers) > 1 else answers[0], None

        box.servers[NAMESRV] = name_server
        box.servers[BROKER] = stored
        self.send(box)
        routes: Routes = box.core.routes
        known = box.run(routes.find_for_send("t", again=True))
        self.assertEqual(len(known.write_queues), 1)
        self.send(box)

    def test_a_topic_without_a_master_is_asked_for_at_each_send(self) -> None:
        """Its broker may have registered again."""
        box = Box()
        answers = [body(addresses='1:"10.0.0.1:1"'), body()]
        box.servers[NAMESRV] = lambda _: (
            0, None, answers.pop(0) if len(answers) > 1 else answers[0], None)
        box.servers[BROKER] = stored
        self.assertEqual(self.send(box).queue.broker_name, "b")

    def test_a_long_remark_is_cut(self) -> None:
        """Errors are written into logs."""
        box = Box()
        box.servers[NAMESRV] = lambda _: (ResponseCode.SYSTEM_ERROR, None, b"", "x" * 1_000_000)
        error = self.assertRaises(BrokerError, self.send, box)
        self.assertLess(len(str(error)), 10_000)
        self.assertIn(NAMESRV, str(error))

    def test_a_remark_is_one_printable_line(self) -> None:
        """It neither controls a terminal nor forges a line of a log."""
        box = Box()
        box.servers[NAMESRV] = lambda _: (
            ResponseCode.SYSTEM_ERROR, None, b"", "\x1b]0;owned\x07\nforged\r\u202e")
        error = self.assertRaises(BrokerError, self.send, box)
        self.assertIn(f"{NAMESRV} answered 1: \\x1b]0;owned\\x07 forged \\u202e", str(error))
