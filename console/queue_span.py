"""Reads a part of a queue, one pull after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import StoredMessage
from twistmq.tools.admin.message_listing import pull
from twistmq.tools.admin.session import Broker, Session

__all__ = ["PULL_MAX", "Piece", "pull_span"]

#: The messages of one pull.
PULL_MAX: Final = 32


class Piece(NamedTuple):
    """The messages of one pull.

    :ivar stop: the offset at which the next pull begins.
    :ivar is_end: whether the queue has no message from ``stop`` on.
    """

    messages: list[StoredMessage]
    stop: int
    is_end: bool


def pull_span(
    session: Session, broker: Broker, queue: MessageQueue, begin: int, end: int,
    expression: str = "*",
) -> Iterator[Piece]:
    """Pull the messages from one offset up to another one; whoever iterates may leave earlier.

    :param expression: the tags that the broker selects.
    """
    offset = begin
    while offset < end:
        messages, following, is_end = pull(
            session, broker.address, queue, offset, min(PULL_MAX, end - offset), expression)
        # A broker that does not advance would be asked for ever.
        is_end = is_end or following <= offset
        yield Piece([each for each in messages if each.queue_offset < end],
                    offset if is_end else min(following, end), is_end)
        if is_end:
            return
        offset = following
