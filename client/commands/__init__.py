"""The commands ``twistmq produce``, ``consume``, ``request`` and ``bench``.

They are for pipes: a message a line in, a message a line out, or JSON. They end with 0, with 1
when something failed, 2 for a bad command line, 130 for Ctrl-C, and quietly when what reads their
output ends.

Source: client notes 2.5; the tools' options ``-n`` and ``tools.yml`` of mqadmin @5.3.3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

__all__ = ["EXIT_USAGE", "NAMES", "command_named"]

#: The commands; each is in the module of its name.
NAMES: Final = ("bench", "consume", "produce", "request")
#: The exit status for a bad command line.
EXIT_USAGE: Final = 2


def command_named(name: str) -> click.Command:
    """Import a command of ``NAMES``, and not the others."""
    command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
    return command
