"""Interceptors: the changes that they may make, and the effects of their mistakes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import AsyncMock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Box, route, routes
from twistmq.client import aio
from twistmq.client.base.errors import OptionError
from twistmq.client.base.interceptors import (
    Interceptor,
    Interceptors,
    install_interceptor,
    uninstall_interceptor,
)
from twistmq.client.base.messages import Message, ReceivedMessage
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.properties import parse_properties

#: Changes that cannot be sent.
WRONG: Final[list[dict[Any, Any]]] = [
    {"x": 5}, {5: "x"}, {"x": ""}, {"": "x"}, {"x": "a\x01b"}, {"x": None}, {"TAGS": "a || b"},
    {"TAGS": 7}, {"x": "\ud800"}]


class Changer(Interceptor):
    """An interceptor that changes the properties of each message."""

    def __init__(self, changes: dict[Any, Any]) -> None:
        self.changes = changes

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """See ``Interceptor``."""
        properties.update(self.changes)


class ChangeTests(SynchronousTestCase):
    """The changes that ``before_send`` makes."""

    def setUp(self) -> None:
        """A box with one broker, and the log lines of the client."""
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("twistmq.client")
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)

    def sent(self, *changes: dict[Any, Any], batch: bool = False) -> dict[str, str]:
        """The properties of a message that these interceptors saw."""
        box = Box()
        box.servers[NAMESRV] = routes({"T": route({"b": "10.0.0.1:10911"})})
        box.core.interceptors = Interceptors([Changer(each) for each in changes])
        preparer = build_producer(box.core, {}).preparer
        message = Message("T", b"x", tags="eu", properties={"a": "1", "x": "mine"})
        if batch:
            text = preparer._properties(message)[0]
            preparer.prepare_batch([message, message])
        else:
            text = preparer.prepare(message).properties
        return {name: value for name, value in parse_properties(text).items() if name != "UNIQ_KEY"}

    def test_a_change_that_cannot_be_sent_is_undone(self) -> None:
        """The message keeps its own property and all other changes; the log reports it."""
        own = {"a": "1", "x": "mine", "TAGS": "eu", "WAIT": "true"}
        self.assertEqual(self.sent({"y": "2", "x": "3"}), {**own, "y": "2", "x": "3"})
        self.assertEqual(self.lines, [])
        for wrong in WRONG:
            for batch in (False, True):
                del self.lines[:]
                self.assertEqual(self.sent({"y": "2"}, wrong, batch=batch), {**own, "y": "2"},
                                 msg=repr(wrong))
                self.assertIn("before_send of Changer", self.lines[0])
                self.assertIn("keeps the program's own", self.lines[0])

    def test_a_mistake_of_the_program_is_still_its_own_error(self) -> None:
        """The interceptor is not called for a message that cannot be sent."""
        box = Box()
        box.core.interceptors = Interceptors([Changer({"y": "2"})])
        preparer = build_producer(box.core, {}).preparer
        wrong: Any = {"x": 5}
        message = Message("T", b"x", properties=wrong)
        error = self.assertRaises(OptionError, preparer.prepare, message)
        self.assertIn("property 'x' is 5", str(error))
        self.assertEqual(self.lines, [])


class Entering(Interceptor):
    """An interceptor that records the begin and the end of a handler.

    :param fails: where it fails: "call", "enter", "exit" or nowhere.
    """

    def __init__(self, steps: list[Any], fails: str = "") -> None:
        self.steps = steps
        self.fails = fails

    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage[Any]]
    ) -> AbstractContextManager[object]:
        """See ``Interceptor``."""
        if self.fails == "call":
            raise ZeroDivisionError("call")
        return self.entered(group, messages)

    @contextmanager
    def entered(self, group: str, messages: Any) -> Iterator[None]:
        """Record the steps."""
        if self.fails == "enter":
            raise ZeroDivisionError("enter")
        self.steps.append(("begin", group, messages))
        try:
            yield
        except KeyError as error:
            self.steps.append(("error", error))
        else:
            self.steps.append("end")
        if self.fails == "exit":
            raise ZeroDivisionError("exit")


class HandlerTests(SynchronousTestCase):
    """The context managers around handlers."""

    def wrap_handler(self, steps: list[Any], fails: str, handler: Callable[[Any], Any]) -> Any:
        """A handler inside an interceptor that fails and one that does not."""
        return Interceptors([Interceptor(), Entering([], fails), Entering(steps)]).wrap_handler(
            "g", handler)

    def test_a_handler_without_such_an_interceptor_is_unchanged(self) -> None:
        """The handler is called directly."""
        self.assertIs(Interceptors([Interceptor()]).wrap_handler("g", print), print)
        self.assertIs(Interceptors([Changer({})]).wrap_awaited("g", AsyncMock), AsyncMock)

    def test_a_failing_interceptor_affects_neither_the_handler_nor_another_one(self) -> None:
        """The failure is logged; a message and a list are both passed as a list."""
        for fails in ("", "call", "enter", "exit"):
            steps: list[Any] = []
            with self.assertLogs("twistmq.client", logging.ERROR) as logged:
                logging.getLogger("twistmq.client").error("one line at least")
                handler = self.wrap_handler(steps, fails, lambda argument: argument)
                self.assertEqual((handler("m"), handler(["a", "b"])), ("m", ["a", "b"]))
            self.assertEqual(steps, [("begin", "g", ["m"]), "end", ("begin", "g", ["a", "b"]),
                                     "end"], msg=fails)
            lines = logged.output[1:]
            self.assertEqual(len(lines), 2 if fails else 0)
            for line in lines:
                self.assertIn("the interceptor Entering failed in around_handler", line)

    def test_an_error_of_the_handler_is_not_suppressed(self) -> None:
        """This is so even if a context manager does not raise it again."""
        def handle(_: object) -> None:
            raise fault

        for fails in ("", "exit"):
            steps: list[Any] = []
            fault = KeyError("x")
            handler = self.wrap_handler(steps, fails, handle)
            self.assertIs(self.assertRaises(KeyError, handler, "m"), fault)
            self.assertEqual(steps, [("begin", "g", ["m"]), ("error", fault)])

    def test_a_handler_that_is_awaited_ends_inside(self) -> None:
        """It does not end when the call returns a coroutine."""
        steps: list[Any] = []

        async def handle(_: object) -> str:
            await asyncio.sleep(0)
            steps.append("handled")
            return "result"

        handler = Interceptors([Entering(steps)]).wrap_awaited("g", handle)
        self.assertEqual(asyncio.run(handler("m")), "result")  # type: ignore[arg-type]
        self.assertEqual(steps, [("begin", "g", ["m"]), "handled", "end"])


class InstalledTests(SynchronousTestCase):
    """Interceptors of all clients of the process."""

    def test_new_clients_get_an_installed_interceptor_once(self) -> None:
        """They come after the client's own; existing clients are unchanged."""
        own, installed = Interceptor(), Changer({})
        for _ in range(2):
            install_interceptor(installed)
        self.addCleanup(uninstall_interceptor, installed)
        clients = [aio.Client("127.0.0.1:9", interceptors=[own])]
        for _ in range(2):
            uninstall_interceptor(installed)
        clients.append(aio.Client("127.0.0.1:9"))
        self.assertEqual([client._core.interceptors._all for client in clients],
                         [(own, installed), ()])
