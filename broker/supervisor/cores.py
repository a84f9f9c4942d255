"""The number of cores that a process may use, from its affinity and its CPU quota.

The control group of a container holds its quota; ``CPUQuota`` of a systemd unit is stored in the
same way.

Source: design of twistmq; the kernel's cgroup-v2.rst for ``cpu.max``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["usable_cores"]

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


def usable_cores(groups: Path = _GROUPS, own_group: Path = _OWN_GROUP) -> int:
    """Return the number of whole cores, at least 1.

    :param groups: the mount point of the control groups, version 2.
    :param own_group: the file that names the control group of this process.
    """
    core_count = float(len(os.sched_getaffinity(0)))
    for folder in {groups, groups / _name(own_group).lstrip("/")}:
        core_count = min(core_count, _quota(folder / "cpu.max"))
    return max(int(core_count), 1)


def _name(file: Path) -> str:
    """Return the path of a control group, as "/system.slice/x.service"; "/" if it is unknown."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return "/"
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")


def _quota(file: Path) -> float:
    """Return the number of cores of a quota; infinite without a quota.

    :param file: a file with the microseconds of a quota and of its period, as "150000 100000".
    """
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is not a number
        return float("inf")
