"""The places of dead letters, and their lines."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_plain_record import record
from twistmq.console.dead_letters import Letter, Position, letter_line
from twistmq.console.query import BadQuery
from twistmq.protocol.record import decode_record


class PositionTests(SynchronousTestCase):
    """The form of a place in addresses."""

    def test_a_text_is_read_back(self) -> None:
        """The name of a broker may contain the separator."""
        for position in (Position("broker-a", 0, 17), Position("a:b", 3, 0)):
            self.assertEqual(Position.from_text(position.text), position)

    def test_other_texts_are_refused(self) -> None:
        """The fault names the text, and only the beginning of a long one."""
        for text in ("", "a", "a:1", "a:1:x", "a:-1:2", ":1:2", "a:1:" + "9" * 19, "a:1:\u0663"):
            self.assertRaises(BadQuery, Position.from_text, text)
        error = self.assertRaises(BadQuery, Position.from_text, "x" * 5000)
        self.assertLess(len(str(error)), 200)


class LineTests(SynchronousTestCase):
    """The lines of an export."""

    def test_keys_are_separated_by_blanks_only(self) -> None:
        """Other white space is a part of a key, by which the message is found."""
        message = decode_record(record(b"x", properties="KEYS\x01a\tb  c\u3000d\x02"))
        line = letter_line("g", Letter(Position("a", 0, 5), message))
        self.assertEqual(json.loads(line)["keys"], ["a\tb", "c\u3000d"])
