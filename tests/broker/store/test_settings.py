"""The store's settings."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.store.settings import StoreSettings


class StoreSettingsTests(SynchronousTestCase):
    """StoreSettings."""

    def test_apaches_defaults(self) -> None:
        """Sizes of files are Apache's, so that each opens the other's store."""
        settings = StoreSettings("/store/")
        self.assertEqual(settings.mapped_file_size_commit_log, 1 << 30)
        self.assertEqual(settings.mapped_file_size_consume_queue, 6_000_000)
        self.assertEqual(settings.max_hash_slot_num, 5_000_000)
        self.assertEqual(settings.max_index_num, 20_000_000)
        self.assertFalse(settings.sync_flush)
        self.assertEqual(settings.sync_flush_timeout_ms, 5_000)

    def test_paths(self) -> None:
        """Everything is under the root; the commit log may be elsewhere."""
        self.assertEqual(StoreSettings("/s/").path("config", "x.json"), "/s/config/x.json")
        self.assertEqual(StoreSettings("/s").commit_log_path, "/s/commitlog")
        self.assertEqual(StoreSettings("/s", "/fast/log").commit_log_path, "/fast/log")

    def test_refuses_what_has_no_meaning(self) -> None:
        """The error names the setting."""
        for name, value in {
            "store_path_root_dir": "relative",
            "flush_disk_type": "SOMETIMES",
            "mapped_file_size_consume_queue": 30,
            "max_message_size": 0,
        }.items():
            values = {"store_path_root_dir": "/s", name: value}
            error = self.assertRaises(SettingsError, StoreSettings, **values)
            self.assertIn(name, str(error))
