"""The words by which a handler says what becomes of a message.

Source: ConsumeConcurrentlyContext.delayLevelWhenNextConsume, LocalTransactionState,
MessageSysFlag @5.3.3.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import Any, Final

from twistmq.client.base.messages import ReceivedMessage
from twistmq.protocol.errors import CopiedError

__all__ = ["COMMIT", "ROLLBACK", "UNKNOWN", "Dead", "Decision", "NoResult", "Retry",
           "failure_level", "failure_outcome"]

log = logging.getLogger("twistmq.client")


class Decision(IntEnum):
    """How a transaction ended, as ``on_check`` says it; the numbers are those on the wire."""

    COMMIT = 8
    ROLLBACK = 12
    #: Not known yet: the broker asks again.
    UNKNOWN = 0


COMMIT: Final = Decision.COMMIT
ROLLBACK: Final = Decision.ROLLBACK
UNKNOWN: Final = Decision.UNKNOWN


class Retry(CopiedError):
    """Raised by a handler: deliver the message again.

    :param level: the broker's delay level; 0: the broker chooses by the attempts.
    """

    def __init__(self, level: int = 0) -> None:
        if type(level) is not int:
            raise TypeError(f"Retry({level!r}): the level is a whole number")
        super().__init__(f"delivered again at level {level}" if level else "delivered again")
        self.level = level


class Dead(Exception):
    """Raised by a handler: the message is not delivered again but goes to the dead letters."""


class NoResult(TypeError):
    """A handler returned something to await, or one of lists something that is no number."""


def failure_level(message: ReceivedMessage[Any], error: Exception) -> int:
    """The delay level that an error of a handler asks for; an error of its own is logged."""
    # A message of an order may have failed here before, in another way.
    message.error = None
    if isinstance(error, Retry):
        return error.level
    if isinstance(error, Dead):
        return -1
    message.error = error
    log.warning("the handler of %r failed", message, exc_info=error)
    return 0


def failure_outcome(message: ReceivedMessage[Any]) -> str:
    """How a handler that did not process a message ended, as interceptors get it."""
    if message.error is None:
        return "retry"
    return "no result" if isinstance(message.error, NoResult) else "exception"
