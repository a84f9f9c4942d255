"""``twistmq consume``: messages in, lines or JSON out."""

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
    complain,
    guarded,
)

if TYPE_CHECKING:
    from twistmq.broker.errors import BrokerError
    from twistmq.client.blocking import Client
    from twistmq.client.messages import MessageQueue, ReceivedMessage
    from twistmq.client.received_message import DamagedMessage

__all__ = ["consume"]

#: Fields of ``consume -f``, by the letter behind the percent sign.
_FIELDS: Final = "t topic, b broker, q queue, o offset, T tag, k keys, K sharding key, " \
                 "i id, d stored at, s body, n newline, % percent sign"
#: The time without a message after which ``--to end`` looks whether the end is reached, seconds.
_PULL_HOLD_MS: Final = 500
#: How often the route is asked for queues that the topic got, seconds.
_ROUTE_S: Final = 5.0
#: How long a broker that did not answer is left alone, seconds.
_AWAY_S: Final = 20.0
#: How much earlier than this command a broker's clock may be, ms.
_CLOCKS_MS: Final = 5000


@click.command()
@click.argument("topic")
@client_options
@click.option("-g", "group", default="", help="Consume as a member of a group, and commit.")
@click.option("--from", "begin", default="last", show_default=True, metavar="PLACE",
              help="first, last, an offset, or a time as 2026-01-31T12:00.")
@click.option("--to", "end", type=click.Choice(["end"]), help="Stop at the end of the queues.")
@click.option("--tag", default="*", help="Tags, as 'a || b'.")
@click.option("--sql", "sql_text", default="", help="A filter in SQL92.")
@click.option("-c", "count", type=click.IntRange(0), default=0,
              help="Stop after so many messages.")
@click.option("-f", "form", default="%s\\n", show_default=True, help=f"The output: {_FIELDS}.")
@click.option("--json", "is_json", is_flag=True, help="A JSON object a line.")
@click.option("--damaged", type=click.Choice(["skip", "stop", "deliver"]), default="skip",
              show_default=True, help="What becomes of a message that cannot be read: skip it and "
              "fail at the end, stop at once, or print it marked.")
@click.option("--order", is_flag=True, help="In a group: keep the order of each queue.")
def consume(
    topic: str, where: str, access_key: str, secret_key: str, namespace: str, timeout_s: float,
    group: str, begin: str, end: str | None, tag: str, sql_text: str, count: int, form: str,
    is_json: bool, damaged: str, order: bool,
) -> None:
    """Print the messages of TOPIC.

    Without a group the queues are read from a place, and nothing is committed.
    """
    if (group and begin not in ("first", "last")) or (group and end):
        raise click.UsageError("a group begins at 'first' or 'last', and has no --to")
    _check_place(begin)
    # A group waits for what is not there, and says so.
    logging.getLogger("twistmq.client").setLevel(logging.WARNING if group else logging.ERROR)
    arguments = arguments_of(access_key, secret_key, namespace, timeout_s)
    unreadable = _Unreadable(damaged)
    messages = (
        _of_group(where, group, topic, begin, sql_text, tag, order, count, arguments, unreadable)
        if group else
        _of_queues(where, topic, begin, end is not None, sql_text, tag, arguments, unreadable))
    # After an error its traceback keeps the generator, which any thread may then finish.
    with guarded(), closing(messages):
        _print(messages if group else islice(messages, count or None), form, is_json, unreadable,
               at_once=bool(group))
        if unreadable.count:
            complain(f"{unreadable.count} messages could not be read")
            sys.exit(EXIT_FAILED)


class _Unreadable:
    """The messages that could not be read and were left out.

    :param option: "skip", "stop" or "deliver".
    """

    def __init__(self, option: str) -> None:
        self.option = option
        self.count = 0


