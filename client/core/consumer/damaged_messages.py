"""Damaged records: how a stored message that cannot be read is treated.

    skip      leave it out, log it and count it
    stop      stop reading its queue until a tool or the program moves past it
    deliver   deliver it to the program, marked by its ``damage``

A record is damaged when its body does not match its CRC, when its lengths are inconsistent, or when
it claims to be a batch and is not one. If its total length is wrong, no record after it in the
response can be found. The member then pulls this message alone, because a response with one record
ends where the record ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from twistmq.client.base.messages import PullResult, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.protocol.log_rate import LimitedLines

__all__ = ["DAMAGED", "DamageLog", "Sorted", "sort_out"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The values of the option ``damaged``.
DAMAGED: Final = ("skip", "stop", "deliver")
#: The number of lines about damaged messages in a minute; each names a message, which a person may
#: look for.
_LINES: Final = 100


class DamageLog:
    """The damaged messages of one member: their lines in the log, and their number."""

    def __init__(self, tasks: Scheduler) -> None:
        self._tasks = tasks
        self._lines = LimitedLines(log.error, _LINES)
        #: The number of damaged messages that were left out.
        self.count = 0

    def log_error(self, text: str, *arguments: object) -> None:
        """Log an error about a damaged message; above a rate, only the number of lines is kept."""
        self._lines.write(self._tasks.now_ms, text, *arguments)


class Sorted(NamedTuple):
    """The result of sorting out the damaged messages of a response.

    :param messages: the messages for the program, in order.
    :param next_offset: the offset at which the next pull begins.
    :param stopped: the message at which reading stops.
    :param is_alone: whether the next pull should request only one message.
    :param skipped: the number of messages that were left out.
    """

    messages: list[ReceivedMessage[object]]
    next_offset: int
    stopped: DamagedMessage[object] | None
    is_alone: bool
    skipped: int


def sort_out(
    option: str, result: PullResult, whole: list[ReceivedMessage[T]],
    damaged: list[DamagedMessage[T]], reader: str, *, was_alone: bool,
    log_error: Callable[..., object] = log.error,
) -> Sorted:
    """Treat the damaged messages of a response as the option specifies.

    :param option: "skip", "stop" or "deliver".
    :param damaged: at least one message, in order.
    :param reader: the name of the reader in the log.
    :param was_alone: whether the pull requested only one message.
    :param log_error: writes a line to the log.
    """
    messages: list[ReceivedMessage[object]] = list(whole)  # type: ignore[arg-type]
    treated: list[DamagedMessage[object]] = list(damaged)  # type: ignore[arg-type]
    next_offset, is_alone = result.next_offset, False
    if treated[-1].is_cut and treated[-1].offset + 1 < next_offset and not was_alone:
        next_offset, is_alone = treated.pop().offset, True
    for each in treated if option == "stop" else ():
        messages = [message for message in messages if message.offset < each.offset]
        return Sorted(messages, each.offset, each, False, 0)
    for each in treated:
        log_error("%s: %r is %s: %s", reader, each,
                  "left out" if option == "skip" else "handed over as it is", each.damage)
    if option == "skip":
        return Sorted(messages, next_offset, None, is_alone, len(treated))
    messages = sorted([*messages, *treated], key=lambda message: message.offset)
    return Sorted(messages, next_offset, None, is_alone, 0)
