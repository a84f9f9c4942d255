"""The options of ``format("rocketmq_store")``: one row each, from which they are read and shown.

Names are looked up without regard to case, as Spark passes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.spark_bridge.columns import Column, select_columns
from twistmq.spark_bridge.options import OptionError, parse_time

__all__ = ["STORE_OPTIONS", "OptionRow", "StoreOptions", "options_table", "read_options"]


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option."""

    name: str
    #: As text; None: no default is needed, the option may be left out.
    default: str | None
    meaning: str
    aliases: tuple[str, ...] = ()


STORE_OPTIONS: Final = (
    OptionRow("path", None, "a store's directory, or one of commit-log files, on this machine or "
              "as a URI of another file system (`s3://bucket/store`); `.load(path)` says it too"),
    OptionRow("topics", None, "topics apart by commas; without it all but the broker's own "
              "(schedule, half messages, traces, ...)", ("topic", "subscribe")),
    OptionRow("startingTimestamp", None, "stored at this time or later: ms, or ISO 8601, which "
              "without a zone is UTC"),
    OptionRow("endingTimestamp", None, "stored before this time"),
    OptionRow("columns", None, "columns apart by commas, see COLUMNS.md"),
    OptionRow("includeProperties", "true", "false leaves the column out"),
    OptionRow("includeBody", "true", "false leaves the column out"),
    OptionRow("bodyFormat", "binary", "binary, or string for UTF-8 text"),
    OptionRow("brokerName", None, "what the column brokerName says"),
    OptionRow("checkCrc", "true", "whether bodies are compared with their CRC"),
    OptionRow("failOnDataLoss", "true", "false: what is damaged or gone is skipped, counted and "
              "logged"),
    OptionRow("minPartitions", "1", "at least so many tasks; a piece of a file is of 1 MiB to "
              "256 MiB"),
)
#: Options that Spark itself adds.
_SPARKS_OWN: Final = frozenset({"inferschema", "paths"})


def read_options(rows: tuple[OptionRow, ...], options: Mapping[str, str], format_name: str
                 ) -> dict[str, str | None]:
    """Find each option's text.

    :returns: text by the option's name, the default where it was not given.
    :raises OptionError: when one is not known, or is given by two names.
    """
    given = {name.lower(): text for name, text in options.items()}
    found: dict[str, str | None] = {}
    for row in rows:
        names = [name for name in (row.name, *row.aliases) if name.lower() in given]
        if len(names) > 1:
            raise OptionError(f"options {' and '.join(names)} mean the same: give one of them")
        found[row.name] = given.pop(names[0].lower()).strip() if names else row.default
    unknown = sorted(given.keys() - _SPARKS_OWN)
    if unknown:
        raise OptionError(f"option {unknown[0]}: format {format_name} has none of this name, only "
                          + ", ".join(row.name for row in rows))
    return found


def flag(found: Mapping[str, str | None], name: str) -> bool:
    """Read an option that is true or false."""
    text = (found[name] or "").lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}: {found[name]!r} is neither true nor false")
    return text == "true"


def time_ms(found: Mapping[str, str | None], name: str) -> int | None:
    """Read an option that is a time, as Unix ms."""
    text = found[name]
    return None if text is None else parse_time(name, text)


def count(found: Mapping[str, str | None], name: str) -> int:
    """Read an option that is a number of 1 or more."""
    text = found[name] or ""
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"option {name}: {found[name]!r} is not a number of 1 or more")
    return int(text)


def names(found: Mapping[str, str | None], name: str) -> frozenset[str] | None:
    """Read an option that is names apart by commas; None when it is not given."""
    text = found[name]
    if text is None:
        return None
    made = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not made:
        raise OptionError(f"option {name}: no name is given")
    return made


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options, read."""

    path: str
    topics: frozenset[str] | None
    stored_from_ms: int | None
    stored_before_ms: int | None
    columns: tuple[Column, ...]
    broker_name: str | None
    check_crc: bool
    fail_on_data_loss: bool
    piece_count_min: int

    @classmethod
    def read(cls, options: Mapping[str, str]) -> StoreOptions:
        """Read what a user gave.

        :raises OptionError: naming the option.
        :raises ColumnsError: for unknown columns.
        """
        found = read_options(STORE_OPTIONS, options, "rocketmq_store")
        path = found["path"]
        if not path:
            raise OptionError("option path: say which store, by .load(path)")
        begin, end = time_ms(found, "startingTimestamp"), time_ms(found, "endingTimestamp")
        if begin is not None and end is not None and begin > end:
            raise OptionError("option startingTimestamp: it is after endingTimestamp")
        return cls(
            path, names(found, "topics"), begin, end,
            tuple(select_columns(
                found["columns"], has_properties=flag(found, "includeProperties"),
                has_body=flag(found, "includeBody"), body_format=found["bodyFormat"] or "")),
            found["brokerName"], flag(found, "checkCrc"), flag(found, "failOnDataLoss"),
            count(found, "minPartitions"))


def options_table(rows: tuple[OptionRow, ...]) -> str:
    """The rows as a table of a page."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for row in rows:
        others = "".join(f" (also `{alias}`)" for alias in row.aliases)
        lines.append(f"| `{row.name}`{others} | {row.default or ''} | {row.meaning} |")
    return "\n".join(lines) + "\n"
