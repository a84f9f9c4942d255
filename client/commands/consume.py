"""``twistmq consume``: reads messages and prints them as lines or JSON."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from twistmq.client.commands.common import (
    EXIT_FAILED,
    arguments_of,
    client_options,
    guarded,
    print_error,
)
from twistmq.protocol.decimal_text import whole_number

if TYPE_CHECKING:
    from twistmq.client.base.messages import MessageQueue, ReceivedMessage
    from twistmq.client.base.received_message import DamagedMessage
    from twistmq.client.blocking.client import Client
    from twistmq.protocol.errors import BrokerError

__all__ = ["consume"]

#: The fields of ``consume -f``, by the letter after the percent sign.
_FIELDS: Final = "t topic, b broker, q queue, o offset, T tag, k keys, K sharding key, " \
                 "i id, d stored at, s body, n newline, % percent sign"
#: How long a pull waits for a message before ``--to end`` checks for the end of the queues, ms.
_PULL_HOLD_MS: Final = 500
#: How often the route is checked for new queues of the topic, seconds.
_ROUTE_S: Final = 5.0
#: How long a broker that did not answer is not asked again, seconds.
_AWAY_S: Final = 20.0
#: How much earlier than the clock of this command a broker's clock may be, seconds.
_CLOCKS_S: Final = 5


@click.command()
@click.argument("topic")
@client_options
@click.option("-g", "group", default="", help="Consume as a member of a group, and commit.")
@click.option("--from", "begin", default="last", show_default=True, metavar="PLACE",
              help="first, last, an offset, or a time such as 2026-01-31T12:00.")
@click.option("--to", "end", type=click.Choice(["end"]), help="Stop at the end of the queues.")
@click.option("--tag", default="*", help="The wanted tags, such as 'a || b'.")
@click.option("--sql", "sql_text", default="", help="A filter in SQL92.")
@click.option("-c", "count", type=click.IntRange(0), default=0,
              help="Stop after this many messages.")
@click.option("-f", "form", default="%s\\n", show_default=True, help=f"The output: {_FIELDS}.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--damaged", type=click.Choice(["skip", "stop", "deliver"]), default="skip",
              show_default=True, help="How to treat a message that cannot be read: skip it and "
              "fail at the end, stop at once, or print it with a mark.")
@click.option("--order", is_flag=True, help="In a group: keep the order of each queue.")
def consume(
    topic: str, where: str, access_key: str, secret_key: str, namespace: str, timeout_s: float,
    group: str, begin: str, end: str | None, tag: str, sql_text: str, count: int, form: str,
    is_json: bool, damaged: str, order: bool,
) -> None:
    """Print the messages of TOPIC.

    Without a group, the queues are read from the given place, and nothing is committed.
    """
    if (group and begin not in ("first", "last")) or (group and end):
        raise click.UsageError("a group begins at 'first' or 'last', and has no --to")
    _check_begin(begin)
    _check_tag(tag)
    # A group waits for missing topics and brokers, and logs that it does.
    logging.getLogger("twistmq.client").setLevel(logging.WARNING if group else logging.ERROR)
    arguments = arguments_of(access_key, secret_key, namespace, timeout_s)
    unreadable = _Unreadable(damaged)
    messages = (
        _of_group(where, group, topic, begin, sql_text, tag, order, count, arguments, unreadable)
        if group else
        _of_queues(where, topic, begin, end is not None, sql_text, tag, arguments, unreadable))
    # After an error its traceback keeps the generator alive, which any thread may then finish.
    with guarded(), closing(messages):
        _print(messages if group else islice(messages, count or None), form, is_json, unreadable,
               at_once=bool(group))
        if unreadable.count:
            print_error(f"{unreadable.count} messages could not be read")
            sys.exit(EXIT_FAILED)


class _Unreadable:
    """The messages that could not be read and were left out.

    :param option: one of "skip", "stop" or "deliver".
    """

    def __init__(self, option: str) -> None:
        self.option = option
        self.count = 0


def _print(
    messages: Iterator[ReceivedMessage[Any]], form: str, is_json: bool, unreadable: _Unreadable, *,
    at_once: bool,
) -> None:
    """Print messages.

    :param at_once: flush the output after each message, because a member of a group acknowledges
        a message when the next one is requested.
    """
    from twistmq.client.base.errors import Undecodable
    from twistmq.client.commands.lines import formatted, json_line

    write = sys.stdout.buffer.write
    last = time.monotonic()
    marked = unreadable.option == "deliver"
    for number, message in enumerate(messages, 1):
        try:
            write(json_line(message, marked=marked) if is_json
                  else formatted(form, message, marked=marked))
        except Undecodable as error:
            if unreadable.option == "stop":
                raise
            print_error(f"left out: {error}")
            unreadable.count += 1
        now = time.monotonic()
        if at_once or sys.stdout.isatty() or now - last > 0.05 or number == 1:
            sys.stdout.buffer.flush()
            last = now
    sys.stdout.buffer.flush()


def _of_group(
    where: str, group: str, topic: str, begin: str, sql_text: str, tag: str, order: bool,
    count: int, arguments: Any, unreadable: _Unreadable,
) -> Generator[ReceivedMessage[Any], None, None]:
    from twistmq.client.blocking.client import Client
    from twistmq.client.blocking.consumer import Consumer
    from twistmq.client.core.consumer.subscriptions import sql

    # A member acknowledges a message when the next one is requested, so all must be requested.
    expression = sql(sql_text) if sql_text else tag
    with Client(where, **arguments) as client:
        # A missing topic is an error, as it is without a group.
        client.read_queues(topic)
        # With "stop" the whole command ends at that message, so delivering it with a mark suffices.
        damaged: Any = "deliver" if unreadable.option == "stop" else unreadable.option
        # The value of a message is the message itself, so every body is accepted.
        consumer: Consumer[Any] = Consumer(
            client=client, group=group, topics={topic: expression},
            start="first" if begin == "first" else "last", order="queue" if order else None,
            decode=lambda message: message, damaged=damaged)
        with consumer:
            for number, message in enumerate(consumer, 1):
                if number == count:
                    consumer.stop()
                yield message
            unreadable.count += consumer.damaged_count


def _of_queues(
    where: str, topic: str, begin: str, to_end: bool, sql_text: str, tag: str, arguments: Any,
    unreadable: _Unreadable,
) -> Generator[ReceivedMessage[Any], None, None]:
    """Read all queues in turn, from a given place.

    Without an end, new queues of the topic are read as well, and unavailable brokers are waited
    for.
    """
    from twistmq.client.blocking.client import Client
    from twistmq.client.core.consumer.damaged_messages import sort_out
    from twistmq.client.core.consumer.pull_request import messages_of
    from twistmq.client.core.consumer.subscriptions import subscription
    from twistmq.protocol.errors import BrokerError

    tags = subscription(topic, tag).tags if not sql_text else frozenset()
    with Client(where, **arguments) as client:
        newer = _NewQueues(client, topic, begin)
        away = newer.away
        offsets = newer.first(to_end)
        ends = {queue: client.max_offset(queue) for queue in offsets} if to_end else {}
        # The queues from which the next message must be pulled without others.
        alone: set[Any] = set()
        while offsets:
            idle = True
            for queue in list(offsets):
                if to_end and offsets[queue] >= ends[queue]:
                    del offsets[queue]
                    continue
                if away.is_left_alone(queue):
                    continue
                try:
                    result = client.pull(
                        queue, offsets[queue], expression=sql_text or tag,
                        expression_type="SQL92" if sql_text else "TAG",
                        max_count=1 if queue in alone else 32)
                except BrokerError as error:
                    if to_end or not away.note(queue, error):
                        raise
                    continue
                away.note_answer(queue)
                damaged: list[DamagedMessage[bytes]] = []
                messages: list[ReceivedMessage[Any]] = messages_of(
                    result, queue, tags, None, damaged, offsets[queue])
                offsets[queue] = result.next_offset
                idle = idle and not result.body
                was_alone = queue in alone
                alone.discard(queue)
                if damaged:
                    # With "stop" the whole command ends at that message, so delivering it with a
                    # mark suffices.
                    option = "deliver" if unreadable.option == "stop" else unreadable.option
                    messages, offsets[queue], _, is_alone, skipped = sort_out(
                        option, result, messages, damaged, "consume", was_alone=was_alone)
                    unreadable.count += skipped
                    if is_alone:
                        alone.add(queue)
                for message in messages:
                    if not to_end or message.offset < ends[queue]:
                        yield message
            if not to_end:
                offsets.update(newer.new_queues())
                away.report()
                if idle:
                    time.sleep(_PULL_HOLD_MS / 1000)


class _Away:
    """The brokers that currently do not answer."""

    def __init__(self) -> None:
        #: The time until which each broker is not asked, by name.
        self._until: dict[str, float] = {}
        #: The first error of each broker; "" after it was reported to the user.
        self._unsaid: dict[str, str] = {}

    def is_left_alone(self, queue: MessageQueue) -> bool:
        """Whether the broker of a queue should not be asked now."""
        return time.monotonic() < self._until.get(queue.broker_name, 0.0)

    def note(self, queue: MessageQueue, error: BrokerError) -> bool:
        """Note that a queue's broker did not answer; :returns: False for any other error."""
        from twistmq.client.base.errors import NoRoute, RemotingError

        if not (isinstance(error, RemotingError | NoRoute) or error.retriable):
            return False
        self._unsaid.setdefault(queue.broker_name, str(error))
        self._until[queue.broker_name] = time.monotonic() + _AWAY_S
        return True

    def report(self) -> None:
        """Report each unavailable broker once."""
        for name, error in self._unsaid.items():
            if error:
                print_error(f"broker {name} is away, and is tried again: {error}")
                self._unsaid[name] = ""

    def note_answer(self, queue: MessageQueue) -> None:
        """Note that the broker of a queue answers again."""
        if self._until.pop(queue.broker_name, None) is not None:
            self._unsaid.pop(queue.broker_name, None)


