"""The options that the integrations of task queues share."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = ["QueueOptions"]


class QueueOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the queues of a task library are kept at a broker.

    :raises ValueError: when a value is out of bounds.
    """

    #: The smallest value of each number.
    LEAST: ClassVar[dict[str, float]] = {
        "topic_queues": 1, "invisible_s": 1, "delay_max_s": 1, "max_attempts": 1}

    #: The beginning of the names of all topics and groups.
    prefix: str
    #: The number of queues of a new topic on each broker. With one queue, messages keep their
    #: order.
    topic_queues: int = 1
    #: The time after which another worker gets the messages of a worker that died, seconds. It is
    #: extended while a worker has them, so a task may take longer.
    invisible_s: float = 60.0
    #: The longest delay that the broker accepts, seconds: its setting ``timerMaxDelaySec``, less a
    #: margin for clocks that differ.
    delay_max_s: float = 3 * 86_400 - 600
    #: The number of attempts after which a message becomes a dead letter.
    max_attempts: int = 16

    @property
    def topic_attributes(self) -> dict[str, str]:
        """The attributes of a new topic."""
        return {}

    def __post_init__(self) -> None:
        for name, low in self.LEAST.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {low}")
