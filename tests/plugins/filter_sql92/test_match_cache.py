"""The remembered results of a filter for stored messages."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.filter_sql92.test_consumer_filters import FiltersTestCase, sub
from twistmq.broker.store.get_message import GetMessageStatus
from twistmq.broker.store.queue_files import QueueFiles
from twistmq.broker.testing.store import message
from twistmq.plugins.filter_sql92.match_cache import KnownAnswers
from twistmq.protocol.record import decode_record


class KnownAnswersTests(SynchronousTestCase):
    """A result is found by its offset, and only for the messages for which it was stored."""

    def setUp(self) -> None:
        self.known = KnownAnswers()

    def note(self, first: int, answers: str, queue_id: int = 0, place: int = 1000) -> None:
        """Note answers from an offset on, "1" for yes; each message has 100 bytes."""
        for at, answer in enumerate(answers):
            self.known.note(queue_id, first + at, place + 100 * at, answer == "1")

    def find(self, offset: int, place: int, count: int = 9, queue_id: int = 0) -> str:
        return "".join(str(each) for each in self.known.find(queue_id, offset, place, count))

    def test_forgotten_future_and_foreign_offsets_have_no_answer(self) -> None:
        """An offset that was dropped, is in the future, or is of another queue has no result."""
        self.note(5, "10110")
        self.note(5, "0", queue_id=1, place=1050)
        self.assertEqual(self.find(5, 1000), "10110")
        self.assertEqual(self.find(6, 1100, 2), "01")
        self.assertEqual(self.find(9, 1400), "0")
        self.assertEqual(self.find(5, 1050, queue_id=1), "0")
        for offset, place, queue_id in ((4, 900, 0), (4, 1000, 0), (10, 1500, 0), (5, 1000, 2)):
            self.assertEqual(self.find(offset, place, queue_id=queue_id), "")

    def test_a_gap_in_offsets_clears_the_cache(self) -> None:
        """After a message without a result the cache starts again."""
        self.note(5, "11")
        self.note(8, "00", place=2000)
        self.assertEqual((self.find(5, 1000), self.find(8, 2000)), ("", "00"))

    def test_topic_made_again(self) -> None:
        """The results for a deleted topic do not apply to a new one of the same name."""
        self.note(0, "1111")
        self.assertEqual(self.find(1, 5100), "")
        self.note(0, "00", place=5000)
        self.assertEqual((self.find(0, 5000), self.find(2, 5200)), ("00", ""))

    def test_the_older_half_is_forgotten(self) -> None:
        """The older half is dropped, in multiples of eight, and the rest is still found."""
        answers = "11010010" "01110001" "0010"
        self.note(10, answers)
        self.note(3, "1", queue_id=1)
        self.assertEqual(self.known.count, 21)
        self.known.forget_older()
        self.assertEqual(self.known.count, 12)
        self.assertEqual((self.find(10, 1000), self.find(17, 1700)), ("", ""))
        self.assertEqual(self.find(18, 1800, 20), answers[8:])
        self.note(30, "1", place=3000)
        self.assertEqual(self.find(28, 2800), "101")
        for _ in range(4):
            self.known.forget_older()
        self.assertEqual((self.known.count, self.find(30, 3000)), (0, ""))

    @given(st.text("01", min_size=1, max_size=40), st.integers(0, 45), st.integers(0, 45),
           st.integers(0, 2))
    def test_any_part(self, answers: str, begin: int, count: int, halvings: int) -> None:
        """A range of results is found at any bit position."""
        self.known = KnownAnswers()
        self.note(7, answers)
        for _ in range(halvings):
            self.known.forget_older()
        forgotten = len(answers) - self.known.count
        self.assertEqual(forgotten % 8 and self.known.count, 0)
        expected = answers[begin : begin + count] if begin >= forgotten else ""
        self.assertEqual(self.find(7 + begin, 1000 + 100 * begin, count), expected)


class PullTests(FiltersTestCase):
    """Pulls that use the cache."""

    settings = {"enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true"}  # noqa: RUF012

    def append(self, values: str) -> None:
        """Store a message with each value of the property a; its body is the value."""
        self.box.now_ms += 1
        self.assertEqual(self.kernel.append(
            [message("T", a.encode(), properties=f"a\x01{a}\x02") for a in values]), {})

    def pulled(self, offset: int = 0, count: int = 32) -> tuple[str, int]:
        """Return the values that a pull of the group gets, and the next offset."""
        found = self.kernel.store.get_message(
            "T", 0, offset, count, self.filters.group_filter("g", "T", 5))
        return (b"".join(decode_record(each).body for each in found.messages).decode(),
                found.next_begin_offset)

    def test_a_pull_gets_the_same_with_and_without_cached_answers(self) -> None:
        """A pull gets the same with results for all, for some and for no messages."""
        self.append("02")
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("120039")
        self.assertEqual(self.pulled(), ("2239", 8))
        self.assertEqual(self.pulled(2), ("239", 8))
        self.assertEqual(self.pulled(2, 1), ("2", 4))
        self.assertEqual(self.pulled(5), ("39", 8))
        self.append("0")
        self.assertEqual(self.pulled(8), ("", 9))

    def test_not_asked(self) -> None:
        """An expression is not evaluated again for the same message."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("120")
        wants = self.filters.group_filter("g", "T", 5)
        with mock.patch.object(type(wants), "match_record", side_effect=AssertionError):
            found = self.kernel.store.get_message("T", 0, 0, 32, wants)
        self.assertEqual((found.status, found.count, found.filtered_count),
                         (GetMessageStatus.FOUND, 1, 0))

    def test_few_entries(self) -> None:
        """A read is limited to its share of a queue's entries only if results are missing."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("3" * 20 + "1" * 20 + "33")
        for offset, expected, shares in ((0, ("333", 3), [6]), (18, ("333", 41), [6, 800]),
                                         (40, ("33", 42), [6])):
            with mock.patch.object(
                QueueFiles, "read", autospec=True, side_effect=QueueFiles.read) as read:
                self.assertEqual(self.pulled(offset, 3), expected)
            self.assertEqual([call.args[3] for call in read.call_args_list], shares)

    def test_none_wanted(self) -> None:
        """A read that finds no match by the cache returns the next offset."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("100")
        self.assertEqual(self.pulled(), ("", 3))

    def test_answers_are_as_many_as_there_is_room_for(self) -> None:
        """The number of results is limited; a pull gets the same without them."""
        self.filters.bitmaps.answers_max = 16
        self.filters.register("g", [sub("a > 1", 5)])
        for _ in range(30):
            self.append("2103")
        known = self.filters._topics["T"]["g"].asked.known
        self.assertLessEqual(known.count, 16)
        self.assertGreater(known.count, 0)
        self.assertEqual((self.pulled(), self.pulled(64)), (("23" * 16, 64), ("23" * 14, 120)))

    def test_new_expression(self) -> None:
        """A new expression has no results of the old one."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("1203")
        self.filters.register("g", [sub("a < 2", 6)])
        found = self.kernel.store.get_message(
            "T", 0, 0, 32, self.filters.group_filter("g", "T", 6))
        self.assertEqual([decode_record(each).body for each in found.messages], [b"1", b"0"])

    def test_topic_made_again(self) -> None:
        """A topic that was deleted and created again has its own results."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.append("2222")
        self.assertEqual(self.pulled(), ("2222", 4))
        self.kernel.store.delete_topic("T")
        self.append("103")
        self.assertEqual(self.pulled(), ("3", 3))
