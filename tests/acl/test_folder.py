"""The places of account files, and the replacement of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.acl.folder import AclFolder


class FolderTests(SynchronousTestCase):
    """A home folder with account files."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.folder = AclFolder(str(self.home), "conf/plain_acl.yml")

    def put(self, *names: str) -> None:
        for name in names:
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def names(self) -> list[str]:
        return [os.path.relpath(path, self.home) for path in self.folder.paths()]

    def test_a_home_without_a_conf_has_no_files(self) -> None:
        """The list of files is empty, and the content of a missing file is empty."""
        self.assertEqual(self.names(), [])
        self.assertEqual(self.folder.read(self.folder.default_file), b"")

    def test_files_below_conf_acl_come_before_the_default_file(self) -> None:
        """All files below conf/acl come first, except for the file of the tools, and the default
        file comes last.
        """
        self.put("conf/plain_acl.yml", "conf/acl/b.yaml", "conf/acl/a.yml", "conf/acl/deep/c.yml",
                 "conf/acl/tools.yml", "conf/acl/a.yml.bak", "conf/acl/readme.txt",
                 "conf/tools.yml", "conf/other.yml", "conf/acl/deep/tools.yml",
                 "conf/acl/.old/a.yml")
        self.assertEqual(self.names(), ["conf/acl/a.yml", "conf/acl/b.yaml", "conf/acl/deep/c.yml",
                                        "conf/acl/deep/tools.yml", "conf/plain_acl.yml"])

    def test_folder_that_cannot_be_listed(self) -> None:
        """The folder does not count as empty."""
        self.put("conf/acl/a.yml")
        with mock.patch("os.scandir", side_effect=PermissionError(13, "Permission denied")):
            self.assertRaises(PermissionError, self.folder.paths)

    def test_default_file_among_the_others(self) -> None:
        """The default file is listed once."""
        self.folder = AclFolder(str(self.home), "conf/acl/main.yml")
        self.put("conf/acl/main.yml", "conf/acl/other.yml")
        self.assertEqual(self.names(), ["conf/acl/other.yml", "conf/acl/main.yml"])

    def test_absolute_default_file(self) -> None:
        """The setting may name a file outside the home."""
        self.assertEqual(AclFolder("/home", "/etc/acl.yml").default_file, "/etc/acl.yml")

    def test_new_file_is_its_owners(self) -> None:
        """Other users cannot read the secret keys."""
        path = self.folder.default_file
        self.folder.write(path, b"a: b\n")
        self.assertEqual(self.folder.read(path), b"a: b\n")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["plain_acl.yml"])

    def test_mode_is_kept(self) -> None:
        """The permissions that an administrator has set stay the same."""
        self.put("conf/plain_acl.yml")
        os.chmod(self.folder.default_file, 0o640)
        self.folder.write(self.folder.default_file, b"a: b\n")
        self.assertEqual(os.stat(self.folder.default_file).st_mode & 0o777, 0o640)

    def test_a_link_stays_one(self) -> None:
        """The link stays, and its target is replaced."""
        self.put("elsewhere/real.yml")
        (self.home / "conf").mkdir()
        os.symlink(self.home / "elsewhere/real.yml", self.folder.default_file)
        self.folder.write(self.folder.default_file, b"a: b\n")
        self.assertTrue(os.path.islink(self.folder.default_file))
        self.assertEqual((self.home / "elsewhere/real.yml").read_bytes(), b"a: b\n")

    def test_files_left_by_a_crash_and_links_do_no_harm(self) -> None:
        """A half-written file of a crash does no harm, and neither does a link in its place."""
        self.put("conf/plain_acl.yml", "victim")
        os.symlink(self.home / "victim", self.folder.default_file + ".tmp")
        self.folder.write(self.folder.default_file, b"a: b\n")
        self.assertEqual((self.home / "victim").read_bytes(), b"")
        self.assertEqual(self.folder.read(self.folder.default_file), b"a: b\n")

    def test_folder_that_cannot_be_written(self) -> None:
        """The old file stays."""
        self.put("conf/plain_acl.yml")
        conf = self.home / "conf"
        conf.chmod(0o500)
        self.addCleanup(conf.chmod, 0o700)
        if os.access(conf, os.W_OK):
            raise SkipTest("nothing is forbidden to this user")
        self.assertRaises(OSError, self.folder.write, self.folder.default_file, b"a: b\n")
        self.assertEqual(self.folder.read(self.folder.default_file), b"")
