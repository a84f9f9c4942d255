"""A follower follows one leader, acknowledges and commits entries, and keeps committed ones."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember, entries_of
from twistmq.raft.actions import Committed, Complained, FlushLog, Role
from twistmq.raft.events import Flushed, PeerRefused, StorageFailed
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.messages import Entry, PushRequest, PushType, ResponseCode

APPEND, COMMIT = PushType.APPEND, PushType.COMMIT
COMPARE, TRUNCATE = PushType.COMPARE, PushType.TRUNCATE
SUCCESS, INCONSISTENT = ResponseCode.SUCCESS, ResponseCode.INCONSISTENT_STATE


class _Case(SynchronousTestCase):
    """A follower in the term 5 with entries of the terms 1, 2 and 4."""

    def setUp(self) -> None:
        """Make the follower."""
        self.member = LoneMember(terms=(1, 2, 4), state=HardState(5, "", joined=True))
        self.log = self.member.log

    def codes(self, kind: PushType, term: int, *entries: Entry, commit: int = -1,
              leader: str = "a") -> list[ResponseCode]:
        """Push, and return the codes of the answers."""
        answers = self.member.push(kind, term, *entries, commit=commit, leader=leader)
        return [answer.code for answer in answers]

    def compared(self) -> LoneMember:
        """Compare the whole log with the leader's."""
        self.assertEqual(self.codes(COMPARE, 5, self.log.entries[-1]), [SUCCESS])
        return self.member

    def committed(self) -> list[int]:
        """Return the committed indexes so far."""
        return [action.index for action in self.member.find(Committed)]


class LeaderTests(_Case):
    """The leader that a follower accepts."""

    def test_heartbeats(self) -> None:
        """The answer depends on term and leader, in DLedger's order."""
        cases = [(5, "z", ResponseCode.UNKNOWN_MEMBER), (5, "b", ResponseCode.UNEXPECTED_MEMBER),
                 (4, "a", ResponseCode.EXPIRED_TERM), (5, "a", SUCCESS),
                 (5, "c", ResponseCode.INCONSISTENT_LEADER), (6, "c", SUCCESS),
                 (5, "a", ResponseCode.EXPIRED_TERM)]
        for term, leader, expected in cases:
            response = self.member.heartbeat(term, leader)
            assert response is not None
            self.assertIs(response.code, expected, (term, leader))
        self.assertEqual((self.member.member.term, self.member.member.leader), (6, "c"))

    def test_the_vote_of_the_term_is_its_leaders(self) -> None:
        """A follower does not stand in the term of a leader, even after a restart."""
        self.member.heartbeat(6)
        self.assertEqual(self.member.member.hard_state, HardState(6, "a", joined=True))

    def test_a_silent_leader_is_given_up(self) -> None:
        """The follower gives up after three intervals of heartbeats."""
        self.member.heartbeat(5)
        self.member.wait(6000)
        self.assertIs(self.member.member.role, Role.FOLLOWER)
        self.member.wait(1)
        self.assertIs(self.member.member.role, Role.CANDIDATE)

    def test_an_old_leader_does_not_keep_it_waiting(self) -> None:
        """Only the leader of the current term is waited for."""
        self.member.heartbeat(5)
        self.member.wait(5000)
        self.member.heartbeat(4, "c")
        self.codes(COMPARE, 4, self.log.entries[-1], leader="c")
        self.member.wait(1001)
        self.assertIs(self.member.member.role, Role.CANDIDATE)

    def test_the_loss_of_the_process_of_the_leader(self) -> None:
        """With quick fail-over, the follower does not wait for heartbeats."""
        for quick, role in ((False, Role.FOLLOWER), (True, Role.CANDIDATE)):
            member = LoneMember(state=HardState(5, "", joined=True), quick_failover=quick)
            member.heartbeat(5)
            member.tell(PeerRefused("c"))
            self.assertIs(member.member.role, Role.FOLLOWER)
            member.tell(PeerRefused("a"))
            self.assertIs(member.member.role, role)

    def test_pushes_of_others(self) -> None:
        """Pushes of old terms and of other leaders change nothing."""
        self.member.heartbeat(5)
        entry = entries_of(5, first=3)[0]
        for term, leader, expected in ((4, "c", ResponseCode.EXPIRED_TERM),
                                       (5, "c", ResponseCode.INCONSISTENT_LEADER),
                                       (5, "z", ResponseCode.UNKNOWN_MEMBER)):
            [answer] = self.member.push(TRUNCATE, term, entry, leader=leader)
            self.assertEqual((answer.code, answer.term), (expected, term))
        self.assertEqual(self.log.end_index, 2)

    def test_pushes_that_make_no_sense(self) -> None:
        """Such pushes are refused and change nothing."""
        entry = entries_of(5, first=3)[0]
        for kind, entries in ((APPEND, ()), (COMMIT, (entry,)), (COMPARE, ()), (TRUNCATE, ()),
                              (TRUNCATE, entries_of(5, 5, first=3)),
                              (APPEND, (entry, Entry(5, 5))), (APPEND, (Entry(3, 6),)),
                              (APPEND, (Entry(3, 5), Entry(4, 4))), (TRUNCATE, (Entry(-1, 5),)),
                              (TRUNCATE, (Entry(0, -1),))):
            self.assertEqual(self.codes(kind, 5, *entries), [ResponseCode.UNEXPECTED_ARGUMENT],
                             (kind, entries))
        self.assertEqual(self.log.end_index, 2)


