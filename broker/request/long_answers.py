"""Answers that take long to make are made in slices, so that other clients do not wait for them.

A handler that may take long is a generator: it yields wherever it can pause and returns its reply.
Most are done within the first slice and answered at once. Of those that are not, each connection's
oldest is worked at in turn; an answer whose client is gone is dropped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.remoting.messages import Channel, Handled, Reply
from twistmq.broker.request.sliced_work import NOT_DONE, SLICE_MS, advance

__all__ = ["CONTINUE_PERIOD_MS", "IDLE_PERIOD_MS", "SLICE_MS", "LongAnswers", "Work"]

#: From one slice to the next, ms.
CONTINUE_PERIOD_MS: Final = 10
#: How soon work that did not fit into its first slice is seen, ms.
IDLE_PERIOD_MS: Final = 100

#: Answers that wait of one connection, and of all: a client asks for many at a time. Apache's
#: broker lets 20,000 look-ups wait. Source: BrokerConfig.queryThreadPoolQueueCapacity @5.3.3.
CONNECTION_ANSWERS_MAX: Final = 2000
ANSWERS_MAX: Final = 20_000
#: Connections that an answer is being made for: what is made is kept.
CONNECTIONS_MAX: Final = 512

#: A handler that may take long, as a generator.
Work = Generator[None, None, Reply]
#: The channel, unless the work is wanted without it.
_Answer = tuple[Work, Channel | None, Deferred[Any]]


class LongAnswers:
    """The answers one server is making.

    :param now_ms: the clock.
    :param connections_max: for which an answer is made at a time.
    """

    def __init__(
        self, now_ms: Callable[[], int], connections_max: int = CONNECTIONS_MAX
    ) -> None:
        self._now_ms = now_ms
        self._connections_max = connections_max
        #: By channel id; the connection whose turn it is in front.
        self._waiting: OrderedDict[int, deque[_Answer]] = OrderedDict()
        self._count = 0

    def answer(self, work: Work, channel: Channel, *, is_wanted: bool = False) -> Handled:
        """Begin an answer.

        :param is_wanted: the work is to be done even when its client is gone.
        :returns: the reply, or a Deferred of it when others wait already or it takes long.
        :raises RequestRefused: SYSTEM_BUSY when too many wait.
        """
        if not self._waiting:
            reply: Reply = advance(work, self._now_ms)
            if reply is not NOT_DONE:
                return reply
        own = self._waiting.get(channel.channel_id, ())
        if len(own) >= CONNECTION_ANSWERS_MAX or self._count >= ANSWERS_MAX or (
                not own and len(self._waiting) >= self._connections_max):
            work.close()
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{len(own)} long answers of this connection and {self._count} of all are being "
                "made, ask again later")
        waiting: Deferred[Any] = Deferred()
        self._waiting.setdefault(channel.channel_id, deque()).append(
            (work, None if is_wanted else channel, waiting))
        self._count += 1
        return waiting

    def period_ms(self) -> int:
        """From one :meth:`step` to the next, ms."""
        return CONTINUE_PERIOD_MS if self._waiting else IDLE_PERIOD_MS

    def step(self, now_ms: int) -> None:
        """Go on with answers, the connections' oldest in turn, for a slice; periodic."""
        end_ms = self._now_ms() + SLICE_MS
        while self._waiting and (left_ms := end_ms - self._now_ms()) > 0:
            self._go_on(left_ms)

    def _go_on(self, slice_ms: int) -> None:
        """Go on with the oldest answer of the next connection."""
        channel_id, answers = self._waiting.popitem(last=False)
        work, channel, waiting = answers.popleft()
        self._count -= 1
        reply: Any = None
        try:
            if channel is None or channel.active:
                reply = advance(work, self._now_ms, slice_ms)
            else:
                # Its client is gone; the Deferred still fires, so that its bytes are released.
                work.close()
        except Exception:
            self._put_back(channel_id, answers)
            waiting.errback()
            return
        if reply is NOT_DONE:
            answers.appendleft((work, channel, waiting))
            self._count += 1
        self._put_back(channel_id, answers)
        if reply is not NOT_DONE:
            waiting.callback(reply)

    def _put_back(self, channel_id: int, answers: deque[_Answer]) -> None:
        """Let a connection have its next turn when the others had theirs."""
        if answers:
            self._waiting[channel_id] = answers
