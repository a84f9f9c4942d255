"""The comparison of a follower's settings with those of its leader.

The position of an entry depends on ``mappedFileSizeCommitLog``, so members with different values
cannot have the same log. Requests between members do not name the setting, and the first entry that
does not fit may come hours later. So a follower asks each new leader for its settings once, as
``mqadmin getBrokerConfig`` does, which Apache's brokers answer as well. A leader that refuses is
not asked again, because an entry that does not fit is reported in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused
from twistmq.plugins.dledger.leader_address import LeaderAddress
from twistmq.plugins.replica.ask import ask

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["LeaderSettings"]

_FILE_SIZE: Final = "mappedFileSizeCommitLog"
_MEMBER: Final = "dLegerSelfId"
#: How often a leader that does not answer is asked again, ms.
_PERIOD_MS: Final = 1000
#: The number of characters of a leader's value that the log quotes.
_TEXT_MAX: Final = 40


class LeaderSettings:
    """Compares the settings of one member with those of each leader that it follows.

    :param find_lead: returns the current term and the id of its leader, which may be empty.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, address: LeaderAddress, find_lead: Callable[[], tuple[int, str]]
    ) -> None:
        self._broker = broker
        self._address = address
        self._find_lead = find_lead
        #: The term and the leader that need no further request.
        self._compared: tuple[int, str] | None = None
        self._due_ms = 0

    def rest_ms(self) -> int | None:
        """Return how long :meth:`compare_due` has nothing to do, ms; None while it need not ask."""
        if not self._address.source or self._find_lead() == self._compared:
            return None
        return max(self._due_ms - self._broker.steady.now_ms(), 0)

    def compare_due(self, _: int = 0) -> Deferred[None] | None:
        """Ask the leader for its settings, unless it was asked in this term; periodic."""
        if self.rest_ms() != 0:
            return None
        self._due_ms = self._broker.steady.now_ms() + _PERIOD_MS
        return Deferred.fromCoroutine(self._compare(self._address.source, self._find_lead()))

    async def _compare(self, address: str, lead: tuple[int, str]) -> None:
        try:
            body = await ask(self._broker, address, RequestCode.GET_BROKER_CONFIG)
        except RequestRefused:
            self._compared = lead
            return
        except BrokerError:
            # The copies of the leader's tables report this.
            return
        theirs = _settings_in(body)
        # Until the leader has registered, name servers report the previous one.
        if theirs.get(_MEMBER) != lead[1] or lead != self._find_lead():
            return
        self._compared = lead
        size = str(self._broker.settings.int(_FILE_SIZE))
        if theirs.get(_FILE_SIZE, size) != size:
            self.log.error(
                "{setting} is {size} here and {other} at the leader {leader}, {address}: this "
                "broker will refuse its entries. Start it with the leader's value and an empty "
                "ledger", setting=_FILE_SIZE, size=size, other=theirs[_FILE_SIZE][:_TEXT_MAX],
                leader=lead[1], address=address)


def _settings_in(body: bytes) -> dict[str, str]:
    """Return the settings in a response to GET_BROKER_CONFIG, one on each line."""
    pairs = (line.partition("=") for line in body.decode(errors="replace").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
