"""Checks of plain arguments: each error names the permitted values, in place of Python's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.roles.styles import STYLES
from twistmq import client
from twistmq.client import (
    Client,
    Configured,
    ConsistentHash,
    Credentials,
    MachineRoom,
    Message,
    MessageQueue,
    OptionError,
    PopConsumer,
    Producer,
    PullConsumer,
    PullLimits,
    Retry,
    Serialiser,
    sql,
)
from twistmq.client.base.argument_checks import check_text, check_whole
from twistmq.client.testing import RecordingProducer

NAMESRV: Final = "127.0.0.1:9"
QUEUE: Final = MessageQueue("T", "b", 0)
MESSAGE: Final = Message("T", b"x")


def _encode(value: Any) -> bytes:
    return bytes(value.nope)


#: Calls with a wrong argument, by the words of the error.
CALLS: Final[list[tuple[str, Callable[[], object]]]] = [
    ("no argument delay_s of Retry", lambda: Retry(delay_s=5)),
    ("virtual_nodes is 'a': give a whole number", lambda: ConsistentHash("a")),  # type: ignore[arg-type]
    ("virtual_nodes is -1", lambda: ConsistentHash(-1)),
    ("rooms are 'r1': give a list", lambda: MachineRoom("r1")),
    ("rooms are 5: give a list", lambda: MachineRoom(5)),  # type: ignore[arg-type]
    ("queues are 5: give a list", lambda: Configured(5)),  # type: ignore[arg-type]
    ("queues contain 'q'", lambda: Configured(["q"])),  # type: ignore[list-item]
    ("give two functions", lambda: Serialiser("x", 5, 6)),  # type: ignore[arg-type]
]


def _limited(limits: Any) -> Callable[[], object]:
    return lambda: PullConsumer(NAMESRV, group="g", topics="T", limits=limits)


CALLS += [
    ("option limits: count is 0", _limited(PullLimits(count=0))),
    ("option limits: span is 0", _limited(PullLimits(span=0))),
    ("option limits: topic_count is -2", _limited(PullLimits(topic_count=-2))),
]

#: Calls of a producer with a wrong argument.
OF_PRODUCERS: Final[list[tuple[str, Callable[[Any], object]]]] = [
    ("properties are ['a']: give a dict", lambda each: each.send("T", b"x", properties=["a"])),
    ("properties are 'ab': give a dict", lambda each: each.send("T", b"x", properties="ab")),
    ("properties are None", lambda each: each.send("T", b"x", tags="a", properties=None)),
    ("give a list of objects of Message", lambda each: each.send_batch(MESSAGE)),
    ("messages are None", lambda each: each.send_batch(None)),
    ("messages contain 'a'", lambda each: each.send_batch(["a"])),
    ("give a list of objects of Message", lambda each: each.send_batch_soon(MESSAGE)),
    ("give a list of objects of Message", lambda each: each.send_many(MESSAGE)),
    ("messages are 'ab'", lambda each: each.send_many("ab")),
    ("flag of a message is not an int32",
     lambda each: each.send_batch([Message("T", b"x", flag=1 << 40), MESSAGE])),
    ("is not the result of a send", lambda each: each.recall(5)),
]

#: Calls of a client with a wrong argument.
OF_CLIENTS: Final[list[tuple[str, Callable[[Client], object]]]] = [
    ("topic is None", lambda each: each.read_queues(None)),  # type: ignore[arg-type]
    ("topic is 5", lambda each: each.write_queues(5)),  # type: ignore[arg-type]
    ("topic is 5", lambda each: each.route(5)),  # type: ignore[arg-type]
    ("group is 5", lambda each: each.group_offset(5, QUEUE)),  # type: ignore[arg-type]
    ("offset is 'x'", lambda each: each.commit_group_offset("g", QUEUE, "x")),  # type: ignore[arg-type]
    ("offset is -1", lambda each: each.pull(QUEUE, -1)),
    ("group is 5", lambda each: each.pull(QUEUE, 0, group=5)),  # type: ignore[arg-type]
    ("max_count is 0", lambda each: each.pull(QUEUE, 0, max_count=0)),
    ("expression_type='SQL92'",
     lambda each: each.pull(QUEUE, 0, expression=sql("a > 3"))),  # type: ignore[arg-type]
    ("queue is 'T'", lambda each: each.pull_soon("T", 0)),  # type: ignore[arg-type]
    ("offset is 'x'", lambda each: each.pull_soon(QUEUE, "x")),  # type: ignore[arg-type]
    ("queue is 'T'", lambda each: list(each.read("T"))),  # type: ignore[arg-type]
    ("stop is 1.5", lambda each: list(each.read(QUEUE, 0, 1.5))),  # type: ignore[arg-type]
    ("address is 5", lambda each: each.ask(5, 5)),  # type: ignore[arg-type]
    ("the body is a str", lambda each: each.ask("x:1", 5, body="x")),  # type: ignore[arg-type]
    ("address is 5", lambda each: each.runtime_info(5)),  # type: ignore[arg-type]
]


class ArgumentTests(SynchronousTestCase):
    """Each wrong argument raises an ``OptionError`` that names it."""

    def assert_names(self, words: str, call: Callable[..., object], *arguments: object) -> None:
        """Check that the call raises an error with these words."""
        self.assertIn(words, str(self.assertRaises(OptionError, call, *arguments)))

    def test_a_text_and_a_whole_number(self) -> None:
        """True does not count as a number."""
        check_text("", "topic")
        check_whole(0, "offset")
        check_whole(-1, "offset", -1)
        for wrong in (None, b"t", 5):
            self.assert_names(f"topic is {wrong!r}: give a text", check_text, wrong, "topic")
        for wrong in (None, "1", 1.0, True, 0):
            self.assert_names(f"count is {wrong!r}", check_whole, wrong, "count", 1)

    def test_of_constructors(self) -> None:
        """Errors, strategies, serialisers and limits check their arguments."""
        for words, call in CALLS:
            self.assert_names(words, call)

    def test_of_credentials(self) -> None:
        """The error does not contain a key."""
        for keys in (("a", None), (5, "b"), ("a", b"secret"), ("a", "b", 7)):
            error = self.assertRaises(ValueError, Credentials, *keys)
            self.assertIn("give a text", str(error))
            self.assertNotIn("b'secret'", str(error))

    def test_of_producers(self) -> None:
        """The one that records messages refuses the same."""
        with Producer(NAMESRV) as producer:
            for words, call in OF_PRODUCERS:
                self.assert_names(words, call, producer)
                self.assert_names(words, call, RecordingProducer())
            self.assert_names("topic is 5", producer.queues, 5)

    def test_of_clients(self) -> None:
        """No request is sent, and the client's thread continues."""
        with Client(NAMESRV) as own_client:
            for words, call in OF_CLIENTS:
                self.assert_names(words, call, own_client)

    def test_of_consumers(self) -> None:
        """The number of messages to get is checked."""
        with PopConsumer(NAMESRV, group="g", topics="T", timeout_s=0.1, retries=0) as pop:
            self.assert_names("max_count is 'x'", pop.receive, "x")
        with PullConsumer(NAMESRV, group="g", timeout_s=0.1, retries=0) as pull:
            self.assert_names("max_count is 'x'", pull.poll, "x")

    def test_what_encode_raises_is_named(self) -> None:
        """The error of the program's function is its cause."""
        producer = RecordingProducer(encode=_encode)
        error = self.assertRaises(OptionError, producer.send, "T", "x")
        self.assertIn("the option encode failed for a str: AttributeError", str(error))
        self.assertIsInstance(error.__cause__, AttributeError)

    def test_a_group_is_a_text_in_each_style(self) -> None:
        """Each kind of consumer checks its group."""
        for style in STYLES:
            for kind in ("Consumer", "PullConsumer", "PopConsumer"):
                make = partial(getattr(style.module, kind), NAMESRV, group=5, topics="T",
                               **style.more)
                self.assert_names("group is 5: give a text", make)

    def test_a_batch_may_be_any_iterable(self) -> None:
        """It may be a generator, for example."""
        producer = RecordingProducer()
        producer.send_batch(each for each in [MESSAGE, MESSAGE])  # type: ignore[arg-type]
        self.assertEqual(len(producer.messages), 2)
        self.assertIs(client.Message, Message)