def _print(
    found: Iterator[ReceivedMessage[Any]], form: str, is_json: bool, unreadable: _Unreadable, *,
    at_once: bool,
) -> None:
    """Print messages.

    :param at_once: leave nothing in the buffer: a member of a group acknowledges a message when the
        next one is asked for.
    """
    from twistmq.client.commands.lines import formatted, json_line
    from twistmq.client.errors import Undecodable

    write = sys.stdout.buffer.write
    last = time.monotonic()
    marked = unreadable.option == "deliver"
    for number, message in enumerate(found, 1):
        try:
            write(json_line(message, marked=marked) if is_json
                  else formatted(form, message, marked=marked))
        except Undecodable as error:
            if unreadable.option == "stop":
                raise
            complain(f"left out: {error}")
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
    from twistmq.client.blocking import Client
    from twistmq.client.consumer import Consumer
    from twistmq.client.core.subscriptions import sql

    # A member acknowledges a message when it is asked for the next: it has to be asked to the end.
    wanted = sql(sql_text) if sql_text else tag
    with Client(where, **arguments) as client:
        # A topic that is not there is an error, as it is without a group.
        client.read_queues(topic)
        # Where it stops the whole command ends, so its mark is enough.
        damaged: Any = "deliver" if unreadable.option == "stop" else unreadable.option
        # A message has itself as its value, so that each one comes, whatever its body is.
        consumer: Consumer[Any] = Consumer(
            client, group=group, topics={topic: wanted},
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
    """Read all queues in turn, from a place.

    Without an end, queues that the topic gets are read too, and a broker that is away is waited
    for.
    """
    from twistmq.broker.errors import BrokerError
    from twistmq.client.blocking import Client
    from twistmq.client.core.damaged import sort_out
    from twistmq.client.core.pulling import messages_of
    from twistmq.client.core.subscriptions import subscription

    tags = subscription(topic, tag).tags if not sql_text else frozenset()
    with Client(where, **arguments) as client:
        newer = _NewQueues(client, topic, begin)
        away = newer.away
        places = newer.first(to_end)
        ends = {queue: client.max_offset(queue) for queue in places} if to_end else {}
        # Queues whose next message is asked for alone.
        alone: set[Any] = set()
        while places:
            idle = True
            for queue in list(places):
                if to_end and places[queue] >= ends[queue]:
                    del places[queue]
                    continue
                if away.is_left_alone(queue):
                    continue
                try:
                    result = client.pull(
                        queue, places[queue], expression=sql_text or tag,
                        expression_type="SQL92" if sql_text else "TAG",
                        max_count=1 if queue in alone else 32)
                except BrokerError as error:
                    if to_end or not away.note(queue, error):
                        raise
                    continue
                away.over(queue)
                damaged: list[DamagedMessage[bytes]] = []
                messages: list[ReceivedMessage[Any]] = messages_of(
                    result, queue, tags, None, damaged, places[queue])
                places[queue] = result.next_offset
                idle = idle and not result.body
                was_alone = queue in alone
                alone.discard(queue)
                if damaged:
                    # Where it stops the whole command ends, so its mark is enough.
                    option = "deliver" if unreadable.option == "stop" else unreadable.option
                    messages, places[queue], _, is_alone, skipped = sort_out(
                        option, result, messages, damaged, "consume", was_alone=was_alone)
                    unreadable.count += skipped
                    if is_alone:
                        alone.add(queue)
                for message in messages:
                    if not to_end or message.offset < ends[queue]:
                        yield message
            if not to_end:
                places.update(newer.look())
                away.say()
                if idle:
                    time.sleep(_PULL_HOLD_MS / 1000)


class _Away:
    """The brokers that do not answer now."""

    def __init__(self) -> None:
        #: Until when each is left alone, by name.
        self._until: dict[str, float] = {}
        #: The first error of each; "" once the user was told.
        self._unsaid: dict[str, str] = {}

    def is_left_alone(self, queue: MessageQueue) -> bool:
        """Whether the broker of a queue is not asked now."""
        return time.monotonic() < self._until.get(queue.broker_name, 0.0)

    def note(self, queue: MessageQueue, error: BrokerError) -> bool:
        """The broker of a queue did not answer; :returns: False when the error is another one."""
        from twistmq.broker.errors import RemotingError
        from twistmq.client.errors import NoRoute

        if not (isinstance(error, RemotingError | NoRoute) or error.retriable):
            return False
        self._unsaid.setdefault(queue.broker_name, str(error))
        self._until[queue.broker_name] = time.monotonic() + _AWAY_S
        return True

    def say(self) -> None:
        """Say once of each broker that it is away."""
        for name, error in self._unsaid.items():
            if error:
                complain(f"broker {name} is away, and is tried again: {error}")
                self._unsaid[name] = ""

    def over(self, queue: MessageQueue) -> None:
        """The broker of a queue answers."""
        if self._until.pop(queue.broker_name, None) is not None:
            self._unsaid.pop(queue.broker_name, None)


class _NewQueues:
    """The queues of a topic, also those that it gets while it is read.

    :param begin: where the command begins. With "last", a queue that comes later is read from the
        time at which the command began, because what it has since then came after that.
    """

    def __init__(self, client: Client, topic: str, begin: str) -> None:
        self._client = client
        self._topic = topic
        self._begin = begin
        self._since_ms = int(time.time() * 1000) - _CLOCKS_MS
        self._known: set[MessageQueue] = set()
        self._due_s = time.monotonic() + _ROUTE_S
        self.away = _Away()

    def first(self, are_all_needed: bool) -> dict[MessageQueue, int]:
        """The queues at the start, and where each is read from.

        :raises BrokerError: when no queue can be read, or one of those that are all needed.
        """
        failures: list[BrokerError] = []
        found = self._places(self._client.read_queues(self._topic), failures,
                             lambda queue: _place(self._client, queue, self._begin))
        if failures and (are_all_needed or not found):
            raise failures[0]
        self.away.say()
        return found

    def look(self) -> dict[MessageQueue, int]:
        """The queues that came since the last look, and where each is read from."""
        from twistmq.broker.errors import BrokerError

        if time.monotonic() < self._due_s:
            return {}
        self._due_s = time.monotonic() + _ROUTE_S
        try:
            queues = self._client.read_queues(self._topic, again=True)
        except BrokerError:
            return {}
        return self._places(
            queues, [], lambda queue: (
                self._client.search_offset(queue, self._since_ms) if self._begin == "last"
                else _place(self._client, queue, self._begin)))

    def _places(
        self, queues: list[MessageQueue], failures: list[BrokerError],
        place: Callable[[MessageQueue], int],
    ) -> dict[MessageQueue, int]:
        """Where each of the queues that are not known yet is read from.

        :param failures: gets the errors of brokers that do not answer. Their queues are found by a
            later look.
        """
        from twistmq.broker.errors import BrokerError

        found: dict[MessageQueue, int] = {}
        for queue in queues:
            if queue in self._known or self.away.is_left_alone(queue):
                continue
            try:
                found[queue] = place(queue)
            except BrokerError as error:
                if not self.away.note(queue, error):
                    raise
                failures.append(error)
            else:
                self._known.add(queue)
        return found


def _check_place(begin: str) -> None:
    """:raises BadParameter: when it is no place to begin at."""
    if begin in ("first", "last") or begin.isdecimal():
        return
    try:
        datetime.fromisoformat(begin)
    except ValueError:
        raise click.BadParameter(
            f"{begin!r} is no place: give first, last, an offset, or a time as 2026-01-31T12:00",
            param_hint="--from") from None


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
