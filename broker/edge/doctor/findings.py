"""The result of a check: its state, its subject, and how to mend it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from twistmq.broker.printable import escaped, json_printable

__all__ = ["Finding", "Level", "as_json", "as_table", "broken", "fine", "summary", "warning"]

#: Columns of what is found; the table has some twenty more.
_WIDTH: Final = 80


class Level(StrEnum):
    """How it is."""

    OK = "ok"
    #: It works, but perhaps not as it is meant to.
    WARN = "warn"
    #: It does not start, or is of no use.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result.

    :param check: what was looked at, a word or two.
    :param text: how it is.
    :param mend: what to do about it; empty when there is nothing to do.
    """

    check: str
    level: Level
    text: str
    mend: str = ""


def fine(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, mend: str) -> Finding:
    """Something to know."""
    return Finding(check, Level.WARN, text, mend)


def broken(check: str, text: str, mend: str) -> Finding:
    """Something to mend."""
    return Finding(check, Level.BROKEN, text, mend)


def as_table(findings: Sequence[Finding]) -> str:
    """A table: level, check, how it is; what to mend stands below that."""
    from tabulate import tabulate  # only a printed table needs it

    return tabulate([(finding.level, finding.check, _cell(finding)) for finding in findings],
                    ("", "looked at", "found, and what to mend"), tablefmt="simple",
                    disable_numparse=True)


def _cell(finding: Finding) -> str:
    """Lines of a width; a path or an address stays in one piece."""
    wrapper = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = wrapper.wrap(escaped(finding.text))
    wrapper.initial_indent, wrapper.subsequent_indent = "-> ", "   "
    return "\n".join(lines + wrapper.wrap(escaped(finding.mend)))


def summary(findings: Iterable[Finding]) -> str:
    """One line: how many of what."""
    levels = [finding.level for finding in findings]
    counts = {level: levels.count(level) for level in Level}
    return (f"{counts[Level.BROKEN]} broken, {counts[Level.WARN]} to know, "
            f"{counts[Level.OK]} in order")


def as_json(findings: Sequence[Finding]) -> str:
    """The report as JSON: an object with the worst level and the findings."""
    levels = {finding.level for finding in findings}
    worst = next((level for level in reversed(Level) if level in levels), Level.OK)
    text = msgspec.json.format(msgspec.json.encode(
        {"status": worst, "findings": findings})).decode()
    return "\n".join(map(json_printable, text.split("\n")))
