"""The address at which the leader takes requests, as name servers report it.

A member knows the id of its leader, and the address where the leader hears other members, but not
the port for requests. The leader registers as the master of their common name, so name servers know
that port. They may report the previous master until the new one has registered, so a follower asks
them repeatedly. It does not ask while it knows no leader.

Source: SlaveSynchronize, BrokerController.handleRegisterBrokerResult @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api import BrokerError
from twistmq.broker.api.wire import MASTER_ID

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["LeaderAddress"]

#: How often name servers are asked while the leader is known, and while it is not, ms.
_PERIOD_MS, _UNKNOWN_MS = 3000, 500


class LeaderAddress:
    """The address of the leader that one member follows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._address = ""
        #: Whether this member follows a leader, as far as the group knows.
        self._follows = False
        #: Rises with each change of the leader, so that late answers are ignored.
        self.version = 0
        self._due_ms = 0

    @property
    def source(self) -> str:
        """Where the leader takes requests, "host:port"; empty while unknown. See FollowedMaster."""
        return self._address if self._follows else ""

    @property
    def hears_master(self) -> bool:
        """Whether the leader is followed."""
        return self._follows

    def leader_changed(self, *, follows: bool) -> None:
        """Forget the previous leader.

        :param follows: whether this member follows the new one, and neither leads itself nor lacks
            a leader.
        """
        self._follows = follows
        self._address = ""
        self.version += 1
        self._due_ms = 0

    def rest_ms(self) -> int | None:
        """Return how long :meth:`ask_due` has nothing to do, ms; None while no leader is followed.
        """
        return max(self._due_ms - self._broker.steady.now_ms(), 0) if self._follows else None

    def ask_due(self, _: int = 0) -> Deferred[None] | None:
        """Ask name servers for the master of the name if that is due; periodic."""
        if self.rest_ms() != 0:
            return None
        self._due_ms = self._broker.steady.now_ms() + (_PERIOD_MS if self._address else _UNKNOWN_MS)
        return Deferred.fromCoroutine(self._ask(self.version))

    async def _ask(self, version: int) -> None:
        broker = self._broker
        try:
            members = await broker.host.find_members(broker.broker_name)
        except BrokerError:
            # The health check of name servers reports this.
            return
        address = members.get(MASTER_ID, "")
        if version == self.version and address != broker.broker_address:
            self._address = address
