"""The page of results: a section for each benchmark, each replaced by its newest run.

A section begins with its heading and ends where the next begins. It has the command, the date, the
machine and versions of its run, the settings of both sides, and the tables that the program
printed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

__all__ = ["Part", "build_of", "machine", "page_of", "section_of", "sections_of", "tables_of",
           "warm_ups_of"]

TITLE = "# Results\n"
INTRODUCTION = """
`tests/bench/all` writes this page: each section is the newest run of one benchmark. Ratios of one
run count; a rate is that of a machine whose cores the program that loads the servers shares with
them. CPU is that of the servers' processes, unless a table says that it is a client's. Both servers
run with the same settings, or the section says where they differ. Before a load counts, both sides
run it until they are warm; the section says after how many rounds that was. A section that says
nothing of it is of an earlier day: there Apache's side had a few rounds of warm-up, which was too
short above all for its pulls, so it would cost less and do more than the section says.
"""


@dataclass(frozen=True)
class Part:
    """One benchmark.

    :param name: by which the command line picks it.
    :param title: the heading of its section.
    :param command: the program below tests/bench and its options; ``{seconds}`` and ``{rounds}``
        are put in.
    :param differs: where the settings of both sides differ, and anything else a reader must know.
    :param apache: the release of Apache's that runs beside it.
    """

    name: str
    title: str
    command: Sequence[str]
    differs: str
    apache: str = "5.3.3"

    def arguments(self, seconds: float, rounds: int) -> list[str]:
        """The program and its options."""
        return [text.format(seconds=f"{seconds:g}", rounds=rounds) for text in self.command]


def tables_of(printed: str) -> list[str]:
    """The Markdown tables among the lines that a program printed."""
    tables: list[list[str]] = []
    inside = False
    for line in printed.splitlines():
        is_row = line.startswith("|")
        if is_row and not inside:
            tables.append([])
        if is_row:
            tables[-1].append(line.rstrip())
        inside = is_row
    return ["\n".join(rows) for rows in tables if len(rows) > 2]


def warm_ups_of(printed: str) -> str:
    """What a program printed of its warm-ups: after how many rounds each load was warm."""
    found = re.findall(
        r"(?m)^warm-up (.+): (?:warm|NOT WARM) after (\d+) rounds(.*)$", printed)
    return "; ".join(f"{what} {rounds} rounds" + (f", NOT WARM{cold}" if cold else "")
                     for what, rounds, cold in found)


def machine() -> str:
    """The processor, the number of cores, memory and kernel of this machine."""
    names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    gibibytes = int(memory[1]) / 2**20 if memory else 0
    return (f"{names[0].strip() if names else platform.machine()}, {os.cpu_count()} cores, "
            f"{gibibytes:.0f} GiB, Linux {platform.release()}")


def build_of(program: str) -> str:
    """The version of an installation, and whose its interpreter is.

    :param program: its ``twistmq``.
    """
    said = subprocess.run([program, "--version"], capture_output=True, text=True,
                          check=True).stdout.strip()
    python = Path(program).with_name("python")
    if not python.exists():
        return said
    prefix = subprocess.run([str(python), "-c", "import sys; print(sys.base_prefix)"],
                            capture_output=True, text=True, check=True).stdout.strip()
    return said + (" (Debian's interpreter)" if prefix == "/usr" else " (another interpreter)")


def section_of(part: Part, command: str, facts: Mapping[str, str], tables: Sequence[str]) -> str:
    """The text of one section, with its heading.

    :param facts: what ran where, by name, in order.
    """
    lines = [f"## {part.title}", "", f"`{command}`, {date.today():%d %B %Y}. {part.differs}", ""]
    lines += [f"- {name}: {text}" for name, text in facts.items()]
    for table in tables:
        lines += ["", table]
    return "\n".join(lines) + "\n"


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page, by heading."""
    parts = re.split(r"(?m)^(?=## )", page)
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip() + "\n"
            for part in parts if part.startswith("## ")}


def page_of(sections: Mapping[str, str], order: Sequence[str]) -> str:
    """Return the page: its sections in the given order, and then those with other headings.

    Some benchmarks are run separately, and their sections are not in the order.
    """
    known = [sections[title] for title in order if title in sections]
    by_hand = [section for title, section in sections.items() if title not in order]
    return TITLE + INTRODUCTION + "".join("\n" + section for section in known + by_hand)
