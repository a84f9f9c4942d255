"""Closing a connection within a bounded time."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.protocol import RemotingProtocol
from twistmq.broker.remoting.messages import Channel

__all__ = ["CLOSE_SECONDS", "close_connection"]

#: How long a peer may take to read the write buffer, seconds.
CLOSE_SECONDS: Final = 3.0


def close_connection(channel: RemotingProtocol, factory: RemotingFactory) -> Deferred[None]:
    """Close a connection of the factory; fires when it is lost.

    A connection whose peer does not read the write buffer in time is cut off.
    """
    done: Deferred[None] = Deferred()
    timeout = factory.reactor.callLater(CLOSE_SECONDS, channel.abort, "does not close")

    def lost(other: Channel) -> None:
        if other is channel and not done.called:
            if timeout.active():
                timeout.cancel()
            factory.channels.on_lost.remove(lost)
            done.callback(None)

    factory.channels.on_lost.append(lost)
    channel.close()
    return done
