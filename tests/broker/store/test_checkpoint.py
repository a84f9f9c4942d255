"""The bytes of the checkpoint file, and its use in recovery."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.protocol.errors import StoreDamaged


class CheckpointTests(SynchronousTestCase):
    """The class Checkpoint."""

    def test_the_page_has_five_big_endian_int64(self) -> None:
        """It has five big-endian int64 values in a page."""
        data = Checkpoint(1, 2, 3, 4, 5).encode()
        self.assertEqual(len(data), 4096)
        self.assertEqual(data[:40].hex(), "".join(f"{n:016x}" for n in (1, 2, 3, 4, 5)))
        self.assertEqual(data[40:], bytes(4056))
        self.assertEqual(Checkpoint.decode(data, "/cp"), Checkpoint(1, 2, 3, 4, 5))

    def test_short_files(self) -> None:
        """An older broker's three values, and an empty file, read as far as they go."""
        short = Checkpoint(1, 2, 3).encode()[:24]
        self.assertEqual(Checkpoint.decode(short, ""), Checkpoint(1, 2, 3))
        self.assertEqual(Checkpoint.decode(b"", ""), Checkpoint())

    def test_negative_is_damage(self) -> None:
        """A negative value is damage; the error names the file and the field."""
        data = b"\0" * 8 + b"\xff" * 8 + bytes(4080)
        error = self.assertRaises(StoreDamaged, Checkpoint.decode, data, "/store/checkpoint")
        self.assertIn("/store/checkpoint: logics_msg_timestamp is -1", str(error))

    def test_three_seconds_before_the_older_of_log_and_queues(self) -> None:
        """It is three seconds before the older of log and queues, with the index on request."""
        checkpoint = Checkpoint(10_000, 8_000, 4_000)
        self.assertEqual(checkpoint.min_timestamp(), 5_000)
        self.assertEqual(checkpoint.min_timestamp_index(), 4_000)
        self.assertEqual(Checkpoint(2_000, 8_000).min_timestamp(), 0)
