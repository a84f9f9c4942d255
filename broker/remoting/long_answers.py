"""Answers that take long to make are made in slices, so that other clients do not wait for them.

A handler that may take long is a generator: it yields wherever it can pause and returns its reply.
Most are done within the first slice and answered at once. The others wait, and each connection has
slices in turn. An answer whose client has disconnected is dropped.
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

#: Answers that wait of one connection, and of all: a client asks for many at a time. Apache's
#: broker lets 20,000 look-ups wait. Source: BrokerConfig.queryThreadPoolQueueCapacity @5.3.3.
CONNECTION_ANSWERS_MAX: Final = 2000
ANSWERS_MAX: Final = 20_000
#: Connections that an answer is being made for: an unfinished answer keeps memory.
CONNECTIONS_MAX: Final = 512

#: A handler that may take long, as a generator.
Work = Generator[None, None, Reply]


class LongAnswers:
    """The answers one server is making.

    :param scheduler: gives them slices.
    :param connections_max: for which an answer is made at a time.
    """

    def __init__(self, scheduler: Scheduler, connections_max: int = CONNECTIONS_MAX) -> None:
        self._lane = scheduler.lane()
        self._connections_max = connections_max

    def answer(self, work: Work, channel: Channel, *, is_wanted: bool = False) -> Handled:
        """Begin an answer.

        :param is_wanted: the work is to be done even when its client is gone.
        :returns: the reply, or a Deferred of it when others wait already or it takes long.
        :raises RequestRefused: SYSTEM_BUSY when too many wait.
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
        # Its Deferred fires when its client has gone too, so that its bytes are released.
        reply: Deferred[Any] = lane.run(
            work, turn, is_wanted=None if is_wanted else lambda: channel.active)
        return now_or_later(reply)
