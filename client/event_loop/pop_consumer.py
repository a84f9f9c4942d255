"""The consumer of an event loop that reads messages by pop requests."""

from __future__ import annotations

from typing import Generic, TypeVar

from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.consumer import LoopConsumer
from twistmq.client.roles.pop_consumer import BasePopConsumer

__all__ = ["LoopPopConsumer"]

T = TypeVar("T")
C = TypeVar("C", bound=LoopClient)


class LoopPopConsumer(BasePopConsumer[T], LoopConsumer[C, T], Generic[C, T]):
    """The coroutine version of :class:`twistmq.client.blocking.pop_consumer.PopConsumer`."""
