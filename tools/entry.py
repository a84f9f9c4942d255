"""The entry point of the program ``twistmq``.

The commands of the client run without the modules of servers, which would increase the loading time
by half. All other commands are in ``command_line``, which also contains the client's commands for
help and completion.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    words = sys.argv[1:]
    from twistmq.broker.edge.first_signals import SERVERS, hold_signals

    if words and words[0] in SERVERS:
        hold_signals()
    from twistmq.client.commands import EXIT_USAGE, NAMES, command_named

    if words and words[0] in NAMES:
        from twistmq.client.commands.common import run_command

        return run_command(command_named(words[0]), words[1:], f"twistmq {words[0]}",
                           lambda _: EXIT_USAGE, help_option_names=["-h", "--help"])
    from twistmq.tools import command_line

    return command_line.main()
