"""Forwards consumer offsets that are committed at a slave to its master, if it is available.

A consumer uses the route that it knows for up to half a minute. After a change of roles, or when a
master has returned, it may therefore still commit at the slave. The next copy of the master's table
would replace this offset by an older one, so the slave forwards the commit. A slave without a
master keeps the commit: a returning master asks for it, and a master that was available before this
slave followed it gets the commit with the next copy of the table.

A commit that is part of a pull is not forwarded, because the clients of Apache repeat it with
a request every 5 s.

Source: none; Apache's slave keeps the commit only until the next copy, and the messages are
consumed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

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
from twistmq.plugins.replica.ask import TIMEOUT_MS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Commits", "FollowedMaster"]

#: Response codes that concern the offset itself. A master that refuses requests of this broker, or
#: is busy, answers with other codes.
_ANSWERS: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})


class FollowedMaster(Protocol):
    """The master of a slave."""

    @property
    def source(self) -> str:
        """The "host:port" where the master takes requests; empty while unknown."""

    @property
    def hears_master(self) -> bool:
        """Whether the master is available."""


class Commits:
    """Forwards the commits at one slave to its master."""

    log = Logger()

    def __init__(self, broker: Broker, master: FollowedMaster) -> None:
        self._broker = broker
        self._master = master
        self._outage = Outage()
        #: The commits that were not forwarded to the master, by "topic@group" and queue.
        self._kept_commits: dict[tuple[str, int], Any] = {}

    def rows(self, handlers: Mapping[int, AnyHandler]) -> list[AnyHandler]:
        """Return the handler of the request, which forwards it while a master is followed."""
        row = handlers.get(RequestCode.UPDATE_CONSUMER_OFFSET)
        return [] if row is None else [self._row(row)]

    def _row(self, row: AnyHandler) -> AnyHandler:
        inner = row.handle

        def handle(request: Request[Any]) -> Handled:
            address = self._master.source
            if not self._broker.is_slave:
                return inner(request)
            if not (self._master.hears_master and address):
                return keep(request)
            forwarding = Deferred.fromCoroutine(self._hand_on(request.header, address, request))
            return now_or_later(forwarding.addCallback(answered, request))

        def answered(reply: Reply | None, request: Request[Any]) -> Handled:
            if reply is None:
                return keep(request)
            if _has_it(reply):
                # This broker may know less about the topic than its master, and copies the table.
                with suppress(RequestRefused):
                    inner(request)
            return reply

        def keep(request: Request[Any]) -> Handled:
            reply, header = inner(request), request.header
            if not (isinstance(reply, Reply) and reply.remark):
                key = f"{header.topic}@{header.consumer_group}", header.queue_id
                self._kept_commits[key] = header
            return reply

        return replace(row, handle=handle)

    @property
    def has_kept(self) -> bool:
        """Whether this broker has offsets that were not forwarded to the master."""
        return bool(self._kept_commits)

    def role_changed(self) -> None:
        """Forget the commits: a master owns its offsets, and a slave has a different master now."""
        self._kept_commits.clear()

    async def join(self, master_offsets: dict[str, dict[int, int]]) -> None:
        """Insert offsets that were kept here into the master's table where they are larger.

        The commits are also forwarded to the master, until it fails to answer; the remaining ones
        are forwarded with the next copy.

        :param master_offsets: the master's offsets by "topic@group" and queue.
        """
        address, commits, self._kept_commits = self._master.source, self._kept_commits, {}
        for (key, queue_id), header in commits.items():
            if header.commit_offset <= master_offsets.get(key, {}).get(queue_id, -1):
                continue
            reply = None if not address or self._kept_commits else (
                await self._hand_on(header, address))
            if not self._broker.is_slave:
                return
            if reply is None:
                self._kept_commits.setdefault((key, queue_id), header)
            if reply is None or _has_it(reply):
                master_offsets.setdefault(key, {})[queue_id] = header.commit_offset

    async def _hand_on(
        self, commit: Any, address: str, request: Request[Any] | None = None
    ) -> Reply | None:
        """Ask the master to store an offset; :returns: its response, or None if it failed."""
        # The offset of a static topic already belongs to a part, and must not be mapped again.
        header = forwarded(commit, self._broker.broker_name, request)
        try:
            reply = await self._broker.host.ask_server(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS)
            if reply.code not in _ANSWERS:
                raise RemotingError(f"it answered {reply.code}: {reply.remark or 'no remark'}")
        except RemotingError as error:
            if self._outage.begins():
                self.log.warn("the master at {address} does not accept offsets: {error}",
                              address=address, error=str(error))
            return None
        self._outage.ends()
        return Reply(reply.code, remark=reply.remark)


def _has_it(reply: Reply) -> bool:
    """Whether a broker has stored an offset; a remark means that a tool's reset overrides it."""
    return reply.code == ResponseCode.SUCCESS and not reply.remark
