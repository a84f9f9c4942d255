"""The code of a request, found without decoding its whole header."""

from __future__ import annotations

import time

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.header_rows import OWN_ROWS, own_frame
from twistmq.broker.constants import HEADER_SIZE_MAX
from twistmq.plugins.flow_control.peek_header import RequestHead, look
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command, encode_reply, encode_request
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder


class LookTests(SynchronousTestCase):
    """Headers of both kinds, and invalid ones."""

    def json(self, text: str) -> RequestHead | None:
        return look((JSON, text.encode(), b""))

    def test_both_kinds(self) -> None:
        """The code, the opaque and the flag are found, whatever other fields exist."""
        for kind in (JSON, ROCKETMQ):
            for oneway in (False, True):
                [frame] = FrameDecoder().feed(encode_request(
                    RequestCode.SEND_MESSAGE_V2, 77, None, b"body", oneway=oneway,
                    serialize_type=kind, extra_fields={"code": "1", "i": 'x"opaque":5'}))
                self.assertEqual(look(frame), (310, 77, 2 if oneway else 0))

    def test_said_otherwise(self) -> None:
        """Everything that the decoder accepts is found, in any order, even without an opaque."""
        self.assertEqual(self.json('{"opaque":5,"x":[{"code":3}],"flag":2,"code":11}'), (11, 5, 2))
        self.assertEqual(self.json('{"code":11}'), (11, 0, 0))

    def test_a_header_of_megabytes_is_looked_at(self) -> None:
        """A header of megabytes is searched but not decoded."""
        def seconds(size: int) -> float:
            [frame] = FrameDecoder().feed(encode_request(
                RequestCode.SEND_MESSAGE_V2, 77, extra_fields={"i": "\\" * (size // 2)}))
            begin = time.process_time()
            for _ in range(50):
                self.assertEqual(look(frame), (310, 77, 0))
            return time.process_time() - begin

        least = min(seconds(2 * HEADER_SIZE_MAX) for _ in range(3))
        self.assertLess(min(seconds(8_000_000) for _ in range(3)), 10 * max(least, 0.002))
        self.assertIsNone(self.json(" " * HEADER_SIZE_MAX + '{"code":11}'))

    def test_a_look_agrees_with_the_decoder(self) -> None:
        """Values that are found equal those of the decoder; an invalid header has none."""
        for row in OWN_ROWS:
            frame = own_frame(row, code_first=True)
            found = look(frame)
            try:
                command = decode_command(frame)
            except HeaderError:
                if row.field in ("code", "opaque", "flag"):
                    self.assertIsNone(found, msg=row)
                continue
            if len(frame[1]) > HEADER_SIZE_MAX or command.is_response:
                continue
            self.assertEqual(found, (command.code, command.opaque, command.flag), msg=row)

    def test_no_requests(self) -> None:
        """A response is not a request, and neither is an incomplete or invalid header."""
        [reply] = FrameDecoder().feed(encode_reply(0, 5, None, b"", None))
        self.assertIsNone(look(reply))
        for text in ('{"opaque":5}', '{"code":5000000000,"opaque":1}', '{"code":"x","opaque":1}',
                     '{"code":1,"opaque":2', "", "[]", "[" * 100_000):
            self.assertIsNone(self.json(text), msg=text[:40])
        self.assertIsNone(look((JSON, b'{"code":1,"opaque":2,"\xff":1}\xff', b"")))
        self.assertIsNone(look((ROCKETMQ, b"\x01\x36\x00", b"")))
