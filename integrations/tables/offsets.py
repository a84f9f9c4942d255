"""The JSON format of offsets in options and checkpoints: ``{"topic":{"broker-a":{"0":23}}}``.

A checkpoint may also have the key ``@last``, which is not a valid topic name. It holds a mark of
the last message before each offset: ``[place in the commit log, store time]``. The marks show
whether a queue still has the messages that were read. Checkpoints of earlier versions lack them.

In options, -2 stands for the first offset of a queue and -1 for its end. The same format is used
for queues (the option ``assign`` has a list of ids in place of the inner object) and for times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from twistmq.integrations.tables.options import OptionError, parse_time
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.decimal_text import whole_number

__all__ = ["EARLIEST", "LATEST", "Mark", "offsets_json", "parse_assign", "parse_offsets",
           "parse_times", "queue_name", "read_marks", "read_offsets"]

EARLIEST: Final = -2
LATEST: Final = -1
_INT64_MAX: Final = (1 << 63) - 1
#: The key of the marks in a checkpoint.
_MARKS: Final = "@last"
#: The place of a message in the commit log, and its store time, Unix ms.
Mark = tuple[int, int]
#: The largest id of a queue.
_INT32_MAX: Final = 2**31 - 1


def queue_name(queue: MessageQueue) -> str:
    """Return the description of a queue for texts of errors and logs."""
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"


def offsets_json(offsets: Mapping[MessageQueue, int],
                 marks: Mapping[MessageQueue, Mark] | None = None) -> dict[str, Any]:
    """Encode offsets for a checkpoint, with sorted keys, so that equal offsets give equal texts.

    :param marks: the mark of the last message before each offset, as far as it is known.
    """
    encoded = _by_queue(offsets)
    if marks:
        encoded[_MARKS] = _by_queue({queue: list(mark) for queue, mark in marks.items()})
    return encoded


def _by_queue(values: Mapping[MessageQueue, Any]) -> dict[str, Any]:
    by_topic: dict[str, Any] = {}
    for queue in sorted(values):
        brokers = by_topic.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = values[queue]
    return by_topic


def read_marks(value: Mapping[str, Any]) -> dict[MessageQueue, Mark]:
    """Decode the marks that :func:`offsets_json` encoded."""
    return {_queue("the checkpoint", topic, broker, queue_id): (int(mark[0]), int(mark[1]))
            for topic, brokers in value.get(_MARKS, {}).items()
            for broker, queues in brokers.items() for queue_id, mark in queues.items()}


def read_offsets(value: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Decode offsets that :func:`offsets_json` encoded.

    :raises OptionError: when the id of a queue is invalid.
    """
    return {_queue("the checkpoint", topic, broker, queue_id): int(offset)
            for topic, brokers in value.items() if topic != _MARKS
            for broker, queues in brokers.items() for queue_id, offset in queues.items()}


def parse_offsets(option: str, text: str) -> dict[MessageQueue, int]:
    """Read offsets from an option.

    :raises OptionError: when the text is wrong; the error names the option and the queue.
    """
    return _numbers(option, text, EARLIEST, "-2 (earliest), -1 (latest) or an offset")


def parse_times(option: str, text: str) -> dict[MessageQueue, int]:
    """Read times, Unix ms, from an option.

    :raises OptionError: when the text is wrong; the error names the option and the queue.
    """
    return _numbers(option, text, 0, "milliseconds since 1970", parse_time)


def parse_assign(text: str) -> list[MessageQueue]:
    """Read the option assign; :raises OptionError: when the text is wrong."""
    queues = []
    for topic, broker, ids in _brokers("assign", text):
        if not isinstance(ids, list):
            raise OptionError(f"option assign: topic {topic}, broker {broker}: the ids of queues "
                              'must be a list, as in {"orders":{"broker-a":[0,1]}}')
        for queue_id in ids:
            queues.append(_queue("option assign", topic, broker, queue_id))
    if not queues:
        raise OptionError("option assign: it names no queue")
    return sorted(set(queues))


def _numbers(option: str, text: str, minimum: int, what: str,
             parse_text: Callable[[str, str], int] | None = None) -> dict[MessageQueue, int]:
    """Read a number for each queue.

    :param parse_text: a function that parses a number given as text; None if text is not allowed.
    """
    numbers = {}
    for topic, broker, queues in _brokers(option, text):
        if not isinstance(queues, dict):
            raise OptionError(f"option {option}: topic {topic}, broker {broker}: not an object, "
                              "as in "
                              '{"orders":{"broker-a":{"0":23}}}')
        for queue_id, number in queues.items():
            queue = _queue(f"option {option}", topic, broker, queue_id)
            if parse_text is not None and isinstance(number, str):
                number = parse_text(f"{option}: {queue_name(queue)}", number)
            if isinstance(number, bool) or not isinstance(number, int) or not (
                    minimum <= number <= _INT64_MAX):
                raise OptionError(f"option {option}: {queue_name(queue)}: {number!r} is not {what}")
            numbers[queue] = number
    return numbers


def _brokers(option: str, text: str) -> list[tuple[str, str, Any]]:
    """Decode the JSON of an option to a list of topics, brokers and values."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {option}: {text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise OptionError(f"option {option}: {text!r} is not a JSON object of topics")
    entries = []
    for topic, brokers in value.items():
        if topic == _MARKS:
            # The offsets were copied from a checkpoint.
            continue
        if not isinstance(brokers, dict):
            raise OptionError(f"option {option}: topic {topic}: {brokers!r} is not an "
                              "object of brokers")
        entries += [(topic, broker, queues) for broker, queues in brokers.items()]
    return entries


def _queue(where: str, topic: str, broker: str, queue_id: Any) -> MessageQueue:
    number = None if isinstance(queue_id, bool) else whole_number(str(queue_id), _INT32_MAX)
    if number is None:
        raise OptionError(f"{where}: topic {topic}, broker {broker}: {queue_id!r} is not "
                          "the id of a queue")
    return MessageQueue(topic, broker, number)
