"""Where the program ``twistmq`` begins.

The commands of the client run without the modules of servers, which take half as long again to
load. All others are in ``command_line``, which has the client's too, for help and completion.
"""

from __future__ import annotations

import sys

from twistmq.client.commands import EXIT_USAGE, NAMES, command_named

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process; :returns: the exit status."""
    words = sys.argv[1:]
    if words and words[0] in NAMES:
        return _run_client(*words)
    from twistmq.broker.edge import command_line

    return command_line.main()


def _run_client(name: str, *words: str) -> int:
    """Run a command of the client as ``command_line`` does."""
    import click

    from twistmq.client.commands.common import EXIT_INTERRUPTED

    try:
        status = command_named(name).main(
            list(words), prog_name=f"twistmq {name}", standalone_mode=False,
            help_option_names=["-h", "--help"])
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0
