"""Offsets of broadcast clients for a topic whose old messages are not wanted."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from twistmq.broker.api import Broker, IBroadcastOffsets, Request
from twistmq.broker.api.requests import BroadcastClient


@implementer(IBroadcastOffsets)
class OnlyNews:
    """Sends a proxy's client that does not know where to begin to the end of the topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def client_of(self, request: Request[Any]) -> BroadcastClient | None:
        header = request.header
        if header.request_source != 1 or header.topic != self._topic:
            return None
        return header.proxy_froward_client_id or "", True

    def begin_offset(self, request: Request[Any], client: BroadcastClient) -> int | None:
        header = request.header
        if header.queue_offset >= 0:
            return None
        return self._broker.store.queues.max_offset(header.topic, header.queue_id)

    def pulled(self, request: Request[Any], client: BroadcastClient, offset: int) -> None:
        """It remembers nothing."""
