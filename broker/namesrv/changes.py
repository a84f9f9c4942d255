"""Changes of the tables, one after the other: each connection's in the order it came.

The registration of a broker with a hundred thousand topics takes a fifth of a second. It is done in
slices, and other changes wait behind it, so that of two changes the later one wins. Of the waiting
changes each host has its turn, and of a host's each connection: a host that sends many changes,
from however many connections, keeps no other host's broker from registering. Of the bytes that may
wait each host has half of what the others left. Reads and heartbeats do not wait. A broker whose
connection is lost leaves at once; the rest of its registration is then dropped.

Source: RouteInfoManager's lock @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.codes import ResponseCode
from twistmq.broker.constants import CHANGES_BYTES_FREE, CHANGES_BYTES_MAX
from twistmq.broker.errors import RequestRefused
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.observe.log_rate import LimitedLog
from twistmq.broker.remoting.host_shares import Shares
from twistmq.broker.remoting.messages import Channel, Handled, Reply, now_or_later
from twistmq.broker.scheduling.scheduler import Scheduler

__all__ = ["Changes"]

_Work = Generator[None, None, Reply]
#: The turn of the name server's own changes.
_OWN: Final = ("", -1)


class Changes:
    """The changes of one name server.

    :param scheduler: gives them slices.
    :param now_ms: the clock.
    """

    log = Logger()

    def __init__(self, scheduler: Scheduler, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lines = LimitedLog(self.log)
        #: A turn is a host and a channel id.
        self._lane = scheduler.lane(one_at_a_time=True)
        #: Bytes that wait, by host.
        self._bytes: Shares[str] = Shares()

    def do(self, change: Callable[[], Reply], channel: Channel) -> Handled:
        """Make a short change, once the changes before it are done.

        :raises Exception: what the change raises, when it is made at once.
        """
        return change() if self._lane.is_idle else self.work(_at_once(change), channel)

    def begin(self, work: Generator[None, None, None]) -> None:
        """Do long work without an answer, behind the changes that came before it."""
        self._lane.run(work, _OWN).addErrback(lambda failure: self.log.failure(
            "a change of the route tables failed", failure=failure))

    def work(
        self, change: _Work, channel: Channel, *, ends_with_it: bool = False, size_bytes: int = 0
    ) -> Handled:
        """Begin a long change, once the changes before it are done.

        :param channel: the connection that sent it.
        :param ends_with_it: whether it has no use when the connection is lost before its turn.
        :param size_bytes: what it keeps in memory until its turn.
        :returns: its reply, when one slice was enough, else a Deferred of it.
        :raises RequestRefused: SYSTEM_BUSY when as much of the host's waits as may.
        :raises Exception: what the change raises, when it is done at once.
        """
        host = host_of(channel.charged_address)
        waiting = self._bytes.of(host)
        if (waiting and size_bytes > CHANGES_BYTES_FREE
                and waiting + size_bytes > self._bytes.most(host, CHANGES_BYTES_MAX)):
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
