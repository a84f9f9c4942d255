"""The values of a frame that are found without decoding its header."""

from __future__ import annotations

import time

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.command import encode_request
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder
from twistmq.protocol.frame_peek import Sketch, sketch

_LONG = b'"extFields":{"a":"%b"}' % (b"x" * 100_000)


def sketched(header: bytes) -> Sketch:
    return sketch((JSON, header, b""))


class SketchTests(SynchronousTestCase):
    """The function sketch."""

    def test_members_stand_before_extfields_or_behind_it(self) -> None:
        """Members may be before or after extFields, as clients write them."""
        java = b'{"code":310,%b,"flag":2,"language":"JAVA","opaque":7,"version":479}' % _LONG
        go = b'{"code":310,"language":"GO","version":1,"opaque":7,"flag":2,"remark":"",%b}' % _LONG
        cpp = b'{ "code" : 310, "extFields" : {}, "flag" : 2, "opaque" : "7" }'
        for header in (java, go, cpp):
            self.assertEqual(sketched(header), Sketch(310, 7, 2), msg=header[:40])

    def test_frames_of_ours_are_sketched_in_both_encodings(self) -> None:
        """These are frames that we write."""
        for serialize_type in (JSON, ROCKETMQ):
            [frame] = FrameDecoder().feed(encode_request(
                11, 2**31 - 1, oneway=True, serialize_type=serialize_type,
                extra_fields={"a": "x" * 100_000}))
            self.assertEqual(sketch(frame), Sketch(11, 2**31 - 1, 2))
        long = encode_binary_header(11, "JAVA", 479, -3, 1, None, {})
        self.assertEqual(sketch((ROCKETMQ, long, b"")).opaque, -3)

    def test_an_unreadable_member_is_none(self) -> None:
        """A member that is not found, or cannot be returned, is None."""
        for header in (b"", b"x" * 5000, b'{"code":"x","opaque":null}', b'{"opaque":2147483648}',
                       b'{"opaque":1e3}', b'{"opaque":12345678901}'):
            self.assertEqual(sketched(header), Sketch(None, None, 0), msg=header[:30])
        self.assertEqual(sketch((ROCKETMQ, bytes(12), b"")), Sketch(None, None, 0))

    def test_a_text_that_looks_like_a_member_is_ignored(self) -> None:
        """Such a text has escaped quotes."""
        header = b'{"extFields":{"a":"\\"opaque\\":8,"},"opaque":7}'
        self.assertEqual(sketched(header).opaque, 7)

    def test_no_longer(self) -> None:
        """The length of a header does not matter."""
        def seconds(size: int) -> float:
            header = b'{"opaque":' * (size // 10)
            best = 9.0
            for _ in range(5):
                begin = time.process_time()
                for _ in range(20):
                    sketched(header)
                best = min(best, time.process_time() - begin)
            return best
        self.assertLess(seconds(16_000_000), 20 * seconds(4_000) + 0.01)
