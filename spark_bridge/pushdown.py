"""Uses the filters of Spark to read fewer queues and offsets, and to filter tags on the broker.

A filter can only reduce the rows of a read, and Spark checks each row again. A filter that is not
used here therefore costs time but does not change the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from twistmq.client.blocking.client import Client
from twistmq.protocol.bodies import MessageQueue
from twistmq.spark_bridge.queue_reader import ReadPlan
from twistmq.spark_bridge.ranges import QueueRange

__all__ = ["Pushed"]

#: The columns that identify the queue of a row.
_QUEUE_COLUMNS: Final[dict[str, Callable[[MessageQueue], Any]]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": lambda left, right: bool(left == right),
    "GreaterThan": lambda left, right: bool(left > right),
    "GreaterThanOrEqual": lambda left, right: bool(left >= right),
    "LessThan": lambda left, right: bool(left < right),
    "LessThanOrEqual": lambda left, right: bool(left <= right),
    "In": lambda left, right: left in right,
    "StringStartsWith": lambda left, right: str(left).startswith(right),
}


class Pushed:
    """The filters of one query, combined."""

    def __init__(self) -> None:
        #: The filters on the columns of the queue: the column, the comparison and the value.
        self._of_queue: list[tuple[str, str, Any]] = []
        #: The comparisons and values of the filters on queueOffset, and on storeTimestamp in ms.
        self._of_offset: list[tuple[str, int]] = []
        self._of_time: list[tuple[str, int]] = []
        #: The tags of which a row must have one; None for any tag.
        self._tags: list[str] | None = None

    def take(self, one: Any) -> None:
        """Add a filter of ``pyspark.sql.datasource`` if it can reduce the read."""
        kind = type(one).__name__
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1 or kind not in _COMPARISONS:
            return
        column, value = path[0], one.value
        if column in _QUEUE_COLUMNS:
            self._of_queue.append((column, kind, value))
        elif column == "queueOffset" and isinstance(value, int):
            self._of_offset.append((kind, value))
        elif column == "storeTimestamp" and isinstance(value, datetime):
            # The read includes the whole millisecond; Spark drops the rows that do not match.
            self._of_time.append((kind, int(value.timestamp() * 1000)))
        elif column == "tags" and kind in ("EqualTo", "In"):
            tags = [value] if kind == "EqualTo" else list(value)
            # A value that is not valid in a tag expression must not be sent to the broker.
            if all(isinstance(tag, str) and tag.strip() == tag and tag and "|" not in tag
                   and tag != "*" for tag in tags):
                self._tags = tags if self._tags is None else [
                    tag for tag in self._tags if tag in tags]

    def takes_queue(self, queue: MessageQueue) -> bool:
        """Whether rows of a queue can pass the filters."""
        return self._tags != [] and all(
            _COMPARISONS[kind](_QUEUE_COLUMNS[column](queue), value)
            for column, kind, value in self._of_queue)

    def narrow(self, client: Client, part: QueueRange) -> QueueRange:
        """Remove from a range the offsets whose rows cannot pass the filters."""
        start, end = part.start, part.end
        for kind, value in self._of_offset:
            if kind in ("EqualTo", "GreaterThanOrEqual"):
                start = max(start, value)
            if kind == "GreaterThan":
                start = max(start, value + 1)
            if kind in ("EqualTo", "LessThanOrEqual"):
                end = min(end, value + 1)
            if kind == "LessThan":
                end = min(end, value)
        for kind, time_ms in self._of_time:
            if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
                start = max(start, client.search_offset(part.queue, time_ms))
            if kind in ("EqualTo", "LessThan", "LessThanOrEqual"):
                end = min(end, client.search_offset(part.queue, time_ms + 1))
        return dataclasses.replace(part, start=start, end=max(start, end))

    def planned(self, plan: ReadPlan) -> ReadPlan:
        """Return the plan with the tags as its expression, unless it already has an expression."""
        if self._tags and plan.expression_type == "TAG" and plan.expression in ("", "*"):
            return dataclasses.replace(plan, expression=" || ".join(self._tags))
        return plan
