"""Offsets of queues in addresses."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.query import BadQuery
from twistmq.console.queue_offsets import offsets_text, read_offsets


class QueueOffsetTests(SynchronousTestCase):
    """The form of offsets."""

    def test_a_text_is_read_back(self) -> None:
        """Commas and blanks separate; a broker is named once, and its name may have a colon."""
        offsets = {("a", 0): 5, ("a", 11): 0, ("b:c", 1): 10**17}
        self.assertEqual(offsets_text(offsets), f"a:0=5,11=0,b:c:1={10**17}")
        self.assertEqual(read_offsets(offsets_text(offsets), "older"), offsets)
        self.assertEqual(read_offsets(" a:0=5\n a:11=0 ", "older"), {("a", 0): 5, ("a", 11): 0})
        self.assertEqual((offsets_text({}), read_offsets(" ", "from")), ("", {}))

    def test_every_name_of_a_broker(self) -> None:
        """Its characters are escaped where they separate; an offset has up to 64 bits."""
        offsets = {("a:b;c,d. e=%2C", 3): 2**63 - 1, ("z", 0): 0, ("z", 12): 7}
        self.assertEqual(read_offsets(offsets_text(offsets), "from"), offsets)
        self.assertEqual(read_offsets("z:0=" + "9" * 19, "from"), {("z", 0): 2**63 - 1})

    def test_other_texts_are_refused(self) -> None:
        """The fault names the parameter and the beginning of the text."""
        for text in (",", "a", "a:0", "a:0=", "a:0=-1", "a:x=1", ":0=1", "0=1", "a:0=" + "9" * 20,
                     "a:\u0663=1", "a:0=1,", "a:0=1;1=1", "x" * 500):
            error = self.assertRaises(BadQuery, read_offsets, text, "older")
            self.assertTrue(str(error).startswith("older"), msg=str(error))
            self.assertLess(len(str(error)), 200)

    def test_too_many_queues_for_an_address(self) -> None:
        """The first line of a request would be refused."""
        self.assertRaises(BadQuery, offsets_text, {("b", at): 10**12 for at in range(1024)})
        self.assertTrue(offsets_text({("b", at): 10**6 for at in range(512)}))
