"""The words by which a handler says what becomes of a message.

Source: ConsumeConcurrentlyContext.delayLevelWhenNextConsume @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Any

from twistmq.client.messages import ReceivedMessage

__all__ = ["Dead", "Retry", "failure_level"]

log = logging.getLogger("twistmq.client")


class Retry(Exception):
    """Raised by a handler: deliver the message again.

    :param level: the broker's delay level; 0: the broker chooses by the attempts.
    """

    def __init__(self, level: int = 0) -> None:
        super().__init__(f"delivered again at level {level}" if level else "delivered again")
        self.level = level


class Dead(Exception):
    """Raised by a handler: the message is not delivered again but goes to the dead letters."""


def failure_level(message: ReceivedMessage[Any], error: Exception) -> int:
    """The delay level that an error of a handler asks for; an error of its own is logged."""
    if isinstance(error, Retry):
        return error.level
    if isinstance(error, Dead):
        return -1
    log.warning("the handler of %r failed", message, exc_info=error)
    return 0
