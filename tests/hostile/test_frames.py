"""The servers survive bytes that are not frames, and frames that stay incomplete."""

from __future__ import annotations

import struct

from tests.hostile.case import HostileCase, MemoryPeak
from tests.hostile.wire import RawConnection, json_frame, raw_frame
from twistmq.broker.constants import KEPT_BYTES_TOTAL_MAX
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.frame import FRAME_SIZE_MAX

#: A request every server answers, known or not.
_QUESTION = json_frame(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), '{"topic":"good_topic"}')
_HEADER = b'{"code":1}'


class BrokenFrameTests(HostileCase):
    """A stream that breaks the rules is closed: it cannot be read any further."""

    def assertCloses(self, what: str, data: bytes, reason: str) -> None:
        """Check that both ports close the connection at once, with one log line."""
        for address in (self.broker, self.namesrv):
            connection = self.connect(address)
            connection.says(data)
            self.assertTrue(connection.is_closed(), msg=what)
            self.assertEqual(connection.heard, [], msg=what)
            self.assertIn(reason, self.assertLoggedOnce(connection, what), msg=what)

    def test_every_invalid_length_closes_the_connection(self) -> None:
        """A length is invalid below 4 bytes, over 16 MiB, or below the size of its header."""
        for total in (0, -1, 3, -2**31):
            self.assertCloses(f"total {total}", raw_frame(_HEADER, total=total), "less than 4")
        for total in (FRAME_SIZE_MAX + 1, 2**31 - 1):
            self.assertCloses(f"total {total}", raw_frame(_HEADER, total=total), "over the limit")
        for size in (len(_HEADER) + 1, 0xFFFFFF):
            self.assertCloses(f"header {size}", raw_frame(_HEADER, header_size=size),
                              "header length")

    def test_serialise_types(self) -> None:
        """The serialise type is neither JSON nor Apache's binary form."""
        for kind in (2, 3, 127, 128, 255):
            self.assertCloses(f"type {kind}", raw_frame(_HEADER, serialize_type=kind),
                              f"serialise type {kind} is not known")

    def test_other_protocols(self) -> None:
        """A browser, and zeros, are disconnected."""
        self.assertCloses("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "over the limit")
        self.assertCloses("zeros", bytes(64), "less than 4")

    def test_what_came_before(self) -> None:
        """Whole frames before an invalid one are answered, and later ones are not."""
        connection = self.connect()
        connection.says(_QUESTION * 3 + raw_frame(b"", total=-1) + _QUESTION * 3)
        self.assertTrue(connection.is_closed())
        self.assertEqual(len(connection.heard), 3)
        self.assertLoggedOnce(connection)


class HalfFrameTests(HostileCase):
    """Incomplete frames."""

    def test_cut_anywhere(self) -> None:
        """A connection that ends within a frame is not logged, wherever it ends."""
        for address in (self.broker, self.namesrv):
            for size in range(len(_QUESTION)):
                with RawConnection(address) as connection:
                    connection.says(_QUESTION[:size])
        with self.connect() as connection:
            connection.says(_QUESTION)
            connection.hears()

    def test_byte_by_byte(self) -> None:
        """A frame that arrives in single bytes is answered."""
        connection = self.connect()
        for byte in _QUESTION:
            connection.says(bytes([byte]))
        self.assertEqual(connection.hears().opaque, 7)

    def test_a_frame_of_exactly_16_mib_is_taken(self) -> None:
        """The frame is read, and its body is refused."""
        fields = ('{"a":"g","b":"good_topic","c":"TBW102","d":"4","e":"0","f":"0","g":"1",'
                  '"h":"0"}')
        head = json_frame(int(RequestCode.SEND_MESSAGE_V2), fields)[8:]
        body = bytes(FRAME_SIZE_MAX - 4 - len(head))
        connection = self.connect()
        connection.says(raw_frame(head + body, header_size=len(head)))
        self.assertEqual(connection.hears().code, ResponseCode.MESSAGE_ILLEGAL)
        connection.says(_QUESTION)
        connection.hears()

    def test_many_small(self) -> None:
        """Hundreds of connections with a few bytes each cost almost nothing."""
        connections = [self.connect() for _ in range(300)]
        for connection in connections:
            connection.says(_QUESTION[:20])
        self.good.wait_for_rounds(20)
        for connection in connections:
            connection.says(_QUESTION[20:])
        for connection in connections:
            self.assertEqual(connection.hears().opaque, 7)


class HalfFramesOfManyTests(HostileCase):
    """Half frames that many connections leave lying."""

    # What the allocator keeps of them is used again, not given back to the system.
    growth_max_kib = KEPT_BYTES_TOTAL_MAX // 1024

    def test_half_frames_have_a_common_bound_and_the_oldest_are_cut(self) -> None:
        """They have a limit together; above it the oldest are closed, and no memory is lost."""
        with MemoryPeak(self.servers.pid) as peak:
            for _ in range(2):
                self.leave_lying()
        growth_kib = peak.kib - self.memory_before_kib
        self.assertLess(growth_kib, (KEPT_BYTES_TOTAL_MAX + 3 * FRAME_SIZE_MAX) // 1024)

    def leave_lying(self) -> None:
        """Send halves of frames until the first connection is cut off; end the last one's."""
        left_out = 16
        half = struct.pack(">iI", FRAME_SIZE_MAX, 100) + bytes(FRAME_SIZE_MAX - left_out)
        first = self.connect()
        first.says(half)
        connections = []
        for _ in range(KEPT_BYTES_TOTAL_MAX // len(half) + 1):
            connections.append(self.connect())
            connections[-1].says(half)
        self.assertTrue(first.is_closed())
        self.assertIn("longer than any", "".join(self.logged(first.name)))
        connections[-1].says(bytes(left_out - 4))
        self.assertEqual(connections[-1].hears().code, ResponseCode.SYSTEM_ERROR)
        for connection in connections:
            connection.close()
