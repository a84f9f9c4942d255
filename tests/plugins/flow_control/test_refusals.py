"""A refusal that is assembled from parts is the same as one from the broker's encoder."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.flow_control.refusals import Refusal
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import encode_reply

#: Of each length, with and without a sign.
NUMBERS = (0, 7, -1, 10, 99, 123_456, 2**31 - 1, -2**31, 1_987_654_321, 1_123_456_789)


class RefusalTests(SynchronousTestCase):
    """Refusals are compared byte for byte."""

    def test_refusal_frames_are_exact_for_any_opaque(self) -> None:
        """The frame is right for any opaque, also at the second use."""
        for remark in ("[OVERLOAD]system busy", "", 'quotes " and \\ and \u00fc'):
            refusal = Refusal(remark)
            for opaque in (*NUMBERS, *NUMBERS):
                self.assertEqual(refusal.frame(opaque), encode_reply(
                    ResponseCode.SYSTEM_BUSY, opaque, None, b"", remark), msg=str(opaque))

    def test_refusal_frames_are_exact_for_any_number_in_the_remark(self) -> None:
        """The frame is right for any opaque and any number in the remark."""
        refusal = Refusal("[X]period in queue: 7ms, size of queue: {} or so")
        for opaque in NUMBERS:
            for number in NUMBERS:
                self.assertEqual(refusal.frame_with(opaque, number), encode_reply(
                    ResponseCode.SYSTEM_BUSY, opaque, None, b"",
                    f"[X]period in queue: 7ms, size of queue: {number} or so"),
                    msg=f"{opaque} {number}")
