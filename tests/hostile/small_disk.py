"""A test on a small disk, which can be full.

The disk is a small tmpfs. A user who may not mount one does so in a user namespace, where the
system allows that: the test runs itself there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.hostile.mounts import mount_tmpfs, unmount, unshare_command

__all__ = ["DISK_SIZE", "SmallDiskCase", "fill", "free"]

_APART: Final = "TWISTMQ_TEST_RUNS_APART"
_APART_SECONDS: Final = 200
#: Bytes of the disk.
DISK_SIZE: Final = 24 * 1024 * 1024


class SmallDiskCase(SynchronousTestCase):
    """A test that calls ``on_small_disk``."""

    def on_small_disk(self, check: Callable[[Path], None]) -> None:
        """Run a test on a file system of its own, here or in a namespace."""
        folder = Path(tempfile.mkdtemp(prefix="twistmq-full-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        disk = folder / "disk"
        disk.mkdir()
        fault = mount_tmpfs(disk, f"size={DISK_SIZE}")
        if not fault:
            self.addCleanup(unmount, disk)
            check(disk)
            return
        apart = unshare_command()
        if not apart or _APART in os.environ:
            raise SkipTest(f"a file system cannot be mounted: {fault}")
        done = subprocess.run(
            [*apart, sys.executable, "-m", "twisted.trial", "--temp-directory",
             str(folder / "trial"), self.id()],
            cwd=Path(__file__).resolve().parents[2], env={**os.environ, _APART: "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_APART_SECONDS)
        self.assertEqual(done.returncode, 0, msg=done.stdout)
        self.assertNotIn("skips=", done.stdout)


def fill(disk: Path, filler: Path, room: int) -> None:
    """Let a file grow until there is so much room on the disk, bytes; 0: to the last byte."""
    with filler.open("ab", buffering=0) as file:
        state = os.statvfs(disk)
        file.write(bytes(max(state.f_bavail * state.f_frsize - room, 0)))
        if room:
            return
        try:
            while file.write(bytes(4096)):
                continue
        except OSError:
            return


def free(filler: Path, room: int) -> None:
    """Free a number of bytes."""
    os.truncate(filler, max(filler.stat().st_size - room, 0))
