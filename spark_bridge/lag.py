"""Computes the lag of a streaming query: the number of messages that it has not read yet.

    lag = query_lag(query.lastProgress)
    if lag is not None:
        print(lag.total, lag.max, lag.avg)

Spark does not ask Python sources for metrics. The metrics that ``spark-sql-kafka`` reports as
``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and ``avgOffsetsBehindLatest`` are therefore
computed from the progress of the query. This module does not import PySpark, so it can also read a
progress that was stored as JSON.

Source: KafkaMicroBatchStream.metrics of Spark 4.0; StreamingQueryProgress of PySpark 4.0 to 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.offsets import read_offsets
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Lag", "query_lag", "source_lag"]

Offsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of offsets between the position of a query and the ends of its queues."""

    #: The lag of each queue that exists.
    by_queue: Mapping[MessageQueue, int]

    @property
    def min(self) -> int:
        """The lag of the queue with the shortest backlog."""
        return min(self.by_queue.values(), default=0)

    @property
    def max(self) -> int:
        """The lag of the queue with the longest backlog."""
        return max(self.by_queue.values(), default=0)

    @property
    def avg(self) -> float:
        """The mean over the queues."""
        return self.total / len(self.by_queue) if self.by_queue else 0.0

    @property
    def total(self) -> int:
        """The sum over the queues."""
        return sum(self.by_queue.values())

    def metrics(self) -> dict[str, str]:
        """Return the figures as texts, under the names that spark-sql-kafka uses in a progress.

        The result also contains the sum, ``totalOffsetsBehindLatest``.
        """
        return {"minOffsetsBehindLatest": str(self.min), "maxOffsetsBehindLatest": str(self.max),
                "avgOffsetsBehindLatest": str(self.avg),
                "totalOffsetsBehindLatest": str(self.total)}


def query_lag(progress: Any, client: Client | None = None) -> Lag | None:
    """Compute the lag of a query after the micro-batch that a progress describes.

    :param progress: a ``StreamingQueryProgress``, such as ``query.lastProgress`` or the
        ``event.progress`` of a listener, or the same as a dict or as JSON. Sources of other formats
        are ignored, and several sources of ``rocketmq`` or ``rocketmq_trace`` are combined. The
        result for None, the value of ``query.lastProgress`` before the first progress, is None.
    :param client: a client that asks the brokers for the current ends of the queues. Without it,
        the lag refers to the ends in the progress, which are from the plan of the micro-batch.
    :returns: the lag. It is None if there is no client and the progress lacks the ends of the
        queues, because the query has not read anything yet or PySpark is older than 4.2.
    :raises ValueError: when the value is not a progress or has no source of these formats.
    :raises BrokerError: when a broker or name server does not answer the client.
    """
    if progress is None:
        return None
    sources = [source for source in _sources(progress) if _is_ours(source)]
    if not sources:
        raise ValueError("the progress has no source of the format rocketmq or rocketmq_trace")
    by_queue: Offsets = {}
    lags = [lag for lag in (source_lag(source, client) for source in sources) if lag is not None]
    for lag in lags:
        for queue, behind in lag.by_queue.items():
            # Two sources of one query may read the same queue.
            by_queue[queue] = max(by_queue.get(queue, 0), behind)
    return Lag(by_queue) if lags else None


def source_lag(source: Any, client: Client | None = None,
               latest: Offsets | None = None) -> Lag | None:
    """Compute the lag of one source of a progress; see :func:`query_lag`.

    :param latest: the ends of the queues; None to take them from the client or the progress.
    """
    fields = _fields(source)
    ends = _offsets(fields.get("endOffset"))
    if ends is None:
        return None
    if client is not None:
        latest = {queue: client.max_offset(queue) for queue in ends}
    elif latest is None:
        latest = _offsets(fields.get("latestOffset"))
    if latest is None:
        return None
    # A queue that has just been found is read from its first message on. A queue that is gone has
    # no messages to read.
    return Lag({queue: max(last - ends.get(queue, 0), 0) for queue, last in latest.items()})


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a progress, or of one of its sources, as in Spark's JSON.

    :raises ValueError: when the value is not a progress.
    """
    # The classes of PySpark are dicts too, but on 4.0 with Connect only their JSON has the offsets.
    text = getattr(value, "json", value)
    fields = json.loads(text) if isinstance(text, str) else value
    if not isinstance(fields, Mapping):
        raise ValueError(f"neither a progress of a query nor its JSON: {value!r:.100}")
    return fields


def _sources(progress: Any) -> list[Mapping[str, Any]]:
    sources = _fields(progress).get("sources")
    if not isinstance(sources, list):
        raise ValueError("neither a progress of a query nor its JSON: it has no sources")
    return [_fields(source) for source in sources]


def _is_ours(source: Mapping[str, Any]) -> bool:
    """Whether the offsets of a source, if it has any, name topics, brokers and queues."""
    values = [_value(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")]
    return all(value is None or _offsets(value) is not None for value in values)


def _value(offset: Any) -> Any:
    """Return an offset, which may be JSON within JSON; None if Spark has no offset."""
    if isinstance(offset, str):
        return json.loads(offset) if offset and offset != "None" else None
    return offset


def _offsets(offset: Any) -> Offsets | None:
    """Return the offsets of queues; None if they are missing or have another format."""
    value = _value(offset)
    if not isinstance(value, dict) or not all(
            isinstance(queues, dict) for brokers in value.values()
            for queues in (brokers.values() if isinstance(brokers, dict) else [None])):
        return None
    return read_offsets(value)
