"""``twistmq store`` inspects the files of a store, with or without a running broker.

Nothing is locked, created or changed. Exit statuses: 0 if everything is consistent, 1 if any part
is not, 2 for a bad command line, as with comparison tools, 253 for a directory that is not a store,
255 if it cannot be read, and 141 if the reader of the output has closed it.
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
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import StoreError

if TYPE_CHECKING:
    from twistmq.broker.store.inspect.dump import Wanted
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.plugin_files import PluginFiles
    from twistmq.broker.store.inspect.report import Report

__all__ = ["EXIT_USAGE", "store"]

F = TypeVar("F", bound=Callable[..., Any])

#: The exit status for an inconsistent store.
EXIT_DISAGREES: Final = 1
#: The exit status for a bad command line; Apache's 1 has another meaning here.
EXIT_USAGE: Final = 2
#: The exit status of a program that SIGPIPE ended.
EXIT_UNREAD: Final = 128 + signal.SIGPIPE
#: The largest number of unreadable parts that ``dump`` names.
_LINES_MAX: Final = 1000
#: The number of bytes after which the progress bar is drawn again.
_BAR_STEP: Final = 1 << 20
_DIRECTORY: Final[click.Path] = click.Path(path_type=Path)


@click.group()
def store() -> None:
    """Inspect the files of a store, written by twistmq or by Apache RocketMQ, in use or not.

    DIR is the value of storePathRootDir, the directory that contains commitlog, or dledger-ID for
    a member of a group that keeps its log by DLedger. Nothing in it is changed.

    The exit status is 0 if everything is consistent, 1 if something is not, 2 for a bad command
    line, 253 if DIR is not a store, and 255 if it cannot be read.
    """


def _common(function: F) -> F:
    """Add the arguments of both commands."""
    options: list[Callable[[F], F]] = [
        click.option("--index-slots", type=click.IntRange(min=1), metavar="N",
                     help="The slots of an index file (maxHashSlotNum), if they cannot be "
                          "determined."),
        click.option("--commitlog", type=_DIRECTORY, metavar="DIR",
                     help="The directory of the commit log, if storePathCommitLog is set."),
        click.option("--ledger", metavar="ID",
                     help="The log is the ledger of this member (dLegerSelfId), in the folder "
                          "dledger-ID; needed if DIR has several, or other log files as well."),
        click.argument("directory", metavar="DIR", type=_DIRECTORY),
    ]
    for decorate in options:
        function = decorate(function)
    return function


def _say(line: str, err: bool = False) -> None:
    """Print a line that may contain names of files, topics or keys of a foreign store."""
    from twistmq.protocol.printable import escaped

    click.echo(escaped(line), err=err)


def _failing(function: Callable[[], int]) -> int:
    """Run a command, and report the error that prevents it."""
    try:
        return function()
    except StoreError as error:
        _say(f"twistmq: {error}", err=True)
        return boot.EXIT_REFUSED
    except BrokenPipeError:
        # Without this, the buffered output would fail again when the interpreter exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return EXIT_UNREAD
    except OSError as error:
        _say(f"twistmq: {boot.failure_text(error)}", err=True)
        return boot.EXIT_FAILED


@contextmanager
def _progress(length: int, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=_BAR_STEP) as bar:
        yield lambda count: bar.update(count)


def _time(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Read a time: ms since 1970, or ISO 8601, which is local time without a zone."""
    if text is None:
        return None
    number = whole_number(text)
    if number is not None and len(text) > 8:
        return number
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is neither ISO 8601 nor milliseconds since 1970",
                                 param=parameter) from None


@store.command()
@_common
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
              help="The largest number of printed inconsistencies; further ones are counted.")
def check(
    directory: Path, commitlog: Path | None, ledger: str | None, index_slots: int | None, limit: int
) -> int:
    """Check the consistency of all parts of a store.

    The check covers every record, queue entry and index item, the checkpoint, config/*.json, and
    the files of installed plugins, such as timers. Each inconsistency is printed as a line with the
    file, the byte, the expected value and the actual value. A table of numbers follows.

    While a broker runs, data that it has not written yet does not count as an inconsistency.
    """
    return _failing(
        lambda: _check(directory, commitlog, _ledger_path(directory, ledger), index_slots, limit))


def _ledger_path(directory: Path, ledger: str | None) -> Path | None:
    """Return the folder of a ledger.

    :raises StoreError: when there is none.
    """
    if ledger is None:
        return None
    path = directory / f"dledger-{ledger}"
    if not (path / "data").is_dir():
        raise StoreError(f"{directory} has no ledger {ledger!r}: there is no directory {path}/data")
    return path


def _check(
    directory: Path, commitlog: Path | None, ledger: Path | None, index_slots: int | None,
    limit: int,
) -> int:
    from twistmq.broker.store.inspect.check import StoreCheck
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.report import Report

    files = StoreFiles(directory, commitlog, ledger)
    report = Report(directory, _say, limit)
    try:
        check = StoreCheck(files, report, index_slots, list(_plugin_files().values()))
        with _progress(check.length) as advance:
            check.run(advance)
    finally:
        files.close()
    for line in report.table():
        _say(line)
    return EXIT_DISAGREES if report.problems else boot.EXIT_OK


