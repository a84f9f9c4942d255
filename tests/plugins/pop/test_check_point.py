"""Check points and acknowledgements in their stored form."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.pop.check_point import Ack, CheckPoint, PointKey, decode_ack
from twistmq.protocol.errors import WireError

KEY = PointKey("T", "g", 1, 40, 1_700_000_000_000, "b")
#: What 5.3.3 stored.
POINT = (b'{"bm":0,"bn":"b","c":"g","d":[0,3],"it":5000,"n":2,"pt":1700000000000,"q":1,'
         b'"reviveTime":1700000005000,"ro":0,"so":40,"t":"T"}')
ACK = b'{"ao":43,"bn":"b","c":"g","pt":1700000000000,"q":1,"so":40,"t":"T"}'
BATCH = b'{"ao":-1,"aol":[40,43],"bn":"b","c":"g","pt":1700000000000,"q":1,"so":40,"t":"T"}'


class CheckPointTests(SynchronousTestCase):
    """The stored form of check points."""

    def test_as_apache_writes_it(self) -> None:
        """A check point has the same bytes as in Apache's broker, and can be read again."""
        self.assertEqual(CheckPoint(KEY, [40, 43], 5000).encode(), POINT)
        point = CheckPoint.decode(POINT, "other")
        self.assertEqual((point.key, point.offsets, point.revive_time, point.put_times),
                         (KEY, [40, 43], 1_700_000_005_000, 0))

    def test_a_check_point_counts_how_often_it_was_stored(self) -> None:
        """It contains the number of times that it was stored."""
        data = CheckPoint(KEY, [40], 5000, 3).encode()
        self.assertIn(b'"ro":0,"rp":"3","so":40', data)
        self.assertEqual(CheckPoint.decode(data, "b").put_times, 3)

    def test_each_message_of_a_check_point_is_acknowledged_once(self) -> None:
        """Each of its messages is acknowledged once, and other messages are ignored."""
        point = CheckPoint(KEY, [40, 43], 5000)
        self.assertFalse(point.acknowledge(41))
        self.assertTrue(point.acknowledge(43))
        self.assertTrue(point.acknowledge(43))
        self.assertEqual((point.open_offsets(), point.acknowledged(), point.is_done),
                         ([40], [43], False))
        point.acknowledge(40)
        self.assertTrue(point.is_done)

    def test_a_malformed_check_point_is_refused(self) -> None:
        """An invalid check point is refused."""
        for old, new in ((b'"t":"T"', b'"t":1'), (b'"c":"g",', b""), (b"[0,3]", b'["0"]'),
                         (b'"q":1', b'"q":1.5'), (b'"so":40', b'"so":true'), (b"}", b""),
                         (b'"d":[0,3]', b'"d":[' + b",".join([b"0"] * 33) + b"]"),
                         (b'"d":[0,3],"it":5000,"n":2', b'"it":5000,"n":33')):
            self.assertIn(old, POINT)
            self.assertRaises(WireError, CheckPoint.decode, POINT.replace(old, new), "b")
        self.assertRaises(WireError, CheckPoint.decode, b"\xff", "b")


class AckTests(SynchronousTestCase):
    """The stored form of acknowledgements."""

    def test_one_and_several(self) -> None:
        """One and several acknowledgements are stored as 5.3.3 does it."""
        self.assertEqual(decode_ack(ACK, "other", False), Ack(KEY, [43]))
        self.assertEqual(decode_ack(BATCH, "other", True), Ack(KEY, [40, 43]))
        self.assertEqual(decode_ack(ACK.replace(b'"bn":"b",', b""), "mine", False).key.broker_name,
                         "mine")

    def test_a_malformed_acknowledgement_is_refused(self) -> None:
        """An invalid acknowledgement is refused."""
        for data, batch in ((ACK, True), (BATCH.replace(b"43]", b'"43"]'), True),
                            (ACK.replace(b'"ao":43,', b""), False), (b"[]", False)):
            self.assertRaises(WireError, decode_ack, data, "b", batch)
