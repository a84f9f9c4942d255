"""The cores that a process may use: those of its affinity, and no more than its CPU quota.

A container's quota is in its control group, and so is ``CPUQuota`` of a unit of systemd.

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
    """The number of whole cores, at least 1.

    :param groups: where the control groups are mounted, version 2.
    :param own_group: the file that says which one is this process's.
    """
    found = float(len(os.sched_getaffinity(0)))
    for folder in {groups, groups / _name(own_group).lstrip("/")}:
        found = min(found, _quota(folder / "cpu.max"))
    return max(int(found), 1)


def _name(file: Path) -> str:
    """The path of a control group, as "/system.slice/x.service"; "/" when it is not known."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return "/"
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")


def _quota(file: Path) -> float:
    """The cores of a quota; infinite without one.

    :param file: with the microseconds of a quota and of its period, as "150000 100000".
    """
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return float("inf")
