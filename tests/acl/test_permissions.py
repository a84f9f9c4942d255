"""Permissions: what each of them allows, and their texts."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.errors import AclError
from twistmq.acl.permissions import (
    Permission,
    allows,
    check_resources,
    parse_permission,
    parse_resources,
    resource_name,
)

DENY, ANY, PUB, SUB = Permission.DENY, Permission.ANY, Permission.PUB, Permission.SUB


class PermissionTests(SynchronousTestCase):
    """Bits and texts."""

    def test_owned_against_needed(self) -> None:
        """PUB, SUB and ANY are compared with each other, and DENY wins over any other bit."""
        table = {
            PUB: (True, False, True), SUB: (False, True, True), PUB | SUB: (True, True, True),
            DENY: (False, False, False), DENY | PUB | SUB: (False, False, False),
            ANY: (False, False, False), Permission(0): (False, False, False),
        }
        for owned, answers in table.items():
            found = tuple(allows(owned, needed) for needed in (PUB, SUB, ANY))
            self.assertEqual(found, answers, msg=str(owned))

    def test_bits_are_apaches(self) -> None:
        """The numbers of Permission.java."""
        self.assertEqual([int(one) for one in (DENY, ANY, PUB, SUB)], [1, 2, 4, 8])

    def test_an_unknown_permission_text_is_deny(self) -> None:
        """Every text except the five known ones is DENY, and ANY cannot be given."""
        texts = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY,
                 " PUB ": PUB, "ANY": DENY, "pub": DENY, "PUB | SUB": DENY, "": DENY, None: DENY}
        for text, permission in texts.items():
            self.assertEqual(parse_permission(text), permission, msg=repr(text))

    def test_topics_by_name(self) -> None:
        """Topics are stored by name, groups by their retry topic, and the last row wins."""
        self.assertEqual(parse_resources(["a=PUB", " b = SUB|PUB", "a=DENY"], groups=False),
                         {"a": DENY, "b": PUB | SUB})
        self.assertEqual(parse_resources(["g=SUB", "h==typo"], groups=True),
                         {"%RETRY%g": SUB, "%RETRY%h": DENY})

    def test_faulty_resources(self) -> None:
        """The error names the text that is not a pair."""
        for text, groups, said in (("a", False, "topic:a"), ("a=b=c", False, "topic:a=b=c"),
                                   ("", True, "group:"), ("=SUB", True, "group:=SUB")):
            error = self.assertRaises(AclError, parse_resources, [text], groups=groups)
            self.assertEqual(str(error), f"Parse resource permission failed for {said}")

    def test_check_of_requests(self) -> None:
        """A request of a tool must also contain a valid permission."""
        check_resources(["a=PUB", "b = DENY "])
        for text, said in (("a", "Parse Resource format error for a."),
                           ("a=ANY", "Parse resource permission error for a=ANY.")):
            self.assertIn(said, str(self.assertRaises(AclError, check_resources, [text])))

    def test_a_retry_topic_is_shown_as_its_group(self) -> None:
        """The remark shows the group of a retry topic."""
        self.assertEqual([resource_name("t"), resource_name("%RETRY%g")], ["topic:t", "group:g"])
