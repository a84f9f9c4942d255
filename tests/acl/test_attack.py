"""Every served code, tried by a stranger, and by users who may not do anything."""

from __future__ import annotations

from collections import Counter

from tests.acl.auth_box import ALICE, ROOT, AuthTestCase
from tests.acl.test_access_table import body, served
from twistmq.protocol.bodies import UserInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION
from twistmq.protocol.headers.auth import UserRequestHeader
from twistmq.protocol.signature import request_content, signature_of

IDLE = ("idle", "secret-of-idle")
#: Fields that name the topic B and the group GB in every header.
FIELDS = {"topic": "B", "b": "B", "a": "P", "producerGroup": "P", "consumerGroup": "GB",
          "group": "GB", "groupName": "GB", "srcGroup": "GB", "destGroup": "GB",
          "compareGroup": "GB", "username": "alice", "subject": "User:alice"}
BODIES = {18: b'{"topicConfigList":[{"topicName":"B"}]}', 200: b'{"groupName":"GB"}',
          225: b'{"groupConfigList":[{"groupName":"GB"}]}', 25: b"fileReservedTime=1"}
#: Codes that a user without policies may send, and why that shows and changes nothing of others.
LET_IN = {
    33: "the stored message decides, and there is none",
    37: "the half message decides, and there is none",
    305: "the answer has the topics of the system alone",
    324: "a reply message for a client that does not exist",
    325: "the same",
}


class AttackTests(AuthTestCase):
    """A broker with the super user root, and alice and idle, who have no policies."""

    def setUp(self) -> None:
        super().setUp()
        self.add_user(*IDLE)
        self.accepted(self.ask(ROOT, 3002, UserRequestHeader(username="idle"),
                               UserInfo(user_status="disable").encode()))
        self.codes = sorted(served())

    def outcomes(self, keys: tuple[str, str] | None) -> Counter[str]:
        """Try every code; :returns: the texts of the refusals, and codes that are not refused."""
        found = Counter[str]()
        for code in self.codes:
            reply = self.ask_fields(keys, code, FIELDS, BODIES.get(code) or body(code))
            is_refused = reply.code == ResponseCode.NO_PERMISSION
            found[reply.remark or "" if is_refused else str(code)] += 1
        return found

    def test_without_a_right_signature_nothing_is_served(self) -> None:
        """No name, an empty name, an unknown and a disabled user, and a wrong password."""
        for keys, text in (
            (None, "username cannot be null."), (("", ""), "username cannot be null."),
            (("nobody", "secret"), "User:nobody is not found."),
            (("alice", "wrong"), "check signature failed."),
            (("root", "wrong"), "check signature failed."),
            (("root", "\0"), "check signature failed."),
            (IDLE, "User:idle is disabled."),
        ):
            self.assertEqual(self.outcomes(keys), {text: len(self.codes)}, msg=str(keys))

    def test_a_user_without_policies_gets_nothing_of_others(self) -> None:
        """Each code that is not refused to him is listed with its reason."""
        before = self.tables()
        found = self.outcomes(ALICE)
        self.assertEqual({int(text) for text in found if text.isdecimal()}, set(LET_IN))
        self.assertGreater(sum(found.values()) - len(LET_IN), 80)
        self.assertEqual(self.tables(), before)
        reply = self.ask_fields(ALICE, 305, FIELDS)
        self.assertNotIn(b'"B"', reply.body)

    def tables(self) -> list[bytes]:
        """What a super user sees: users, policies, topics, groups and settings."""
        return [self.ask(ROOT, code).body for code in (
            RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL,
            RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_BROKER_CONFIG)]

    def test_a_name_that_looks_like_another_is_another(self) -> None:
        """Blanks, cases and ends of names do not lead to the super user."""
        for name in ("Root", "root ", " root", "root\0", "User:root", "root*", "ro\u200bot"):
            reply = self.ask_fields((name, ROOT[1]), RequestCode.GET_BROKER_CONFIG, {})
            self.assertEqual((reply.code, reply.remark), (16, f"User:{name} is not found."))

    def test_a_signature_is_of_the_fields_and_the_body(self) -> None:
        """A field that was changed, added or left out makes it wrong. The code is not signed, as in
        Apache's scheme: a recorded request passes with another code.
        """
        fields = {"topic": "B", "AccessKey": ROOT[0]}
        signature = signature_of(request_content(fields, b"", VERSION), ROOT[1])
        for changed in ({**fields, "topic": "C"}, {**fields, "more": "1"}, {"AccessKey": ROOT[0]},
                        {**fields, "AccessKey": ALICE[0]}):
            reply = self.ask_fields(None, 202, {**changed, "Signature": signature})
            self.refused(reply, "check signature failed.")
        for code in (202, 215):
            reply = self.ask_fields(None, code, {**fields, "Signature": signature})
            self.assertNotEqual(reply.code, ResponseCode.NO_PERMISSION, msg=str(code))
