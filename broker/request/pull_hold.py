"""Long polling: pulls that found nothing wait here until a message comes or their time is up.

Source: PullRequestHoldService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.constants import HELD_PULLS_MAX
from twistmq.broker.remoting import Handled, Reply, Request
from twistmq.broker.store.message_store import MessageFilter
from twistmq.broker.wire.record import MessageRecord

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["PullHold"]


@dataclass(slots=True, eq=False)
class _HeldPull:
    """One pull that waits."""

    request: Request[Any]
    #: First queue offset that ends the wait.
    offset: int
    message_filter: MessageFilter | None
    deadline_ms: int
    #: Runs the pull again; it must not be held a second time.
    run_again: Callable[[Request[Any], int], Handled]
    #: Fires with the reply, or with None when nobody can read one.
    reply: Deferred[Any]


class PullHold:
    """The pulls that wait, by topic and queue."""

    log = Logger()

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._held: dict[tuple[str, int], list[_HeldPull]] = {}
        self.count = 0

    def hold(
        self, request: Request[Any], timeout_ms: int, message_filter: MessageFilter | None,
        run_again: Callable[[Request[Any], int], Handled],
    ) -> Deferred[Reply] | None:
        """Let a pull wait.

        :param timeout_ms: how long at most.
        :param run_again: called with the request and the time once a message came or the time
            is up; what it returns is the pull's reply.
        :returns: None when too many wait already: the pull must be answered now.
        """
        if self.count >= HELD_PULLS_MAX:
            self.log.warn("{count} pulls are held, the one from {peer} is not",
                          count=self.count, peer=request.channel.remote_address)
            return None
        header = request.header
        held = _HeldPull(request, header.queue_offset, message_filter,
                         request.now_ms + timeout_ms, run_again, Deferred())
        self._held.setdefault((header.topic, header.queue_id), []).append(held)
        self.count += 1
        return held.reply

    def arrived(self, records: Sequence[MessageRecord]) -> None:
        """Wake the pulls that wait for one of these records."""
        if not self._held:
            return
        arrived: dict[tuple[str, int], list[MessageRecord]] = {}
        for record in records:
            key = (record.topic, record.queue_id)
            if key in self._held:
                arrived.setdefault(key, []).append(record)
        for key, there in arrived.items():
            self._wake(key, partial(_wants_any, there))

    def check(self, now_ms: int) -> None:
        """End the waits whose time is up or whose message came unnoticed; run periodically."""
        for topic, queue_id in list(self._held):
            maximum = self._kernel.store.max_offset_in_queue(topic, queue_id)
            self._wake((topic, queue_id), partial(_is_over, now_ms, maximum), now_ms)

    def release_all(self) -> None:
        """End all waits: the broker stops."""
        for key in list(self._held):
            self._wake(key, lambda _: True)

    def _wake(
        self, key: tuple[str, int], ends: Callable[[_HeldPull], bool], now_ms: int | None = None
    ) -> None:
        """End the waits of one queue for which ``ends`` is true."""
        woken: list[_HeldPull] = []
        kept: list[_HeldPull] = []
        for held in self._held[key]:
            (woken if ends(held) else kept).append(held)
        if not woken:
            return
        if kept:
            self._held[key] = kept
        else:
            del self._held[key]
        self.count -= len(woken)
        now_ms = self._kernel.now_ms() if now_ms is None else now_ms
        for held in woken:
            self._run(held, now_ms)

    @staticmethod
    def _run(held: _HeldPull, now_ms: int) -> None:
        if not held.request.channel.active:
            # Nobody can read a reply; the Deferred still fires, so that its bytes are released.
            held.reply.callback(None)
            return
        try:
            answer = held.run_again(held.request, now_ms)
        except Exception:
            held.reply.errback()
            return
        assert isinstance(answer, Reply)
        held.reply.callback(answer)


def _wants_any(records: Sequence[MessageRecord], held: _HeldPull) -> bool:
    """Whether a pull wants one of these records.

    The properties decide where there may be a bitmap of filters: it says nothing beyond them.
    """
    wants = held.message_filter
    if wants is None:
        return True
    try:
        return any(wants.match_queue_entry(record.tags_code, record.store_timestamp)
                   and wants.match_properties(record.properties) for record in records)
    except Exception:
        # The pull that runs again fails of it, where its consumer is told; the append goes on.
        return True


def _is_over(now_ms: int, max_offset: int, held: _HeldPull) -> bool:
    """Whether a pull need not wait longer."""
    return (held.deadline_ms <= now_ms or not held.request.channel.active
            or (held.message_filter is None and held.offset < max_offset))
