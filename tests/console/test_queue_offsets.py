"""Offsets of queues in addresses."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.query import BadQuery
from twistmq.console.queue_offsets import offsets_text, read_offsets


class QueueOffsetTests(SynchronousTestCase):
    """The form of offsets."""

    def test_a_text_is_read_back(self) -> None:
        """Commas and blanks separate; the name of a broker may contain a colon."""
        offsets = {("a", 0): 5, ("a", 11): 0, ("b:c", 1): 10**17}
        self.assertEqual(offsets_text(offsets), f"a:0=5,a:11=0,b:c:1={10**17}")
        self.assertEqual(read_offsets(offsets_text(offsets), "older"), offsets)
        self.assertEqual(read_offsets(" a:0=5\n a:11=0 ", "older"), {("a", 0): 5, ("a", 11): 0})

    def test_other_texts_are_refused(self) -> None:
        """The fault names the parameter and the beginning of the text."""
        for text in ("", ",", "a", "a:0", "a:0=", "a:0=-1", "a:x=1", ":0=1", "a:0=" + "9" * 19,
                     "a:\u0663=1", ",".join(f"a:{at}=1" for at in range(2001))):
            error = self.assertRaises(BadQuery, read_offsets, text, "older")
            self.assertTrue(str(error).startswith("older"), msg=str(error))
            self.assertLess(len(str(error)), 200)
