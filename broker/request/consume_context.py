"""What the consume hooks see: who asks for messages of which queue, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twistmq.broker.remoting import Channel

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["ConsumeContext"]


@dataclass(slots=True)
class ConsumeContext:
    """One consumer's request for messages.

    The figures are 0 and there are no messages before the messages are read.
    """

    kernel: Kernel
    group: str
    topic: str
    queue_id: int
    #: First queue offset asked for.
    offset: int
    channel: Channel
    #: Messages sent, their size in bytes as stored.
    message_count: int = 0
    size_bytes: int = 0
    #: The records sent, an inner batch being one.
    messages: Sequence[bytes] = ()