def _plugin_files() -> dict[str, PluginFiles]:
    """Return the data of plugins in a store by name; plugins that are left out are reported."""
    from twistmq.broker.config.setting_rows import broker_rows
    from twistmq.broker.config.settings import Settings
    from twistmq.broker.edge.services import load_hooks

    hooks = load_hooks(Settings(broker_rows()))
    plugin_files = hooks.collect_store_files()
    for notice in hooks.notices:
        _say(f"twistmq: {notice}", err=True)
    return plugin_files


def _view(_: click.Context, parameter: click.Parameter, name: str | None) -> PluginFiles | None:
    """Find the data of a plugin by its name."""
    if name is None:
        return None
    viewable = {name: files for name, files in _plugin_files().items() if files.rows is not None}
    if name not in viewable:
        raise click.BadParameter(
            f"{name!r} is not one of {', '.join(sorted(viewable)) or 'none'}", param=parameter)
    return viewable[name]


@store.command()
@_common
@click.option("--view", callback=_view, metavar="NAME",
              help="Print the data of a plugin instead of records, such as timers: messages that "
                   "wait for their time. --from and --to then refer to that time.")
@click.option("--topic", metavar="NAME", help="Only records of this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), metavar="ID",
              help="Only records of this queue.")
@click.option("--from", "begin_ms", callback=_time, metavar="TIME",
              help="Only records stored at this time or later: ISO 8601, or ms since 1970.")
@click.option("--to", "end_ms", callback=_time, metavar="TIME",
              help="Only records stored at this time or before.")
@click.option("--key", metavar="KEY",
              help="Only records with this unique id or key; fast with --topic and an index.")
@click.option("--offset", "log_offset", type=click.IntRange(min=0), metavar="N",
              help="The record at this offset of the commit log.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help=
              "The largest number of records.")
@click.option("--no-body", is_flag=True, help="Leave bodies out.")
@click.option("--json", "as_lines", is_flag=True, help=
              "Print a JSON object on a line for each record.")
def dump(
    directory: Path, commitlog: Path | None, ledger: str | None, index_slots: int | None,
    view: PluginFiles | None, topic: str | None, queue_id: int | None, begin_ms: int | None,
    end_ms: int | None, key: str | None, log_offset: int | None, limit: int | None, no_body: bool,
    as_lines: bool,
) -> int:
    """Print the records of a store in the order of its commit log, or the data of a plugin.

    Bodies are printed as they are stored: as text if they are UTF-8, otherwise as base64.
    Compressed bodies are not decompressed. Unreadable parts are reported on standard error, and the
    exit status is 1 in that case.
    """
    from twistmq.broker.store.inspect.dump import Wanted

    criteria = Wanted(topic, queue_id, begin_ms, end_ms, key, log_offset)

    def show(files: StoreFiles, report: Report) -> Iterator[str]:
        if view is not None:
            return _rows(files, report, view, criteria, as_lines)
        return _records(files, report, index_slots, criteria, not no_body, as_lines)

    return _failing(
        lambda: _dump(directory, commitlog, _ledger_path(directory, ledger), show, limit))


def _dump(
    directory: Path, commitlog: Path | None, ledger: Path | None,
    show: Callable[[StoreFiles, Report], Iterator[str]], limit: int | None,
) -> int:
    from twistmq.broker.store.inspect.layout import StoreFiles
    from twistmq.broker.store.inspect.report import Report

    files = StoreFiles(directory, commitlog, ledger)
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
    files: StoreFiles, report: Report, index_slots: int | None, criteria: Wanted, with_body: bool,
    as_lines: bool,
) -> Iterator[str]:
    """Return the printed form of records."""
    from twistmq.broker.store.inspect.dump import as_json, as_text, find_records
    from twistmq.broker.store.inspect.extension_view import UnitFinder

    show = as_json if as_lines else as_text
    units = UnitFinder(files)
    length = files.log_end - files.log_begin
    with _progress(length, hidden=sys.stdout.isatty()) as advance:
        for log_offset, message in find_records(files, criteria, report, index_slots, advance):
            yield show(log_offset, message, with_body, units.find(log_offset, message),
                       files.entry_of(log_offset))


def _rows(
    files: StoreFiles, report: Report, view: PluginFiles, criteria: Wanted, as_lines: bool
) -> Iterator[str]:
    """Return the printed form of the data of a plugin."""
    import msgspec

    from twistmq.broker.store.inspect.plugin_files import isolated_rows
    from twistmq.protocol.printable import escaped, json_printable

    for row, text in isolated_rows(view, files, criteria, report):
        yield (json_printable(msgspec.json.encode(row).decode()) if as_lines
               else "\n".join(map(escaped, text.split("\n"))))
