"""Busy brokers: a broker that refuses sends because of its load gets fewer of them for a while.

A busy broker did not store the message, so the message may wait and be tried again until its
time-out. Apache's broker refuses requests that waited in its queue for 200 ms. A sender that
continued with the same number of requests would have them all refused again. Therefore each refusal
halves the number of requests that may be in flight to this broker, and holds sends back for a
moment that grows with each refusal. Each stored message lets the number grow again. Sends wait in
order, and refused sends come first.

A gate is made at the first refusal, and forgotten some time after the last one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from twistmq.client.core.connection.tasks import Scheduler, Timer

__all__ = ["Gate", "WaitingSend"]

log = logging.getLogger("twistmq.client")

#: How long sends are held back after a refusal, initially and at most, in ms.
PAUSE_MS: Final = 50.0
PAUSE_MAX_MS: Final = 400.0
#: The growth of the number of requests in flight for each stored message.
GROWTH: Final = 0.25
#: The minimum number of requests that may be in flight.
LEAST: Final = 4.0
#: The interval at which a gate checks its waiting sends, in ms.
LOOK_MS: Final = 25.0
#: The time after its last refusal at which a gate is forgotten, in ms.
FORGET_MS: Final = 10_000.0


class WaitingSend(Protocol):
    """A send that waits at a gate."""

    @property
    def deadline_ms(self) -> float:
        """The time at which it fails at the latest, by the monotonic clock."""

    def send_now(self) -> None:
        """Send it now."""

    def give_up(self) -> None:
        """Fail it, because its time is over or the client closes."""


class Gate:
    """The gate of one broker.

    :param name: the broker's name.
    :param under_way: returns the number of unanswered requests to the broker.
    :param forget: called when the gate is no longer needed.
    """

    def __init__(
        self, tasks: Scheduler, name: str, under_way: Callable[[], int],
        forget: Callable[[], object],
    ) -> None:
        self._tasks = tasks
        self._under_way = under_way
        self._forget = forget
        self._limit = float(under_way() + 1)
        self._pause_ms = PAUSE_MS / 2
        #: The time until which nothing is sent, and the time at which the gate is forgotten, by
        #: the monotonic clock.
        self._until_ms = 0.0
        self._quiet_ms = 0.0
        self._again: deque[WaitingSend] = deque()
        self._new: deque[WaitingSend] = deque()
        self._timer: Timer | None = None
        log.warning("the broker %s is busy and refuses messages: they wait, and are sent again "
                    "within their time", name)

    @property
    def is_open(self) -> bool:
        """Whether a new send may be sent at once."""
        return (not self._again and not self._new and self._tasks.now_ms >= self._until_ms
                and self._under_way() < self._limit)

    def wait(self, send: WaitingSend) -> None:
        """Add a new send to the waiting sends."""
        self._new.append(send)
        self._plan()

    def refused(self, send: WaitingSend | None) -> None:
        """Handle a send that the broker refused.

        :param send: the send, if it waits for another attempt at this broker; None if it goes to
            another broker or fails.
        """
        now_ms = self._tasks.now_ms
        if send is not None:
            self._again.append(send)
        if now_ms >= self._until_ms:
            # Sends that began before this moment are refused for the same reason.
            self._limit = max(min(self._limit, self._under_way() + 1) / 2, LEAST)
            self._pause_ms = min(self._pause_ms * 2, PAUSE_MAX_MS)
            self._until_ms = now_ms + self._pause_ms
        self._quiet_ms = now_ms + FORGET_MS
        self._plan()

    def stored(self) -> None:
        """Note that the broker stored a message."""
        if self._tasks.now_ms >= self._until_ms:
            self._limit += GROWTH
            self._pause_ms = PAUSE_MS / 2
            self._pump()

    def close(self) -> None:
        """Fail all waiting sends, because the client closes."""
        for send in [*self._again, *self._new]:
            send.give_up()
        self._again.clear()
        self._new.clear()

    def _pump(self) -> None:
        """Send the waiting sends that may be sent now."""
        if self._tasks.now_ms < self._until_ms:
            return
        for line in (self._again, self._new):
            while line and self._under_way() < self._limit:
                line.popleft().send_now()

    def _plan(self) -> None:
        if self._timer is None:
            self._timer = self._tasks.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._tasks.now_ms
        for line in (self._again, self._new):
            late = [send for send in line if send.deadline_ms <= now_ms]
            for send in late:
                line.remove(send)
                send.give_up()
        self._pump()
        if self._again or self._new or now_ms < self._quiet_ms:
            self._plan()
        else:
            self._forget()