class PushTests(_Case):
    """The effect of pushes."""

    def test_a_comparison(self) -> None:
        """The answer contains the first and the last index of the log."""
        [answer] = self.member.push(COMPARE, 5, Entry(7, 5))
        self.assertEqual((answer.code, answer.index, answer.count, answer.begin_index,
                          answer.end_index), (INCONSISTENT, 7, 1, 0, 2))
        self.assertEqual(self.codes(COMPARE, 5, Entry(1, 2, b"?")), [INCONSISTENT])
        self.assertEqual(self.codes(COMPARE, 5, self.log.entries[1]), [SUCCESS])

    def test_entries_are_taken_after_a_comparison_only(self) -> None:
        """Before a comparison, nothing is known about the end of the log."""
        entry = entries_of(5, first=3)[0]
        self.assertEqual(self.codes(APPEND, 5, entry), [INCONSISTENT])
        self.compared()
        self.assertEqual(self.codes(APPEND, 5, entry), [SUCCESS])
        self.assertEqual(self.log.end_index, 3)

    def test_a_new_leader_compares_again(self) -> None:
        """A comparison with the previous leader does not count."""
        self.compared()
        self.assertEqual(self.codes(APPEND, 6, *entries_of(6, first=3), leader="c"),
                         [INCONSISTENT])

    def test_a_tail_has_to_be_cut_before_entries_are_taken(self) -> None:
        """The leader cuts it when the answer to its comparison shows the tail."""
        self.codes(COMPARE, 5, self.log.entries[1])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=2)), [INCONSISTENT])
        self.assertEqual(self.codes(TRUNCATE, 5, self.log.entries[1]), [SUCCESS])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=2)), [SUCCESS])
        self.assertEqual([entry.term for entry in self.log.entries], [1, 2, 5])

    def test_pushes_that_overtake_others_wait(self) -> None:
        """They are answered when the gap is closed."""
        self.compared()
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=5)), [])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=4)), [])
        answers = self.member.push(APPEND, 5, *entries_of(5, first=3))
        self.assertEqual([(answer.code, answer.index) for answer in answers],
                         [(SUCCESS, 3), (SUCCESS, 4), (SUCCESS, 5)])

    def test_a_gap_that_stays_open_is_told(self) -> None:
        """After a second, all pushes after the gap are answered with a failure."""
        self.compared()
        self.codes(APPEND, 5, *entries_of(5, first=4))
        self.assertEqual(self.member.wait(999), [])
        actions = self.member.wait(1)
        self.assertEqual([action.response.code for action in actions], [INCONSISTENT])

    def test_a_longer_push_takes_the_place_of_a_parked_one(self) -> None:
        """When the longer push is acknowledged, the log has all its entries."""
        self.compared()
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=4)), [])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, 5, first=4)),
                         [ResponseCode.REPEATED_PUSH])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=3)), [SUCCESS, SUCCESS])
        self.assertEqual(self.log.end_index, 5)

    def test_repeated_pushes(self) -> None:
        """Entries that the log has are acknowledged again, and the other ones are appended."""
        self.compared()
        self.codes(APPEND, 5, *entries_of(5, 5, first=3))
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, 5, first=3)), [SUCCESS])
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, 5, first=4)), [SUCCESS])
        self.assertEqual(self.log.end_index, 5)

    def test_a_leader_that_has_lost_entries_and_leads_its_term_again(self) -> None:
        """Apache's leaders may do so; other entries with the same indexes are not acknowledged."""
        self.compared()
        self.codes(APPEND, 5, *entries_of(5, 5, first=3))
        self.assertEqual(self.codes(APPEND, 5, Entry(3, 5, b"other")), [INCONSISTENT])
        self.assertEqual(self.codes(TRUNCATE, 5, Entry(3, 5, b"other")), [SUCCESS])
        self.assertEqual(self.log.entries[3:], [Entry(3, 5, b"other")])

    def test_a_late_truncation_drops_nothing_that_was_agreed_since(self) -> None:
        """Requests may overtake each other."""
        self.codes(TRUNCATE, 5, self.log.entries[1])
        self.codes(APPEND, 5, *entries_of(5, 5, first=2))
        self.assertEqual(self.codes(TRUNCATE, 5, self.log.entries[1]), [SUCCESS])
        self.assertEqual(self.log.end_index, 3)

    def test_a_truncation_begins_the_log_anew(self) -> None:
        """This happens when the leader's log begins after the end of this log."""
        self.assertEqual(self.codes(TRUNCATE, 5, Entry(20, 5), commit=20), [SUCCESS])
        self.assertEqual((self.log.begin_index, self.log.end_index), (20, 20))
        self.assertEqual(self.committed(), [20])

    def test_nothing_committed_is_cut(self) -> None:
        """This holds for every request of a leader, and the operator gets a line about it."""
        self.codes(COMPARE, 5, self.log.entries[-1], commit=2)
        self.assertEqual(self.committed(), [2])
        for entry in (self.log.entries[1], Entry(1, 1, b"other"), Entry(0, 1, b"other")):
            self.assertEqual(self.codes(TRUNCATE, 6, entry, leader="c"), [INCONSISTENT], entry)
        self.assertEqual(self.log.end_index, 2)
        self.assertEqual(len(self.member.find(Complained)), 3)

    def test_a_log_that_refuses_an_entry(self) -> None:
        """The leader and the operator are notified."""
        self.compared()

        def refuse(entries: object) -> None:
            raise LogRejected("wrong position")
        self.patch(self.log, "append", refuse)
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=3)), [INCONSISTENT])
        self.assertEqual(len(self.member.find(Complained)), 1)

    def test_a_log_that_fails(self) -> None:
        """From then on nothing is acknowledged."""
        self.compared()

        def fail(entries: object) -> None:
            raise LogError("no space left")
        self.patch(self.log, "append", fail)
        for _ in range(2):
            self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=3)),
                             [ResponseCode.DISK_ERROR])
        self.assertIn("no space left", self.member.find(Complained)[0].text)

    def test_a_failed_sync(self) -> None:
        """A failed sync has the effect of a failed write."""
        self.compared()
        self.member.tell(StorageFailed("EIO"))
        self.assertEqual(self.codes(COMMIT, 5, commit=0), [ResponseCode.DISK_ERROR])


