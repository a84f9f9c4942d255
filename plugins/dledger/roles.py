"""The broker's role as its group decides it: the leader is the master, all others are slaves.

A member that is elected first makes every entry of its log readable, and only then accepts
messages, so that queue offsets continue where the previous leader ended. A leader that is deposed
refuses messages in the same turn. Its entries without a majority stay in the log until the next
leader confirms or replaces them.

A broker registers with name servers once it knows its role. Differs from Apache, whose broker
registers with the id -1 before that.

Source: DLedgerRoleChangeHandler, BrokerController.changeToMaster and changeToSlave @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import StoreError
from twistmq.broker.api.wire import MASTER_ID
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.dledger.leader_address import LeaderAddress
from twistmq.raft.actions import Role
from twistmq.raft.log import LogError

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.ledger import Ledger

__all__ = ["BrokerRoles"]

_MASTER_ROLE: Final = "SYNC_MASTER"
#: The time without a leader after which the broker is unhealthy, ms.
_LEADERLESS_MS: Final = 30_000


class BrokerRoles:
    """Gives one broker the roles that its node reports; see GroupListener.

    :param slave_id: the id of the broker as a slave.
    :param on_failure: called with the reason when the broker cannot become master.
    :param may_vote: returns whether the member takes part in elections.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, ledger: Ledger, stage: CommitStage, leader_address: LeaderAddress,
        slave_id: int, on_failure: Callable[[str], None], may_vote: Callable[[], bool],
    ) -> None:
        self._broker = broker
        self._store = broker.store
        self._ledger = ledger
        self._stage = stage
        self._leader_address = leader_address
        self._slave_id = slave_id
        self._on_failure = on_failure
        self._may_vote = may_vote
        self._lane = broker.foreground.lane()
        self._is_dispatching = False
        self.role = Role.CANDIDATE
        self.term = 0
        #: The id of the leader; empty while it is not known.
        self.leader = ""
        #: When the leader was last known, on the clock for durations, ms.
        self._known_ms = broker.steady.now_ms()
        #: Whether the node has stopped by a fault.
        self._has_failed = False
        #: How often the leader was lost, so that an election followed.
        self.elections = 0

    # --- GroupListener

    def lead_lost(self) -> None:
        """Refuse messages at once, answer the sends that wait, and register as a slave."""
        self._stage.release()
        self._broker.step_down(self._slave_id)
        self._broker.topics_changed()

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        """Note the leader, and register once there is one."""
        broker = self._broker
        if leader != self.leader:
            self.log.info("the leader of term {term} is {leader}", term=term,
                          leader=leader or "not known")
        if self.leader:
            self._known_ms = broker.steady.now_ms()
            self.elections += leader != self.leader
        self.role, self.term, self.leader = role, term, leader
        self._leader_address.leader_changed(follows=role is Role.FOLLOWER)
        if leader and not broker.identity.registers:
            broker.identity.registers = True
            if role is Role.FOLLOWER:
                broker.topics_changed()

    def lead_established(self, term: int) -> None:
        """Become the master, which accepts messages."""
        self._ledger.leading_term = term
        self._stage.open()
        Deferred.fromCoroutine(self._become_master()).addErrback(self._not_master, term)

    async def _become_master(self) -> None:
        await self._broker.change_role(_MASTER_ROLE, MASTER_ID)

    def _not_master(self, failure: Failure, term: int) -> None:
        """Handle a change of role that failed: by the disk, or because the lead was lost."""
        if self.role is Role.LEADER and self.term == term and not self._has_failed:
            if not failure.check(StoreError):
                self.log.failure("this broker cannot become the master", failure)
            self._on_failure(f"this broker cannot become the master: {failure.value}")

    def entries_committed(self, index: int) -> None:
        """Make entries readable, and acknowledge the sends that wait for them."""
        try:
            # While the lane dispatches, a further step in this turn would hold the reactor longer.
            self._ledger.commit(index, dispatches=not self._is_dispatching)
        except (StoreError, OSError) as error:
            raise LogError(str(error)) from error
        dispatch = self._store.dispatch
        self._stage.confirm_up_to(dispatch.confirm_offset)
        if dispatch.behind_bytes and not self._is_dispatching:
            self._is_dispatching = True
            self._lane.run(self._dispatching(), at_once=False)

    def _dispatching(self) -> Generator[None, None, None]:
        """Make the remaining confirmed messages readable, in slices."""
        try:
            while self._store.dispatch.step():
                yield
        finally:
            self._is_dispatching = False

    def node_failed(self) -> None:
        """Note that this broker takes no part in its group until it is restarted."""
        self._has_failed = True
        self.leader = ""
        self._leader_address.leader_changed(follows=False)

    # --- health

    def leaderless_ms(self) -> int:
        """Return for how long no leader has been known; 0 while one is."""
        return 0 if self.leader else self._broker.steady.now_ms() - self._known_ms

    def fault(self) -> str:
        """Return the fault of the group that an operator should see; empty without one."""
        if self._has_failed:
            return "the member of the group has failed; the log says why. Restart the broker"
        silent_ms = self.leaderless_ms()
        if silent_ms < _LEADERLESS_MS:
            return ""
        text = f"the group has had no leader for {silent_ms // 1000} s"
        if not self._may_vote():
            text += ("; this broker, whose ledger is new or incomplete, may not vote before it has "
                     "caught up with a leader")
        return text
