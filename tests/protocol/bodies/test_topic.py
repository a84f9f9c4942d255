"""Data versions, and topics as texts."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import DataVersion, TopicConfig, TopicFilterType
from twistmq.protocol.errors import WireError

#: (what is wrong, text, part of the error).
MALFORMED = [
    ("empty", "", "1 of at least 5"),
    ("four pieces", "T 4 8 6", "4 of at least 5"),
    ("count is no number", "T four 8 6 SINGLE_TAG", "readQueueNums"),
    ("count is too large", "T 4 2147483648 6 SINGLE_TAG", "writeQueueNums"),
    ("filter unknown", "T 4 8 6 NO_TAG", "topicFilterType"),
    ("attributes cut", 'T 4 8 6 SINGLE_TAG {"a":', "topic 'T 4 8 6"),
    ("attributes no object", "T 4 8 6 SINGLE_TAG 5", "attributes"),
]

word = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1,
               max_size=8)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
count = st.integers(-(2**31), 2**31 - 1)


class DataVersionTests(SynchronousTestCase):
    """The class DataVersion."""

    def test_next_version(self) -> None:
        """Each change increases the counter and sets the time."""
        version = DataVersion(0, 5, 1)
        version.next_version(9, 3)
        self.assertEqual(version, DataVersion(state_version=3, timestamp=9, counter=2))

    def test_the_counter_wraps_around_as_javas_does(self) -> None:
        """Otherwise a broker would not start with the file that it wrote."""
        version = DataVersion(counter=2**63 - 1)
        version.next_version(5)
        self.assertEqual(version.counter, -(2**63))
        self.assertEqual(DataVersion.decode(version.encode()), version)

    def test_is_newer_than(self) -> None:
        """The state version decides, then the counter, then the time."""
        order = [DataVersion(0, 9, 1), DataVersion(0, 1, 2), DataVersion(0, 2, 2),
                 DataVersion(1, 0, 0)]
        for i, older in enumerate(order):
            self.assertFalse(older.is_newer_than(older))
            for newer in order[i + 1 :]:
                self.assertTrue(newer.is_newer_than(older))
                self.assertFalse(older.is_newer_than(newer))

    def test_a_version_that_is_assigned_is_equal(self) -> None:
        """An assigned version is equal at first, and changes independently."""
        one, other = DataVersion(), DataVersion(1, 2, 3)
        one.assign(other)
        self.assertEqual(one, other)
        one.next_version(9)
        self.assertEqual(other, DataVersion(1, 2, 3))


class TopicTextTests(SynchronousTestCase):
    """TopicConfig as a compressed registration holds it."""

    def test_the_text_is_apaches(self) -> None:
        """A topic has the same text as in Apache's broker."""
        topic = TopicConfig("T", 4, 8, 6, attributes={"message.type": "FIFO"})
        self.assertEqual(topic.encode_text(), 'T 4 8 6 SINGLE_TAG {"message.type":"FIFO"}')
        self.assertEqual(TopicConfig.decode_text(topic.encode_text()), topic)

    def test_a_refused_topic_is_in_the_remark_as_apache_writes_it(self) -> None:
        """Apache's broker reports a topic that it refuses in this form."""
        topic = TopicConfig("T", 4, 8, 5, order=True, attributes={"a": "1", "b": "2"})
        self.assertEqual(
            str(topic), "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=8, perm=R-X, "
            "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=true, attributes={a=1, b=2}]")

    def test_old_form(self) -> None:
        """A broker before 5 writes no attributes, with a space behind or not."""
        for old in ("T 4 8 6 MULTI_TAG", "T 4 8 6 MULTI_TAG "):
            self.assertEqual(TopicConfig.decode_text(old),
                             TopicConfig("T", 4, 8, 6, TopicFilterType.MULTI_TAG))

    def test_a_wrong_piece_is_named(self) -> None:
        """The error names the wrong part."""
        for name, wrong, part in MALFORMED:
            error = self.assertRaises(WireError, TopicConfig.decode_text, wrong)
            self.assertIn(part, str(error), msg=name)

    @given(st.builds(TopicConfig, word, count, count, count, st.sampled_from(TopicFilterType),
                     attributes=st.dictionaries(text, text, max_size=3)))
    def test_round_trip(self, topic: TopicConfig) -> None:
        """Attributes with spaces are read again."""
        self.assertEqual(TopicConfig.decode_text(topic.encode_text()), topic)

    @given(text | st.text("T 4826SINGLE_TAG{\":}", max_size=30))
    def test_any_text(self, wrong: str) -> None:
        """Any text is a topic or raises a WireError."""
        try:
            TopicConfig.decode_text(wrong)
        except WireError:
            return
