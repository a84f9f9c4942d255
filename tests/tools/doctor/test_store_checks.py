"""The checks of the disk and of the folder of the store."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.store_checks import Space, space_of, store_findings

GIB = 1024**3


class StoreTests(SynchronousTestCase):
    """The folder of a store that was not used yet."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-doctor-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def look(self, space: Space | None = None, **changes: str) -> list[Finding]:
        settings = boot.broker_settings(None, {"storePathRootDir": str(self.root), **changes})
        return list(store_findings(settings, int(time.time() * 1000), running=False,
                                   space=(lambda _: space) if space else space_of))

    def disk(self, free: int, used_ratio: float, inodes: int | None = None) -> set[Level]:
        return {each.level for each in self.look(Space(100 * GIB, free, used_ratio, inodes))
                if each.check == "disk" and "tmpfs" not in each.text
                and "overlay" not in each.text}

    def test_a_broker_refuses_messages_from_90_on(self) -> None:
        """From 85 % on it deletes old files, too."""
        self.assertEqual(self.disk(50 * GIB, 0.5), {Level.OK})
        self.assertEqual(self.disk(14 * GIB, 0.86), {Level.WARN})
        self.assertEqual(self.disk(10 * GIB, 0.90), {Level.BROKEN})
        self.assertEqual(self.disk(GIB - 1, 0.5), {Level.BROKEN})
        self.assertEqual(self.disk(50 * GIB, 0.5, 100), {Level.OK, Level.WARN})

    def test_limits_are_the_settings(self) -> None:
        """The ratios are the broker's, with their bounds."""
        space = Space(100 * GIB, 50 * GIB, 0.5, None)
        [*found] = [each for each in self.look(space, diskSpaceWarningLevelRatio="40")
                    if each.level is Level.BROKEN]
        self.assertEqual({each.check for each in found}, {"disk"})
        self.assertIn("at 40% (diskSpaceWarningLevelRatio)", found[0].text)

    def test_both_disks_of_a_store_are_checked(self) -> None:
        """The commit log may be on another disk, so both are checked."""
        with tempfile.TemporaryDirectory(prefix="twistmq-log-") as other:
            texts = [each.text for each in self.look(storePathCommitLog=other)
                     if each.check == "disk"]
        self.assertTrue(any(text.startswith(f"{self.root}:") for text in texts))
        self.assertTrue(any(text.startswith(f"{other}:") for text in texts))

    def test_files_of_others(self) -> None:
        """Root gets a finding about files of other users, which only root can create here."""
        if os.geteuid():
            self.assertEqual([each for each in self.look() if "belong" in each.text], [])
            return
        os.chown(self.root, 12_345, 12_345)
        [finding] = [each for each in self.look() if "belong" in each.text]
        self.assertIn("user 12345", finding.text)

    def test_a_checkpoint_that_is_none(self) -> None:
        """It is named; the check of the store has the details."""
        (self.root / "checkpoint").mkdir()
        [finding] = [each for each in self.look() if "checkpoint" in each.text]
        self.assertEqual(finding.level, Level.WARN)

    def test_space_here(self) -> None:
        """This disk has values."""
        space = space_of(self.root)
        self.assertGreater(space.total, space.free)
        self.assertTrue(0 <= space.used_ratio <= 1)
