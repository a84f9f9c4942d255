"""The read of trace events, which is a read of the messages of the trace topic.

Source: TraceConstants, TopicValidator.RMQ_SYS_TRACE_TOPIC @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from twistmq.integrations.tables.columns import Column
from twistmq.integrations.tables.options import OptionError, option_text
from twistmq.integrations.tables.trace_events import TraceEvents
from twistmq.protocol.topic_names import TRACE_TOPIC

__all__ = ["events_of", "message_options", "without_prefix"]

#: The options for messages that have no meaning for events.
_WITHOUT_MEANING: Final = ("includeBody", "includeProperties", "bodyFormat", "propertiesAs")
_TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign", "topic", "topics")
_LOG: Final = logging.getLogger("twistmq.tables")


def message_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the read of the trace messages.

    :raises OptionError: when an option has no meaning for events.
    """
    options = {key: value for key, value in given.items() if key.lower() != "columns"}
    for name in _WITHOUT_MEANING:
        if option_text(options, name):
            raise OptionError(f"option {name}: it has no meaning for traces")
    if option_text(options, "damaged").lower() == "deliver":
        raise OptionError("option damaged: a trace message that cannot be read has no events; "
                          "fail or skip")
    if not any(option_text(options, name) for name in _TOPIC_OPTIONS):
        options["subscribe"] = TRACE_TOPIC
    return options


def without_prefix(given: Mapping[str, str]) -> dict[str, str]:
    """Remove the prefix that options of the format rocketmq may have."""
    return {key.lower().removeprefix("rocketmq."): value for key, value in given.items()}


def events_of(batches: Iterator[Any], columns: Sequence[Column]
              ) -> Generator[Any, None, None]:
    """Convert record batches of trace messages to record batches of events.

    :param columns: the columns of the events, from TRACE_COLUMNS.
    """
    events = TraceEvents(columns)
    for batch in batches:
        yield from events.batches(batch)
    if events.bad_count:
        _LOG.warning("%d records of traces cannot be read; skipped", events.bad_count)
