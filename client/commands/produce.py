"""``twistmq produce``: reads lines or JSON and sends them as messages."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from click.core import ParameterSource

from twistmq.client.commands.common import (
    EXIT_FAILED,
    Bar,
    arguments_of,
    client_options,
    guarded,
    print_error,
)

if TYPE_CHECKING:
    from twistmq.client.base.messages import Message

__all__ = ["produce"]

#: The maximum number of requests in flight, for single messages and for batches.
_MESSAGES_MAX: Final = 2048
_BATCHES_MAX: Final = 64
#: The time-out of a send if none is given, s: long enough for brokers to elect another master.
_OUTAGE_S: Final = 30.0


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.File("rb"))
@client_options
@click.option("-D", "delimiter", default="\n",
              help="The text that ends a message; by default a newline.")
@click.option("-K", "key_delimiter", default="",
              help="The text that ends the key before a message.")
@click.option("-H", "headers", multiple=True, metavar="NAME=VALUE", help="A property.")
@click.option("--tags", default="", help="The tag of every message.")
@click.option("--json", "is_json", is_flag=True,
              help="Lines are JSON objects with body, and tags, keys, properties, sharding_key.")
@click.option("--delay", "delay_s", default=0.0,
              help="Deliver the messages after this delay, seconds.")
@click.option("--rate", type=click.IntRange(0), default=0,
              help="The maximum number of messages per second; 0: no limit.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True,
              help="The number of messages in a request.")
@click.option("--group", default="twistmq_produce", show_default=True, help="Producer group.")
@click.option("--progress/--no-progress", default=None,
              help="Show a count on standard error; by default if it is a terminal.")
def produce(
    topic: str, files: tuple[BinaryIO, ...], where: str, access_key: str, secret_key: str,
    namespace: str, timeout_s: float, delimiter: str, key_delimiter: str,
    headers: tuple[str, ...], tags: str, is_json: bool, delay_s: float, rate: int, batch: int,
    group: str, progress: bool | None,
) -> None:
    """Send the messages of FILES, or of standard input, to TOPIC."""
    from twistmq.client.blocking.producer import Producer
    from twistmq.client.commands.lines import paced, read_messages, unescaped

    properties = {}
    for header in headers:
        name, equals, value = header.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"-H {header}: NAME=VALUE is expected")
        properties[name] = value
    timeout_source = click.get_current_context().get_parameter_source("timeout_s")
    if timeout_source is ParameterSource.DEFAULT:
        timeout_s = _OUTAGE_S
    with guarded(), Producer(where, group=group, await_master=True, **arguments_of(
            access_key, secret_key, namespace, timeout_s)) as producer:
        source = read_messages(
            files or (sys.stdin.buffer,), topic, unescaped(delimiter), unescaped(key_delimiter),
            properties, tags, is_json, delay_s)
        failed: Counter[str] = Counter()
        try:
            _send_all(producer, paced(source, rate), batch, Bar(progress, "sent"), failed)
        finally:
            for outcome, count in failed.items():
                print_error(f"{count} messages {outcome}")
        if failed:
            sys.exit(EXIT_FAILED)


def _outcome(error: BaseException) -> str:
    """Describe for a message whose send failed whether it may be stored nevertheless."""
    from twistmq.client.base.errors import Full, NoRoute, OptionError, RequestRefused, SendFailed

    is_certain = (not error.maybe_stored if isinstance(error, SendFailed)
                  else isinstance(error, Full | NoRoute | OptionError | RequestRefused))
    return "were not stored" if is_certain else "may not have been stored"


def _send_all(
    producer: Any, messages: Iterable[Message], batch: int, bar: Bar, failed: Counter[str]
) -> None:
    """Send messages, with many requests in flight at once.

    An error of ``messages`` is raised after all messages before it are sent and have ended.

    :param failed: counts the failed messages by their possible outcome.
    """
    unsafe: Counter[str] = Counter()
    waiting: deque[tuple[Any, int]] = deque()
    group: list[Message] = []

    def settle(max_waiting: int) -> None:
        while len(waiting) > max_waiting:
            future, count = waiting.popleft()
            error = future.exception()
            if error is not None:
                if not failed:
                    print_error(str(error))
                failed[_outcome(error)] += count
            elif not future.result().safe:
                unsafe[future.result().status] += count
            bar.add(count)

    def send_group() -> None:
        nonlocal group
        sending, group = group, []
        waiting.append((producer.send_batch_soon(sending), len(sending)))
        settle(_BATCHES_MAX)

    try:
        try:
            for message in messages:
                if batch > 1:
                    group.append(message)
                    if len(group) == batch:
                        send_group()
                    continue
                waiting.append((producer.send_soon(message), 1))
                settle(_MESSAGES_MAX)
        finally:
            if group:
                send_group()
    finally:
        settle(0)
        bar.end()
        for status, count in unsafe.items():
            print_error(f"{count} messages were stored, but {status}")
