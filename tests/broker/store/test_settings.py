"""The settings of the store."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.store.settings import StoreSettingFault, StoreSettings


class StoreSettingsTests(SynchronousTestCase):
    """The class StoreSettings."""

    def test_apaches_defaults(self) -> None:
        """Sizes of files are Apache's, so that each opens the other's store."""
        settings = StoreSettings("/store/")
        self.assertEqual(settings.mapped_file_size_commit_log, 1 << 30)
        self.assertEqual(settings.mapped_file_size_consume_queue, 6_000_000)
        self.assertEqual(settings.max_hash_slot_num, 5_000_000)
        self.assertEqual(settings.max_index_num, 20_000_000)
        self.assertFalse(settings.sync_flush)
        self.assertEqual(settings.sync_flush_timeout_ms, 5_000)

    def test_everything_is_under_the_root(self) -> None:
        """Everything is below the root; the commit log may be elsewhere."""
        self.assertEqual(StoreSettings("/s/").path("config", "x.json"), "/s/config/x.json")
        self.assertEqual(StoreSettings("/s").commit_log_path, "/s/commitlog")
        self.assertEqual(StoreSettings("/s", "/fast/log").commit_log_path, "/fast/log")

    def test_hours_are_a_list_of_hours_of_a_day(self) -> None:
        """The list has one or more hours of a day."""
        for text, hours in {"04": {4}, "4": {4}, "00;4 ; 23": {0, 4, 23}, "04;": {4}}.items():
            self.assertEqual(StoreSettings("/s", delete_when=text).delete_hours, hours)
        for text in ("", ";", "24", "-1", "4,5", "04:00"):
            self.assertRaises(SettingsError, StoreSettings, "/s", delete_when=text)

    def test_an_invalid_store_setting_is_named_with_the_reason(self) -> None:
        """The error has the setting and the reason."""
        for field, value, why in [
            ("delete_when", "99", "must be hours of the day, 0 to 23, separated by semicolons"),
            ("flush_disk_type", "SYNC", "must be ASYNC_FLUSH or SYNC_FLUSH"),
            ("max_index_num", 0, "must be positive"),
            ("mapped_file_size_consume_queue", 21, "must be a multiple of 20"),
            ("store_path_root_dir", "here", "is not an absolute path"),
        ]:
            values: dict[str, Any] = {"store_path_root_dir": "/s", field: value}
            fault = self.assertRaises(StoreSettingFault, lambda v=values: StoreSettings(**v))
            self.assertEqual((fault.field, fault.why), (field, why))

    def test_ratios_have_bounds(self) -> None:
        """Apache's broker applies the same bounds silently."""
        for percent, ratios in {1: (0.1, 0.3, 0.35), 60: (0.6, 0.6, 0.6), 99: (0.95, 0.85, 0.9)
                                }.items():
            settings = StoreSettings(
                "/s", disk_max_used_space_ratio=percent, disk_space_clean_forcibly_ratio=percent,
                disk_space_warning_level_ratio=percent)
            self.assertEqual((settings.max_used_ratio, settings.clean_forcibly_ratio,
                              settings.warning_ratio), ratios)

    def test_comma_in_the_root(self) -> None:
        """The folder of the log below the root is a single one, given or not."""
        for path in ("", "/s,t/commitlog"):
            settings = StoreSettings("/s,t", path)
            self.assertEqual(settings.commit_log_path, "/s,t/commitlog")
        self.assertRaises(StoreSettingFault, StoreSettings, "/s,t", "/s,t/commitlog,/x")

    def test_nothing_may_wait(self) -> None:
        """Pauses and the age of files may be zero."""
        settings = StoreSettings("/s", file_reserved_time=0, delete_commit_log_files_interval=0)
        self.assertEqual(settings.file_reserved_time, 0)

    def test_refuses_what_has_no_meaning(self) -> None:
        """The error names the setting."""
        for name, value in {
            "store_path_root_dir": "relative",
            "flush_disk_type": "SOMETIMES",
            "mapped_file_size_consume_queue": 30,
            "max_message_size": 0,
            "file_reserved_time": -1,
            "delete_when": "4;x",
            "store_path_commit_log": "/a,/b",
        }.items():
            values = {"store_path_root_dir": "/s", name: value}
            error = self.assertRaises(SettingsError, StoreSettings, **values)
            self.assertIn(name, str(error))
