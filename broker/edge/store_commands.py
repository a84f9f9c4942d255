"""``twistmq store``: looking at a store's files without a broker, or beside one.

Nothing is locked, made or changed. Exit statuses: 0 when all agrees, 1 when any part does not, 2
for a bad command line, as of tools that compare; 253 for a directory that is no store, 255 when it
cannot be read, 141 when the reader of the output has gone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from twistmq.broker.edge import boot
from twistmq.broker.errors import StoreError

if TYPE_CHECKING:
    from twistmq.broker.store.inspect.dump import Wanted
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.plugin_files import PluginFiles
    from twistmq.broker.store.inspect.report import Report

__all__ = ["EXIT_USAGE", "store"]

F = TypeVar("F", bound=Callable[..., Any])

#: Something in the store disagrees.
EXIT_DISAGREES: Final = 1
#: A bad command line; Apache's 1 says something else here.
EXIT_USAGE: Final = 2
#: The exit status of a program that SIGPIPE ended.
EXIT_UNREAD: Final = 128 + signal.SIGPIPE
#: The number of unreadable parts that dump names.
_LINES_MAX: Final = 1000
#: Bytes after which the progress bar is drawn again.
_BAR_STEP: Final = 1 << 20
_DIRECTORY: Final[click.Path] = click.Path(path_type=Path)


@click.group()
def store() -> None:
    """Look at the files of a store: this broker's or Apache's, running or not.

    DIR is what storePathRootDir says, the directory that holds commitlog. Nothing in it is changed.

    The exit status is 0 when all agrees, 1 when something does not, 2 for a bad command line, 253
    when DIR is no store and 255 when it cannot be read.
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


def _say(line: str, err: bool = False) -> None:
    """Print a line that may name files, topics or keys of a stranger's store."""
    from twistmq.broker.printable import escaped

    click.echo(escaped(line), err=err)


def _failing(function: Callable[[], int]) -> int:
    """Run a command and say what keeps it from being done."""
    try:
        return function()
    except StoreError as error:
        _say(f"twistmq: {error}", err=True)
        return boot.EXIT_REFUSED
    except BrokenPipeError:
        # Unwritten output would fail again when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return EXIT_UNREAD
    except OSError as error:
        _say(f"twistmq: {boot.failure_text(error)}", err=True)
        return boot.EXIT_FAILED


@contextmanager
def _progress(length: int, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=_BAR_STEP) as bar:
        yield lambda count: bar.update(count)


