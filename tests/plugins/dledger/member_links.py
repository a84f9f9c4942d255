"""The links between the members of a group in memory, which lose, delay and cut messages."""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.plugins.dledger.kernels import Answer
from twistmq.raft.messages import Request, Response

__all__ = ["MemberLinks"]

#: The longest time of a message on a link without a fault, s.
_DELAY_MAX = 0.002


class MemberLinks:
    """The links of one group. Faults are set by its attributes.

    :param clock: returns the clock of all members.
    :param answer_of: returns the function by which a member answers; None: it has no process.
    """

    def __init__(self, clock: Callable[[], Clock], draw: random.Random,
                 answer_of: Callable[[str], Answer | None]) -> None:
        self._clock = clock
        self._draw = draw
        self._answer_of = answer_of
        #: The directions that carry nothing, (sender, receiver).
        self.cut: set[tuple[str, str]] = set()
        #: The share of messages that are lost.
        self.loss = 0.0
        self.delay_seconds_max = _DELAY_MAX

    @property
    def are_good(self) -> bool:
        """Whether there is no fault."""
        return not (self.cut or self.loss) and self.delay_seconds_max == _DELAY_MAX

    def heal(self) -> None:
        """Repair all links."""
        self.cut.clear()
        self.loss, self.delay_seconds_max = 0.0, _DELAY_MAX

    def ask(self, sender: str, receiver: str, request: Request) -> Deferred[Response]:
        """Carry a request and its response."""
        answered: Deferred[Response] = Deferred()

        def carries(first: str, second: str) -> bool:
            return (first, second) not in self.cut and self._draw.random() >= self.loss

        def arrive() -> None:
            answer = self._answer_of(receiver)
            if answer is None:
                answered.errback(ConnectionError("no process"))
            else:
                answer(request).addCallbacks(back, answered.errback)

        def back(response: Response) -> None:
            if carries(receiver, sender):
                self._clock().callLater(self._delay(), answered.callback, response)

        if carries(sender, receiver):
            self._clock().callLater(self._delay(), arrive)
        return answered

    def _delay(self) -> float:
        return 0.001 + self._draw.random() ** 2 * self.delay_seconds_max
