"""The lag of a streaming query: how many messages its queues have that it has not read yet.

    lag = query_lag(query.lastProgress)
    if lag is not None:
        print(lag.total, lag.max, lag.avg)

Spark asks Python sources for no metrics, so that the offsets behind the latest ones, which
``spark-sql-kafka`` reports as ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
``avgOffsetsBehindLatest``, are computed from the progress of the query. This module does not import
PySpark: it reads a progress that was stored as JSON as well.

Source: KafkaMicroBatchStream.metrics of Spark 4.0; StreamingQueryProgress of PySpark 4.0 to 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twistmq.client.blocking.client import Client
from twistmq.protocol.bodies import MessageQueue
from twistmq.spark_bridge.offsets import read_offsets

__all__ = ["Lag", "query_lag", "source_lag"]

Offsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a query is behind the ends of its queues, in offsets."""

    #: Of each queue that is there.
    by_queue: Mapping[MessageQueue, int]

    @property
    def min(self) -> int:
        """The offsets that the queue with the shortest backlog is behind."""
        return min(self.by_queue.values(), default=0)

    @property
    def max(self) -> int:
        """The offsets that the queue with the longest backlog is behind."""
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
        """The figures by the names of spark-sql-kafka, as texts like those of its progress.

        ``totalOffsetsBehindLatest``, the sum, is added to them.
        """
        return {"minOffsetsBehindLatest": str(self.min), "maxOffsetsBehindLatest": str(self.max),
                "avgOffsetsBehindLatest": str(self.avg),
                "totalOffsetsBehindLatest": str(self.total)}


def query_lag(progress: Any, client: Client | None = None) -> Lag | None:
    """The lag of a query after the micro-batch that a progress is of.

    :param progress: a ``StreamingQueryProgress``, such as ``query.lastProgress`` or a listener's
        ``event.progress``; or the same as a dict or as JSON. Sources of other formats are passed
        over, and several of ``rocketmq`` or ``rocketmq_trace`` are added up. None, as
        ``query.lastProgress`` is before the first progress, gives None.
    :param client: compares with where the queues end now, which it asks brokers for; without it
        with where they ended when the micro-batch was planned, as the progress says.
    :returns: the lag; None where the progress does not say where the queues end, because the query
        has not read anything yet or the PySpark is older than 4.2. With a client that is known.
    :raises ValueError: when the progress has no source of these formats, or is no progress.
    :raises BrokerError: when a broker or name server does not answer the client.
    """
    if progress is None:
        return None
    sources = [source for source in _sources(progress) if _is_ours(source)]
    if not sources:
        raise ValueError("the progress has no source of the format rocketmq or rocketmq_trace")
    found: Offsets = {}
    known = [lag for lag in (source_lag(source, client) for source in sources) if lag is not None]
    for lag in known:
        for queue, behind in lag.by_queue.items():
            # Two sources of one query may read the same queue.
            found[queue] = max(found.get(queue, 0), behind)
    return Lag(found) if known else None


def source_lag(source: Any, client: Client | None = None,
               latest: Offsets | None = None) -> Lag | None:
    """The lag of one source of a progress, as :func:`query_lag` says it of all.

    :param latest: where the queues end, in place of what the progress or a client says.
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
    # A queue that has just been found is read from its first message on. One that is gone has no
    # message to read.
    return Lag({queue: max(last - ends.get(queue, 0), 0) for queue, last in latest.items()})


def _fields(value: Any) -> Mapping[str, Any]:
    """A progress, or a source of one, as Spark's JSON has it.

    :raises ValueError: when the value is not a progress.
    """
    # PySpark's classes are dicts as well; on 4.0 with Connect only their JSON has the offsets.
    text = getattr(value, "json", value)
    found = json.loads(text) if isinstance(text, str) else value
    if not isinstance(found, Mapping):
        raise ValueError(f"neither a progress of a query nor its JSON: {value!r:.100}")
    return found


def _sources(progress: Any) -> list[Mapping[str, Any]]:
    found = _fields(progress).get("sources")
    if not isinstance(found, list):
        raise ValueError("neither a progress of a query nor its JSON: it has no sources")
    return [_fields(source) for source in found]


def _is_ours(source: Mapping[str, Any]) -> bool:
    """Whether the offsets of a source name topics, brokers and queues, as far as it has any."""
    values = [_value(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")]
    return all(value is None or _offsets(value) is not None for value in values)


def _value(offset: Any) -> Any:
    """An offset, which may be JSON within JSON; None where Spark has no offset."""
    if isinstance(offset, str):
        return json.loads(offset) if offset and offset != "None" else None
    return offset


def _offsets(offset: Any) -> Offsets | None:
    """The offsets of queues; None for none, and for those of another format."""
    value = _value(offset)
    if not isinstance(value, dict) or not all(
            isinstance(queues, dict) for brokers in value.values()
            for queues in (brokers.values() if isinstance(brokers, dict) else [None])):
        return None
    return read_offsets(value)
