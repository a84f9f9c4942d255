"""The client of the bridge, and the times for which it requests offsets."""

from __future__ import annotations

from typing import cast

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.messages import MessageQueue
from twistmq.client.base.times import unix_ms
from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.connection import offset_at


class _Client:
    """A client of a queue with one message for each ms."""

    def search_offset(self, queue: MessageQueue, timestamp_s: float) -> int:
        """See ``Client``."""
        return unix_ms(timestamp_s, "timestamp_s")


class OffsetTests(SynchronousTestCase):
    """Offsets by time."""

    def test_each_millisecond_is_asked_for_exactly(self) -> None:
        """A number of seconds is a float, while Spark compares whole ms."""
        client = cast(Client, _Client())
        for time_ms in (*range(1_700_000_000_000, 1_700_000_002_000), -1, 0, 1,
                        253_402_300_799_999):
            self.assertEqual(offset_at(client, MessageQueue("T", "b", 0), time_ms), time_ms)

    def test_a_time_that_no_client_takes_is_the_last_or_the_first(self) -> None:
        """Spark's times extend beyond the year 9999."""
        client = cast(Client, _Client())
        self.assertEqual([offset_at(client, MessageQueue("T", "b", 0), time_ms)
                          for time_ms in (2**63 - 1, -(2**63))],
                         [253_402_300_799_999, -253_402_300_799_999])
