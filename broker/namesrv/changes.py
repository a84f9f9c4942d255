"""Makes the changes of the tables one after another, in the order of each connection.

The registration of a broker with a hundred thousand topics takes a fifth of a second, so it is done
in slices. Other changes wait until it is done, so that of two changes the later one wins. Hosts
take turns in the queue of waiting changes, and so do the connections of a host. Therefore a host
that sends many changes, over any number of connections, cannot prevent the brokers of other hosts
from registering. The bytes of waiting changes are limited too: each host may use half of the bytes
that other hosts left free. Reads and heartbeats do not wait. A broker whose connection is lost
leaves at once, and the remainder of its registration is dropped.

Source: RouteInfoManager's lock @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.constants import CHANGES_BYTES_FREE, CHANGES_BYTES_MAX
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.remoting.host_shares import Shares
from twistmq.broker.remoting.messages import Channel, Handled, Reply, now_or_later
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.log_rate import LimitedLog

__all__ = ["Changes"]

_Work = Generator[None, None, Reply]
#: The turn of the changes that the name server makes itself.
_OWN: Final = ("", -1)


class Changes:
    """The changes of one name server.

    :param scheduler: gives slices to them.
    :param now_ms: the clock.
    """

    log = Logger()

    def __init__(self, scheduler: Scheduler, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lines = LimitedLog(self.log)
        #: The lane of the changes. A turn consists of a host and a channel id.
        self._lane = scheduler.lane(one_at_a_time=True)
        #: The bytes of waiting changes by host.
        self._bytes: Shares[str] = Shares()

    def do(self, change: Callable[[], Reply], channel: Channel) -> Handled:
        """Make a short change, after the changes before it.

        :raises Exception: the exception of the change, if it is made at once.
        """
        return change() if self._lane.is_idle else self.work(_at_once(change), channel)

    def begin(self, work: Generator[None, None, None]) -> None:
        """Do long work that has no reply, after the changes that arrived before it."""
        self._lane.run(work, _OWN).addErrback(lambda failure: self.log.failure(
            "a change of the route tables failed", failure=failure))

    def work(
        self, change: _Work, channel: Channel, *, ends_with_it: bool = False, size_bytes: int = 0
    ) -> Handled:
        """Begin a long change, after the changes before it.

        :param channel: the connection that sent it.
        :param ends_with_it: whether it is dropped when the connection is lost before its turn.
        :param size_bytes: the memory that it takes until its turn.
        :returns: its reply if one slice was enough, and otherwise a Deferred of the reply.
        :raises RequestRefused: SYSTEM_BUSY when the limit of the host is reached.
        :raises Exception: the exception of the change, if it is done at once.
        """
        host = host_of(channel.charged_address)
        waiting = self._bytes.amount(host)
        if (waiting and size_bytes > CHANGES_BYTES_FREE
                and waiting + size_bytes > self._bytes.maximum(host, CHANGES_BYTES_MAX)):
            change.close()
            self._lines.warn(
                self._now_ms(), "refused a change of {size} bytes from {peer}: {waiting} bytes "
                "from its host already wait", size=size_bytes, peer=channel.remote_address,
                waiting=waiting)
            raise RequestRefused(ResponseCode.SYSTEM_BUSY,
                                 f"{waiting} bytes of this host's changes wait already")
        self._bytes.add(host, size_bytes)

        def release(result: Any) -> Any:
            self._bytes.add(host, -size_bytes)
            return result

        reply: Deferred[Any] = self._lane.run(
            change, (host, channel.channel_id), about=ends_with_it)
        return now_or_later(reply.addBoth(release))

    def lost(self, channel: Channel) -> None:
        """Drop the waiting changes of a lost connection, except those that outlive it."""
        turn = host_of(channel.charged_address), channel.channel_id
        for reply, _ in self._lane.drop(turn, bool):
            reply.errback(RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection is lost"))


def _at_once(change: Callable[[], Reply]) -> _Work:
    return change()
    yield
