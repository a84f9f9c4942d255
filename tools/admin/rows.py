"""The types of a command, an option and a cell of a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

__all__ = ["GROUPS", "Cell", "Command", "Kind", "Millis", "Option", "Result", "Row", "Table"]

#: The groups of commands, in the order they are shown, and what they are about.
GROUPS: Final[dict[str, str]] = {
    "topic": "Topics", "consumer": "Consumer groups", "offset": "Offsets of consumer groups",
    "message": "Messages", "connection": "Connections", "producer": "Producers",
    "cluster": "Clusters", "broker": "Brokers", "namesrv": "Name servers",
    "queue": "Consume queues", "stats": "Statistics", "export": "Exports", "acl": "Accounts",
    "ha": "Replication",
}

#: The type of an option's value. ``path`` names a file to read, ``time`` is ms since 1970,
#: ``secret`` is prompted for when it is "-".
Kind: TypeAlias = Literal["text", "int", "float", "bool", "flag", "time", "path", "choice",
                          "secret"]


class Millis(int):
    """A time, ms since 1970: JSON has the number, a table the local time."""


Cell: TypeAlias = "str | int | float | bool | list[str] | None"
Row: TypeAlias = "tuple[Cell, ...]"


@dataclass(frozen=True, slots=True)
class Table:
    """A result with columns other than the command's own."""

    columns: tuple[str, ...]
    rows: Iterable[Row]


Result: TypeAlias = Iterable[Row] | Table


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command, under mqadmin's names.

    :param name: the parameter of the command's function.
    :param flags: how it is written, "-t" and "--topic".
    :param quoted: mqadmin's long name where it has a blank, so that it is given in quotes.
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

    :param name: mqadmin's.
    :param group: mqadmin's, of ``GROUPS``; plugins may add groups.
    :param function: "module:function", imported when the command is run.
    :param requests: the codes it sends.
    :param columns: of its rows.
    :param other_columns: when an option is given, these instead.
    :param one_of: options of which exactly one must be given.
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
