"""The registry of live channels: all connections of this broker, by id and by address."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.logger import Logger

from twistmq.broker.remoting.messages import Channel

__all__ = ["ChannelTable"]


class ChannelTable:
    """Live channels.

    ``on_lost`` holds functions that are called with a channel once its connection is lost. If one
    of them raises, the error is logged, and the other functions are still called.
    """

    log = Logger()

    def __init__(self) -> None:
        self._channels: dict[int, Channel] = {}
        self.on_lost: list[Callable[[Channel], None]] = []

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._channels.values()))

    def add(self, channel: Channel) -> None:
        assert channel.channel_id not in self._channels
        self._channels[channel.channel_id] = channel

    def remove(self, channel: Channel) -> None:
        """Remove a channel whose connection is lost, and call the ``on_lost`` listeners."""
        if self._channels.pop(channel.channel_id, None) is None:
            return
        for listener in list(self.on_lost):
            try:
                listener(channel)
            except Exception:
                self.log.failure("connection-lost listener failed for {peer}",
                                 peer=channel.remote_address)

    def get(self, channel_id: int) -> Channel | None:
        return self._channels.get(channel_id)
