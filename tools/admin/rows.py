"""The types of a command, an option and a cell of a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

__all__ = ["GROUPS", "Cell", "Command", "Kind", "Millis", "Option", "Result", "Row", "Table"]

#: The groups of commands with their titles, in the order of the output.
GROUPS: Final[dict[str, str]] = {
    "topic": "Topics", "consumer": "Consumer groups", "offset": "Offsets of consumer groups",
    "message": "Messages", "connection": "Connections", "producer": "Producers",
    "cluster": "Clusters", "broker": "Brokers", "namesrv": "Name servers",
    "queue": "Consume queues", "stats": "Statistics", "export": "Exports", "acl": "Accounts",
    "ha": "Replication",
}

#: The type of the value of an option. ``path`` names a file to read, ``time`` is ms since 1970, and
#: the command prompts for a ``secret`` if it is "-".
Kind: TypeAlias = Literal["text", "int", "float", "bool", "flag", "time", "path", "choice",
                          "secret"]


class Millis(int):
    """A time, ms since 1970; JSON contains the number, and a table shows the local time."""


Cell: TypeAlias = "str | int | float | bool | list[str] | None"
Row: TypeAlias = "tuple[Cell, ...]"


@dataclass(frozen=True, slots=True)
class Table:
    """A result with other columns than the usual ones of the command."""

    columns: tuple[str, ...]
    rows: Iterable[Row]


Result: TypeAlias = Iterable[Row] | Table


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command, with mqadmin's names.

    :param name: the parameter of the command's function.
    :param flags: its names on the command line, "-t" and "--topic".
    :param quoted: the long name of mqadmin if it contains a blank, so that users quote it.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    kind: Kind = "text"
    required: bool = False
    default: str | int | float | bool | None = None
    choices: tuple[str, ...] = ()
    quoted: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    :param name: the name in mqadmin.
    :param group: the group in mqadmin, a key of ``GROUPS``; plugins may add groups.
    :param function: "module:function", imported when the command is run.
    :param requests: the request codes that it sends.
    :param columns: the columns of its rows.
    :param other_columns: the columns that replace them if an option is given.
    :param one_of: the options of which exactly one must be given.
    """

    name: str
    group: str
    help: str
    function: str
    options: tuple[Option, ...]
    requests: tuple[int, ...]
    columns: tuple[str, ...]
    other_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()
