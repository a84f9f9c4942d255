"""Changes of the tables, one after the other: each connection's in the order it came.

The registration of a broker with a hundred thousand topics takes a fifth of a second: it is done in
slices, and other changes wait behind it, so that of two changes the later one wins. Of those that
wait each host has its turn, and of a host's each
connection: who sends many changes at a time, from however many connections, keeps no other host's
broker from registering. Of the bytes that may wait each host has half of what the others left.
Reads and heartbeats do not wait. A broker that is lost
leaves at once; what is left of its registration is then dropped.

Source: RouteInfoManager's lock @5.3.3.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.codes import ResponseCode
from twistmq.broker.constants import CHANGES_BYTES_FREE, CHANGES_BYTES_MAX
from twistmq.broker.errors import RequestRefused
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.remoting.host_shares import Shares
from twistmq.broker.remoting.messages import Channel, Handled, Reply
from twistmq.broker.request.sliced_work import SlicedWork, now_or_later

__all__ = ["Changes"]

_Work = Generator[None, None, Reply]
#: The key of the name server's own changes.
_OWN: Final = -1


@dataclass(slots=True)
class _Change:
    """One that waits, or is done."""

    work: _Work
    reply: Deferred[Any]
    #: Whether it is dropped with its connection.
    ends_with_it: bool = False
    #: The bytes it keeps in memory until its slice.
    size_bytes: int = 0


class Changes:
    """The changes of one name server.

    :param slices: where they are done.
    """

    log = Logger()

    def __init__(self, slices: SlicedWork) -> None:
        self._slices = slices
        #: By host and channel id; those whose turn it is in front.
        self._waiting: OrderedDict[str, OrderedDict[int, deque[_Change]]] = OrderedDict()
        #: Bytes that wait, by host.
        self._bytes: Shares[str] = Shares()
        self._is_working = False

    def do(self, change: Callable[[], Reply], channel: Channel) -> Handled:
        """Do what takes no time, when what came before it is done.

        :raises Exception: what the change raises, when it is done at once.
        """
        return self.work(_at_once(change), channel) if self._is_working else change()

    def begin(self, work: Generator[None, None, None]) -> None:
        """Do long work without an answer, behind the changes that came before it."""
        handled = self._add(_Change(_unanswered(work), Deferred()), "", _OWN)
        if isinstance(handled, Deferred):
            handled.addErrback(lambda failure: self.log.failure(
                "a change of the tables failed", failure=failure))

    def work(
        self, change: _Work, channel: Channel, *, ends_with_it: bool = False, size_bytes: int = 0
    ) -> Handled:
        """Begin what may take long, when what came before it is done.

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
            self.log.warn("a change of {size} bytes from {peer} is refused: {waiting} bytes of its "
                          "host's wait", size=size_bytes, peer=channel.remote_address,
                          waiting=waiting)
            raise RequestRefused(ResponseCode.SYSTEM_BUSY,
                                 f"{waiting} bytes of this host's changes wait")
        return self._add(_Change(change, Deferred(), ends_with_it, size_bytes), host,
                         channel.channel_id)

    def lost(self, channel: Channel) -> None:
        """Drop what waits of a lost connection and has no use any more.

        Its frames count for no connection from now on.
        """
        host = host_of(channel.charged_address)
        connections = self._waiting.get(host, OrderedDict())
        own = connections.get(channel.channel_id)
        if own is None:
            return
        kept = deque(each for each in own if not each.ends_with_it)
        if kept:
            connections[channel.channel_id] = kept
        else:
            del connections[channel.channel_id]
            if not connections:
                del self._waiting[host]
        for change in own:
            if change.ends_with_it:
                self._bytes.add(host, -change.size_bytes)
                change.work.close()
                change.reply.errback(
                    RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection is lost"))

    def _add(self, change: _Change, host: str, channel_id: int) -> Handled:
        connections = self._waiting.setdefault(host, OrderedDict())
        connections.setdefault(channel_id, deque()).append(change)
        self._bytes.add(host, change.size_bytes)
        if not self._is_working:
            self._is_working = True
            self._slices.run(self._work())
        return now_or_later(change.reply)

    def _work(self) -> Generator[None, None, None]:
        """Do what waits."""
        while self._waiting:
            host, change = self._next()
            answer: Reply | Failure
            try:
                answer = yield from change.work
            except Exception:
                answer = Failure()
            self._bytes.add(host, -change.size_bytes)
            change.reply.callback(answer)
            if self._waiting:
                yield
        self._is_working = False

    def _next(self) -> tuple[str, _Change]:
        """Take the change whose turn it is; its host and its connection are last from now on."""
        host, connections = self._waiting.popitem(last=False)
        channel_id, own = connections.popitem(last=False)
        change = own.popleft()
        if own:
            connections[channel_id] = own
        if connections:
            self._waiting[host] = connections
        return host, change


def _unanswered(work: Generator[None, None, None]) -> _Work:
    yield from work
    return Reply()


def _at_once(change: Callable[[], Reply]) -> _Work:
    return change()
    yield
