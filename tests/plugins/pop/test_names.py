"""The names in pop consumption."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.pop.names import (
    Receipt,
    normal_topic,
    pop_retry_topic,
    real_topic,
    retry_mark,
)
from twistmq.protocol.errors import BrokerError, RequestRefused


class TopicTests(SynchronousTestCase):
    """Retry topics."""

    def test_there_and_back(self) -> None:
        """The topic is recovered from its retry topic, whatever characters its name has."""
        for topic in ("T", "a_b", "%LMQ%x"):
            for v2, mark in ((False, "1"), (True, "2")):
                retry = pop_retry_topic(topic, "g_h", v2)
                self.assertEqual(retry, f"%RETRY%g_h{'+' if v2 else '_'}{topic}")
                self.assertEqual(normal_topic(retry, "g_h"), topic)
                self.assertEqual(retry_mark(retry), mark)
                self.assertEqual(real_topic(topic, "g_h", mark), retry)

    def test_a_topic_that_holds_no_retries_of_the_group_is_its_own(self) -> None:
        """A topic that is not a retry topic of the group is its own topic."""
        for topic in ("T", "%RETRY%g", "%RETRY%other_T"):
            self.assertEqual(normal_topic(topic, "g"), topic)
        self.assertEqual((retry_mark("T"), real_topic("T", "g", "0")), ("0", "T"))
        self.assertRaises(BrokerError, real_topic, "T", "g", "3")


class ReceiptTests(SynchronousTestCase):
    """The receipts that clients send back."""

    def test_there_and_back(self) -> None:
        """A receipt has the same form as in Apache's clients."""
        receipt = Receipt(7, 1_700_000_000_000, 60_000, 3, "broker-a")
        text = receipt.text("%RETRY%g_T", 2, 9)
        self.assertEqual(text, "7 1700000000000 60000 3 1 broker-a 2 9")
        self.assertEqual(Receipt.parse(text), receipt)
        self.assertEqual(Receipt.parse("7 1 2 3 1 b"), Receipt(7, 1, 2, 3, "b"))
        self.assertFalse(receipt.is_order)
        self.assertTrue(receipt._replace(revive_queue=999).is_order)

    def test_a_malformed_receipt_is_refused(self) -> None:
        """An invalid receipt is refused."""
        for text in ("", "1 2 3 4 0", "x 2 3 4 0 b", "1 2 3 4.0 0 b", f"1 {9 * 10**18} 3 4 0 b",
                     "1  2 3 4 0 b"):
            self.assertRaises(RequestRefused, Receipt.parse, text)
