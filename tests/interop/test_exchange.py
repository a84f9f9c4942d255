"""A store of one broker is opened by the other, with all its data."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase
from tests.interop.contents import HALF_TOPIC, LONG_TOPIC, SCHEDULE_TOPIC, TOPICS
from tests.interop.exchange import Exchange
from tests.interop.servers import free_port

#: More of it is tests/long/exchange.py's.
COUNT = 1500
#: One record in so many is looked for by key and by id.
EVERY = 20


class ExchangeTests(JavaTestCase):
    """Ours and Apache's over one folder."""

    def setUp(self) -> None:
        super().setUp()
        self.exchange = Exchange(self.folder, free_port(), self.version, every=EVERY)

    def test_both_brokers_open_the_store_of_a_stopped_one(self) -> None:
        """Each broker is stopped cleanly, in both directions."""
        self.there_and_back(kill=False)

    def test_a_killed_brokers_store_is_read_by_the_other_and_back(self) -> None:
        """There and back, each killed after its last acknowledgement."""
        self.there_and_back(kill=True)

    def there_and_back(self, kill: bool) -> None:
        """Apache's broker fills the store, ours reads it and continues, and
        Apache's reads it all.
        """
        first = self.exchange.turn("apache", kill, None, COUNT, "all")
        self.assertGreater(len(first.records), COUNT)
        topics = {topic for topic, _, _ in first.records}
        self.assertEqual(topics, {*TOPICS, SCHEDULE_TOPIC, HALF_TOPIC, LONG_TOPIC})
        second = self.exchange.turn("ours", kill, first, COUNT)
        self.assertGreater(len(second.records), len(first.records) + COUNT - 1)
        third = self.exchange.turn("apache", kill, second, COUNT)
        self.exchange.turn("ours", kill, third, 0)
        self.assertGreater(self.exchange.rolled()["commit log"], 1)
        self.assertGreater(self.exchange.rolled()["longest queue"], 1)
