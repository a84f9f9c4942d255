"""The records of one client are collected in one message, up to a maximum size."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.trace_records import Pub, decode_records
from twistmq.trace.pages import BODY_BYTES_MAX, KEYS_BYTES_MAX, RECORDS_MAX, Page, Pages


def pub(message_id: str = "i", keys: str | None = None, topic: str = "T") -> Pub:
    return Pub(1, "R", "g", topic, message_id, None, keys, "h:1", 1, 1, 0, "o", True)


class PagesTests(SynchronousTestCase):
    """The message into which a record goes."""

    def pages(self, *records: tuple[bytes, Pub]) -> list[Page]:
        pages = Pages()
        for host, record in records:
            pages.add(host, record)
        return pages.close()

    def test_clients_are_apart(self) -> None:
        """A message contains the records of one client, in their order."""
        found = self.pages((b"a", pub("1")), (b"b", pub("2")), (b"a", pub("3", "k1 k2 1")))
        self.assertEqual([(page.host, list(page.keys)) for page in found],
                         [(b"a", ["1", "3", "k1", "k2"]), (b"b", ["2"])])
        self.assertEqual([decode_records(page.body).records for page in found],
                         [[pub("1"), pub("3", "k1 k2 1")], [pub("2")]])

    def test_records_of_a_page(self) -> None:
        """A record above the maximum number begins another message."""
        found = self.pages(*[(b"a", pub(str(n))) for n in range(RECORDS_MAX + 1)])
        self.assertEqual([len(page.parts) for page in found], [RECORDS_MAX, 1])

    def test_bytes_of_a_page(self) -> None:
        """Long records fill a body with fewer records."""
        found = self.pages(*[(b"a", pub(str(n), topic="t" * 30_000)) for n in range(5)])
        self.assertEqual([len(page.parts) for page in found], [4, 1])
        self.assertLess(len(found[0].body), BODY_BYTES_MAX + 30_100)

    def test_keys_fit_into_properties(self) -> None:
        """However many a message has; its id is always there."""
        found = self.pages((b"a", pub("1", " ".join("\u20ac" * 100 + str(n) for n in range(99)))),
                           (b"a", pub("2")))
        self.assertEqual([len(page.parts) for page in found], [1, 1])
        text = " ".join(found[0].keys)
        self.assertIn("1", found[0].keys)
        self.assertLessEqual(len(text.encode()), 2 * KEYS_BYTES_MAX)
        self.assertGreater(len(text.encode()), KEYS_BYTES_MAX)