def _time(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Read a time: ms since 1970, or ISO 8601, which without a zone is local time."""
    if text is None:
        return None
    if text.isdecimal() and len(text) > 8:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is neither ISO 8601 nor milliseconds since 1970",
                                 param=parameter) from None


@store.command()
@_common
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
              help="Lines of disagreements; more are counted.")
def check(directory: Path, commitlog: Path | None, index_slots: int | None, limit: int) -> int:
    """Compare everything in a store with everything else in it.

    Every record, queue entry and index item, the checkpoint, config/*.json and the files of plugins
    that are installed, such as those of timers. A disagreement is a line: file, byte, what was
    expected and what is there. A table of numbers ends it.

    While a broker runs, what it has not written yet is no disagreement.
    """
    return _failing(lambda: _check(directory, commitlog, index_slots, limit))


def _check(directory: Path, commitlog: Path | None, index_slots: int | None, limit: int) -> int:
    from twistmq.broker.store.inspect.check import StoreCheck
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.report import Report

    files = StoreFiles(directory, commitlog)
    report = Report(directory, _say, limit)
    try:
        found = StoreCheck(files, report, index_slots, list(_plugin_files().values()))
        with _progress(found.length) as advance:
            found.run(advance)
    finally:
        files.close()
    for line in report.table():
        _say(line)
    return EXIT_DISAGREES if report.problems else boot.EXIT_OK


def _plugin_files() -> dict[str, PluginFiles]:
    """The data of plugins in a store, by name; those that are left out are named."""
    from twistmq.broker.config.setting_rows import broker_rows
    from twistmq.broker.config.settings import Settings
    from twistmq.broker.edge.services import load_hooks

    hooks = load_hooks(Settings(broker_rows()))
    found = hooks.collect_store_files()
    for notice in hooks.notices:
        _say(f"twistmq: {notice}", err=True)
    return found


def _view(_: click.Context, parameter: click.Parameter, name: str | None) -> PluginFiles | None:
    """Find what a plugin keeps by its name."""
    if name is None:
        return None
    known = {name: files for name, files in _plugin_files().items() if files.rows is not None}
    if name not in known:
        raise click.BadParameter(
            f"{name!r} is not one of {', '.join(sorted(known)) or 'none'}", param=parameter)
    return known[name]


@store.command()
@_common
@click.option("--view", callback=_view, metavar="NAME",
              help="Not records but what a plugin keeps, such as timers: messages that wait for "
                   "their time. --from and --to are about that time then.")
@click.option("--topic", metavar="NAME", help="Records of this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), metavar="ID",
              help="Records of this queue.")
@click.option("--from", "begin_ms", callback=_time, metavar="TIME",
              help="Stored at this time or later: ISO 8601, or ms since 1970.")
@click.option("--to", "end_ms", callback=_time, metavar="TIME",
              help="Stored at this time or before.")
@click.option("--key", metavar="KEY",
              help="With this unique id or key; quick when there are --topic and an index.")
@click.option("--offset", "place", type=click.IntRange(min=0), metavar="N",
              help="The record at this place of the commit log.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many records.")
@click.option("--no-body", is_flag=True, help="Leave bodies out.")
@click.option("--json", "as_lines", is_flag=True, help="A JSON object on a line for each record.")
def dump(
    directory: Path, commitlog: Path | None, index_slots: int | None,
    view: PluginFiles | None, topic: str | None, queue_id: int | None, begin_ms: int | None,
    end_ms: int | None, key: str | None, place: int | None, limit: int | None, no_body: bool,
    as_lines: bool,
) -> int:
    """Print the records of a store in the order of its commit log, or what a plugin keeps.

    Bodies are printed as they are stored: text when they are UTF-8, else base64, compressed ones
    not unpacked. Unreadable parts are named on standard error, and the exit status is then 1.
    """
    from twistmq.broker.store.inspect.dump import Wanted

    wanted = Wanted(topic, queue_id, begin_ms, end_ms, key, place)

    def show(files: StoreFiles, report: Report) -> Iterator[str]:
        if view is not None:
            return _rows(files, report, view, wanted, as_lines)
        return _records(files, report, index_slots, wanted, not no_body, as_lines)

    return _failing(lambda: _dump(directory, commitlog, show, limit))


def _dump(
    directory: Path, commitlog: Path | None,
    show: Callable[[StoreFiles, Report], Iterator[str]], limit: int | None,
) -> int:
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.report import Report

    files = StoreFiles(directory, commitlog)
    report = Report(directory, lambda line: _say(line, err=True), _LINES_MAX)
    try:
        for text in islice(show(files, report), limit):
            click.echo(text)
        files.report_strange(report)
        report.finish()
    finally:
        files.close()
    for line in report.notes:
        _say(line, err=True)
    return EXIT_DISAGREES if report.problems else boot.EXIT_OK


def _records(
    files: StoreFiles, report: Report, index_slots: int | None, wanted: Wanted, with_body: bool,
    as_lines: bool,
) -> Iterator[str]:
    """Records as they are printed."""
    from twistmq.broker.store.inspect.dump import as_json, as_text, find_records
    from twistmq.broker.store.inspect.extension_view import UnitFinder

    show = as_json if as_lines else as_text
    units = UnitFinder(files)
    length = files.log_end - files.log_begin
    with _progress(length, hidden=sys.stdout.isatty()) as advance:
        for place, message in find_records(files, wanted, report, index_slots, advance):
            yield show(place, message, with_body, units.find(place, message))


def _rows(
    files: StoreFiles, report: Report, view: PluginFiles, wanted: Wanted, as_lines: bool
) -> Iterator[str]:
    """The data of a plugin, as printed."""
    import msgspec

    from twistmq.broker.printable import escaped, json_printable
    from twistmq.broker.store.inspect.plugin_files import isolated_rows

    for row, text in isolated_rows(view, files, wanted, report):
        yield (json_printable(msgspec.json.encode(row).decode()) if as_lines
               else "\n".join(map(escaped, text.split("\n"))))
