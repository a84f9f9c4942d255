"""Items that wait for their turns."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.turns import Turns


class TurnsTests(SynchronousTestCase):
    """Round robin at each key of a path."""

    def setUp(self) -> None:
        self.turns: Turns[str] = Turns()

    def taken(self) -> str:
        """Take all items; :returns: them in order."""
        return " ".join(self.turns.take()[1] for _ in range(len(self.turns)))

    def test_round_robin(self) -> None:
        """Hosts take turns, and so do the connections of a host; each connection
        keeps its order.
        """
        for item in ("a1x", "a1y", "a1z", "a2x", "b1x", "b1y"):
            self.turns.add((item[0], item[1]), item)
        self.assertEqual((len(self.turns), self.turns.owners), (6, 2))
        self.assertEqual(self.taken(), "a1x b1x a2x b1y a1y a1z")
        self.assertEqual((len(self.turns), self.turns.owners), (0, 0))
        self.assertRaises(StopIteration, self.turns.take)

    def test_an_item_put_back_is_first_in_its_path(self) -> None:
        """An item that is put back precedes the others of its path, and follows other owners."""
        for item in ("a1", "a2", "b1"):
            self.turns.add((item[0],), item)
        path, item = self.turns.take()
        self.assertEqual((path, item), (("a",), "a1"))
        self.turns.put_back(path, item)
        self.assertEqual(self.taken(), "b1 a1 a2")

    def test_put_back_of_the_last_item(self) -> None:
        """An owner whose only item is put back has its turn after the others."""
        for item in ("a1", "b1"):
            self.turns.add((item[0],), item)
        self.turns.put_back(*self.turns.take())
        self.assertEqual(self.taken(), "b1 a1")

    def test_the_items_of_a_path_are_dropped_together(self) -> None:
        """Items of one path are dropped; a path without items is forgotten."""
        for item in ("a1x", "a1y", "a2x"):
            self.turns.add((item[0], item[1]), item)
        self.assertEqual(self.turns.count(("a", "1")), 2)
        self.assertEqual(self.turns.drop(("a", "1"), lambda item: item == "a1x"), ["a1x"])
        self.assertEqual((self.turns.count(("a", "1")), len(self.turns)), (1, 2))
        self.assertEqual(self.turns.drop(("a", "2"), lambda item: True), ["a2x"])
        self.assertEqual(self.turns.drop(("a", "3"), lambda item: True), [])
        self.assertEqual((self.turns.count(("a", "2")), self.taken()), (0, "a1y"))
        self.assertEqual(self.turns.owners, 0)
