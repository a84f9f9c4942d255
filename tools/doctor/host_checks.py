"""Checks of the installation and of the host: limits, memory and the clock."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twistmq.broker.compiled import COMPILED_MODULES, compiled_modules
from twistmq.broker.edge.clock import OPEN_FILES_MEND, open_files_fault
from twistmq.broker.supervisor.cores import usable_cores
from twistmq.tools.doctor.findings import Finding, broken, fine, warning

__all__ = ["Host", "cores_finding", "host_findings"]

#: The number of open files below which a broker with a few topics runs short: its own files, the
#: files of queues, and connections take one each.
_FILES_WARN: Final = 16_384
#: The memory below which idle servers, which take 60 to 90 MB, have little space, and no space,
#: bytes.
_MEMORY_WARN, _MEMORY_BROKEN = 256 * 1024**2, 96 * 1024**2
#: The number of memory maps that a process should be allowed; each queue that is read may take
#: several.
_MAPS_LEAST: Final = 65_530
#: A clock that was ever set does not show an earlier time: 2024-01-01, Unix seconds.
_TIME_LEAST: Final = 1_704_067_200


@dataclass(frozen=True, slots=True)
class Host:
    """The facts about the system, which a test can replace."""

    #: The soft and the hard limit of open files.
    open_files: tuple[int, int]
    #: The memory limit of the process, bytes; None: only the memory of the machine limits it.
    memory_limit: int | None
    #: The memory of the machine, bytes.
    memory: int
    maps_max: int | None
    now_ms: int
    is_container: bool
    python: tuple[int, int, int]
    compiled: int

    @classmethod
    def current(cls) -> Host:
        """Return the facts about this host."""
        return cls(
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
            memory_limit=_number(Path("/sys/fs/cgroup/memory.max")),
            memory=_total_memory(), maps_max=_number(Path("/proc/sys/vm/max_map_count")),
            now_ms=time.time_ns() // 1_000_000,
            is_container=any(Path(name).exists()
                             for name in ("/.dockerenv", "/run/.containerenv")),
            python=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
            compiled=len(compiled_modules()))


def cores_finding(count: int, cores: int | None = None) -> Finding:
    """Compare the number of brokers with the number of cores.

    :param cores: the number of cores; None: the cores that this process may use.
    """
    core_count = usable_cores() if cores is None else cores
    if count <= core_count:
        return fine("cores", f"{core_count} for {count} brokers")
    return warning("cores", f"{core_count} for {count} brokers, each of which can use one",
                   "start fewer: more brokers than cores only share them")


def host_findings(host: Host) -> Iterator[Finding]:
    """Look at all of it."""
    yield _build(host)
    yield _open_files(host)
    yield _memory(host)
    if host.maps_max is not None and host.maps_max < _MAPS_LEAST:
        yield warning("file maps", f"vm.max_map_count is {host.maps_max}, under {_MAPS_LEAST}",
                      f"sysctl -w vm.max_map_count={_MAPS_LEAST}, or more for thousands of queues")
    yield _clock(host)


def _build(host: Host) -> Finding:
    python = ".".join(map(str, host.python))
    if host.compiled == len(COMPILED_MODULES):
        return fine("program", f"Python {python}, compiled")
    if host.compiled:
        return broken("program", f"Python {python}, {host.compiled} of {len(COMPILED_MODULES)} "
                                 "modules are compiled: the installation is damaged",
                      "install again: pip install --force-reinstall twistmq")
    return warning("program", f"Python {python}, not compiled: sends and starts take longer",
                   "install where there is a C compiler, without TWISTMQ_PURE")


def _open_files(host: Host) -> Finding:
    _, hard = host.open_files
    text = f"up to {hard} files may be open: connections and queue files take one each"
    fault = open_files_fault(hard)
    if fault is not None:
        return broken("open files", fault, OPEN_FILES_MEND)
    if hard != resource.RLIM_INFINITY and hard < _FILES_WARN:
        return warning("open files", text, OPEN_FILES_MEND)
    return fine("open files", text)


def _memory(host: Host) -> Finding:
    memory_bytes = min(host.memory, host.memory_limit or host.memory)
    text = f"{memory_bytes // 1024**2} MiB" + (
        " by the limit of its control group" if memory_bytes < host.memory else "")
    mend = "idle servers take 60 to 90 MB; connections that send much, and many topics, take more"
    if memory_bytes < _MEMORY_BROKEN:
        return broken("memory", text, mend)
    return warning("memory", text, mend) if memory_bytes < _MEMORY_WARN else fine("memory", text)


def _clock(host: Host) -> Finding:
    if host.now_ms < _TIME_LEAST * 1000:
        year = time.gmtime(host.now_ms / 1000).tm_year
        return broken("clock", f"it shows the year {year}: messages would be stored under that "
                               "time, and removed by age", "set it, and let NTP keep it")
    return fine("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(host.now_ms / 1000)))


def _number(path: Path) -> int | None:
    """Return the number in a file of the operating system's kernel, or None."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _total_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not report MemTotal")
