"""Bugs that are planted into a broker's store and services: levels 2 and 3 have to find them.

The tables continue ``tests/raft/simulation/planted.py``, whose names and form they share.
``STORE_PLANTED`` is for ``StoreSimulation``, and ``KERNEL_PLANTED`` for ``KernelSimulation``.

Tests of other modules notice six bugs that seeds do not find. M36: no member has acknowledged an
entry that a loss of power can tear, and the comparison with the next leader's log replaces it. M37:
no unit of a cut entry is used, because the index of the last entry bounds all reads, and recovery
rewrites each unit that the heads do not confirm. M42 and M43: a leader that is cut off has to
deliver a message in vain, and to lead again before it has copied the progress of the leader after
it. M46: these levels have no links whose queue could grow. M49: a leader that gives an offset twice
is one of Apache's, and these levels have none.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any, Final

from twisted.internet.defer import Deferred

from tests.plugins.dledger import store_simulation
from tests.plugins.dledger.kernel_simulation import KernelSimulation
from tests.plugins.dledger.store_simulation import StoreSimulation
from tests.raft.simulation.planted import PLANTED, PlantedBug, Replace
from twistmq.broker.api import RequestRefused, ResponseCode
from twistmq.broker.request.settled_progress import SettledProgress
from twistmq.broker.store import store_recovery
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.entry_heads import ENTRY_HEAD_SIZE
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.ledger.entry_index import EntryIndex
from twistmq.broker.store.ledger.entry_log import EntryLog
from twistmq.broker.store.ledger.ledger import Ledger
from twistmq.broker.store.ledger.state_files import HardState
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.retention import CommitLogRetention
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.store.store_recovery import StoreRecovery
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.dledger.peers import Peers
from twistmq.plugins.dledger.roles import BrokerRoles
from twistmq.raft.actions import Role
from twistmq.raft.messages import Request, Response

__all__ = ["KERNEL_PLANTED", "STORE_PLANTED"]

_LEVEL_1: Final = {bug.name: bug for bug in PLANTED}


# --- The store ---

def _term_file_lost(replace: Replace) -> None:
    true_write = store_simulation.write_hard_state

    def write(io: IStoreIO, folder: str, state: HardState) -> None:
        for path in (f"{folder}/currterm", f"{folder}/currterm.bak"):
            if io.exists(path):
                io.remove(path)
        true_write(io, folder, state)
    replace(store_simulation, "write_hard_state", write)


def _queue_offsets_kept(replace: Replace) -> None:
    replace(Dispatch, "_restore_next_offsets", lambda self: None)


def _readable_before_agreement(replace: Replace) -> None:
    true_commit = Ledger.commit

    def commit(self: Ledger, index: int) -> None:
        true_commit(self, index)
        self._store.dispatch.advance_confirm_offset(self._log.max_offset)
    replace(Ledger, "commit", commit)


def _all_is_readable_at_start(replace: Replace) -> None:
    true_check = EntryLog.check_heads

    def check_heads(self: EntryLog, start: int) -> int:
        self.confirmed_end = end = true_check(self, start)
        return end
    replace(EntryLog, "check_heads", check_heads)


def _filler_not_counted(replace: Replace) -> None:
    def fitting(self: Ledger, position: int, body_size: int) -> int:
        following = self._log.next_file_start(position)
        return position if ENTRY_HEAD_SIZE + body_size <= following - position else following
    replace(Ledger, "_fitting_position", fitting)


def _torn_entry_accepted(replace: Replace) -> None:
    true_init = StoreRecovery.__init__

    def init(self: StoreRecovery, settings: StoreSettings, *others: Any) -> None:
        true_init(self, changed(settings, check_crc_on_recover=False), *others)
    replace(StoreRecovery, "__init__", init)
    replace(store_recovery, "without_torn", lambda messages, *limits: messages)


def _cut_units_kept(replace: Replace) -> None:
    replace(EntryIndex, "cut_job", lambda self, index: lambda: None)


def _index_not_rebuilt(replace: Replace) -> None:
    replace(EntryIndex, "write_different", lambda self, first, units: None)


def _undispatched_file_removed(replace: Replace) -> None:
    replace(CommitLogRetention, "_is_first_due", lambda self, now_ms: len(self._log.starts) > 1)


def _older_offset_empties_queue(replace: Replace) -> None:
    replace(Dispatch, "_restart_queue",
            lambda self, queue, queue_offset: self._queues.restart(queue, queue_offset))


def _in_stores(name: str) -> PlantedBug:
    """A bug of level 1, for stores."""
    return changed(_LEVEL_1[name], make=StoreSimulation)


STORE_PLANTED: Final = (
    PlantedBug("M3", "the file of the term is missing for a moment", ("I8",), _term_file_lost,
               make=StoreSimulation, is_quick=True),
    _in_stores("M7"),
    _in_stores("M8"),
    _in_stores("M30"),
    PlantedBug("M31", "queue offsets are kept over a cut", ("I11", "I18", "core"),
               _queue_offsets_kept, make=StoreSimulation),
    PlantedBug("M32", "messages are readable before the group has agreed", ("I10", "I18", "core"),
               _readable_before_agreement, make=StoreSimulation),
    PlantedBug("M33", "a store shows its whole log at a start", ("I10", "I11", "core"),
               _all_is_readable_at_start, make=StoreSimulation, is_quick=True),
    PlantedBug("M35", "an entry leaves no room for the filler", ("I7", "I18", "core"),
               _filler_not_counted, make=StoreSimulation),
    PlantedBug("M36", "a torn entry is accepted", ("I7", "I8"), _torn_entry_accepted, noticed_by=
               "tests.broker.store.ledger.test_entry_log.RecoveryTests.test_a_torn_tail"),
    PlantedBug("M37", "units of cut entries are kept", ("I7",), _cut_units_kept, noticed_by=
               "tests.broker.store.ledger.test_entry_log.RecoveryTests.test_a_torn_tail"),
    PlantedBug("M38", "the index is not rebuilt", ("I7", "core"), _index_not_rebuilt,
               make=StoreSimulation, is_quick=True),
    PlantedBug("M45", "retention removes what was not agreed", ("I15", "core"),
               _undispatched_file_removed, make=StoreSimulation),
    PlantedBug("M49", "an older offset empties a queue", ("I11",), _older_offset_empties_queue,
               noticed_by="tests.broker.store.ledger.test_ledger.RepeatedOffsetTests."
               "test_the_queue_keeps_what_it_has"),
)


# --- The services of a broker ---

def _steps_down_late(replace: Replace) -> None:
    true_lost = BrokerRoles.lead_lost

    def lead_lost(self: BrokerRoles) -> None:
        self._broker.host.timers.callLater(0.2, true_lost, self)
    replace(BrokerRoles, "lead_lost", lead_lost)


def _master_before_barrier(replace: Replace) -> None:
    true_changed = BrokerRoles.role_changed

    def role_changed(self: BrokerRoles, role: Role, term: int, leader: str) -> None:
        true_changed(self, role, term, leader)
        if role is Role.LEADER:
            self.lead_established(term)
    replace(BrokerRoles, "role_changed", role_changed)


def _not_agreed_upon(replace: Replace) -> None:
    replace(CommitStage, "begin", lambda self, offset: self._notify())


def _settled_by_flush(replace: Replace) -> None:
    replace(MessageStore, "settled_offset", property(lambda self: self.commit_log.flushed_offset))


def _unsettled_is_told(replace: Replace) -> None:
    replace(SettledProgress, "agreed_value", lambda self, current: current)


def _refused_after_append(replace: Replace) -> None:
    def release(self: CommitStage) -> None:
        self._is_open = False
        self._waits.fail_all(RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "not a master"))
    replace(CommitStage, "release", release)


def _one_connection(replace: Replace) -> None:
    def ask(self: Peers, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        return self._links[peer, True].ask(request)
    replace(Peers, "ask", ask)


KERNEL_PLANTED: Final = (
    PlantedBug("M29", "a broker steps down after a while", ("I13",), _steps_down_late, 100,
               KernelSimulation),
    PlantedBug("M34", "a broker is master before its barrier", ("H1", "H2", "H6", "H7", "I18"),
               _master_before_barrier, 100, KernelSimulation),
    PlantedBug("M41", "a send is acknowledged without agreement", ("H1", "H2", "H9", "I14"),
               _not_agreed_upon, 100, KernelSimulation),
    PlantedBug("M42", "progress is settled by a flush alone", ("I14", "H9"), _settled_by_flush,
               noticed_by="tests.plugins.dledger.test_progress.TransactionTests."
               "test_progress_of_a_leader_that_is_cut_off"),
    PlantedBug("M43", "progress that is not settled is told", ("I14", "H9"), _unsettled_is_told,
               noticed_by="tests.plugins.dledger.test_progress.RetriedTests."
               "test_a_retry_in_vain_is_made_again"),
    PlantedBug("M46", "votes and heartbeats wait behind pushes", ("I18",), _one_connection,
               noticed_by="tests.plugins.dledger.test_outgoing_link.OutgoingLinkTests."
               "test_pushes_have_a_connection_of_their_own"),
    PlantedBug("M48", "a message that was appended is refused", ("H5",), _refused_after_append,
               100, KernelSimulation),
)
