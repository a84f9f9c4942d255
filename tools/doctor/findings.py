"""The result of a check: its level, its subject, and how to fix a fault."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from twistmq.protocol.printable import escaped, json_printable

__all__ = ["Finding", "Level", "as_json", "as_table", "broken", "fine", "summary", "warning"]

#: The width of the column with findings; the table is about twenty columns wider.
_WIDTH: Final = 80


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    #: The set-up works, but perhaps not as intended.
    WARN = "warn"
    #: The server does not start, or is not usable.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result.

    :param check: the subject of the check, in a word or two.
    :param text: the state that was found.
    :param mend: how to fix the fault; empty if there is nothing to do.
    """

    check: str
    level: Level
    text: str
    mend: str = ""


def fine(check: str, text: str) -> Finding:
    """Return a finding without a fault."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, mend: str) -> Finding:
    """Return a finding that the user should know."""
    return Finding(check, Level.WARN, text, mend)


def broken(check: str, text: str, mend: str) -> Finding:
    """Return a finding that has to be fixed."""
    return Finding(check, Level.BROKEN, text, mend)


def as_table(findings: Sequence[Finding]) -> str:
    """Return a table of levels, checks and states; the suggested fix is below the state."""
    from tabulate import tabulate  # only a printed table needs it

    return tabulate([(finding.level, finding.check, _cell(finding)) for finding in findings],
                    ("", "checked", "found, and how to fix it"), tablefmt="simple",
                    disable_numparse=True)


def _cell(finding: Finding) -> str:
    """Wrap a finding; a path or an address is not split."""
    wrapper = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = wrapper.wrap(escaped(finding.text))
    wrapper.initial_indent, wrapper.subsequent_indent = "-> ", "   "
    return "\n".join(lines + wrapper.wrap(escaped(finding.mend)))


def summary(findings: Iterable[Finding]) -> str:
    """Return a line with the number of findings of each level."""
    levels = [finding.level for finding in findings]
    counts = {level: levels.count(level) for level in Level}
    return (f"{counts[Level.BROKEN]} broken, {counts[Level.WARN]} to know, "
            f"{counts[Level.OK]} in order")


def as_json(findings: Sequence[Finding]) -> str:
    """Return the report as JSON: an object with the worst level and the findings."""
    levels = {finding.level for finding in findings}
    worst = next((level for level in reversed(Level) if level in levels), Level.OK)
    text = msgspec.json.format(msgspec.json.encode(
        {"status": worst, "findings": findings})).decode()
    return "\n".join(map(json_printable, text.split("\n")))
