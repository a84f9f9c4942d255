"""Attributes: changes are parsed, checked and applied, with Apache's remarks."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    alter_attributes,
    parse_attribute_changes,
)
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused

_TYPES = "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, NORMAL]"


class ParseTests(SynchronousTestCase):
    """The texts of changes."""

    def test_signs_stay_with_the_names(self) -> None:
        """Names keep their signs, and values are unchanged."""
        for text, changes in (
            (None, {}), ("", {}), ("+a=1", {"+a": "1"}), ("-a", {"-a": ""}),
            ("+a=1,-b,+c.d=x y", {"+a": "1", "-b": "", "+c.d": "x y"}),
            ("+a=1,", {"+a": "1"}), ("+a= 1", {"+a": " 1"}), ("+a=", {"+a": ""}),
            ("+a=1=2", {"+a": "1=2"}),
        ):
            self.assertEqual(parse_attribute_changes(text), changes, repr(text))

    def test_a_missing_sign_or_a_name_twice_is_refused(self) -> None:
        """A missing sign or a name twice is refused; the remarks are Apache's."""
        for text, remark in (
            ("a=1", "add/alter attribute format is wrong: a"),
            ("+a=1,b=2", "add/alter attribute format is wrong: b"),
            ("a", "delete attribute format is wrong: a"),
            ("+a", "delete attribute format is wrong: +a"),
            ("+a=1,+a=2", "key duplication: +a"),
        ):
            with self.assertRaises(RequestRefused) as caught:
                parse_attribute_changes(text)
            self.assertEqual(str(caught.exception), remark)
            self.assertEqual(caught.exception.response_code, ResponseCode.SYSTEM_ERROR)


class AlterTests(SynchronousTestCase):
    """Changes that are applied to existing attributes."""

    def alter(self, changes: str, **current: str) -> dict[str, str]:
        """Change an existing topic; ``message_type`` stands for message.type."""
        attributes = {name.replace("_", "."): value for name, value in current.items()}
        return alter_attributes(False, TOPIC_ATTRIBUTES, attributes,
                                parse_attribute_changes(changes))

    def refusal(self, is_new: bool, changes: str, **current: str) -> str:
        attributes = {name.replace("_", "."): value for name, value in current.items()}
        with self.assertRaises(RequestRefused) as caught:
            alter_attributes(is_new, TOPIC_ATTRIBUTES, attributes,
                             parse_attribute_changes(changes))
        return str(caught.exception)

    def test_a_new_topic_takes_every_attribute(self) -> None:
        """A new topic accepts every attribute."""
        changes = parse_attribute_changes(
            "+message.type=FIFO,+queue.type=BatchCQ,+cleanup.policy=DELETE,+reserve.time=-1")
        self.assertEqual(alter_attributes(True, TOPIC_ATTRIBUTES, {}, changes), {
            "message.type": "FIFO", "queue.type": "BatchCQ", "cleanup.policy": "DELETE",
            "reserve.time": "-1"})

    def test_change_and_deletion(self) -> None:
        """Attributes are added, replaced and removed; the others, and the old dict,
        are unchanged.
        """
        self.assertEqual(self.alter("+message.type=DELAY", queue_type="SimpleCQ"),
                         {"message.type": "DELAY", "queue.type": "SimpleCQ"})
        self.assertEqual(self.alter("+message.type=DELAY", message_type="FIFO"),
                         {"message.type": "DELAY"})
        self.assertEqual(self.alter("-message.type,+reserve.time=9223372036854775807",
                                    message_type="FIFO"),
                         {"reserve.time": "9223372036854775807"})
        self.assertEqual(self.alter("", message_type="FIFO"), {"message.type": "FIFO"})

    def test_an_invalid_value_is_refused(self) -> None:
        """An invalid value is refused."""
        for changes, remark in (
            ("+message.type=fifo", _TYPES), ("+message.type=", _TYPES),
            ("+message.type= FIFO", _TYPES),
            ("+queue.type=x", "value is not in set: [SimpleCQ, BatchCQ]"),
            ("+cleanup.policy=COMPACTION", "cleanup.policy=COMPACTION: topics are not compacted "
                                           "here, DELETE is what there is"),
            ("+cleanup.policy=x", "value is not in set: [DELETE, COMPACTION]"),
            ("+reserve.time=x", 'For input string: "x"'),
            ("+reserve.time=٣", 'For input string: "٣"'),
            ("+reserve.time=1_0", 'For input string: "1_0"'),
            ("+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
            ("+reserve.time=9223372036854775808",
             "value is not in range(-1, 9223372036854775807)"),
        ):
            self.assertEqual(self.refusal(True, changes), remark, changes)

    def test_a_name_must_be_known_and_without_signs_of_its_own(self) -> None:
        """A name must be known and must not contain signs."""
        for changes, remark in (
            ("+nope=1", "unsupported key: nope"), ("+=1", "kv string format wrong."),
            ("-", "kv string format wrong."), ("+a-b=1", "kv string format wrong."),
            (" +message.type=FIFO", "kv string format wrong."),
            ("x+message.type=FIFO", "kv string format wrong."),
        ):
            self.assertEqual(self.refusal(True, changes), remark, changes)

    def test_too_late(self) -> None:
        """Attributes of the creation can be neither changed nor removed."""
        remark = "attempt to update an unchangeable attribute. key: queue.type"
        self.assertEqual(self.refusal(False, "+queue.type=SimpleCQ"), remark)
        self.assertEqual(self.refusal(False, "-queue.type", queue_type="SimpleCQ"), remark)

    def test_deletion_of_what_is_not_there(self) -> None:
        """The error of a missing attribute comes before the error of an unknown one."""
        for name in ("message.type", "nope"):
            self.assertEqual(self.refusal(False, f"-{name}"),
                             f"attempt to delete a nonexistent key: {name}")
        self.assertEqual(
            self.refusal(True, "-message.type"),
            "only add attribute is supported while creating topic. key: message.type")

    def test_two_changes_of_one(self) -> None:
        """An addition and a deletion of the same name are refused."""
        self.assertEqual(self.refusal(False, "+message.type=FIFO,-message.type",
                                      message_type="FIFO"),
                         "alter duplication key. key: message.type")

    def test_first_fault_is_told(self) -> None:
        """A wrong value is reported before an impossible deletion, in whatever order they come."""
        self.assertEqual(self.refusal(False, "-queue.type,+message.type=x", queue_type="SimpleCQ"),
                         _TYPES)

    def test_a_group_has_its_share_of_pops_by_priority(self) -> None:
        """5.3.3 has no attributes of groups, and 5.5.0 has this one."""
        self.assertEqual(alter_attributes(True, GROUP_ATTRIBUTES, {}, {"+priority.factor": "5"}),
                         {"priority.factor": "5"})
        for name, value, fault in (
            ("priority.factor", "101", "value is not in range(0, 100)"),
            ("priority.other", "5", "unsupported key: priority.other"),
        ):
            with self.assertRaises(RequestRefused) as caught:
                alter_attributes(True, GROUP_ATTRIBUTES, {}, {f"+{name}": value})
            self.assertEqual(str(caught.exception), fault)

    def test_sign_that_is_none(self) -> None:
        """The attributes of a group are a table, whose names may have no signs."""
        with self.assertRaises(RequestRefused) as caught:
            alter_attributes(False, TOPIC_ATTRIBUTES, {}, {"message.type": "FIFO"})
        self.assertEqual(str(caught.exception), "wrong format key: essage.type")
