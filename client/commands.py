"""The commands ``twistmq produce``, ``consume``, ``request`` and ``bench``.

They are for pipes: a message a line in, a message a line out, or JSON. They end with 0, with 1
when something failed, 2 for a bad command line, 130 for Ctrl-C, and quietly when what reads their
output ends.

Source: client notes 2.5; the tools' options ``-n`` and ``tools.yml`` of mqadmin @5.3.3.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

if TYPE_CHECKING:
    from twistmq.client.messages import Message, ReceivedMessage

__all__ = ["COMMANDS", "bench", "consume", "produce", "request"]

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
#: Fields of ``consume -f``, by the letter behind the percent sign.
_FIELDS: Final = "t topic, b broker, q queue, o offset, T tag, k keys, K sharding key, " \
                 "i id, d stored at, s body, n newline, % percent sign"
#: The time without a message after which ``--to end`` looks whether the end is reached, seconds.
_PULL_HOLD_MS: Final = 500


@contextmanager
def _guarded() -> Iterator[None]:
    """Turn errors into exit statuses."""
    from twistmq.broker.errors import BrokerError

    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has ended: that is no failure, and nothing more can be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (BrokerError, OSError, ValueError) as error:
        click.echo(f"twistmq: {error}", err=True)
        sys.exit(EXIT_FAILED)


def _client_options(function: Any) -> Any:
    """The options that name the servers and the account."""
    for option in (
            click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", default="",
                         help="The account's secret key."),
            click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", default="",
                         help="The account that requests are signed with."),
            click.option("--namespace", default="", help="Of all topics and groups."),
            click.option("--timeout", "timeout_s", default=3.0, show_default=True,
                         help="Bound on a request, seconds."),
            click.option("-n", "where", envvar="NAMESRV_ADDR", required=True,
                         metavar="HOST:PORT", help="The name servers; else NAMESRV_ADDR.")):
        function = option(function)
    return function


def _arguments(access_key: str, secret_key: str, namespace: str, timeout_s: float) -> Any:
    from twistmq.broker.wire.signature import Credentials

    if bool(access_key) != bool(secret_key):
        raise click.UsageError("--access-key and --secret-key go together")
    credentials = Credentials(access_key, secret_key) if access_key else None
    return {"credentials": credentials, "namespace": namespace, "timeout_s": timeout_s}


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.File("rb"))
@_client_options
@click.option("-D", "delimiter", default="\n", help="What ends a message; default: a newline.")
@click.option("-K", "key_delimiter", default="", help="What ends the key before a message.")
@click.option("-H", "headers", multiple=True, metavar="NAME=VALUE", help="A property.")
@click.option("--tags", default="", help="The tag of every message.")
@click.option("--json", "is_json", is_flag=True,
              help="Lines are JSON objects with body, and tags, keys, properties, sharding_key.")
@click.option("--delay", "delay_s", default=0.0, help="Deliver so many seconds later.")
@click.option("--rate", default=0, help="Messages a second at most; 0: without a bound.")
@click.option("--batch", default=1, show_default=True, help="Messages in a request.")
@click.option("--group", default="twistmq_produce", show_default=True, help="Producer group.")
@click.option("--progress/--no-progress", default=None,
              help="Count on standard error; by default when it is a terminal.")
def produce(
    topic: str, files: tuple[BinaryIO, ...], where: str, access_key: str, secret_key: str,
    namespace: str, timeout_s: float, delimiter: str, key_delimiter: str,
    headers: tuple[str, ...], tags: str, is_json: bool, delay_s: float, rate: int, batch: int,
    group: str, progress: bool | None,
) -> None:
    """Send the messages of FILES, or of standard input, to TOPIC."""
    from twistmq.client.lines import paced, read_messages, unescaped
    from twistmq.client.producer import Producer

    properties = {}
    for header in headers:
        name, equals, value = header.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"-H {header}: NAME=VALUE is expected")
        properties[name] = value
    source = read_messages(
        files or (sys.stdin.buffer,), topic, unescaped(delimiter), unescaped(key_delimiter),
        properties, tags, is_json, int(delay_s * 1000))
    with _guarded(), Producer(where, group=group, **_arguments(
            access_key, secret_key, namespace, timeout_s)) as producer:
        failed = _send_all(producer, paced(source, rate), batch, _bar(progress, "sent"))
        if failed:
            click.echo(f"twistmq: {failed} messages were not stored", err=True)
            sys.exit(EXIT_FAILED)


def _send_all(producer: Any, messages: Iterable[Message], batch: int, bar: _Bar) -> int:
    """Send messages, many under way at once; :returns: how many failed."""
    failed = 0
    first: BaseException | None = None
    waiting: list[Any] = []
    group: list[Message] = []

    def settle(most: int) -> None:
        nonlocal failed, first
        while len(waiting) > most:
            error = waiting.pop(0).exception()
            if error is not None:
                failed += 1
                if first is None:
                    first = error
                    click.echo(f"twistmq: {error}", err=True)
            bar.add(1)

    for message in messages:
        if batch > 1:
            group.append(message)
            if len(group) == batch:
                producer.send_batch(group)
                bar.add(len(group))
                group = []
            continue
        waiting.append(producer.send_soon(message))
        settle(2048)
    if group:
        producer.send_batch(group)
        bar.add(len(group))
    producer.flush()
    settle(0)
    bar.end()
    return failed


class _Bar:
    """A count on standard error."""

    def __init__(self, is_shown: bool, word: str) -> None:
        self._is_shown = is_shown
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
        """Leave the last count."""
        if self._is_shown:
            self._show(" ")


def _bar(progress: bool | None, word: str) -> _Bar:
    return _Bar(sys.stderr.isatty() if progress is None else progress, word)


@click.command()
@click.argument("topic")
@_client_options
@click.option("-g", "group", default="", help="Consume as a member of a group, and commit.")
@click.option("--from", "begin", default="last", show_default=True, metavar="PLACE",
              help="first, last, an offset, or a time as 2026-01-31T12:00.")
@click.option("--to", "end", type=click.Choice(["end"]), help="Stop at the end of the queues.")
@click.option("--tag", default="*", help="Tags, as 'a || b'.")
@click.option("--sql", "sql_text", default="", help="A filter in SQL92.")
@click.option("-c", "count", default=0, help="Stop after so many messages.")
@click.option("-f", "form", default="%s\\n", show_default=True, help=f"The output: {_FIELDS}.")
@click.option("--json", "is_json", is_flag=True, help="A JSON object a line.")
@click.option("--order", is_flag=True, help="In a group: keep the order of each queue.")
def consume(
    topic: str, where: str, access_key: str, secret_key: str, namespace: str, timeout_s: float,
    group: str, begin: str, end: str | None, tag: str, sql_text: str, count: int, form: str,
    is_json: bool, order: bool,
) -> None:
    """Print the messages of TOPIC.

    Without a group the queues are read from a place, and nothing is committed.
    """
    if (group and begin not in ("first", "last")) or (group and end):
        raise click.UsageError("a group begins at 'first' or 'last', and has no --to")
    logging.getLogger("twistmq.client").setLevel(logging.ERROR)
    arguments = _arguments(access_key, secret_key, namespace, timeout_s)
    with _guarded():
        if group:
            found = _of_group(where, group, topic, begin, sql_text, tag, order, arguments)
        else:
            found = _of_queues(where, topic, begin, end is not None, sql_text, tag, arguments)
        _print(found, count, form, is_json)


def _print(
    found: Iterator[ReceivedMessage[Any]], count: int, form: str, is_json: bool
) -> None:
    """Print messages until there are enough."""
    from twistmq.client.lines import formatted, json_line

    write = sys.stdout.buffer.write
    last = time.monotonic()
    for number, message in enumerate(found, 1):
        write(json_line(message) if is_json else formatted(form, message))
        now = time.monotonic()
        if sys.stdout.isatty() or now - last > 0.05 or number == 1:
            sys.stdout.buffer.flush()
            last = now
        if number == count:
            break
    sys.stdout.buffer.flush()


def _of_group(
    where: str, group: str, topic: str, begin: str, sql_text: str, tag: str, order: bool,
    arguments: Any,
) -> Iterator[ReceivedMessage[Any]]:
    from twistmq.client.consumer import Consumer
    from twistmq.client.core.subscriptions import sql

    wanted = sql(sql_text) if sql_text else tag
    consumer: Consumer[bytes] = Consumer(
        where, group=group, topics={topic: wanted}, start="first" if begin == "first" else "last",
        order="queue" if order else None, **arguments)
    with consumer:
        yield from consumer


def _of_queues(
    where: str, topic: str, begin: str, to_end: bool, sql_text: str, tag: str, arguments: Any
) -> Iterator[ReceivedMessage[Any]]:
    """Read all queues in turn, from a place."""
    from twistmq.client.blocking import Client
    from twistmq.client.core.pulling import messages_of
    from twistmq.client.core.subscriptions import subscription

    tags = subscription(topic, tag).tags if not sql_text else frozenset()
    with Client(where, **arguments) as client:
        queues = client.read_queues(topic)
        places = {queue: _place(client, queue, begin) for queue in queues}
        ends = {queue: client.max_offset(queue) for queue in queues} if to_end else {}
        while places:
            idle = True
            for queue in list(places):
                if to_end and places[queue] >= ends[queue]:
                    del places[queue]
                    continue
                result = client.pull(
                    queue, places[queue], expression=sql_text or tag,
                    expression_type="SQL92" if sql_text else "TAG")
                places[queue] = result.next_offset
                messages: list[ReceivedMessage[bytes]] = messages_of(result, queue, tags)
                idle = idle and not result.body
                for message in messages:
                    if not to_end or message.offset < ends[queue]:
                        yield message
            if idle and places and not to_end:
                time.sleep(_PULL_HOLD_MS / 1000)


def _place(client: Any, queue: Any, begin: str) -> int:
    """The offset at which a queue is read from."""
    if begin == "first":
        return int(client.min_offset(queue))
    if begin == "last":
        return int(client.max_offset(queue))
    if begin.isdecimal():
        return max(int(begin), int(client.min_offset(queue)))
    moment = datetime.fromisoformat(begin)
    return int(client.search_offset(queue, int(moment.timestamp() * 1000)))


@click.command()
@click.argument("topic")
@click.argument("body")
@_client_options
@click.option("--tags", default="", help="The tag of the request.")
@click.option("--wait", "wait_s", default=3.0, show_default=True,
              help="How long a reply is waited for, seconds.")
def request(
    topic: str, body: str, where: str, access_key: str, secret_key: str, namespace: str,
    timeout_s: float, tags: str, wait_s: float,
) -> None:
    """Send BODY to TOPIC as a request, and print the reply of the consumer that handles it."""
    from twistmq.client.producer import Producer

    arguments = _arguments(access_key, secret_key, namespace, timeout_s)
    with _guarded(), Producer(where, group="twistmq_request", **arguments) as producer:
        reply = producer.request(topic, body.encode(), timeout_s=wait_s, tags=tags)
        sys.stdout.buffer.write(reply.body + b"\n")


@click.command()
@click.argument("kind", type=click.Choice(["producer", "consumer", "latency"]))
@_client_options
@click.option("-t", "topic", default="BenchmarkTest", show_default=True)
@click.option("-w", "under_way", default=64, show_default=True, help="Messages under way.")
@click.option("-s", "size", default=128, show_default=True, help="Bytes of a body.")
@click.option("--batch", default=1, show_default=True, help="Messages in a request.")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="One JSON object at the end.")
def bench(
    kind: str, where: str, access_key: str, secret_key: str, namespace: str, timeout_s: float,
    topic: str, under_way: int, size: int, batch: int, seconds: float, is_json: bool,
) -> None:
    """Load a broker, and print rate, latency and the client's CPU a message."""
    from twistmq.client.benchmark import consumer_load, producer_load

    arguments = _arguments(access_key, secret_key, namespace, timeout_s)
    with _guarded():
        if kind == "consumer":
            found = consumer_load(where, topic, seconds, batch, arguments)
        else:
            found = producer_load(where, topic, size, 1 if kind == "latency" else under_way,
                                  batch, seconds, arguments)
        click.echo(json.dumps(found) if is_json else "\n".join(
            f"{name}: {value}" for name, value in found.items()))


#: The commands by name.
COMMANDS: Final = {
    "bench": bench, "consume": consume, "produce": produce, "request": request}