class CommitTests(_Case):
    """The entries that a follower commits."""

    def test_only_what_is_equal_to_the_leaders_log_is_committed(self) -> None:
        """The entries after a comparison may differ."""
        self.codes(COMPARE, 5, self.log.entries[1], commit=2)
        self.assertEqual(self.committed(), [1])
        self.codes(COMPARE, 5, self.log.entries[2], commit=2)
        self.assertEqual(self.committed(), [1, 2])

    def test_a_lower_index_changes_nothing(self) -> None:
        """Pushes may overtake each other."""
        self.codes(COMPARE, 5, self.log.entries[2], commit=2)
        self.codes(COMMIT, 5, commit=1)
        self.assertEqual(self.committed(), [2])

    def test_a_leader_that_believes_too_much_is_corrected(self) -> None:
        """In this way, an idle leader learns that a follower has been wiped."""
        self.assertEqual(self.codes(COMMIT, 5, commit=2), [INCONSISTENT])
        self.assertEqual(self.committed(), [])

    def test_an_acknowledgement_waits_for_the_sync(self) -> None:
        """The committed index waits for the sync too."""
        self.compared()
        self.member.holds_disk = True
        self.assertEqual(self.codes(APPEND, 5, *entries_of(5, first=3), commit=3), [])
        self.assertEqual(self.committed(), [2])
        actions = self.member.tell(Flushed(self.member.find(FlushLog)[-1].number))
        self.assertEqual([type(action).__name__ for action in actions], ["Answer", "Committed"])

    def test_acknowledgements_end_with_the_leader(self) -> None:
        """The next leader may replace the entries."""
        self.compared()
        self.member.holds_disk = True
        self.codes(APPEND, 5, *entries_of(5, first=3))
        self.codes(APPEND, 5, *entries_of(5, first=5))
        self.member.holds_disk = False
        self.member.heartbeat(6, "c")
        codes = [answer.response.code for answer in self.member.actions
                 if hasattr(answer, "response") and hasattr(answer.response, "count")]
        self.assertEqual(codes[-2:], [ResponseCode.EXPIRED_TERM] * 2)

    def test_a_stranger_as_sender(self) -> None:
        """Only the leader itself may push in its own name."""
        answers = self.member.ask(PushRequest("g", "c", "b", 5, "a", COMMIT, 2))
        self.assertEqual([answer.code for answer in answers], [ResponseCode.UNEXPECTED_MEMBER])
