"""Interceptors: what they may change, and what a mistake of theirs does to a send."""

from __future__ import annotations

import logging
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Box, route, routes
from twistmq.client.base.errors import OptionError
from twistmq.client.base.interceptors import Interceptor, Interceptors
from twistmq.client.base.messages import Message
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.properties import parse_properties

#: Changes that cannot be sent.
WRONG: Final[list[dict[Any, Any]]] = [
    {"x": 5}, {5: "x"}, {"x": ""}, {"": "x"}, {"x": "a\x01b"}, {"x": None}, {"TAGS": "a || b"},
    {"TAGS": 7}, {"x": "\ud800"}]


class Changer(Interceptor):
    """Changes the properties of each message."""

    def __init__(self, changes: dict[Any, Any]) -> None:
        self.changes = changes

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """See ``Interceptor``."""
        properties.update(self.changes)


class ChangeTests(SynchronousTestCase):
    """Changes of ``before_send``."""

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
        """The message keeps its own property and all other changes, and the log says so."""
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
