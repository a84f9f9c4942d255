"""A leader finds the entries that a follower lacks, and sends them."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember
from twistmq.raft.events import Propose
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import PushRequest, PushResponse, PushType, ResponseCode

APPEND, COMMIT = PushType.APPEND, PushType.COMMIT
COMPARE, TRUNCATE = PushType.COMPARE, PushType.TRUNCATE
INCONSISTENT = ResponseCode.INCONSISTENT_STATE


class PusherTests(SynchronousTestCase):
    """A leader in the term 6 with entries of the term 1 and its barrier; ``a`` is the follower."""

    def leading(self, count: int = 9, **settings: object) -> LoneMember:
        """Make the leader; its barrier has the index ``count``."""
        return LoneMember(terms=(1,) * count, state=HardState(5, "a", joined=True),
                          **settings).elect()

    def kinds(self, leader: LoneMember) -> list[tuple[PushType, int, int]]:
        """Return all pushes to ``a``: the type, the first index, and the number of entries."""
        return [(push.type, push.entries[0].index if push.entries else -1, len(push.entries))
                for push in leader.pushes()]

    def caught_up(self, **settings: object) -> LoneMember:
        """Let ``a`` and ``c`` have the whole log."""
        leader = self.leading(**settings)
        leader.acknowledge("a")
        leader.acknowledge("c")
        self.assertTrue(leader.member.is_established)
        return leader

    def test_an_equal_log(self) -> None:
        """One comparison is enough."""
        leader = self.leading()
        self.assertEqual(self.kinds(leader), [(COMPARE, 9, 1)])
        leader.acknowledge()
        self.assertEqual(self.kinds(leader), [(COMPARE, 9, 1)])
        self.assertEqual(leader.member.committed_index, 9)

    def test_a_shorter_log(self) -> None:
        """The comparison is made at the end of the shorter log, and the missing entries are
        appended.
        """
        leader = self.leading()
        leader.acknowledge(code=INCONSISTENT, end=4)
        leader.acknowledge(end=4)
        self.assertEqual(self.kinds(leader), [(COMPARE, 9, 1), (COMPARE, 4, 1), (APPEND, 5, 5)])

    def test_a_longer_log_is_cut(self) -> None:
        """The cut is after the last entry of the leader."""
        leader = self.leading()
        leader.acknowledge(end=12)
        self.assertEqual(self.kinds(leader), [(COMPARE, 9, 1), (TRUNCATE, 9, 1)])

    def test_where_logs_part_is_found_by_halving(self) -> None:
        """The search finds the exact place, wherever it is, with few comparisons."""
        for same in range(-1, 64):
            leader = self.leading(64)
            for _ in range(9):
                push = leader.pushes()[-1]
                if push.type is not COMPARE:
                    break
                index = push.entries[0].index
                leader.acknowledge(code=ResponseCode.SUCCESS if index <= same else INCONSISTENT,
                                   end=63)
            kind, index, _ = self.kinds(leader)[-1]
            self.assertEqual((kind, index), (APPEND, 64) if same == 63
                             else (TRUNCATE, max(same, 0)), same)

    def test_an_empty_follower(self) -> None:
        """The follower begins where the leader's log begins."""
        leader = self.leading()
        leader.log.drop_before(3)
        leader.acknowledge(code=INCONSISTENT, begin=-1, end=-1)
        leader.acknowledge()
        self.assertEqual(self.kinds(leader), [(COMPARE, 9, 1), (TRUNCATE, 3, 1), (APPEND, 4, 6)])

    def test_ranges_that_do_not_meet(self) -> None:
        """The follower begins again where the leader's log begins."""
        for begin, end in ((0, 2), (20, 30)):
            leader = self.leading()
            leader.log.drop_before(3)
            leader.acknowledge(code=INCONSISTENT, begin=begin, end=end)
            self.assertEqual(self.kinds(leader)[-1], (TRUNCATE, 3, 1), (begin, end))

    def test_entries_that_retention_drops_while_they_are_compared(self) -> None:
        """The follower begins where the log begins now."""
        leader = self.leading()
        leader.acknowledge(code=INCONSISTENT, end=4)
        leader.log.drop_before(6)
        leader.acknowledge(code=INCONSISTENT, end=4)
        self.assertEqual(self.kinds(leader)[-1], (TRUNCATE, 6, 1))

    def test_pushes_are_bounded(self) -> None:
        """The bytes of each push, and the number and the bytes of all pushes in flight, are
        bounded.
        """
        leader = self.leading(push_bytes_max=2, push_window_count=3)
        leader.acknowledge(code=INCONSISTENT, end=0)
        leader.acknowledge(end=0)
        self.assertEqual(self.kinds(leader)[2:], [(APPEND, 1, 2), (APPEND, 3, 2), (APPEND, 5, 2)])
        first = leader.asks(PushRequest, "a")[2]
        leader.answer(first, PushResponse(term=6, index=1, count=2, end_index=2))
        self.assertEqual(self.kinds(leader)[5:], [(APPEND, 7, 3)])
        leader = self.leading(push_bytes_max=2, push_window_bytes=3)
        leader.acknowledge(code=INCONSISTENT, end=0)
        leader.acknowledge(end=0)
        self.assertEqual(self.kinds(leader)[2:], [(APPEND, 1, 2), (APPEND, 3, 2)])

    def test_acknowledgements_open_the_window(self) -> None:
        """It begins small, so that no turn of the leader reads and encodes a whole window."""
        leader = self.leading(push_bytes_max=1, push_window_begin_bytes=2, push_window_bytes=4)
        leader.acknowledge(code=INCONSISTENT, end=0)
        leader.acknowledge(end=0)
        first = [(APPEND, 1, 1), (APPEND, 2, 1)]
        self.assertEqual(self.kinds(leader)[2:], first)
        leader.wait(10)
        self.assertEqual(self.kinds(leader)[2:], first)
        counts = []
        for index in range(1, 5):
            leader.answer(leader.asks(PushRequest, "a")[1 + index], PushResponse(
                term=6, index=index, count=1, end_index=index))
            counts.append(len(self.kinds(leader)) - 2)
        self.assertEqual(counts, [4, 6, 7, 8])

    def test_an_idle_follower_is_told_of_commits_each_second(self) -> None:
        """In this way, an idle leader also learns that a follower has been wiped."""
        leader = self.caught_up()
        leader.wait(2500)
        self.assertEqual(self.kinds(leader)[1:], [(COMMIT, -1, 0)])
        leader.acknowledge()
        leader.wait(1000)
        self.assertEqual(self.kinds(leader)[1:], [(COMMIT, -1, 0)] * 2)
        leader.acknowledge(code=INCONSISTENT, begin=-1, end=-1)
        self.assertEqual(self.kinds(leader)[3:], [(COMPARE, 9, 1)])

    def test_what_a_follower_has_lost_does_not_count_any_more(self) -> None:
        """The acknowledgements belong to an earlier life of the follower's disk."""
        leader = self.leading()
        leader.acknowledge("a")
        leader.tell(Propose(1, (b"x",)))
        leader.acknowledge("a")
        leader.wait(1100)
        leader.acknowledge("a", code=INCONSISTENT, begin=-1, end=-1)
        leader.acknowledge("a", code=INCONSISTENT, begin=-1, end=-1)
        self.assertEqual(self.kinds(leader)[-1], (TRUNCATE, 0, 1))
        [pusher] = [pusher for pusher in leader.member._leader._pushers.values()
                    if pusher.peer == "a"]
        self.assertEqual(pusher.match_index, -1)

    def test_a_failed_push_is_followed_by_a_comparison(self) -> None:
        """The first comparison follows at once, and the next one after half a second."""
        for code in (INCONSISTENT, ResponseCode.PUSH_REQUEST_IS_FULL, ResponseCode.DISK_ERROR,
                     ResponseCode.UNKNOWN):
            leader = self.caught_up()
            leader.tell(Propose(1, (b"x",)))
            leader.acknowledge(code=code)
            self.assertEqual(self.kinds(leader)[-1], (COMPARE, 10, 1), code)
            leader.acknowledge(code=ResponseCode.DISK_ERROR)
            leader.wait(499)
            self.assertEqual(len(leader.pushes()), 3, code)
            leader.wait(1)
            self.assertEqual(self.kinds(leader)[-1], (COMPARE, 10, 1), code)

    def test_a_follower_that_refuses_the_entry_after_its_last_one(self) -> None:
        """Its log is cut after its last entry, and it is asked twice a second at most."""
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x",)))
        leader.acknowledge(code=INCONSISTENT, end=9)
        before = len(leader.pushes())
        for _ in range(3):
            leader.acknowledge(code=INCONSISTENT, end=9)
            leader.acknowledge(end=9)
            if self.kinds(leader)[-1][0] is TRUNCATE:
                leader.acknowledge(end=9)
            self.assertEqual(self.kinds(leader)[-1], (APPEND, 10, 1))
            leader.acknowledge(code=INCONSISTENT, end=9)
            leader.wait(499)
            count = len(leader.pushes())
            leader.wait(1)
            self.assertEqual(len(leader.pushes()), count + 1, self.kinds(leader))
        self.assertEqual(self.kinds(leader)[before - 1 : before + 6], [
            (COMPARE, 10, 1), (COMPARE, 9, 1), (APPEND, 10, 1), (COMPARE, 10, 1),
            (COMPARE, 9, 1), (TRUNCATE, 9, 1), (APPEND, 10, 1)])
        leader.acknowledge(code=INCONSISTENT, end=9)
        leader.acknowledge(end=9)
        leader.acknowledge(end=9)
        leader.acknowledge()
        self.assertEqual(leader.member.committed_index, 10)

    def test_a_follower_that_makes_progress_does_not_wait(self) -> None:
        """Its pushes are refused, but each comparison finds an entry more."""
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x", b"x", b"x")))
        for end in (10, 11):
            leader.acknowledge(code=ResponseCode.PUSH_REQUEST_IS_FULL, end=end)
            self.assertEqual(self.kinds(leader)[-1], (COMPARE, 12, 1))
            leader.acknowledge(code=INCONSISTENT, end=end)
            self.assertEqual(self.kinds(leader)[-1], (COMPARE, end, 1))
            leader.acknowledge(end=end)
            self.assertEqual(self.kinds(leader)[-1][:2], (APPEND, end + 1))
        leader.acknowledge(code=ResponseCode.PUSH_REQUEST_IS_FULL, end=11)
        leader.acknowledge(code=INCONSISTENT, end=11)
        leader.acknowledge(end=11)
        leader.acknowledge(code=ResponseCode.PUSH_REQUEST_IS_FULL, end=11)
        self.assertEqual(self.kinds(leader)[-1][:2], (APPEND, 12), "without progress it waits")

    def test_a_push_without_an_answer(self) -> None:
        """The entries are sent again after a second, and late answers are ignored."""
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x",)))
        late = leader.asks(PushRequest, "a")[-1]
        leader.wait(1000)
        self.assertEqual(self.kinds(leader)[-2:], [(APPEND, 10, 1), (COMPARE, 10, 1)])
        leader.answer(late, PushResponse(term=6, index=10, count=1, end_index=10))
        self.assertEqual(leader.member.committed_index, 9)
        leader.answer(leader.asks(PushRequest, "a")[-1], None)
        leader.wait(500)
        self.assertEqual(self.kinds(leader)[-1], (COMPARE, 10, 1))

    def test_a_follower_that_holds_a_push_already(self) -> None:
        """Apache's follower repeats this for ever if its answer was lost, so the second answer is a
        failure.
        """
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x",)))
        leader.tell(Propose(2, (b"y",)))
        asks = leader.asks(PushRequest, "a")[-2:]
        for place, ask in enumerate(asks):
            leader.answer(ask, PushResponse(ResponseCode.REPEATED_PUSH, 6, "", 10 + place, 1, 0, 9))
        self.assertEqual(self.kinds(leader)[-1], (COMPARE, 11, 1))

    def test_an_acknowledgement_of_another_term_or_place_does_not_count(self) -> None:
        """Such an answer counts as a failure."""
        for term, index, count in ((5, 10, 1), (6, 11, 1), (6, 9, 1), (6, 10, 2)):
            leader = self.caught_up()
            leader.tell(Propose(1, (b"x",)))
            leader.answer(leader.asks(PushRequest, "a")[-1],
                          PushResponse(ResponseCode.SUCCESS, term, "", index, count, 0, 11))
            self.assertEqual(leader.member.committed_index, 9, (term, index, count))
            self.assertEqual(self.kinds(leader)[-1], (COMPARE, 10, 1), (term, index, count))

    def test_an_old_follower_of_apaches_answers_with_the_last_index(self) -> None:
        """Its answer has a count of 0."""
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x", b"y", b"z")))
        leader.answer(leader.asks(PushRequest, "a")[-1],
                      PushResponse(ResponseCode.SUCCESS, 6, "", 12, 0, 0, 12))
        self.assertEqual(leader.member.committed_index, 12)

    def test_part_of_a_push_may_be_acknowledged(self) -> None:
        """A comparison finds the remaining entries."""
        leader = self.caught_up()
        leader.tell(Propose(1, (b"x", b"y", b"z")))
        leader.answer(leader.asks(PushRequest, "a")[-1],
                      PushResponse(ResponseCode.SUCCESS, 6, "", 10, 2, 0, 11))
        self.assertEqual(leader.member.committed_index, 11)
        self.assertEqual(self.kinds(leader)[-1], (COMPARE, 12, 1))
