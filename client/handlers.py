"""The words by which a handler says what becomes of a message.

Source: ConsumeConcurrentlyContext.delayLevelWhenNextConsume @5.3.3.
"""

from __future__ import annotations

__all__ = ["Dead", "Retry"]


class Retry(Exception):
    """Raised by a handler: deliver the message again.

    :param level: the broker's delay level; 0: the broker chooses by the attempts.
    """

    def __init__(self, level: int = 0) -> None:
        super().__init__(f"delivered again at level {level}" if level else "delivered again")
        self.level = level


class Dead(Exception):
    """Raised by a handler: the message is not delivered again but goes to the dead letters."""
