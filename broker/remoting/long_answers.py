"""Makes slow replies in slices, so that other clients do not have to wait for them.

A handler that may take long is a generator: it yields wherever it can pause, and returns its reply.
Most replies are done within the first slice and are sent at once. All other replies wait, and the
connections get slices in turn. The reply to a client that has disconnected is dropped.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from twisted.internet.defer import Deferred

from twistmq.broker.remoting.messages import Channel, Handled, Reply, now_or_later
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused

__all__ = ["LongAnswers", "Work"]

#: The number of waiting replies for one connection, and for all of them: a client asks for many at
#: a time. Apache's broker lets 20,000 queries wait.
#: Source: BrokerConfig.queryThreadPoolQueueCapacity @5.3.3.
CONNECTION_ANSWERS_MAX: Final = 2000
ANSWERS_MAX: Final = 20_000
#: The number of connections with a reply in progress: an unfinished reply takes memory.
CONNECTIONS_MAX: Final = 512

#: A handler that may take long, as a generator.
Work = Generator[None, None, Reply]


class LongAnswers:
    """The replies that one server is making.

    :param scheduler: gives slices to them.
    :param connections_max: the number of connections for which replies are made at the same time.
    """

    def __init__(self, scheduler: Scheduler, connections_max: int = CONNECTIONS_MAX) -> None:
        self._lane = scheduler.lane()
        self._connections_max = connections_max

    def answer(self, work: Work, channel: Channel, *, is_wanted: bool = False) -> Handled:
        """Begin a reply.

        :param is_wanted: whether the work must be done even when its client is gone.
        :returns: the reply, or a Deferred of it if other replies wait already or it takes long.
        :raises RequestRefused: SYSTEM_BUSY when too many replies wait.
        """
        lane, turn = self._lane, (channel.channel_id,)
        own = lane.waiting_of(turn)
        if own >= CONNECTION_ANSWERS_MAX or lane.count >= ANSWERS_MAX or (
                not own and lane.owners >= self._connections_max):
            work.close()
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{own} long replies for this connection and {lane.count} in all are being "
                "made, try again later")
        # The Deferred also fires if the client is gone, so that the request's bytes are released.
        reply: Deferred[Any] = lane.run(
            work, turn, is_wanted=None if is_wanted else lambda: channel.active)
        return now_or_later(reply)
