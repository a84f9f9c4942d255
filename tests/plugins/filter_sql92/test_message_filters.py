"""The filters of reads, which can get the whole record."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.request.test_filters import record
from twistmq.plugins.filter_sql92.bitmap_fast_path import AskedFilter
from twistmq.plugins.filter_sql92.message_filters import BitmapFilter, RetryFilter


class MessageFilterTests(SynchronousTestCase):
    """The classes ``BitmapFilter`` and ``RetryFilter``."""

    def test_the_record_decides_when_the_entry_does_not(self) -> None:
        """The record decides if the entry does not."""
        wants = BitmapFilter(AskedFilter(lambda properties: properties.get("a") == "1", 1), 0, 8)
        self.assertEqual([wants.match_record(record(a=a)) for a in "12"], [True, False])
        self.assertEqual([wants.match_queue_entry(0, 1, bits) for bits in (b"\0", b"\1", b"\3")],
                         [False, True, True])

    def test_a_retrys_record_is_asked_by_the_expression_on_its_topic(self) -> None:
        """The expression for the real topic is evaluated for the record of a retry."""
        wants = RetryFilter({"T": lambda properties: "a" in properties}.get)
        self.assertEqual(
            [wants.match_record(each) for each in (
                record(RETRY_TOPIC="T", a="1"), record(RETRY_TOPIC="T"), record(RETRY_TOPIC="U"),
                record())], [True, False, True, True])
