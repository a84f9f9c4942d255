"""The members of a group, and the majority that follows from them."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.settings import MemberSettings


class MemberSettingsTests(SynchronousTestCase):
    """Valid and invalid groups."""

    def test_majorities(self) -> None:
        """A majority is more than half of the members."""
        for members, quorum in (("a", 1), ("ab", 2), ("abc", 2), ("abcd", 3), ("abcde", 3)):
            self.assertEqual(MemberSettings("g", "a", tuple(members)).quorum, quorum, members)

    def test_peers_are_the_others(self) -> None:
        """The peers are in the order of the group."""
        self.assertEqual(MemberSettings("g", "b", ("c", "b", "a")).peers, ("c", "a"))

    def test_a_member_belongs_to_its_group_once(self) -> None:
        """Otherwise the settings are refused."""
        with self.assertRaisesRegex(ValueError, "d is not in its group"):
            MemberSettings("g", "d", ("a", "b", "c"))
        with self.assertRaisesRegex(ValueError, "one member twice"):
            MemberSettings("g", "a", ("a", "b", "a"))
