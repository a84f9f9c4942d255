"""The invariants of a group, checked after every event by what the simulator alone knows.

| rule | invariant |
| --- | --- |
| I1 | one member leads a term, in one of its lives |
| I2 | a vote is durable before its answer leaves, and a term has one vote of each member |
| I3 | a member's term never falls, and no message has a term that the sender's disk does not have |
| I4 | entries with one index and term are equal, and so are all before them |
| I5 | the log of a new leader has all entries that were committed in earlier terms |
| I6 | committed entries are the same for ever and at every member, and none is cut |
| I8 | entries are durable before they are acknowledged to the leader |
| I9 | a client is answered when its entries are committed, and not earlier |
| I12 | a leader is established when the barrier of its own term is committed |
| I13 | a member that does not lead, or gives up the lead, accepts no entries; no client waits |
| I16 | a request of an old term is not obeyed, and each request is answered once at most |
| I17 | the number of events at one moment is bounded |
| I18 | without faults, the group soon has one leader, equal logs, and accepts entries |
| I19 | a member whose disk was replaced neither votes nor stands before it has caught up |
| I20 | a request with a wrong group, receiver or sender changes nothing |
| I21 | what a leader counts as a member's is what the member has durably; a majority votes for it |

Committed, for the simulator, is an entry that a majority had durably while all of them were in the
term of the entry, and each entry before such a one (Raft, section 5.4.2). The other rules of the
list of 20 (I7, I10, I11, I14 and I15) are about a broker's store, which is not part of this level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.raft.simulation.world import InvariantBroken
from twistmq.raft.actions import Role
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

if TYPE_CHECKING:
    from tests.raft.simulation.machine import Machine, Pending

__all__ = ["Ghosts"]


class Ghosts:
    """What the simulator knows of one group."""

    def __init__(self, member_count: int, *, durable: bool,
                 body_of: Callable[[Entry], bytes] = lambda entry: entry.body) -> None:
        """:param body_of: returns what a client has sent as an entry; empty: a barrier."""
        self.body_of = body_of
        self._quorum = member_count // 2 + 1
        self._durable = durable
        #: The entries that are committed, and the terms whose leaders have committed them.
        self.committed: list[Entry] = []
        self._commit_terms: list[int] = []
        #: The first committed entry that only the double of Apache's leader calls committed, by the
        #: copies of entries of older terms; -1: none.
        self.doubtful_index = -1
        #: How many of them a member knows to be committed.
        self.known_count = 0
        #: By term, the member that leads it and its life.
        self.leaders: dict[int, tuple[str, int]] = {}
        self._votes: dict[tuple[str, int], str] = {}
        #: By index and term: an entry, and the term of the entry before it; None: not known.
        self._entries: dict[tuple[int, int], tuple[Entry, int | None]] = {}
        #: By term and member, the last entry of the term that the member had durably in the term.
        self._matches: defaultdict[int, dict[str, int]] = defaultdict(dict)
        #: Of each member whose disk was replaced and that has not joined yet: by term, the last
        #: entry that it has had durably in the term since.
        self._regained: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._terms: dict[str, int] = {}
        #: Counts the elections, acknowledgements and cuts, to see that a run did something.
        self.counts: defaultdict[str, int] = defaultdict(int)

    # --- Entries ---

    def note_entry(self, machine: Machine, entry: Entry, previous_term: int | None) -> None:
        """An entry is appended to a log: rules I4 and I6."""
        key = entry.index, entry.term
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = entry, previous_term
        else:
            same, its_previous = known
            if same != entry:
                raise InvariantBroken("I4", f"{machine.name} has {entry}, another has {same}")
            if previous_term is None:
                return
            if its_previous is None:
                self._entries[key] = entry, previous_term
            elif its_previous != previous_term:
                raise InvariantBroken("I4", f"before {entry}, {machine.name} has an entry of "
                                            f"term {previous_term}, another of {its_previous}")

    def check_cut(self, machine: Machine, end_index: int) -> None:
        """A log is cut: rule I6."""
        self.counts["cuts"] += 1
        if end_index < machine.committed_index:
            raise InvariantBroken("I6", f"{machine.name} cuts its log at {end_index}, and has "
                                        f"committed {machine.committed_index}")

    def note_durable(self, machine: Machine) -> None:
        """A member may have more entries of its term durably: extend the committed ones."""
        self._note_match(machine, machine.member.term)

    def _note_match(self, machine: Machine, term: int) -> None:
        """A member in ``term`` has what is on its disk."""
        entries = machine.disk.synced if self._durable else machine.disk.entries
        if not entries or entries[-1].term != term:
            return
        last = entries[-1]
        if machine.is_wiped:
            self._regained[machine.name][term] = last.index
        matches = self._matches[last.term]
        if last.index <= matches.get(machine.name, -1):
            return
        matches[machine.name] = last.index
        if len(matches) < self._quorum:
            return
        agreed = sorted(matches.values(), reverse=True)[self._quorum - 1]
        if 0 <= self.doubtful_index <= agreed:
            self._end_doubt(machine, entries, agreed)
        if agreed >= len(self.committed):
            begin = entries[0].index
            if begin > len(self.committed):
                raise InvariantBroken("I6", f"{machine.name} begins at {begin}, above the "
                                            f"committed entries")
            self.committed += entries[len(self.committed) - begin:agreed + 1 - begin]
            self._commit_terms += [last.term] * (len(self.committed) - len(self._commit_terms))

    def trust_java(self, machine: Machine, index: int) -> None:
        """The double of Apache's leader calls entries committed, of whatever term they are."""
        entries = machine.disk.entries
        if index >= len(self.committed):
            if self.doubtful_index < 0:
                self.doubtful_index = len(self.committed)
            begin = entries[0].index
            self.committed += entries[len(self.committed) - begin:index + 1 - begin]
            self._commit_terms += [machine.term] * (
                len(self.committed) - len(self._commit_terms))
        self.known_count = max(self.known_count, index + 1)

    def _end_doubt(self, machine: Machine, entries: list[Entry], agreed: int) -> None:
        """The entries up to ``agreed`` are committed, and so are the doubtful ones among them."""
        begin, last = entries[0].index, min(agreed, len(self.committed) - 1)
        for index in range(max(self.doubtful_index, begin), last + 1):
            if entries[index - begin] != self.committed[index]:
                raise InvariantBroken("I6", f"{machine.name} and a majority have "
                                            f"{entries[index - begin]} in place of "
                                            f"{self.committed[index]}")
        self.doubtful_index = -1 if last == len(self.committed) - 1 else last + 1

    def note_wiped(self, machine: Machine) -> None:
        """The disk of a member is replaced."""
        self._regained.pop(machine.name, None)

    def note_joined(self, machine: Machine) -> None:
        """A member has caught up: what it acknowledged before its disk was replaced is gone."""
        if machine.is_wiped:
            end = machine.log.end_index
            if end + 1 < machine.wiped_count:
                raise InvariantBroken("I19", f"{machine.name} joins with the end {end}, and "
                                             f"{machine.wiped_count} entries were committed")
            machine.is_wiped = False
            for matches in self._matches.values():
                matches.pop(machine.name, None)
            # What it has got since counts, also if it is in a later term by now.
            for term, index in self._regained.pop(machine.name, {}).items():
                self._matches[term][machine.name] = index

    # --- Machines ---

    def note_start(self, machine: Machine) -> None:
        """A process starts. Rule I3 holds over its lives, for its disk has what it has sent."""
        self._terms[machine.name] = machine.member.term
        self.note_durable(machine)

    def check_machine(self, machine: Machine) -> None:
        """An event was handled: rules I3, I6 and I13."""
        member = machine.member
        term = member.term
        if term < self._terms[machine.name]:
            raise InvariantBroken("I3", f"the term of {machine.name} falls to {term}")
        self._terms[machine.name] = term
        if not self._durable or machine.is_java:
            self.note_durable(machine)
        if machine.is_java:
            return
        if machine.committed_index > machine.log.end_index:
            raise InvariantBroken("I6", f"{machine.name} has committed {machine.committed_index}, "
                                        f"and its log ends at {machine.log.end_index}")
        if member.committed_index != machine.committed_index:
            raise InvariantBroken("I6", f"{machine.name} changed its committed index silently")
        if machine.role is Role.LEADER:
            self.check_counted(machine)
        else:
            if machine.has_waiting:
                raise InvariantBroken("I13", f"{machine.name} does not lead, and clients wait")
            if member.is_appendable:
                raise InvariantBroken("I13", f"{machine.name} does not lead, and takes entries")

    def check_counted(self, machine: Machine) -> None:
        """A leader counts what others have: rule I21."""
        for peer, index in machine.take_counted():
            other = machine.machines[peer]
            if other.was_wiped or other.term > machine.term or (
                    other.is_java and other.term < machine.term):
                # It may have lost what it had, and the leader learns that later. Apache's members
                # answer comparisons of a leader that they do not follow yet.
                continue
            entries = other.disk.synced if self._durable else other.disk.entries
            if entries and index < entries[0].index:
                continue
            offset = index - entries[0].index if entries else -1
            log = machine.log
            if index > log.end_index or not 0 <= offset < len(entries) or (
                    index >= log.begin_index and entries[offset] != log.entry_at(index)):
                raise InvariantBroken("I21", f"{machine.name} counts {index} of {peer}, which does "
                                             f"not have that entry durably")

    def note_leader(self, machine: Machine) -> None:
        """A member leads: rules I1, I2, I5 and I19."""
        self.counts["elections"] += 1
        term = machine.term
        leader = self.leaders.setdefault(term, (machine.name, machine.life))
        if leader != (machine.name, machine.life) and not (
                machine.is_java and leader[0] == machine.name):
            raise InvariantBroken("I1", f"{machine.name} in its life {machine.life} and {leader} "
                                        f"lead the term {term}")
        state = machine.disk.hard_state
        if state is None or state.term != term or state.voted_for != machine.name:
            raise InvariantBroken("I2", f"{machine.name} leads the term {term} with {state}")
        self._check_whole(machine, "I19", "leads")
        self._vote(machine, term, machine.name)
        votes = sum(self._votes.get((name, term)) == machine.name for name in machine.machines)
        if votes < self._quorum:
            raise InvariantBroken("I21", f"{machine.name} leads the term {term} by {votes} votes")
        last = len(self.committed) - 1
        # A member may win an old term late, and learn afterwards that others have gone on.
        while last >= 0 and self._commit_terms[last] >= term:
            last -= 1
        if last >= 0 and (machine.log.end_index < last or (
                machine.log.begin_index <= last
                and machine.log.entry_at(last) != self.committed[last])):
            raise InvariantBroken("I5", f"{machine.name} leads the term {term}, and lacks "
                                        f"{self.committed[last]}")

    def check_established(self, machine: Machine, index: int) -> None:
        """A leader's barrier is committed: rule I12."""
        self.counts["established"] += 1
        if not (index < len(self.committed) and self.committed[index].term == machine.term):
            raise InvariantBroken("I12", f"{machine.name} is established at {index} in "
                                         f"{machine.term}, which is not committed")

    def check_committed(self, machine: Machine, index: int) -> None:
        """A member commits: rule I6."""
        if index <= machine.committed_index:
            raise InvariantBroken("I6", f"the committed index of {machine.name} falls to {index}")
        if index >= len(self.committed):
            raise InvariantBroken("I6", f"{machine.name} commits {index}, and only "
                                        f"{len(self.committed)} entries are committed")
        if not machine.log.begin_index <= index <= machine.log.end_index:
            raise InvariantBroken("I6", f"{machine.name} commits {index}, which is not in its log")
        if machine.log.entry_at(index) != self.committed[index]:
            raise InvariantBroken("I6", f"{machine.name} commits {index}, and its log differs from "
                                        f"{self.committed[index]}")
        self.known_count = max(self.known_count, index + 1)

    def check_acknowledged(self, machine: Machine, pending: Pending) -> None:
        """A client is told that its entries are committed: rule I9."""
        self.counts["acknowledged"] += 1
        for place, body in enumerate(pending.bodies):
            index = pending.first + place
            if index >= len(self.committed) or self.body_of(self.committed[index]) != body:
                raise InvariantBroken("I9", f"{machine.name} acknowledges {body!r} at {index}, "
                                            f"which is not committed")

    # --- Messages ---

    def check_request(self, machine: Machine, request: Request) -> None:
        """A request leaves: rules I3 and I19."""
        self._check_term(machine, request.term, request)
        if isinstance(request, VoteRequest) and request.term >= 0:
            self._check_whole(machine, "I19", "stands for election")

    def check_answer(self, machine: Machine, request: Request, response: Response) -> None:
        """An answer leaves: rules I2, I3, I8, I16 and I19."""
        if isinstance(response, VoteResponse):
            self._check_term(machine, response.term, response)
            if response.result is VoteResult.ACCEPT:
                self._check_vote(machine, request)
            return
        if response.code is not ResponseCode.SUCCESS:
            return
        if machine.is_java:
            self._note_match(machine, machine.member.term)
            return
        if isinstance(request, PushRequest | HeartbeatRequest):
            if request.term < machine.term and not machine.is_releasing:
                raise InvariantBroken("I16", f"{machine.name} is in {machine.term} and "
                                             f"obeys {request}")
            self._check_term(machine, request.term, request)
        if (isinstance(request, PushRequest) and isinstance(response, PushResponse)
                and request.type is not PushType.COMMIT):
            self._check_held(machine, request.entries[-1])
            if request.term == machine.term:
                # Afterwards the member may raise its term in the same turn, to take the lead.
                self._note_match(machine, request.term)

    def _check_vote(self, machine: Machine, request: Request) -> None:
        state = machine.disk.hard_state
        if state is None or state.term < request.term or (
                state.term == request.term and state.voted_for != request.leader):
            raise InvariantBroken("I2", f"{machine.name} votes for {request.leader} in "
                                        f"{request.term}, and its disk has {state}")
        self._check_whole(machine, "I19", "votes")
        self._vote(machine, request.term, request.leader)

    def _vote(self, voter: Machine, term: int, candidate: str) -> None:
        other = self._votes.setdefault((voter.name, term), candidate)
        if voter.was_wiped and candidate == self.leaders.get(term, ("", 0))[0]:
            # A member whose disk was replaced votes for the leader that it has followed since. By
            # rule I1, a leader does not lead its term a second time, so this vote elects nobody.
            return
        if other != candidate:
            raise InvariantBroken("I2", f"{voter.name} votes for {candidate} and for {other} in "
                                        f"{term}")

    def _check_term(self, machine: Machine, term: int, message: object) -> None:
        state = machine.disk.hard_state
        if term > (state.term if state is not None else 0):
            raise InvariantBroken("I3", f"{machine.name} sends {message}, and its disk has {state}")

    def _check_whole(self, machine: Machine, rule: str, what: str) -> None:
        if machine.is_wiped and machine.log.end_index + 1 < machine.wiped_count:
            raise InvariantBroken(rule, f"{machine.name} {what} after its disk was replaced, and "
                                        f"lacks committed entries")

    def _check_held(self, machine: Machine, entry: Entry) -> None:
        entries = machine.disk.synced if self._durable else machine.disk.entries
        if entries and entry.index < entries[0].index:
            # The log has begun again behind this entry, which the leader's retention has dropped.
            return
        offset = entry.index - entries[0].index if entries else -1
        if offset < 0 or offset >= len(entries) or entries[offset] != entry:
            raise InvariantBroken("I8", f"{machine.name} acknowledges {entry}, which it does not "
                                        f"have durably")
