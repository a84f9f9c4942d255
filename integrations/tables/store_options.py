"""The options of ``format("rocketmq_store")``: a table from which they are read and documented.

The names of options are case-insensitive, because Spark passes them in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.integrations.tables.columns import Column, select_columns
from twistmq.integrations.tables.options import OptionError, parse_time
from twistmq.protocol.decimal_text import whole_number

__all__ = ["STORE_OPTIONS", "OptionRow", "StoreOptions", "options_table", "read_options"]


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option."""

    name: str
    #: The default as text; None if the option has no default and may be left out.
    default: str | None
    meaning: str
    aliases: tuple[str, ...] = ()


STORE_OPTIONS: Final = (
    OptionRow("path", None, "the directory of a store or of its commit-log files, on this machine "
              "or as a URI of another file system (`s3://bucket/store`); `.load(path)` also sets "
              "it"),
    OptionRow("topics", None, "the topics, separated by commas; by default all topics except the "
              "broker's own (schedule, half messages, traces, ...)", ("topic", "subscribe")),
    OptionRow("startingTimestamp", None, "only messages stored at this time or later: ms since "
              "1970, or ISO 8601, which is UTC without a zone"),
    OptionRow("endingTimestamp", None, "only messages stored before this time"),
    OptionRow("columns", None, "the columns, separated by commas; see COLUMNS.md"),
    OptionRow("includeProperties", "true", "whether there is a column `properties`"),
    OptionRow("includeBody", "true", "whether there is a column `body`"),
    OptionRow("bodyFormat", "binary", "the type of the column `body`: binary, or string for UTF-8 "
              "text"),
    OptionRow("brokerName", None, "the value of the column `brokerName`"),
    OptionRow("checkCrc", "true", "whether bodies are compared with their CRC"),
    OptionRow("failOnDataLoss", "true", "whether damaged records and missing files fail the query; "
              "with false they are skipped, counted and logged"),
    OptionRow("minPartitions", "1", "the smallest number of tasks; each task reads a piece of a "
              "file, of 1 MiB to 256 MiB"),
)
#: The options that Spark itself adds.
_SPARKS_OWN: Final = frozenset({"inferschema", "paths"})


def read_options(rows: tuple[OptionRow, ...], options: Mapping[str, str], format_name: str
                 ) -> dict[str, str | None]:
    """Find the text of each option.

    :returns: the texts by the names of the options, with defaults for options that are not given.
    :raises OptionError: when an option is unknown or is given by two names.
    """
    given = {name.lower(): text for name, text in options.items()}
    texts: dict[str, str | None] = {}
    for row in rows:
        names = [name for name in (row.name, *row.aliases) if name.lower() in given]
        if len(names) > 1:
            raise OptionError(f"options {' and '.join(names)} mean the same: give one of them")
        texts[row.name] = given.pop(names[0].lower()).strip() if names else row.default
    unknown = sorted(given.keys() - _SPARKS_OWN)
    if unknown:
        raise OptionError(f"option {unknown[0]}: format {format_name} has none of this name, only "
                          + ", ".join(row.name for row in rows))
    return texts


def flag(texts: Mapping[str, str | None], name: str) -> bool:
    """Read an option that is true or false."""
    text = (texts[name] or "").lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}: {texts[name]!r} is neither true nor false")
    return text == "true"


def time_ms(texts: Mapping[str, str | None], name: str) -> int | None:
    """Read an option that is a time; :returns: Unix ms."""
    text = texts[name]
    return None if text is None else parse_time(name, text)


def count(texts: Mapping[str, str | None], name: str) -> int:
    """Read an option that is a number of 1 or more."""
    text = texts[name] or ""
    number = whole_number(text)
    if not number:
        raise OptionError(f"option {name}: {texts[name]!r} is not a number of 1 or more")
    return number


def names(texts: Mapping[str, str | None], name: str) -> frozenset[str] | None:
    """Read an option that is a list of names with commas; None when it is not given."""
    text = texts[name]
    if text is None:
        return None
    name_set = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not name_set:
        raise OptionError(f"option {name}: no name is given")
    return name_set


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options after they were read."""

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
        """Read the options of a query.

        :raises OptionError: when an option is wrong; the text names it.
        :raises ColumnsError: when a column is unknown.
        """
        texts = read_options(STORE_OPTIONS, options, "rocketmq_store")
        path = texts["path"]
        if not path:
            raise OptionError("option path: missing, name the store as in .load(path)")
        begin, end = time_ms(texts, "startingTimestamp"), time_ms(texts, "endingTimestamp")
        if begin is not None and end is not None and begin > end:
            raise OptionError("option startingTimestamp: it is after endingTimestamp")
        return cls(
            path, names(texts, "topics"), begin, end,
            tuple(select_columns(
                texts["columns"], has_properties=flag(texts, "includeProperties"),
                has_body=flag(texts, "includeBody"), body_format=texts["bodyFormat"] or "")),
            texts["brokerName"], flag(texts, "checkCrc"), flag(texts, "failOnDataLoss"),
            count(texts, "minPartitions"))


def options_table(rows: tuple[OptionRow, ...]) -> str:
    """Format the rows as a Markdown table."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for row in rows:
        others = "".join(f" (also `{alias}`)" for alias in row.aliases)
        lines.append(f"| `{row.name}`{others} | {row.default or ''} | {row.meaning} |")
    return "\n".join(lines) + "\n"
