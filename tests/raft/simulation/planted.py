"""Bugs that are planted into the core, one at a time: the simulation has to find each of them.

``PLANTED`` is a table of bugs. Each replaces a method of the core (or of the driver) by one with a
mistake that a careful programmer could make, and is found within its bound of seeds by one of its
rules. A bug that is not found shows that the simulation looks away.

The names come from the project's list of planted bugs. Its other bugs are in a broker's store
and services, which this level does not have: see ``tests/plugins/dledger/planted.py``.

A bug with ``noticed_by`` shows in so few histories that a test of its module looks for it instead.
M22 is one: a leader that reads the refusals of its pushes knows the higher term and steps down, and
one that does not read them has no majority. It keeps a follower waiting for six seconds at most,
and no rule forbids so short a time. M40 is another: the leader compares before it pushes an entry
again, and a comparison gives up all parked pushes. Two pushes with one first index are therefore
parked together only when an old one is delivered again between the comparison and the repetition,
and the repetition itself overtakes the push before it. On the connections between members this does
not happen.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from unittest.mock import patch
from weakref import WeakKeyDictionary

from msgspec.structs import replace as changed

from tests.raft.simulation.disk import DiskLog
from tests.raft.simulation.java_machine import MixedSimulation
from tests.raft.simulation.machine import Machine
from tests.raft.simulation.simulation import Simulation
from tests.raft.simulation.world import InvariantBroken
from twistmq.raft import lead_transfer, leader, voter
from twistmq.raft.actions import Committed, LeadEstablished, Role
from twistmq.raft.admission import Admission
from twistmq.raft.ballot import Ballot
from twistmq.raft.commit import find_quorum_index
from twistmq.raft.durability import Durability
from twistmq.raft.election import Election
from twistmq.raft.follower import Follower
from twistmq.raft.hard_state import HardState
from twistmq.raft.leader import Leader
from twistmq.raft.member import Member
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import PushResponse, PushType, Request, ResponseCode, VoteResult
from twistmq.raft.outbox import Outbox
from twistmq.raft.parked_pushes import ParkedPush, ParkedPushes
from twistmq.raft.pusher import Pusher, _Phase
from twistmq.raft.vote_round import VoteRound

__all__ = ["PLANTED", "PlantedBug", "Replace", "Runnable", "find_bug", "is_noticed",
           "planted"]

#: The simulations of a group of five, and of a group with one member of Apache's.
_of_five: Final = partial(Simulation, member_count=5)
_beside_apaches: Final = partial(MixedSimulation, java_count=1)


class Runnable(Protocol):
    """The simulation of a seed, of any level."""

    def run(self) -> None:
        """Run the seed; :raises InvariantBroken: when a rule does not hold."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A mistake in the core, and the rules that may find it within ``seeds_max`` seeds."""

    name: str
    text: str
    rules: tuple[str, ...]
    plant: Callable[[Replace], None]
    seeds_max: int = 5000
    #: Makes the simulation of a seed.
    make: Callable[[int], Runnable] = Simulation
    #: Whether some tens of seeds are enough, so that the ordinary tests look for it.
    is_quick: bool = False
    #: The test that finds the bug where seeds do not; empty: seeds find it.
    noticed_by: str = ""


