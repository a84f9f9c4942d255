"""``twistmq store``: looking at a store's files without a broker, or beside one.

Nothing is locked, made or changed. Exit statuses: 0 when all agrees, 1 when something does not (or
for a bad command line), 253 for a directory that is no store, 255 when it cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from twistmq.broker.edge import boot
from twistmq.broker.errors import StoreError

__all__ = ["store"]

F = TypeVar("F", bound=Callable[..., Any])

#: Something in the store disagrees.
EXIT_DISAGREES: Final = 1
#: Bytes after which the progress bar is drawn again.
_BAR_STEP: Final = 1 << 20
_DIRECTORY: Final[click.Path] = click.Path(path_type=Path)


@click.group()
def store() -> None:
    """Look at the files of a store: this broker's or Apache's, running or not.

    DIR is what storePathRootDir says, the directory that holds commitlog. Nothing in it is changed.

    The exit status is 0 when all agrees, 1 when something does not, 253 when DIR is no store and
    255 when it cannot be read.
    """


def _common(function: F) -> F:
    """The arguments both commands have."""
    options: list[Callable[[F], F]] = [
        click.option("--index-slots", type=click.IntRange(min=1), metavar="N",
                     help="Slots of an index file (maxHashSlotNum), if they cannot be found out."),
        click.option("--commitlog", type=_DIRECTORY, metavar="DIR",
                     help="The commit log's directory, if storePathCommitLog says another."),
        click.argument("directory", metavar="DIR", type=_DIRECTORY),
    ]
    for decorate in options:
        function = decorate(function)
    return function


def _failing(function: Callable[[], int]) -> int:
    """Run a command and say what keeps it from being done."""
    try:
        return function()
    except StoreError as error:
        click.echo(f"twistmq: {error}", err=True)
        return boot.EXIT_REFUSED
    except OSError as error:
        click.echo(f"twistmq: {boot.failure_text(error)}", err=True)
        return boot.EXIT_FAILED


@contextmanager
def _progress(length: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=_BAR_STEP) as bar:
        yield lambda count: bar.update(count)


@store.command()
@_common
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
              help="Lines of disagreements; more are counted.")
def check(directory: Path, commitlog: Path | None, index_slots: int | None, limit: int) -> int:
    """Compare everything in a store with everything else in it.

    Every record, queue entry and index item, the checkpoint and config/*.json. A disagreement is a
    line: file, byte, what was expected and what is there. A table of numbers ends it.

    While a broker runs, what it has not written yet is no disagreement. Not looked at: queues of
    inner batches, extensions of queue entries, timer files.
    """
    return _failing(lambda: _check(directory, commitlog, index_slots, limit))


def _check(directory: Path, commitlog: Path | None, index_slots: int | None, limit: int) -> int:
    from twistmq.broker.store.inspect.check import StoreCheck
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.report import Report

    files = StoreFiles(directory, commitlog)
    report = Report(directory, click.echo, limit)
    try:
        found = StoreCheck(files, report, index_slots)
        with _progress(found.length) as advance:
            found.run(advance)
    finally:
        files.close()
    for line in report.table():
        click.echo(line)
    return EXIT_DISAGREES if report.problems else boot.EXIT_OK
