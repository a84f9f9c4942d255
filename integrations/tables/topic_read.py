"""The read of topics as a batch: the plan, and the record batches of each part of it.

The read covers the messages between two offsets of each queue, which are determined when it is
planned. A part is a range of one queue. The parts can be read by one process after another, or by
many at the same time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from twistmq.client.base.errors import NoRoute, ProtocolError, Undecodable
from twistmq.client.blocking.client import Client
from twistmq.client.core.consumer.subscriptions import looks_like_sql
from twistmq.integrations.tables.availability import is_denied
from twistmq.integrations.tables.columns import Column, select_columns
from twistmq.integrations.tables.connection import client_settings
from twistmq.integrations.tables.offsets import queue_name
from twistmq.integrations.tables.options import STREAM_READ, OptionError, Options, option_text
from twistmq.integrations.tables.queue_reader import BATCH_BYTES, ReadPlan, read_range
from twistmq.integrations.tables.ranges import QueueRange, split
from twistmq.integrations.tables.read_planner import brokers_of, check_brokers, planned
from twistmq.integrations.tables.subscription import Subscription
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import RemotingError, RequestRefused

__all__ = ["TopicPart", "TopicRead", "naming_the_option", "read_plan", "selected_columns"]

_GROUP_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A range of one queue, and the brokers of its topic when the read was planned."""

    range: QueueRange
    #: The brokers that had the topic; empty if the options name each queue.
    brokers: tuple[str, ...] = ()
    #: The time of the plan, Unix ms.
    planned_ms: int = 0


def selected_columns(given: Mapping[str, str]) -> list[Column]:
    """Return the message columns that options select.

    :param given: the names and texts of options, which are not checked yet.
    :raises ColumnsError: when they select no column or an unknown one.
    """
    return select_columns(
        option_text(given, "columns"),
        has_properties=option_text(given, "includeProperties").lower() != "false",
        has_body=option_text(given, "includeBody").lower() != "false",
        body_format=option_text(given, "bodyFormat") or "binary",
        properties_as=option_text(given, "propertiesAs") or "map",
        damaged=option_text(given, "damaged"))


def read_plan(
    options: Options, columns: tuple[Column, ...], batch_bytes: int = BATCH_BYTES
) -> ReadPlan:
    """Make the plan for the tasks; :raises OptionError: when options contradict each other."""
    group = options.text("group") or options.text("groupIdPrefix")
    if len(group) > _GROUP_LENGTH_MAX:
        raise OptionError(f"option group: longer than {_GROUP_LENGTH_MAX}")
    expression = options.text("subExpression")
    expression_type = options.text("subExpressionType").upper()
    if expression_type == "TAG" and looks_like_sql(expression):
        raise OptionError(f"option subExpression: {expression!r} looks like SQL92, but "
                          "subExpressionType is TAG: set it to SQL92")
    return ReadPlan(
        client_settings(options), columns, group, expression, expression_type,
        options.integer("pullBatchSize"),
        options.flag("failOnDataLoss"), options.text("damaged").lower() or (
            "fail" if options.flag("failOnDataLoss") else "skip"),
        _names(options.text("brokers")),
        _names(options.text("removedBrokers")) if options.where == STREAM_READ else (),
        batch_bytes)


def _names(text: str) -> tuple[str, ...]:
    """Split a list of names at commas and sort it."""
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


@contextlib.contextmanager
def naming_the_option(queue: MessageQueue | None = None) -> Iterator[None]:
    """Convert an error during planning to one that names the option and the queue.

    :raises OptionError: when a server cannot be reached, refuses a request, or sends a response
        that cannot be used.
    """
    try:
        yield
    except (RemotingError, RequestRefused, ProtocolError, Undecodable) as error:
        prefix = "" if queue is None else f"{queue_name(queue)}: "
        option = "accessKey" if is_denied(error) else "nameServer"
        raise OptionError(f"option {option}: {prefix}{error}") from None


class TopicRead:
    """Reads the messages between two offsets of each queue.

    :param options: the options of a batch.
    :param batch_bytes: the approximate size of a record batch.
    :raises OptionError: when options contradict each other.
    """

    def __init__(
        self, options: Options, columns: tuple[Column, ...], batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._options = options
        self._subscription = Subscription(options)
        self._plan = read_plan(options, columns, batch_bytes)
        #: The brokers of each topic, according to the route from which the plan was made.
        self._brokers: dict[str, set[str]] = {}

    def queue_parts(self) -> list[TopicPart]:
        """Ask where the queues begin and end.

        :returns: a part for each queue, or more if the options require it, in the order of the
            queues.
        :raises OptionError, TopicMissing, StillAway, DataLoss: when the range of a queue cannot be
            determined.
        """
        with self._plan.settings.client() as client, naming_the_option():
            planned_ms = time.time_ns() // 1_000_000
            ranges = planned(self._plan, client, self._ranges)
        pieces = split(ranges, self._options.integer_or_none("minPartitions"),
                       self._options.integer_or_none("maxRecordsPerPartition"))
        if self._options.is_given("assign"):
            return [TopicPart(one) for one in pieces]
        return [TopicPart(one, tuple(sorted(self._brokers[one.topic])), planned_ms)
                for one in pieces]

    def _ranges(self, client: Client) -> list[QueueRange]:
        """Determine the range to read from each queue."""
        queues = self._subscription.queues(client, refresh=True)
        self._brokers = brokers_of(queues)
        start = self._subscription.start(client, queues)
        end = self._subscription.end(client, queues)
        ranges = _ranges(start, end, self._subscription.ending_option)
        if brokers_of(self._subscription.queues(client, refresh=True)) != self._brokers:
            raise NoRoute("the brokers of a topic changed while the read was planned")
        return ranges

    def batches(self, part: TopicPart) -> Iterator[Any]:
        """Read one part.

        :returns: record batches with the rows in the order of the queue.
        :raises DataLoss, ReadFailed, BodyUnreadable: with the queue and the offset in the text.
        """
        plan = self._plan
        if not part.brokers:
            return read_range(plan, part.range)
        return read_range(plan, part.range, partial(
            check_brokers, plan, part.range.topic, part.brokers, part.planned_ms))


def _ranges(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int],
            ending_option: str) -> list[QueueRange]:
    """Combine the start and the end of each queue into a range.

    :param ending_option: the name of the option that determines the ends; error texts contain it.
    :raises OptionError: when the end of a queue is before its start.
    """
    ranges = []
    for queue, first in start.items():
        if end[queue] < first:
            raise OptionError(f"option {ending_option}: {queue_name(queue)}: it ends at "
                              f"{end[queue]}, before it starts at {first}")
        ranges.append(QueueRange(queue.topic, queue.broker_name, queue.queue_id, first, end[queue]))
    return ranges
