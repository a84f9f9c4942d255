"""The commands ``twistmq produce``, ``consume``, ``request`` and ``bench``.

The commands are meant for pipes: they read one message per line and write one message per line, or
JSON. The exit status is 0, or 1 when something failed, 2 for a bad command line, and 130 for
Ctrl-C. A command ends without an error message when the reader of its output ends.

Source: client notes 2.5; the tools' options ``-n`` and ``tools.yml`` of mqadmin @5.3.3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

__all__ = ["EXIT_USAGE", "NAMES", "command_named"]

#: The commands; each is in the module with its name.
NAMES: Final = ("bench", "consume", "produce", "request")
#: The exit status for a bad command line.
EXIT_USAGE: Final = 2


def command_named(name: str) -> click.Command:
    """Import a command of ``NAMES`` without importing the other commands."""
    command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
    return command
