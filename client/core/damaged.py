"""Damaged records: what becomes of a message that is stored and cannot be read.

    skip      leave it out, with a line in the log and a count
    stop      read no further in its queue until a tool or the program moves over it
    deliver   hand it to the program, marked by its ``damage``

A record is damaged when its body has another CRC, when its lengths do not add up, or when it says
to be a batch and is not one. Where its length itself is wrong, nothing behind it in the answer can
be found: a pull of that message alone ends where it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from twistmq.client.messages import PullResult, ReceivedMessage
from twistmq.client.received_message import DamagedMessage

__all__ = ["DAMAGED", "Sorted", "sort_out"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The values of the option ``damaged``.
DAMAGED: Final = ("skip", "stop", "deliver")


class Sorted(NamedTuple):
    """The parts of an answer with damaged messages.

    :param messages: the messages for the program, in order.
    :param next_offset: where the next pull begins.
    :param stopped: the message that reading stops at.
    :param is_alone: whether the next pull is to ask for one message only.
    :param skipped: how many messages were left out.
    """

    messages: list[ReceivedMessage[object]]
    next_offset: int
    stopped: DamagedMessage[object] | None
    is_alone: bool
    skipped: int


def sort_out(
    option: str, result: PullResult, whole: list[ReceivedMessage[T]],
    damaged: list[DamagedMessage[T]], reader: str, *, was_alone: bool,
    say: Callable[..., object] = log.error,
) -> Sorted:
    """Treat the damaged messages of an answer as the option says.

    :param option: "skip", "stop" or "deliver".
    :param damaged: at least one, in order.
    :param reader: who reads, for the log.
    :param was_alone: whether the pull asked for one message only.
    :param say: writes a line into the log.
    """
    messages: list[ReceivedMessage[object]] = list(whole)  # type: ignore[arg-type]
    left: list[DamagedMessage[object]] = list(damaged)  # type: ignore[arg-type]
    next_offset, is_alone = result.next_offset, False
    if left[-1].is_cut and left[-1].offset + 1 < next_offset and not was_alone:
        next_offset, is_alone = left.pop().offset, True
    for each in left if option == "stop" else ():
        messages = [message for message in messages if message.offset < each.offset]
        return Sorted(messages, each.offset, each, False, 0)
    for each in left:
        say("%s: %r is %s: %s", reader, each,
            "left out" if option == "skip" else "handed over as it is", each.damage)
    if option == "skip":
        return Sorted(messages, next_offset, None, is_alone, len(left))
    messages = sorted([*messages, *left], key=lambda message: message.offset)
    return Sorted(messages, next_offset, None, is_alone, 0)
