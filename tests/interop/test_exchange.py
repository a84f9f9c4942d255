"""A store written by one broker is opened by the other with everything in place."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase
from tests.interop.exchange import (
    HALF_TOPIC,
    LONG_TOPIC,
    SCHEDULE_TOPIC,
    TOPICS,
    Contents,
    Exchange,
    committed_offset,
    differences,
    fill,
)
from tests.interop.test_mixed_cluster import free_port
from twistmq.broker.testing import BlockingClient

#: More of it is tests/long/exchange.py's.
COUNT = 1500
#: One record in so many is looked for by key and by id.
EVERY = 20


class ExchangeTests(JavaTestCase):
    """Ours and Apache's over one folder."""

    timeout = 300

    def setUp(self) -> None:
        super().setUp()
        self.exchange = Exchange(self.folder, free_port(), free_port(), self.version)

    def test_stopped(self) -> None:
        """There and back, each stopped as it should be."""
        self.there_and_back(kill=False)

    def test_killed(self) -> None:
        """There and back, each killed after its last acknowledgement."""
        self.there_and_back(kill=True)

    def there_and_back(self, kill: bool) -> None:
        """Apache's broker fills, ours reads and goes on, Apache's reads it all."""
        first = self.exchange.apache(lambda client: self.filled(client, 0, "all"), kill)
        self.assertGreater(len(first.records), COUNT)
        topics = {topic for topic, _, _ in first.records}
        self.assertEqual(topics, {*TOPICS, SCHEDULE_TOPIC, HALF_TOPIC, LONG_TOPIC})
        second = self.exchange.ours(lambda client: self.read_on(client, first), kill)
        self.assertGreater(len(second.records), len(first.records) + COUNT - 1)
        third = self.exchange.apache(lambda client: self.read_on(client, second), kill)
        fourth = self.exchange.ours(lambda client: Contents.read(client, EVERY, third))
        self.assertEqual(differences(third, fourth), [])

    def filled(self, client: BlockingClient, first: int, kinds: str) -> Contents:
        fill(client, COUNT, first, kinds)
        self.exchange.wait_for_offsets(committed_offset(first))
        return Contents.read(client, EVERY)

    def read_on(self, client: BlockingClient, before: Contents) -> Contents:
        """Compare with what the broker before had, then go on."""
        self.assertEqual(differences(before, Contents.read(client, EVERY, before)), [])
        return self.filled(client, len(before.records), "plain")
