"""Properties that are scanned as bytes: keys and tag are the same as those of a parser."""

from __future__ import annotations

from itertools import product

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.plain_properties import plain_keys
from twistmq.protocol.properties import index_keys, pair_count, parse_properties, tags_code

ASKING = frozenset(("DELAY", "TRAN_MSG", "CLUSTER"))
NAMES = ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "CLUSTER", "a", "UNIQ_KEX", "KEYT", "",
         "UNIQ", "_KEY", "caf\u00e9"]
VALUES = ["", "v", "k1 k2", " k1  k2 ", "true", "a\x01b", "\u4e2d", "x" * 50, " "]
PIECES = [*map("\x01".join, product(NAMES, VALUES)), "", "\x01", "UNIQ_KEY", "\0"]


def is_plain(text: str) -> bool:
    """Whether each pair is whole, each name occurs once, and no name is special."""
    fields = parse_properties(text)
    return (text.isascii() and pair_count(text) == len(fields) and "UNIQ_KEY" in fields
            and ASKING.isdisjoint(fields) and not any("\0" in name for name in fields))


class KeysTests(SynchronousTestCase):
    """The function plain_keys."""

    def test_a_usual_message(self) -> None:
        """The last separator may be missing."""
        text = "KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01red\x02own\x011"
        for each in (text, f"{text}\x02"):
            self.assertEqual(plain_keys(each.encode(), each, ASKING),
                             (["U", "k1", "k2"], tags_code("red")))

    def test_what_is_asked_for_is_not_plain(self) -> None:
        """A message without a unique key or without properties is not plain either."""
        for text in ("UNIQ_KEY\x01U\x02DELAY\x013\x02", "KEYS\x01k\x02", "",
                     "UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02", "UNIQ_KEY\x01U\x02a\x011\x02a\x012\x02"):
            self.assertEqual(plain_keys(text.encode(), text, ASKING), (None, 0))

    def test_any_properties(self) -> None:
        """Plain properties, and no others, give their keys and the code of the tag."""
        for first, second in product(PIECES, PIECES):
            for pieces in ((first, second), (first, "UNIQ_KEY\x01U", second, "")):
                text = "\x02".join(pieces)
                keys, code = plain_keys(text.encode(), text, ASKING)
                self.assertEqual(keys is not None, is_plain(text), repr(text))
                if keys is not None:
                    fields = parse_properties(text)
                    self.assertEqual((keys, code),
                                     (index_keys(fields), tags_code(fields.get("TAGS"))))
