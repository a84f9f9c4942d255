"""File systems of a test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["mount_tmpfs", "unmount", "unshare_command"]

_SECONDS = 10


def mount_tmpfs(folder: Path, options: str) -> str:
    """Mount a tmpfs on a folder; :returns: why that cannot be, empty when it is done."""
    return _run("mount", "-t", "tmpfs", "-o", options, "twistmq-test", str(folder))


def unmount(folder: Path) -> None:
    """Take a file system away, though a process may still have files of it open."""
    _run("umount", "--lazy", str(folder))


def unshare_command() -> list[str]:
    """What a command is put behind to be allowed to mount; empty where there is no such way."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    return [] if _run(*command, "true") else command


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"status {done.returncode}") if done.returncode else ""
