"""The errors and results with which a handler decides how its message is handled next.

Source: ConsumeConcurrentlyContext.delayLevelWhenNextConsume, LocalTransactionState,
MessageSysFlag @5.3.3.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import Any, Final

from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import ReceivedMessage
from twistmq.protocol.errors import CopiedError

__all__ = ["COMMIT", "ROLLBACK", "UNKNOWN", "Dead", "Decision", "NoResult", "Retry",
           "failure_level", "failure_outcome"]

log = logging.getLogger("twistmq.client")


class Decision(IntEnum):
    """The outcome of a transaction, as ``on_check`` returns it; the numbers are on the wire.

    - ``COMMIT``: the message is delivered.
    - ``ROLLBACK``: the message is never delivered.
    - ``UNKNOWN``: the outcome is not known yet, and the broker asks again.

    ``twistmq.client`` exports the three members by their names.
    """

    COMMIT = 8
    ROLLBACK = 12
    #: Not known yet: the broker asks again.
    UNKNOWN = 0


COMMIT: Final = Decision.COMMIT
ROLLBACK: Final = Decision.ROLLBACK
UNKNOWN: Final = Decision.UNKNOWN


class Retry(CopiedError):
    """Raise it in a handler to have the message delivered again: ``raise Retry(level=3)``.

    :param level: the broker's delay level: 1 to 18 are 1, 5, 10 and 30 seconds, 1 to 10 minutes,
        20 and 30 minutes, one hour and two, and a higher level is the last one. With 0, the broker
        chooses it by the attempts so far.
    :raises OptionError: when the level is not a whole number of at least 0.
    """

    def __init__(self, level: int = 0, **unknown: object) -> None:
        for name in unknown:
            raise OptionError(f"there is no argument {name} of Retry, only level, a delay level of "
                              "the broker; a PopConsumer can retry(message, delay_s=...)")
        if type(level) is not int or level < 0:
            raise OptionError(f"Retry({level!r}): the level is a whole number of at least 0; raise "
                              "Dead() to have the message not delivered again")
        super().__init__(f"delivered again at level {level}" if level else "delivered again")
        self.level = level


class Dead(Exception):
    """Raise it in a handler to move the message to the dead letter queue of the group at once.

    The queue is the topic ``%DLQ%GROUP``. Arguments become the text of the error.
    """


class NoResult(TypeError):
    """A handler returned an awaitable, or a handler of lists did not return a number."""


def failure_level(message: ReceivedMessage[Any], error: Exception) -> int:
    """Return the delay level that a handler's error asks for; an unexpected error is logged."""
    # A message of an ordered queue may have failed here before, with another error.
    message.error = None
    if isinstance(error, Retry):
        return error.level
    if isinstance(error, Dead):
        return -1
    message.error = error
    log.warning("the handler of %r failed", message, exc_info=error)
    return 0


def failure_outcome(message: ReceivedMessage[Any]) -> str:
    """Return how a handler failed to process a message, as interceptors get it."""
    if message.error is None:
        return "retry"
    return "no result" if isinstance(message.error, NoResult) else "exception"
