"""The table of accounts: its files are combined, watched, and changed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.accounts import PlainAccessConfig
from twistmq.acl.errors import AclError
from twistmq.acl.folder import AclFolder
from twistmq.acl.table import AccountTable
from twistmq.protocol.bodies import DataVersion

PLAIN, FIRST, SECOND = "conf/plain_acl.yml", "conf/acl/first.yml", "conf/acl/second.yml"


def account(key: str, secret: str = "secret-of-all") -> str:
    return f"accounts:\n- accessKey: {key}\n  secretKey: {secret}\n"


class TableTestCase(SynchronousTestCase):
    """A test with a home, a table of its accounts, and captured log lines."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.now_ms = 1_700_000_000_000
        self.table = AccountTable(AclFolder(str(self.home), PLAIN), lambda: self.now_ms)
        self.events: list[Any] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def put(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def keys(self) -> list[str | None]:
        return [config.access_key for config in self.table.configs()]

    def logged(self, level: LogLevel) -> list[str]:
        return [event["log_format"] for event in self.events if event["log_level"] is level]


class FilesTests(TableTestCase):
    """The accounts of several files together."""

    def test_without_files_there_is_no_account_and_no_white_address(self) -> None:
        """The table has neither an account nor a white address."""
        self.table.load()
        self.assertEqual((self.keys(), self.table.versions()), ([], {}))
        self.assertFalse(self.table.is_white("127.0.0.1"))
        self.assertIsNone(self.table.accounts.get("nobody-here"))

    def test_accounts_and_white_addresses_of_all_files_count(self) -> None:
        """The accounts and white addresses of all files count, the default file's last."""
        self.put(PLAIN, account("plain-key") + "globalWhiteRemoteAddresses: [10.0.0.1]\n")
        self.put(FIRST, account("first-key") + "globalWhiteRemoteAddresses: [10.0.0.2]\n")
        self.table.load()
        self.assertEqual(self.keys(), ["first-key", "plain-key"])
        self.assertEqual(self.table.white_addresses(), ["10.0.0.2", "10.0.0.1"])
        self.assertTrue(self.table.is_white("10.0.0.1") and self.table.is_white("10.0.0.2"))
        self.assertFalse(self.table.is_white("10.0.0.3"))

    def test_key_in_two_files(self) -> None:
        """The key belongs to the first file; the second account is logged and left out."""
        self.put(FIRST, account("same-key", "first-secret"))
        self.put(SECOND, account("same-key", "second-secret"))
        self.table.load()
        found = self.table.accounts.get("same-key")
        assert found is not None
        self.assertEqual(found.secret_key, "first-secret")
        self.assertEqual(self.keys(), ["same-key"])
        self.assertEqual(len(self.logged(LogLevel.warn)), 1)

    def test_versions_are_kept_by_path(self) -> None:
        """A file without a version has the time of its reading; an empty file has none."""
        plain = self.put(PLAIN, "dataVersion: [{counter: 7, timestamp: 5}]\n")
        first = self.put(FIRST, account("first-key"))
        self.put(SECOND, "")
        self.table.load()
        self.assertEqual(self.table.versions(),
                         {str(first): DataVersion(timestamp=self.now_ms),
                          str(plain): DataVersion(timestamp=5, counter=7)})
        self.assertEqual(self.table.default_version(), DataVersion(timestamp=5, counter=7))

    def test_faulty_start(self) -> None:
        """A faulty file stops the start, and the error names it."""
        path = self.put(FIRST, "accounts: 5\n")
        error = self.assertRaises(AclError, self.table.load)
        self.assertTrue(str(error).startswith(f"{path}: "), msg=str(error))

    def test_unreadable_start(self) -> None:
        """A file that cannot be read stops the start as well."""
        path = self.put(FIRST, account("first-key"))
        for method, named in (("read", str(path)), ("paths", str(self.home))):
            with mock.patch.object(AclFolder, method, side_effect=OSError(13, "Permission denied")):
                error = self.assertRaises(AclError, self.table.load)
            self.assertEqual(str(error), f"{named}: Permission denied")


    def test_many_addresses(self) -> None:
        """The number of remembered addresses is bounded, and the answers stay right."""
        self.put(PLAIN, "globalWhiteRemoteAddresses: [10.0.1-9.*]\n")
        self.table.load()
        for _ in range(2):
            for number in range(5000):
                address = f"10.0.{number >> 8}.{number & 255}"
                self.assertEqual(self.table.is_white(address), 1 <= number >> 8 <= 9, msg=address)
        self.assertLessEqual(len(self.table._is_white), 4096)


class WatchTests(TableTestCase):
    """Files that change while the broker runs."""

    def setUp(self) -> None:
        super().setUp()
        self.plain = self.put(PLAIN, account("plain-key") + "globalWhiteRemoteAddresses: ['*']\n")
        self.table.load()

    def test_nothing_changed(self) -> None:
        """Nothing is read again, even if only the time of the file has changed."""
        os.utime(self.plain, (1, 1))
        self.assertFalse(self.table.reload())

    def test_a_changed_file_replaces_the_accounts_at_once(self) -> None:
        """Only the new content counts, even if the file's time and length are unchanged."""
        times = os.stat(self.plain)
        self.plain.write_text(self.plain.read_text().replace("plain-key", "other-key"))
        os.utime(self.plain, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertTrue(self.table.reload())
        self.assertEqual(self.keys(), ["other-key"])
        self.plain.write_text(account("third-key"))
        self.assertTrue(self.table.reload())
        self.assertFalse(self.table.is_white("127.0.0.1"))

    def test_files_come_and_go(self) -> None:
        """A new file counts, and a removed file does not."""
        first = self.put(FIRST, account("first-key"))
        self.assertTrue(self.table.reload())
        self.assertEqual(self.keys(), ["first-key", "plain-key"])
        first.unlink()
        self.plain.unlink()
        self.assertTrue(self.table.reload())
        self.assertEqual(self.keys(), [])

    def test_a_broken_file_keeps_the_old_accounts_and_logs_one_line(self) -> None:
        """The old content stays in effect, and one line is logged, however often the file is
        checked.
        """
        good = self.plain.read_text()
        for text in ("accounts: [", "", account("abc"), good + "- x"):
            self.events.clear()
            self.plain.write_text(text)
            for _ in range(3):
                self.assertFalse(self.table.reload(), msg=text)
            self.assertEqual(self.keys(), ["plain-key"])
            self.assertTrue(self.table.is_white("127.0.0.1"))
            self.assertEqual(len(self.logged(LogLevel.error)), 1, msg=text)
        self.events.clear()
        self.plain.write_text(good)
        self.assertFalse(self.table.reload())
        self.plain.write_text("accounts: [")
        self.table.reload()
        self.assertEqual(len(self.logged(LogLevel.error)), 1, msg="broken again is said again")
        self.plain.write_text(account("mended-key"))
        self.assertTrue(self.table.reload())
        self.assertEqual(self.keys(), ["mended-key"])

    def test_new_broken_file(self) -> None:
        """The broken file has no effect, and the other files stay in use."""
        self.put(FIRST, "accounts: [")
        self.assertFalse(self.table.reload())
        self.assertEqual(self.keys(), ["plain-key"])

    def test_a_disk_that_fails_takes_no_accounts_away(self) -> None:
        """All accounts stay in use while the disk fails."""
        with mock.patch.object(AclFolder, "read", side_effect=OSError(5, "Input/output error")):
            for _ in range(3):
                self.assertFalse(self.table.reload())
        with mock.patch.object(AclFolder, "paths", side_effect=OSError(5, "Input/output error")):
            self.assertFalse(self.table.reload())
        self.assertEqual(self.keys(), ["plain-key"])
        self.assertEqual(len(self.logged(LogLevel.error)), 2)


class ChangeTests(TableTestCase):
    """Changes by request."""

    def setUp(self) -> None:
        super().setUp()
        self.first = self.put(FIRST, account("first-key"))
        self.table.load()

    def test_new_account(self) -> None:
        """The account goes to the default file, which is created if necessary, and takes effect at
        once.
        """
        self.table.update_account(PlainAccessConfig("new-key", "new-secret"))
        self.assertEqual(self.keys(), ["first-key", "new-key"])
        self.assertIn("new-key", (self.home / PLAIN).read_text())
        self.assertFalse(self.table.reload(), msg="the table knows what it wrote")
        again = AccountTable(AclFolder(str(self.home), PLAIN), lambda: self.now_ms)
        again.load()
        self.assertEqual(again.configs(), self.table.configs())

    def test_changed_account(self) -> None:
        """The account stays in its file."""
        self.table.update_account(PlainAccessConfig("first-key", "new-secret", admin=True))
        found = self.table.accounts.get("first-key")
        assert found is not None
        self.assertEqual((found.secret_key, found.is_admin), ("new-secret", True))
        self.assertFalse((self.home / PLAIN).exists())
        self.assertEqual(self.table.versions()[str(self.first)].counter, 1)

    def test_change_beside_an_edit(self) -> None:
        """An edit since the last check of the files is not lost."""
        self.first.write_text(account("edited-key"))
        self.table.update_account(PlainAccessConfig("first-key", "new-secret"))
        self.assertEqual(self.keys(), ["edited-key", "first-key"])

    def test_deleted_account(self) -> None:
        """The account is removed from the file and from the table; an unknown one cannot be
        deleted.
        """
        self.assertTrue(self.table.delete_account("first-key"))
        self.assertIsNone(self.table.accounts.get("first-key"))
        self.assertNotIn("first-key", self.first.read_text())
        self.assertFalse(self.table.delete_account("first-key"))

    def test_white_addresses(self) -> None:
        """The addresses of the default file, or of the named file, are replaced."""
        self.assertTrue(self.table.update_white_addresses(["10.0.0.1"], None))
        self.assertTrue(self.table.update_white_addresses(["10.0.0.2"], str(self.first)))
        self.assertEqual(self.table.white_addresses(), ["10.0.0.2", "10.0.0.1"])
        self.assertEqual(self.keys(), ["first-key"])

    def test_other_files(self) -> None:
        """A path that is not an account file is not written to."""
        other = self.put("conf/other.yml", "a: b\n")
        for path in (str(other), str(self.home / "conf/acl/none.yml"), "/etc/passwd",
                     str(self.home / "conf/acl/../other.yml")):
            self.assertFalse(self.table.update_white_addresses(["*"], path), msg=path)
        self.assertEqual(other.read_text(), "a: b\n")
        self.assertFalse(self.table.is_white("10.0.0.1"))

    def test_refused_changes(self) -> None:
        """A result that could not be read again is not written."""
        before = self.first.read_bytes()
        for config in (PlainAccessConfig("first-key", "short"),
                       PlainAccessConfig("first-key", "new-secret", "1.2.3"),
                       PlainAccessConfig("first-key", "new-secret", topic_perms=["a=x"])):
            self.assertRaises(AclError, self.table.update_account, config)
        self.assertRaises(AclError, self.table.update_white_addresses, ["1.2.3"], str(self.first))
        self.assertEqual(self.first.read_bytes(), before)

    def test_broken_file(self) -> None:
        """A file that is broken now is not replaced, and its accounts stay in use."""
        self.first.write_text("accounts: [")
        self.assertRaises(AclError, self.table.update_account,
                          PlainAccessConfig("first-key", "new-secret"))
        self.assertEqual(self.first.read_text(), "accounts: [")
        self.assertEqual(self.keys(), ["first-key"])

    def test_failed_write(self) -> None:
        """The table still has the content of the files."""
        with mock.patch.object(AclFolder, "write", side_effect=OSError(28, "No space left")):
            error = self.assertRaises(AclError, self.table.delete_account, "first-key")
        self.assertIn("No space left", str(error))
        self.assertEqual(self.keys(), ["first-key"])
