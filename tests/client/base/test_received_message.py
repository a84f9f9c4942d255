"""What a message that was read shows of its properties."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_plain_record import record
from twistmq.client import MessageQueue, ReceivedMessage


class NumberTests(SynchronousTestCase):
    """Properties that are numbers, which a producer may set to any text."""

    def test_a_text_that_is_no_number_of_java_is_none(self) -> None:
        """Python's int takes the digits of all scripts, and raises for more than 4,300 of them."""
        for text, number in (("3", 3), ("007", 7), ("9" * 400, None), ("9" * 5_000, None),
                             ("-1", None), ("\u0663", None), ("1_0", None), (" 1", None)):
            properties = f"_SYS_MSG_PRIORITY_\x01{text}\x02MAX_OFFSET\x01{text}\x02"
            message: ReceivedMessage[Any] = ReceivedMessage(
                record(b"x", properties=properties), MessageQueue("T", "a", 0), 1, "T")
            self.assertEqual(message.priority, number, text[:9])
            lag = None if number is None else max(number - 2, 0)
            self.assertEqual(message.lag, lag, text[:9])
