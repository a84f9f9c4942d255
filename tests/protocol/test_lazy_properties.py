"""Properties that are found when they are requested."""

from __future__ import annotations

import random
from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.store import message
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.lazy_properties import FIND_MAX, LazyProperties
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import encode_record, properties_text

#: Names that are parts of each other, pairs without name, value or both, separators in values.
_PIECES = ("a\x011\x02", "a\x01\x02", "aa\x012\x02", "\x02", "\x01b\x02", "b\x02",
           "b\x01x\x01y\x02", "é\x01ü\x02", "a\x013", "c\x01d\x01\x02", "\ud800\x01z\x02")
_NAMES = ("a", "aa", "b", "c", "é", "", "x", "c\x01d", "\x02", "a\x02b", "\ud800", "?")


def record(properties: str) -> bytes:
    """A stored record with this text, and one before its properties that looks like a pair."""
    made = message("T", b"\x02x\x01in the body\x02", 0, properties=properties)
    made.queue_offset = made.physical_offset = 7
    made.store_timestamp = 8
    return encode_record(made)


class LazyPropertiesTests(SynchronousTestCase):
    """They have the same values as a split of all properties."""

    def test_same_as_split(self) -> None:
        """Random texts are read with requests in random order."""
        dice = random.Random(20)
        for _ in range(500):
            text = properties_text(
                record("".join(dice.choices(_PIECES, k=dice.randrange(8)))))
            wanted = parse_properties(text)
            found = LazyProperties(text)
            for name in dice.choices(_NAMES, k=dice.randrange(2 * FIND_MAX)):
                self.assertEqual(found.get(name, "none"), wanted.get(name, "none"),
                                 msg=f"{name!r} of {text!r}")
            for name in _NAMES:
                again = LazyProperties(text)
                self.assertEqual(name in again, name in wanted, msg=f"{name!r} of {text!r}")
            self.assertEqual(dict(found.items()), wanted)  # type: ignore[call-overload]

    def test_lazy_properties_are_a_complete_mapping(self) -> None:
        """They have all methods of a mapping."""
        found = LazyProperties("a\x011\x02b\x012\x02")
        self.assertIsInstance(found, Mapping)
        self.assertEqual((found["a"], "b" in found, 5 in found, len(found)), ("1", True, False, 2))
        self.assertEqual((list(found), list(found.keys()), list(found.values())),  # type: ignore[call-overload]
                         (["a", "b"], ["a", "b"], ["1", "2"]))
        self.assertRaises(KeyError, lambda: found["c"])
        self.assertIsNone(found.get("c"))

    def test_many_names(self) -> None:
        """The number of remembered names is limited; more requests change no answer."""
        text = "n3000\x01yes\x02"
        for number in range(3001):
            self.assertEqual(LazyProperties(text).get(f"n{number}"),
                             "yes" if number == 3000 else None)

    def test_a_record_whose_lengths_do_not_add_up(self) -> None:
        """The lengths of a record do not fit together."""
        data = record("a\x011\x02")
        for wrong in (b"", data[:-1], data + b"\0", data[:50]):
            self.assertRaises(StoreDamaged, properties_text, wrong)
