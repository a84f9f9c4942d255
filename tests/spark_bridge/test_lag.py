"""The lag of a query, computed from its progress."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.topics import BROKER
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.test_source import SourceCase
from twistmq.protocol.bodies import MessageQueue
from twistmq.spark_bridge.lag import Lag, query_lag

ENDS = {"t": {"a": {"0": 5, "1": 7}, "b": {"0": 9}}, "@last": {"t": {"a": {"0": [3, 4]}}}}
LATEST = {"t": {"a": {"0": 9, "1": 7}}, "u": {"a": {"0": 3}}}
#: Offsets of other formats: of Kafka, of files, of a rate source.
OTHERS: tuple[Any, ...] = ({"t": {"0": 5}}, {"logOffset": 3}, 12)


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    """Return a progress as a dict, with the end and the latest offset of each source."""
    return {"batchId": 3, "sources": [
        {"description": "s", "startOffset": None, "endOffset": end, "latestOffset": latest}
        for end, latest in sources]}


class ProgressTests(SynchronousTestCase):
    """The figures of a progress, without a query."""

    def test_figures(self) -> None:
        """A deleted queue has no lag, and a new one has all its messages."""
        lag = query_lag(progress((ENDS, LATEST)))
        assert lag is not None
        self.assertEqual(lag.by_queue, {
            MessageQueue("t", "a", 0): 4, MessageQueue("t", "a", 1): 0,
            MessageQueue("u", "a", 0): 3})
        self.assertEqual((lag.min, lag.max, lag.avg, lag.total), (0, 4, 7 / 3, 7))
        self.assertEqual(lag.metrics(), {
            "minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "4",
            "avgOffsetsBehindLatest": str(7 / 3), "totalOffsetsBehindLatest": "7"})
        self.assertEqual((Lag({}).min, Lag({}).max, Lag({}).avg, Lag({}).total), (0, 0, 0.0, 0))

    def test_forms_of_a_progress(self) -> None:
        """A dict, offsets as JSON within it, and all of it as JSON are the same."""
        wanted = query_lag(progress((ENDS, LATEST)))
        texts = progress((json.dumps(ENDS), json.dumps(LATEST)))
        for form in (texts, json.dumps(texts), json.dumps(progress((ENDS, LATEST)))):
            self.assertEqual(query_lag(form), wanted)
        for wrong in ({}, {"sources": 3}, "[]", 7):
            self.assertIn("neither a progress of a query nor its JSON", str(self.assertRaises(
                ValueError, query_lag, wrong)))

    def test_sources(self) -> None:
        """Sources of other formats are skipped, and several of ours are added."""
        others = [(other, other) for other in OTHERS]
        more = ({"v": {"a": {"0": 1}}}, {"v": {"a": {"0": 2}}})
        lag = query_lag(progress(*others, (ENDS, LATEST), more))
        assert lag is not None
        self.assertEqual(lag.total, 8)
        self.assertIn("no source of the format rocketmq", str(self.assertRaises(
            ValueError, query_lag, progress(*others))))

    def test_not_known(self) -> None:
        """If Spark has no end or no latest offset, the lag is unknown, which is not 0."""
        self.assertIsNone(query_lag(None), msg="query.lastProgress before the first progress")
        for end, latest in ((ENDS, None), (None, LATEST), (None, None), ("None", "None"),
                            (json.dumps(ENDS), "null")):
            self.assertIsNone(query_lag(progress((end, latest))))


class ClientTests(SourceCase):
    """The queues of a broker. The progress of a real query is in test_stream_source."""

    def test_ends_that_brokers_say(self) -> None:
        """With a client the progress needs no latest offset."""
        ends = {"orders": {BROKER: {"0": 60, "1": 50, "3": 9}}}
        lag = query_lag(progress((ends, None)), self.box.client)
        assert lag is not None
        self.assertEqual({queue.queue_id: behind for queue, behind in lag.by_queue.items()},
                         {0: 10, 1: 0, 3: 21})
