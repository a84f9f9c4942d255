"""Shared parts of the commands: options for the servers, exit statuses, a counter on a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_TERMINATED", "Bar", "arguments_of",
           "client_options", "guarded", "print_error", "run_command"]

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143


def run_command(
    command: click.Command, words: Sequence[str] | None, program: str,
    usage_status: Callable[[click.ClickException], int], **context: Any,
) -> int:
    """Run a command and print its errors on standard error; :returns: the exit status.

    :param words: the arguments; None: the arguments of this process.
    :param usage_status: returns the status for a command line that the command does not accept.
    :param context: further arguments of click's context.
    """
    try:
        status = command.main(words, prog_name=program, standalone_mode=False, **context)
    except click.ClickException as error:
        error.show()
        return usage_status(error)
    except click.Abort:
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0


def print_error(text: str) -> None:
    """Print a text as one line on standard error.

    The text may come from a server or from the producer of a message, which must not act on the
    terminal.
    """
    from twistmq.protocol.printable import one_line

    click.echo(f"twistmq: {one_line(text)}", err=True)


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors into exit statuses; a SIGTERM ends the work as Ctrl-C does, with its commits."""
    from twistmq.protocol.errors import BrokerError

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has ended. That is not a failure, and nothing can be reported.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (BrokerError, OSError, ValueError) as error:
        print_error(str(error))
        sys.exit(EXIT_FAILED)


def client_options(function: Any) -> Any:
    """The options for the servers and the account."""
    for option in (
            click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", default="",
                         help="The account's secret key."),
            click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", default="",
                         help="The account that signs the requests."),
            click.option("--namespace", default="",
                         help="The namespace of all topics and groups."),
            click.option("--timeout", "timeout_s", default=3.0, show_default=True,
                         help="The time-out of a request, seconds."),
            click.option("-n", "where", envvar="NAMESRV_ADDR", required=True,
                         metavar="HOST:PORT", help="The name servers; by default NAMESRV_ADDR.")):
        function = option(function)
    return function


def arguments_of(
    access_key: str, secret_key: str, namespace: str, timeout_s: float
) -> dict[str, Any]:
    """The arguments of a client that these options determine."""
    from twistmq.protocol.signature import Credentials

    if bool(access_key) != bool(secret_key):
        raise click.UsageError("--access-key and --secret-key go together")
    credentials = Credentials(access_key, secret_key) if access_key else None
    return {"credentials": credentials, "namespace": namespace, "timeout_s": timeout_s}


class Bar:
    """A counter on standard error.

    :param is_shown: whether to show it; None: show it if standard error is a terminal.
    :param word: the word after the count, for example "sent".
    """

    def __init__(self, is_shown: bool | None, word: str) -> None:
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._word = word
        self._count = 0
        self._begin = self._next = time.monotonic()

    def add(self, count: int) -> None:
        """Count messages."""
        self._count += count
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.2
            self._show()

    def _show(self, end: str = "") -> None:
        rate = self._count / max(time.monotonic() - self._begin, 1e-9)
        click.echo(f"\r{self._count} {self._word}, {rate:,.0f} a second{end}", err=True,
                   nl=bool(end))

    def end(self) -> None:
        """Keep the last count on the terminal."""
        if self._is_shown:
            self._show(" ")
