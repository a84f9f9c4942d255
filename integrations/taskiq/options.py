"""The options of the broker."""

from __future__ import annotations

from typing import ClassVar

from twistmq.integrations.base.options import QueueOptions

__all__ = ["TaskiqOptions"]


class TaskiqOptions(QueueOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the queues of Taskiq are kept at a broker.

    :raises ValueError: when a value is out of bounds.
    """

    LEAST: ClassVar[dict[str, float]] = {**QueueOptions.LEAST, "prefetch": 1, "priorities": 1}

    #: The largest number of messages in one response of the broker.
    prefetch: int = 10
    #: The number of priorities, from 0 on; each has a queue of the topic.
    priorities: int = 1
    #: Whether the message of a task that failed becomes a dead letter.
    bury_failed: bool = True

    @property
    def topic_attributes(self) -> dict[str, str]:
        """The attributes of a new topic."""
        return {} if self.priorities == 1 else {"message.type": "PRIORITY"}