Replace = Callable[[Any, str, Any], None]


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Install the functions of the bug while the block runs."""
    with ExitStack() as stack:
        bug.plant(lambda place, name, new: stack.enter_context(
            patch.object(place, name, new)) and None)
        yield


def find_bug(bug: PlantedBug, first: int = 0) -> tuple[int, str] | None:
    """Run seeds with a bug until one finds it.

    :returns: how many seeds it took, and the text; None: no seed up to the bound found it.
    """
    with planted(bug):
        for count in range(bug.seeds_max):
            try:
                bug.make(first + count).run()
            except InvariantBroken as broken:
                return count + 1, str(broken)
    return None


def is_noticed(bug: PlantedBug) -> bool:
    """Whether the test ``noticed_by`` passes without the bug, and fails with it."""
    if not _passes(bug.noticed_by):
        return False
    with planted(bug):
        return not _passes(bug.noticed_by)


def _passes(name: str) -> bool:
    """Run a test of another module."""
    result = unittest.TestResult()
    unittest.TestLoader().loadTestsFromName(name).run(result)
    return result.testsRun == 1 and result.wasSuccessful()


# --- Votes and terms ---

def _vote_before_stored(replace: Replace) -> None:
    replace(Outbox, "add_message", lambda self, message: self._actions.append(message))


def _vote_not_stored(replace: Replace) -> None:
    def vote(self: Ballot, member: str) -> None:
        self._state = HardState(self._state.term, member, self._state.joined)
    replace(Ballot, "vote", vote)


def _term_led_twice(replace: Replace) -> None:
    replace(Ballot, "is_standing",
            property(lambda self: self._state.voted_for == self._member_id))


def _vote_kept(replace: Replace) -> None:
    def raise_term(self: Ballot, term: int) -> None:
        if term > self._state.term:
            self._change(HardState(term, self._state.voted_for, self._state.joined))
    replace(Ballot, "raise_term", raise_term)


def _second_vote(replace: Replace) -> None:
    true_result = voter._result_by_term

    def result(state: MemberState, request: Any) -> VoteResult:
        if request.term == state.term and state.role is Role.CANDIDATE:
            return VoteResult.ACCEPT
        return true_result(state, request)

    def vote(self: Ballot, member: str) -> None:
        if self._state.voted_for != member:
            self._change(HardState(self._state.term, member, self._state.joined))
    replace(voter, "_result_by_term", result)
    replace(Ballot, "vote", vote)


def _answers_counted_twice(replace: Replace) -> None:
    def add_response(self: VoteRound, voter: str, response: Any) -> None:
        self._waiting.discard(voter)
        self._responses[f"{voter} {len(self._responses)}"] = response
    replace(VoteRound, "add_response", add_response)
    true_note = Election.note_answer

    def note(self: Election, number: int, response: Any) -> bool:
        call = self._calls._by_number.get(number)
        is_ours = true_note(self, number, response)
        if call is not None and self._round is call.purpose:
            self._calls.add_call(number, call)
        return is_ours
    replace(Election, "note_answer", note)


def _term_of_log_is_current(replace: Replace) -> None:
    replace(MemberState, "end_term", property(
        lambda self: self.term if self.log.end_index >= 0 else -1))


def _short_log_gets_vote(replace: Replace) -> None:
    true_result = voter._result_by_log

    def result(state: MemberState, request: Any) -> VoteResult:
        found = true_result(state, request)
        return (VoteResult.ACCEPT if found is VoteResult.REJECT_SMALL_LEDGER_END_INDEX else found)
    replace(voter, "_result_by_log", result)


def _wiped_votes(replace: Replace) -> None:
    replace(Ballot, "has_joined", True)


def _joins_too_early(replace: Replace) -> None:
    def note_caught_up(self: Follower, request: Any) -> None:
        if 0 <= request.commit_index <= self._verified_index:
            self._join_index = request.commit_index
    replace(Follower, "_note_caught_up", note_caught_up)


def _joins_without_terms(replace: Replace) -> None:
    replace(Admission, "knows_terms", True)


def _higher_term_ignored(replace: Replace) -> None:
    true_note = Leader._note_heartbeat_answer

    def note(self: Leader, call: Any, response: Any) -> None:
        if response.term <= self._state.term:
            true_note(self, call, response)
    replace(Leader, "_note_heartbeat_answer", note)


# --- Committing ---

def _old_terms_counted(replace: Replace) -> None:
    def advance(self: Leader) -> None:
        state = self._state
        own = state.durability.durable_index
        matches = [own, *(pusher.match_index for pusher in self._pushers.values())]
        index = min(own, find_quorum_index(matches, state.settings.quorum))
        state.advance_committed(index)
        if index >= self._barrier_index and not self.is_established:
            self.is_established = True
            state.outbox.add(LeadEstablished(state.term, self._barrier_index))
    replace(Leader, "advance_committed", advance)


def _no_barrier(replace: Replace) -> None:
    replace(DiskLog, "append_barrier", lambda self, term: None)


def _own_entries_counted_unsynced(replace: Replace) -> None:
    true_advance = Leader.advance_committed

    def advance(self: Leader) -> None:
        with patch.object(Durability, "durable_index",
                          property(lambda durability: durability._log.end_index)):
            true_advance(self)
    replace(Leader, "advance_committed", advance)


def _answer_before_sync(replace: Replace) -> None:
    replace(Follower, "_acknowledge", lambda self, question, request, index: self._answer(
        question, request, ResponseCode.SUCCESS))


def _answer_before_append(replace: Replace) -> None:
    true_take = Follower._take_entries

    def take(self: Follower, push: ParkedPush) -> None:
        if push.request.entries[0].index > self._verified_index + 1:
            self._answer(push.question, push.request, ResponseCode.SUCCESS)
        else:
            true_take(self, push)
    replace(Follower, "_take_entries", take)


def _old_answers_counted(replace: Replace) -> None:
    """Each answer to a push counts for the peer that was asked, in whatever reign it arrives."""
    true_ask, true_note = MemberState.ask_peer, Leader.note_answer
    asked: WeakKeyDictionary[MemberState, dict[int, str]] = WeakKeyDictionary()

    def ask(self: MemberState, peer: str, request: Any, *, bulk: bool = False) -> int:
        number = true_ask(self, peer, request, bulk=bulk)
        if bulk and request.type is PushType.APPEND:
            asked.setdefault(self, {})[number] = peer
        return number

    def note(self: Leader, number: int, response: Any) -> bool:
        is_ours = true_note(self, number, response)
        peer = asked.get(self._state, {}).get(number)
        if (not is_ours and peer and isinstance(response, PushResponse)
                and response.code is ResponseCode.SUCCESS and response.term < self._state.term):
            pusher = self._pushers[peer]
            pusher.match_index = max(pusher.match_index, response.index + response.count - 1)
        return is_ours
    replace(MemberState, "ask_peer", ask)
    replace(Leader, "note_answer", note)


def _batch_off_by_one(replace: Replace) -> None:
    true_note = Pusher._note_appended

    def note(self: Pusher, push: Any, response: Any) -> None:
        true_note(self, push, response)
        if response.code is ResponseCode.SUCCESS:
            self.match_index = max(self.match_index, push.last + 1)
    replace(Pusher, "_note_appended", note)


def _watermarks_kept(replace: Replace) -> None:
    true_init = Pusher.__init__

    def init(self: Pusher, state: MemberState, peer: str) -> None:
        true_init(self, state, peer)
        kept = getattr(state.log, "kept", None)
        if kept is None:
            kept = state.log.kept = {}  # type: ignore[attr-defined]
        self.match_index = kept[peer].match_index if peer in kept else -1
        kept[peer] = self
    replace(Pusher, "__init__", init)


def _commit_beyond_compared(replace: Replace) -> None:
    true_note = Follower.note_durable

    def note(self: Follower) -> None:
        true_note(self)
        state = self._state
        if state.role is Role.FOLLOWER:
            state.advance_committed(min(self._leader_committed, state.durability.durable_index))
    replace(Follower, "note_durable", note)


def _commit_beyond_end(replace: Replace) -> None:
    def advance(self: MemberState, index: int) -> None:
        if index > self.committed_index:
            self.committed_index = index
            self.outbox.add(Committed(index))
    replace(MemberState, "advance_committed", advance)

    true_note = Follower.note_durable

    def note(self: Follower) -> None:
        true_note(self)
        if self._state.role is Role.FOLLOWER and self._verified_index >= 0:
            self._state.advance_committed(self._leader_committed)
    replace(Follower, "note_durable", note)


def _committed_falls(replace: Replace) -> None:
    true_truncate = Follower._truncate

    def truncate(self: Follower, question: int, request: Any) -> None:
        true_truncate(self, question, request)
        self._state.committed_index = min(self._state.committed_index, request.entries[0].index)
    replace(Follower, "_truncate", truncate)


def _committed_truncated(replace: Replace) -> None:
    def truncate(self: Follower, question: int, request: Any) -> None:
        entry = request.entries[0]
        if self._has(entry):
            self._cut(entry.index)
            self._verified_index = entry.index
        else:
            self._write_last(entry)
        self._acknowledge(question, request, entry.index)
    replace(Follower, "_truncate", truncate)


def _own_end_not_needed(replace: Replace) -> None:
    true_find = find_quorum_index

    def find(matches: Any, quorum: int) -> int:
        return true_find(matches, quorum - 1)
    replace(leader, "find_quorum_index", find)


# --- Pushing ---

def _old_leader_keeps_waiting(replace: Replace) -> None:
    true_answer = Follower.answer_push

    def answer_push(self: Follower, question: int, request: Any) -> None:
        self._heard_ms = self._state.now_ms
        true_answer(self, question, request)
    replace(Follower, "answer_push", answer_push)


def _repeated_for_ever(replace: Replace) -> None:
    true_append, true_note = Follower._append, Pusher._note_appended

    def append(self: Follower, question: int, request: Any) -> None:
        if request.entries[-1].index <= self._verified_index:
            self._answer(question, request, ResponseCode.REPEATED_PUSH)
        else:
            true_append(self, question, request)

    def note(self: Pusher, push: Any, response: Any) -> None:
        if response.code is not ResponseCode.REPEATED_PUSH:
            true_note(self, push, response)

    def fail(self: Pusher) -> None:
        if self._phase is _Phase.APPEND and self.match_index >= 0:
            self._calls.forget_all()
            self._window_bytes = 0
            self._append_from(self.match_index + 1)
        else:
            true_fail(self)
    true_fail, true_run = Pusher._fail, Pusher.run

    def run(self: Pusher) -> None:
        if (self._phase is _Phase.APPEND and not self._calls
                and self._next_index != self.match_index + 1):
            self._next_index = self.match_index + 1
        true_run(self)
    replace(Follower, "_append", append)
    replace(Pusher, "_note_appended", note)
    replace(Pusher, "_fail", fail)
    replace(Pusher, "run", run)


def _idle_never_compares(replace: Replace) -> None:
    true_note = Pusher.note_answer

    def note(self: Pusher, number: int, response: Any) -> int | None:
        call = self._calls._by_number.get(number)
        if call is not None and call.purpose.type is PushType.COMMIT:
            self._calls.take_call(number)
            return call.sent_ms
        return true_note(self, number, response)
    replace(Pusher, "note_answer", note)


def _begin_never_reached(replace: Replace) -> None:
    true_truncate = Pusher._truncate_at

    def truncate_at(self: Pusher, index: int) -> None:
        if index == self._state.log.begin_index and index > 0:
            self._place = index
        else:
            true_truncate(self, index)
    replace(Pusher, "_truncate_at", truncate_at)


def _divergence_too_high(replace: Replace) -> None:
    true_append_from = Pusher._append_from

    def append_from(self: Pusher, index: int) -> None:
        if index <= self._state.log.end_index:
            self.match_index = index
            index += 1
        true_append_from(self, index)
    replace(Pusher, "_append_from", append_from)


def _parked_merged(replace: Replace) -> None:
    def park(
        self: ParkedPushes, parked: ParkedPush, next_index: int,
    ) -> list[ParkedPush] | None:
        first = parked.request.entries[0].index
        other = self._by_first.get(first)
        if other is None:
            self._by_first[first] = parked
            self._bytes += parked.size
            return []
        self._by_first[first] = ParkedPush(parked.question, other.request, parked.deadline_ms)
        return [other]
    replace(ParkedPushes, "add_push", park)


def _parked_kept_over_terms(replace: Replace) -> None:
    def start_reign(self: Follower) -> None:
        if self._reign != self._state.reign:
            self._reign = self._state.reign
            self._heard_ms = self._state.now_ms
            self._leader_committed = -1
    replace(Follower, "start_reign", start_reign)


# --- Transfers, clients, disks and clocks ---

def _transfer_to_anybody(replace: Replace) -> None:
    replace(lead_transfer, "_is_able", lambda state, leader, peer: True)


def _entries_during_transfer(replace: Replace) -> None:
    true_refusal = Leader.find_refusal

    def refusal(self: Leader, count: int = 1) -> ResponseCode | None:
        code = true_refusal(self, count)
        return None if code is ResponseCode.LEADER_TRANSFERRING else code
    replace(Leader, "find_refusal", refusal)


def _clients_forgotten(replace: Replace) -> None:
    replace(Machine, "_release", lambda self: None)


def _failed_disk_ignored(replace: Replace) -> None:
    replace(MemberState, "fail_storage", lambda self, reason: None)


def _wall_clock(replace: Replace) -> None:
    true_local = Machine.local_ms

    def local_ms(self: Machine) -> int:
        # The clock of the wall is set forward by an hour from time to time.
        return true_local(self) + self.world.now_ms // 7001 * 3_600_000
    replace(Machine, "local_ms", local_ms)


def _other_group_obeyed(replace: Replace) -> None:
    true_answer = Member._answer_request

    def answer_request(self: Member, question: int, request: Request) -> None:
        true_answer(self, question, changed(request, group=self._state.settings.group))
    replace(Member, "_answer_request", answer_request)


PLANTED: Final = (
    PlantedBug("M1", "a vote is answered before it is stored", ("I2", "I3"), _vote_before_stored,
               is_quick=True),
    PlantedBug("M2", "a vote is not stored", ("I2",), _vote_not_stored, is_quick=True),
    PlantedBug("M4", "a member leads its old term again after a restart", ("I1",),
               _term_led_twice, is_quick=True),
    PlantedBug("M5", "entries of older terms are counted", ("I5", "I6"), _old_terms_counted,
               is_quick=True),
    PlantedBug("M6", "the barrier is missing", ("core", "I12", "I6"), _no_barrier, is_quick=True),
    PlantedBug("M7", "the leader counts its own entries before their sync", ("I6", "I9", "I12"),
               _own_entries_counted_unsynced, is_quick=True),
    PlantedBug("M8", "a follower answers before the sync", ("I8",), _answer_before_sync,
               is_quick=True),
    PlantedBug("M9", "a follower answers before the append", ("I8",), _answer_before_append,
               is_quick=True),
    PlantedBug("M10", "answers of an older term are counted", ("I21", "I6", "I9", "I12"),
               _old_answers_counted, make=_of_five),
    PlantedBug("M11", "an answer that comes twice is counted twice", ("I21", "I1", "I2", "I5"),
               _answers_counted_twice, make=_of_five),
    PlantedBug("M12", "the last index of a batch is one too high", ("I21", "I6", "I9", "I12"),
               _batch_off_by_one, is_quick=True),
    PlantedBug("M13", "watermarks are kept over a new term", ("I21", "I6", "I9", "I12"),
               _watermarks_kept, make=_of_five),
    PlantedBug("M14", "a follower commits entries that were not compared", ("I6",),
               _commit_beyond_compared),
    PlantedBug("M15", "a follower commits beyond its end", ("I6",), _commit_beyond_end,
               is_quick=True),
    PlantedBug("M16", "the committed index falls with a truncation", ("I6",), _committed_falls),
    PlantedBug("M17", "committed entries are truncated", ("I6",), _committed_truncated),
    PlantedBug("M17b", "committed entries are truncated, beside a member of Apache's", ("I6",),
               _committed_truncated, make=_beside_apaches),
    PlantedBug("M18", "the term of the log is the current term", ("I5", "I18"),
               _term_of_log_is_current),
    PlantedBug("M19", "a shorter log of the same term gets a vote", ("I5",), _short_log_gets_vote,
               is_quick=True),
    PlantedBug("M20", "a vote is kept when the term rises", ("core", "I18"), _vote_kept,
               is_quick=True),
    PlantedBug("M20b", "a term has two votes of a member", ("I1", "I2"), _second_vote),
    PlantedBug("M21", "a leader goes on after an answer of a higher term", ("I18",),
               _higher_term_ignored),
    PlantedBug("M22", "pushes of an old leader keep a follower waiting", ("I18",),
               _old_leader_keeps_waiting, noticed_by="tests.raft.test_follower.LeaderTests."
               "test_an_old_leader_does_not_keep_it_waiting"),
    PlantedBug("M23", "a follower says for ever that a push is repeated", ("I18",),
               _repeated_for_ever),
    PlantedBug("M24", "an idle group never compares with a wiped follower", ("I18",),
               _idle_never_compares, is_quick=True),
    PlantedBug("M25", "a follower behind the leader's beginning is compared for ever", ("I18",),
               _begin_never_reached),
    PlantedBug("M26", "the lead is transferred to a member that is down", ("I18",),
               _transfer_to_anybody),
    PlantedBug("M27", "entries are accepted during a transfer", ("I13",),
               _entries_during_transfer),
    PlantedBug("M28", "waiting clients are forgotten at the end of a lead", ("I13",),
               _clients_forgotten, is_quick=True),
    PlantedBug("M30", "a failing disk is ignored", ("I18", "I8", "core"), _failed_disk_ignored),
    PlantedBug("M39", "the comparison ends one entry too high", ("I21", "I6", "I9", "I12"),
               _divergence_too_high),
    PlantedBug("M40", "two parked pushes with one first index are merged", ("I8",),
               _parked_merged, noticed_by="tests.raft.test_follower.PushTests."
               "test_a_longer_push_takes_the_place_of_a_parked_one"),
    PlantedBug("M44", "a member whose disk was replaced votes", ("I19", "core"), _wiped_votes),
    PlantedBug("M44b", "a member whose disk was replaced joins before a barrier", ("I19",),
               _joins_too_early),
    PlantedBug("M44c", "a member whose disk was replaced obeys before it knows the terms",
               ("I2", "I16"), _joins_without_terms),
    PlantedBug("M47", "the wall clock measures durations", ("I18",), _wall_clock, is_quick=True),
    PlantedBug("M50", "a majority is one member too small", ("I6", "I9", "I12"),
               _own_end_not_needed, is_quick=True),
    PlantedBug("M51", "parked pushes outlive the lead", ("I8", "I16"), _parked_kept_over_terms),
    PlantedBug("M52", "a request of another group is obeyed", ("I20",), _other_group_obeyed,
               is_quick=True),
)