class _NewQueues:
    """Finds the queues of a topic, including queues that are added while it is read.

    :param begin: the place at which the command begins. With "last", a queue that is added later
        is read from the time at which the command began, because all its later messages are new.
    """

    def __init__(self, client: Client, topic: str, begin: str) -> None:
        self._client = client
        self._topic = topic
        self._begin = begin
        self._since_s = time.time() - _CLOCKS_S
        self._known: set[MessageQueue] = set()
        self._due_s = time.monotonic() + _ROUTE_S
        self.away = _Away()

    def first(self, are_all_needed: bool) -> dict[MessageQueue, int]:
        """The queues at the start, and the offset from which each is read.

        :raises BrokerError: when no queue can be read, or when all are needed and one cannot be
            read.
        """
        failures: list[BrokerError] = []
        offsets = self._offsets_of(self._client.read_queues(self._topic), failures,
                                   lambda queue: _start_offset(self._client, queue, self._begin))
        if failures and (are_all_needed or not offsets):
            raise failures[0]
        self.away.report()
        return offsets

    def new_queues(self) -> dict[MessageQueue, int]:
        """The queues added since the last check, and the offset from which each is read."""
        from twistmq.protocol.errors import BrokerError

        if time.monotonic() < self._due_s:
            return {}
        self._due_s = time.monotonic() + _ROUTE_S
        try:
            queues = self._client.read_queues(self._topic, again=True)
        except BrokerError:
            return {}
        return self._offsets_of(
            queues, [], lambda queue: (
                self._client.search_offset(queue, self._since_s) if self._begin == "last"
                else _start_offset(self._client, queue, self._begin)))

    def _offsets_of(
        self, queues: list[MessageQueue], failures: list[BrokerError],
        offset_of: Callable[[MessageQueue], int],
    ) -> dict[MessageQueue, int]:
        """The offset from which each queue that is not known yet is read.

        :param failures: receives the errors of brokers that do not answer. A later check finds
            their queues.
        """
        from twistmq.protocol.errors import BrokerError

        offsets: dict[MessageQueue, int] = {}
        for queue in queues:
            if queue in self._known or self.away.is_left_alone(queue):
                continue
            try:
                offsets[queue] = offset_of(queue)
            except BrokerError as error:
                if not self.away.note(queue, error):
                    raise
                failures.append(error)
            else:
                self._known.add(queue)
        return offsets


def _check_begin(begin: str) -> None:
    """:raises BadParameter: when it is not a valid place to begin."""
    if begin in ("first", "last") or whole_number(begin) is not None:
        return
    try:
        datetime.fromisoformat(begin)
    except ValueError:
        raise click.BadParameter(
            f"{begin!r} is not a place: give first, last, an offset, or a time such as "
            "2026-01-31T12:00",
            param_hint="--from") from None


def _check_tag(tag: str) -> None:
    """:raises BadParameter: when it was probably meant as SQL92."""
    from twistmq.client.core.consumer.subscriptions import looks_like_sql

    if looks_like_sql(tag):
        raise click.BadParameter(f"{tag!r} looks like SQL92: give it as --sql", param_hint="--tag")


def _start_offset(client: Any, queue: Any, begin: str) -> int:
    """The offset from which a queue is read."""
    if begin == "first":
        return int(client.min_offset(queue))
    if begin == "last":
        return int(client.max_offset(queue))
    number = whole_number(begin)
    if number is not None:
        return max(number, int(client.min_offset(queue)))
    moment = datetime.fromisoformat(begin)
    return int(client.search_offset(queue, moment.timestamp()))
