"""The options of the store source."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.tables.columns import ColumnsError
from twistmq.integrations.tables.store_options import OptionError, StoreOptions


class StoreOptionsTests(SynchronousTestCase):
    """The reading of the options."""

    def test_a_path_is_enough(self) -> None:
        """All other options have defaults."""
        found = StoreOptions.read({"path": "/s"})
        self.assertEqual((found.path, found.topics, found.stored_from_ms, found.check_crc,
                          found.fail_on_data_loss, found.piece_count_min),
                         ("/s", None, None, True, True, 1))

    def test_option_names_are_read_in_any_case(self) -> None:
        """Each option is read, whatever the case of its name."""
        found = StoreOptions.read({
            "PATH": "/s", "SubScribe": "a, b,", "startingtimestamp": "1700000000000",
            "endingTimestamp": "2023-11-14T23:13:21.5+01:00", "checkcrc": "False",
            "failOnDataLoss": "false", "minPartitions": "7", "columns": "topic",
            "brokerName": "b", "inferSchema": "true"})
        self.assertEqual(
            (found.topics, found.stored_from_ms, found.stored_before_ms, found.check_crc,
             found.fail_on_data_loss, found.piece_count_min, found.broker_name,
             [column.name for column in found.columns]),
            (frozenset({"a", "b"}), 1_700_000_000_000, 1_700_000_001_500, False, False, 7, "b",
             ["topic"]))

    def test_times_without_a_zone_are_utc(self) -> None:
        """A time means the same on every machine."""
        found = StoreOptions.read({"path": "/s", "startingTimestamp": "2023-11-14T22:13:20"})
        self.assertEqual(found.stored_from_ms, 1_700_000_000_000)

    def test_each_mistake_names_its_option(self) -> None:
        """Each error names its option."""
        cases: dict[str, dict[str, str]] = {
            "option path": {"path": ""},
            "option nameserver: format rocketmq_store has none": {"nameServer": "x:1"},
            "options topics and subscribe mean the same": {"topics": "a", "subscribe": "b"},
            "option topics: no name": {"topics": " , "},
            "option startingTimestamp: 'now'": {"startingTimestamp": "now"},
            "it is after endingTimestamp": {"startingTimestamp": "2", "endingTimestamp": "1"},
            "option checkCrc: 'yes'": {"checkCrc": "yes"},
            "option minPartitions: '0'": {"minPartitions": "0"},
            "option columns": {"columns": "nothing"},
        }
        for text, options in cases.items():
            error = self.assertRaises((OptionError, ColumnsError), StoreOptions.read,
                                      {"path": "/s", **options})
            self.assertIn(text, str(error))
