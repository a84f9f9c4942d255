"""The reader of the progress of all groups."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper
from twistmq.protocol.bodies.progress_table import Progress, read_progress
from twistmq.protocol.errors import WireError


def stats_list() -> ConsumeStatsList:
    """Two groups; one of them consumes two topics, and one has committed nothing."""
    def stats(topic: str, *lags: int, rate: float = 0.0) -> ConsumeStats:
        return ConsumeStats({MessageQueue(topic, "broker-a", at): OffsetWrapper(
            100, 100 - lag, 100, 1_700_000_000_000 + at) for at, lag in enumerate(lags)}, rate)

    return ConsumeStatsList([
        {"one": [stats("T", 3, 4, rate=1.5), stats("%RETRY%one", 1)]},
        {"two": [stats("T", 0)]}, {"three": [ConsumeStats()]}], "127.0.0.1:10911", 8, 0)


class ReadTests(SynchronousTestCase):
    """Answers of brokers."""

    EXPECTED = {  # noqa: RUF012
        ("one", "T"): Progress(7, 7, 1.5, 1_700_000_000_001),
        ("one", "%RETRY%one"): Progress(1, 1, 0.0, 1_700_000_000_000),
        ("two", "T"): Progress(0, 0, 0.0, 1_700_000_000_000),
    }

    def test_the_form_of_brokers(self) -> None:
        """Lags are summed by group and topic."""
        self.assertEqual(read_progress(stats_list().encode()), self.EXPECTED)

    def test_other_forms_of_the_dialect(self) -> None:
        """Blanks and another order of fields go to the general reader."""
        dialect = stats_list().encode()
        for body in (dialect.replace(b":{", b": {"),
                     dialect.replace(b'"brokerName":"broker-a","queueId":0,"topic":"T"',
                                     b'"topic":"T","brokerName":"broker-a","queueId":0')):
            self.assertEqual(read_progress(body), self.EXPECTED, msg=body)

    def test_nonsense(self) -> None:
        """A body that is not an answer is an error of the peer."""
        for body in (b"", b"nonsense", b"[]", b'{"consumeStatsList":[{"g":7}]}', b"{" * 5000,
                     b'{"a":' * 20_000, b"[" * 100_000):
            self.assertRaises(WireError, read_progress, body)

    def test_no_groups(self) -> None:
        """A broker without groups has no progress."""
        self.assertEqual(read_progress(ConsumeStatsList().encode()), {})
