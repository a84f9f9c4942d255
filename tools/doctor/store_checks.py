"""Checks of the folder of the store: access, free space and contents.

Nothing in the folder is changed, except that an empty file is created and removed. ``twistmq store
check`` inspects the files themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twistmq.broker.config.folder_checks import lock_holder, nearest_folder, not_writable
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import durability_notice
from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.regular_file import file_kind, read_regular
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreError
from twistmq.tools.doctor.findings import Finding, broken, fine, warning

__all__ = ["Space", "space_of", "store_findings"]

_STORE: Final = "store"
_DISK: Final = "disk"
_CLOCK: Final = "clock"
_FLUSH: Final = "flush"
#: File systems that lose data at the end of the machine, and file systems whose locks and syncs
#: depend on another host.
_FORGETFUL: Final = ("tmpfs", "ramfs", "overlay")
_REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
#: The number of commit-log files for which there should be space.
_INODES_LEAST: Final = 10_000
#: The largest number of bytes to read of the checkpoint, which has one page.
_CHECKPOINT_SIZE_MAX: Final = 1 << 20
#: The largest difference between two clocks that is not reported, ms.
_SKEW_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Space:
    """A file system and its free space, as the system reports them."""

    total: int
    free: int
    #: The used part, computed in the same way as by a broker, 0.0 to 1.0.
    used_ratio: float
    #: The number of files that can be created; None: only the space limits it.
    inodes_free: int | None


def space_of(folder: Path) -> Space:
    """:raises OSError: when the system does not report it."""
    state = os.statvfs(folder)
    used = state.f_blocks - state.f_bfree
    usable = used + state.f_bavail
    return Space(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize,
                 used / usable if usable else 0.0, state.f_favail if state.f_files else None)


def store_findings(
    settings: Settings, now_ms: int, *, running: bool, space: Callable[[Path], Space] = space_of,
) -> Iterator[Finding]:
    """Look at all of it."""
    yield from _durability(settings)
    store = settings.store_settings()
    root = Path(store.store_path_root_dir)
    for folder in dict.fromkeys((root, Path(store.commit_log_path))):
        fault = _unusable(folder)
        if fault is not None:
            yield fault
            return
        yield from _disk(folder, nearest_folder(folder), store, space)
    if not root.exists():
        yield fine(_STORE, f"{root} will be made")
        return
    yield from _owners(root)
    yield from _lock(root, running)
    yield from _sizes(Path(store.commit_log_path), store.mapped_file_size_commit_log)
    yield from _times(root, now_ms)


def _durability(settings: Settings) -> Iterator[Finding]:
    """Report when a send is acknowledged, unless the user has chosen the setting."""
    notice = durability_notice(settings)
    if not notice or settings.is_given("flushDiskType"):
        yield fine(_FLUSH, f"flushDiskType={settings.text('flushDiskType')}")
        return
    text, _, mend = notice.partition("; ")
    yield warning(_FLUSH, text, mend)


def _unusable(folder: Path) -> Finding | None:
    """Return why a folder cannot be used for data."""
    why = not_writable(folder)
    if not why:
        return None
    existing_folder = nearest_folder(folder)
    what = str(folder) if existing_folder == folder else (
        f"{folder} (to be made in {existing_folder})")
    if not existing_folder.is_dir():
        return broken(_STORE, f"{what}: {why}",
                      "set storePathRootDir to a folder, or move that file away")
    return broken(_STORE, f"{what} cannot be written: {why}",
                  f"chown it to the user that runs the server (this one is {os.getuid()}), and "
                  "mount it for writing")


def _disk(
    folder: Path, existing_folder: Path, store: StoreSettings, space_of: Callable[[Path], Space]
) -> Iterator[Finding]:
    space = space_of(existing_folder)
    text = (f"{folder}: {space.free / 1024**3:.1f} GiB of {space.total / 1024**3:.1f} are free, "
            f"{space.used_ratio:.0%} used")
    room = "free space, or shorten fileReservedTime"
    if space.used_ratio >= store.warning_ratio:
        yield broken(_DISK, f"{text}: at {store.warning_ratio:.0%} (diskSpaceWarningLevelRatio) "
                            "messages are refused", room)
    elif space.free < store.mapped_file_size_commit_log:
        yield broken(_DISK, f"{text}, less than one file of the commit log takes "
                            "(mappedFileSizeCommitLog)", room)
    elif space.used_ratio >= store.clean_forcibly_ratio:
        yield warning(_DISK, f"{text}: from {store.clean_forcibly_ratio:.0%} "
                             "(diskSpaceCleanForciblyRatio) on, messages are removed regardless of "
                             "their age", room)
    else:
        yield fine(_DISK, text)
    if space.inodes_free is not None and space.inodes_free < _INODES_LEAST:
        yield warning(_DISK, f"{folder}: only {space.inodes_free} more files can be made there; "
                             "each queue takes some", "use a file system with more inodes")
    kind, mount = _file_system(existing_folder)
    if kind in _FORGETFUL:
        yield warning(_DISK, f"{folder} is on {kind} ({mount}): messages are gone with the machine "
                             "or the container", "keep the store on a disk, or a volume")
    elif kind in _REMOTE:
        yield warning(_DISK, f"{folder} is on {kind} ({mount}): syncs and locks depend on another "
                             "host", "use a disk of this host")


def _file_system(folder: Path) -> tuple[str, str]:
    """Return the kind and the mount point of the file system of a folder."""
    longest_match = ("", "")
    resolved = folder.resolve()
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, kind, *_ = line.split()
            mount = mount.replace("\\040", " ")
            # If a mount point has several mounts, the last one is visible.
            if resolved.is_relative_to(mount) and len(mount) >= len(longest_match[1]):
                longest_match = (kind, mount)
    return longest_match


def _owners(root: Path) -> Iterator[Finding]:
    """Report files of another user, which a start cannot change."""
    uid = os.geteuid()
    if uid == 0:
        others = {path.stat().st_uid for path in (root, *root.iterdir())} - {0}
        if others:
            yield warning(_STORE, f"files in {root} belong to user {min(others)}, this is root",
                          f"run the doctor and the server as that user: what root makes in {root} "
                          "it cannot change")
        return
    strange = sorted(path for path in (root, *root.iterdir()) if path.stat().st_uid != uid)
    if strange:
        yield broken(_STORE, f"{strange[0]} belongs to user {strange[0].stat().st_uid}, this is "
                             f"{uid}", f"chown -R {uid} {root}, or run the server as its owner")


def _lock(root: Path, running: bool) -> Iterator[Finding]:
    """Report the process that uses the store, and whether the store was closed cleanly."""
    process = lock_holder(root / "lock")
    was_left = (root / "abort").exists()
    if process is not None:
        who = f"process {process}" if process else "another process"
        if running:
            yield fine(_STORE, f"{root} is used by {who}")
        else:
            yield broken(_STORE, f"{root} is locked by {who}, a broker of twistmq or of Apache",
                         "stop it, or give this one a store of its own (storePathRootDir, --data); "
                         "use --running if it is this server itself")
    elif running:
        yield broken(_STORE, f"no process uses {root}: the broker does not run on it",
                     "see the log, and which storePathRootDir the running one has")
    elif was_left:
        yield warning(_STORE, f"{root} was not closed by a clean stop: the next start reads the "
                              "log's end again", "nothing; twistmq store check shows more")
    else:
        yield fine(_STORE, f"{root} is free")


def _sizes(folder: Path, size: int) -> Iterator[Finding]:
    """Check that the files of the commit log have the length in the settings."""
    files = sorted(path for path in folder.glob("[0-9]" * 20)) if folder.is_dir() else []
    strange = [(path, kind) for path in files if (kind := file_kind(path.stat().st_mode))]
    if strange:
        path, kind = strange[0]
        yield broken(_STORE, f"{path} is {kind}, and not a file of the commit log: a broker does "
                             "not start on it", "move it away")
        return
    wrong = [path for path in files if path.stat().st_size != size]
    if wrong:
        actual_size = wrong[-1].stat().st_size
        yield broken(_STORE, f"{wrong[-1]} has {actual_size} bytes, mappedFileSizeCommitLog says "
                             f"{size}: a broker does not start on it",
                     f"set mappedFileSizeCommitLog={actual_size}, the size with which the store "
                     "was made" if actual_size
                     else f"remove the empty file {wrong[-1]}")


def _times(root: Path, now_ms: int) -> Iterator[Finding]:
    """Check whether the clock is earlier than the newest message, so that it was set back."""
    path = root / "checkpoint"
    try:
        data = read_regular(path, _CHECKPOINT_SIZE_MAX)
        newest = Checkpoint.decode(data, str(path)).physic_msg_timestamp
    except FileNotFoundError:
        return
    except (OSError, StoreError) as error:
        yield warning(_STORE, f"{path}: {error}", "twistmq store check shows more; without it the "
                                                 "next start reads more of the log")
        return
    if newest > now_ms + _SKEW_MS:
        behind = (newest - now_ms) // 1000
        yield broken(_CLOCK, f"the newest message was stored {behind} s from now: this clock, or "
                             "the previous one, is wrong",
                     "set it, and keep it correct with NTP: age, delays and time-outs depend on it")
