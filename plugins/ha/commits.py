"""Consumer offsets that are committed at a slave whose master lives: they are the master's.

A consumer goes on with the route that it knows for up to half a minute: after a change of roles, or
when a master is back, it commits at the slave. The next copy of the master's table would take the
offset back, so the slave hands the commit on. A slave without its master keeps it: a master that
returns asks for it, and one that was there before this slave heard it is told with the next copy.

A commit that comes with a pull is not handed on: members of Apache's client repeat it by a request
each 5 s.

Source: none; Apache's slave keeps it until the next copy, and the messages come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import (
    AnyHandler,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.errors import RemotingError
from twistmq.broker.api.observe import Outage
from twistmq.broker.api.requests import forwarded, now_or_later
from twistmq.plugins.ha.ask import TIMEOUT_MS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.follower import Follower

__all__ = ["Commits"]

#: Answers that are about the offset: those of a master that does not take this broker's requests,
#: or is busy, are not.
_ANSWERS: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})


class Commits:
    """Hands the commits at one slave on to its master.

    :param follower: says where the master takes requests, and whether it is there.
    """

    log = Logger()

    def __init__(self, broker: Broker, follower: Follower) -> None:
        self._broker = broker
        self._follower = follower
        self._outage = Outage()
        #: The commits that the master was not told, by "topic@group" and queue.
        self._kept: dict[tuple[str, int], Any] = {}

    def rows(self, handlers: Mapping[int, AnyHandler]) -> list[AnyHandler]:
        """The row of the request, which is handed on as long as the broker follows a master."""
        row = handlers.get(RequestCode.UPDATE_CONSUMER_OFFSET)
        return [] if row is None else [self._row(row)]

    def _row(self, row: AnyHandler) -> AnyHandler:
        inner = row.handle

        def handle(request: Request[Any]) -> Handled:
            address = self._follower.source
            if not self._broker.is_slave:
                return inner(request)
            if not (self._follower.hears_master and address):
                return kept(request)
            asked = Deferred.fromCoroutine(self._hand_on(request.header, address, request))
            return now_or_later(asked.addCallback(answered, request))

        def answered(reply: Reply | None, request: Request[Any]) -> Handled:
            if reply is None:
                return kept(request)
            if _has_it(reply):
                # This broker may know less of the topic than its master, and copies the table.
                with suppress(RequestRefused):
                    inner(request)
            return reply

        def kept(request: Request[Any]) -> Handled:
            reply, header = inner(request), request.header
            if not (isinstance(reply, Reply) and reply.remark):
                self._kept[f"{header.topic}@{header.consumer_group}", header.queue_id] = header
            return reply

        return replace(row, handle=handle)

    @property
    def has_kept(self) -> bool:
        """Whether there are offsets here that the master was not told."""
        return bool(self._kept)

    def role_changed(self) -> None:
        """Forget the commits: a master has them as its own, a slave has another master."""
        self._kept.clear()

    async def join(self, theirs: dict[str, dict[int, int]]) -> None:
        """Put offsets that were kept here into the master's table where they are larger.

        The master is told of them, until it does not answer; the rest is told with the next copy.

        :param theirs: offsets by "topic@group" and queue.
        """
        address, kept, self._kept = self._follower.source, self._kept, {}
        for (key, queue_id), header in kept.items():
            if header.commit_offset <= theirs.get(key, {}).get(queue_id, -1):
                continue
            reply = await self._hand_on(header, address) if address and not self._kept else None
            if not self._broker.is_slave:
                return
            if reply is None:
                self._kept.setdefault((key, queue_id), header)
            if reply is None or _has_it(reply):
                theirs.setdefault(key, {})[queue_id] = header.commit_offset

    async def _hand_on(
        self, kept: Any, address: str, request: Request[Any] | None = None
    ) -> Reply | None:
        """Ask the master to keep an offset; :returns: its answer, unless it is about itself."""
        # Of a static topic the offset is that of a part already, and not to be mapped again.
        header = forwarded(kept, self._broker.broker_name, request)
        try:
            reply = await self._broker.host.ask_server(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS)
            if reply.code not in _ANSWERS:
                raise RemotingError(f"it answered {reply.code}: {reply.remark or 'no remark'}")
        except RemotingError as error:
            if self._outage.begins():
                self.log.warn("the master at {address} takes no offsets: {error}",
                              address=address, error=str(error))
            return None
        self._outage.ends()
        return Reply(reply.code, remark=reply.remark)


def _has_it(reply: Reply) -> bool:
    """Whether a broker has kept an offset; a remark says that a tool's reset comes before it."""
    return reply.code == ResponseCode.SUCCESS and not reply.remark
