"""The file systems of a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["mount_tmpfs", "unmount", "unshare_command"]

_SECONDS = 10


def mount_tmpfs(folder: Path, options: str) -> str:
    """Mount a tmpfs on a folder; :returns: why that cannot be, empty when it is done."""
    return _run("mount", "-t", "tmpfs", "-o", options, "twistmq-test", str(folder))


def unmount(folder: Path) -> None:
    """Unmount a file system, even if a process still has files of it open."""
    _run("umount", "--lazy", str(folder))


def unshare_command() -> list[str]:
    """Return the command under which another one may mount; empty if there is none."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    return [] if _run(*command, "true") else command


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"status {done.returncode}") if done.returncode else ""
