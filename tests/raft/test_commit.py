"""The index that a majority has reached."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.commit import find_quorum_index

#: (indexes of the members, size of a majority, the index)
CASES = [([7], 1, 7), ([7, 5], 2, 5), ([7, 5, -1], 2, 5), ([3, 9, 6], 2, 6),
         ([9, 9, 4, -1, -1], 3, 4), ([-1, -1, 2], 2, -1)]


class QuorumTests(SynchronousTestCase):
    """Groups of several sizes."""

    def test_a_majority_has_the_index_and_all_before(self) -> None:
        """An index that a majority lacks is not returned."""
        for indexes, quorum, expected in CASES:
            self.assertEqual(find_quorum_index(indexes, quorum), expected, indexes)
