"""``twistmq spark export``: the export job from the command line.

The exit status is 0 when all messages are exported or the job was stopped, 2 for a bad command
line, and 255 when the job fails. A failed job keeps the rows that it has written, and the next run
continues after them.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from twistmq.client.commands.common import print_error
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.printable import one_line
from twistmq.spark_bridge.export_plan import FORMATS, ExportError, ExportPlan, missing_packages

if TYPE_CHECKING:
    from twistmq.spark_bridge.export_job import TableSummary

__all__ = ["spark"]

#: The status of a command that failed, the same as for the servers.
EXIT_FAILED: Final = 255
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@click.group()
def spark() -> None:
    """Use messages and traces as tables, with Spark."""


@spark.command()
@click.option("-n", "--namesrvAddr", "name_servers", required=True, metavar="HOST:PORT;...",
              envvar="NAMESRV_ADDR", help="The name servers.  [environment: NAMESRV_ADDR]")
@click.option("-o", "--output", required=True, metavar="DIR",
              help="The folder for the tables (messages, traces) and their progress (_checkpoint).")
@click.option("--topic", "topics", multiple=True, metavar="NAME",
              help="A topic to export; repeat it for more topics. The default is the topics that "
              "the brokers name (spark.export_topics).")
@click.option("--traces/--no-traces", default=None,
              help="Whether to export traces. The default is the setting of the brokers "
              "(spark.export_traces).")
@click.option("--format", "format_name", type=click.Choice(sorted(FORMATS)), default="parquet",
              show_default=True, help="The format of the tables.")
@click.option("--continuous", is_flag=True,
              help="Keep exporting new messages until the job is stopped (Ctrl-C, SIGTERM).")
@click.option("--interval", type=click.FloatRange(0, min_open=True), default=10.0,
              show_default=True, metavar="S", help="How often a continuous job writes.")
@click.option("--batch", type=click.IntRange(min=1), default=200_000, show_default=True,
              metavar="N", help="The largest number of messages in a micro-batch.")
@click.option("--master", default="local[*]", show_default=True, help="The master of Spark.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
              help="An option of the format rocketmq, such as accessKey=; repeat it for more.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE",
              help="A setting of Spark; repeat it for more.")
def export(
    name_servers: str, output: str, topics: tuple[str, ...], traces: bool | None,
    format_name: str, continuous: bool, interval: float, batch: int, master: str,
    options: tuple[str, ...], conf: tuple[str, ...],
) -> None:
    """Export topics and traces to tables that are partitioned by topic and date.

    A run continues where the previous run with the same output ended, even if that run was killed.
    The first run begins with the oldest message.
    """
    connection = {"nameServer": name_servers, **_pairs(options, "--option")}
    settings = _pairs(conf, "--conf")
    not_installed = missing_packages(format_name)
    if not_installed is not None:
        _fail(not_installed)
    try:
        if not topics or traces is None:
            asked_topics, asked_traces = _ask(connection)
            topics = topics or asked_topics
            traces = asked_traces if traces is None else traces
        if traces and not _are_there_traces(connection):
            missing = "there is no topic of traces: no client has traced yet"
            if not topics:
                raise ExportError(missing)
            print_error(f"this run exports no traces: {missing}")
            traces = False
        plan = ExportPlan(connection, tuple(dict.fromkeys(topics)), traces, output, format_name,
                          continuous, round(interval * 1000), batch, master, settings)
        _run(plan)
    except (ExportError, BrokerError, ValueError) as error:
        _fail(str(error))


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        pairs[key] = value
    return pairs


def _fail(text: str) -> None:
    print_error(text)
    sys.exit(EXIT_FAILED)


def _ask(connection: dict[str, str]) -> tuple[tuple[str, ...], bool]:
    """Ask the brokers for the exports that their settings name."""
    from twistmq.integrations.tables.connection import client_settings
    from twistmq.integrations.tables.options import BATCH_READ, Options
    from twistmq.spark_bridge.advertised_exports import ask_brokers

    with client_settings(Options(connection, BATCH_READ)).client() as client:
        exports = ask_brokers(client)
    for text in exports.silent:
        print_error(f"could not ask a broker for its exports: {text}")
    return exports.topics, exports.traces


def _are_there_traces(connection: dict[str, str]) -> bool:
    """Whether a name server knows the topic of traces, which the first trace creates."""
    from twistmq.integrations.tables.connection import client_settings
    from twistmq.integrations.tables.options import BATCH_READ, Options
    from twistmq.integrations.tables.subscription import Subscription, TopicMissing
    from twistmq.integrations.tables.trace_read import message_options

    options = Options(message_options(connection), BATCH_READ)
    with client_settings(options).client() as client:
        try:
            Subscription(options).queues(client)
        except TopicMissing:
            return False
    return True


def _run(plan: ExportPlan) -> None:
    """Run the job, show its progress, and print a summary."""
    names = ", ".join([*plan.topics, *(["traces"] if plan.traces else [])])
    # The names of the topics may come from brokers.
    click.echo(one_line(f"exporting {names} to {plan.output} ({plan.format})"), err=True)
    from twistmq.spark_bridge.export_job import ExportJob, end_session, make_session

    session = make_session(plan)
    begin = time.monotonic()
    try:
        with _progress(plan.continuous) as show:
            job = ExportJob(plan, session, show)

            def stop(*_: object) -> None:
                # The signal may have reached the JVM too. Errors that py4j logs about the end of
                # the JVM are then expected, so they are suppressed.
                logging.disable(logging.ERROR)
                job.stop()

            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, stop)
            tables = job.run()
    finally:
        end_session(session)
    for line in summary(tables, time.monotonic() - begin):
        click.echo(line)


@contextlib.contextmanager
def _progress(continuous: bool) -> Iterator[Callable[[int, int | None], object]]:
    """Show progress on standard error: a bar on a terminal, or else a line for each report."""
    begin = time.monotonic()
    if not sys.stderr.isatty() or continuous:
        def line(done: int, waiting: int | None) -> None:
            seconds = max(time.monotonic() - begin, 0.001)
            part = "" if waiting is None else (
                f" of {done + waiting} ({100 * done // max(done + waiting, 1)} %)")
            click.echo(f"{done}{part}, {done / seconds:,.0f}/s", err=True)

        yield line
        return
    with click.progressbar(length=1, label="rows", file=sys.stderr, show_pos=True) as bar:
        def step(done: int, waiting: int | None) -> None:
            bar.length = done + (1 if waiting is None else waiting)
            bar.update(done - bar.pos)

        yield step


def summary(tables: list[TableSummary], seconds: float) -> list[str]:
    """Return the lines of the summary."""
    rows: list[tuple[Any, ...]] = [("table", "rows", "files", "size", "rows/s")]
    for each in tables:
        rows.append((each.table, f"{each.rows:,}", f"{each.files:,}", _size(each.size_bytes),
                     f"{each.rows / max(seconds, 0.001):,.0f}"))
        rows += [(f"  {name}", f"{count:,}", "", "", "") for name, count
                 in sorted(each.rows_by.items())]
    widths = [max(len(str(row[index])) for row in rows) for index in range(5)]
    lines = ["  ".join([str(row[0]).ljust(widths[0]),
                        *(str(cell).rjust(width)
                          for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()
             for row in rows]
    return [*lines, f"{seconds:.1f} s"]


def _size(count: int) -> str:
    size = float(count)
    for unit in _SIZES:
        if size < 1024 or unit == _SIZES[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
