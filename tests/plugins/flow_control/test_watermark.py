"""The number of waiting requests of each kind, for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.flow_control.test_guard import These, Waiting, frames
from twistmq.plugins.flow_control.watermark import LOOKS_MAX, watermark
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.frame import JSON

#: A code of each kind, and the name Apache's broker gives its queue.
PROCESSORS = {
    RequestCode.SEND_MESSAGE_V2: "send", RequestCode.PULL_MESSAGE: "pull",
    RequestCode.POP_MESSAGE: "pull", RequestCode.LITE_PULL_MESSAGE: "lite_pull",
    RequestCode.ACK_MESSAGE: "ack", RequestCode.QUERY_MESSAGE: "query_message",
    RequestCode.UNREGISTER_CLIENT: "client_manager", RequestCode.HEART_BEAT: "heartbeat",
    RequestCode.END_TRANSACTION: "transaction",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumer_manager",
    RequestCode.GET_BROKER_CONFIG: "admin", RequestCode.SEND_REPLY_MESSAGE: "reply",
    RequestCode.QUERY_ASSIGNMENT: "load_balance",
}


class WatermarkTests(SynchronousTestCase):
    """The metric family."""

    def counts(self, waiting: Waiting | None) -> dict[str, Any]:
        """Return the counts that are not 0, by processor."""
        return {labels[0]: count for labels, count in watermark(waiting).samples if count}

    def test_each_kind_is_counted_under_its_processor(self) -> None:
        """Each kind has the name of its processor, and a count even if nothing waits."""
        for code, processor in PROCESSORS.items():
            self.assertEqual(self.counts(These(frames(code))), {processor: 1}, msg=code.name)
        for waiting in (None, These([])):
            self.assertEqual({labels[0]: count for labels, count in watermark(waiting).samples},
                             dict.fromkeys(PROCESSORS.values(), 0))

    def test_a_few(self) -> None:
        """All frames of a small number are counted; frames that cannot be read are not."""
        found = frames(*[RequestCode.SEND_MESSAGE] * (LOOKS_MAX - 3), RequestCode.PULL_MESSAGE,
                       RequestCode.PULL_MESSAGE)
        self.assertEqual(self.counts(These([*found, (JSON, b"{", b"")])),
                         {"send": LOOKS_MAX - 3, "pull": 2})

    def test_a_sample_of_many_frames_gives_the_count_by_kind(self) -> None:
        """Each sample of many frames counts for its neighbours, wherever they are."""
        found = frames(*[RequestCode.SEND_MESSAGE] * 9 * LOOKS_MAX,
                       *[RequestCode.HEART_BEAT] * 3 * LOOKS_MAX)
        counts = self.counts(These(found))
        self.assertEqual(counts, {"send": 9 * LOOKS_MAX, "heartbeat": 3 * LOOKS_MAX})

    def test_number_of_looks(self) -> None:
        """The number of frames that are read is limited, however many wait."""
        seen = []

        class Counted(tuple):  # type: ignore[type-arg]
            def __iter__(self) -> Iterator[Any]:
                seen.append(1)
                return super().__iter__()

        [frame] = frames(RequestCode.PULL_MESSAGE)
        self.counts(These([Counted(frame)] * (10 * LOOKS_MAX + 7)))
        self.assertTrue(LOOKS_MAX // 2 < len(seen) <= 2 * LOOKS_MAX, msg=str(len(seen)))
