"""Every served code, sent by strangers and by users without permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.acl.attack import ATTACKERS, FIELDS, LET_IN, add_users, attack_page, attempts
from tests.acl.auth_box import ALICE, ROOT, AuthTestCase
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION
from twistmq.protocol.signature import request_content, signature_of

PAGE: Final = Path(__file__).with_name("ACCEPTANCE.md")


class AttackTests(AuthTestCase):
    """A broker with the super user root, and with alice and idle, who have no policies."""

    def setUp(self) -> None:
        super().setUp()
        add_users(self.box)

    def test_without_a_right_signature_nothing_is_served(self) -> None:
        """A missing, empty, unknown or disabled name is refused, and so is a wrong password."""
        for name, keys, text in ATTACKERS[:-1]:
            self.assertEqual(set(attempts(self.box, keys).values()), {text}, msg=name)

    def test_a_user_without_policies_gets_nothing_of_others(self) -> None:
        """Each code that is not refused is listed with the reason."""
        before = self.tables()
        texts = attempts(self.box, ALICE)
        self.assertEqual({code for code, text in texts.items() if text is None}, set(LET_IN))
        self.assertGreater(len(texts) - len(LET_IN), 80)
        self.assertEqual(self.tables(), before)
        reply = self.ask_fields(ALICE, 305, FIELDS)
        self.assertNotIn(b'"B"', reply.body)

    def test_the_page_has_the_results(self) -> None:
        """The table of ACCEPTANCE.md is the output of ``python -m tests.acl.attack``."""
        self.assertIn(attack_page(self.box), PAGE.read_text())

    def tables(self) -> list[bytes]:
        """Return the users, policies, topics, groups and settings that a super user sees."""
        return [self.ask(ROOT, code).body for code in (
            RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL,
            RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_BROKER_CONFIG)]

    def test_a_name_that_looks_like_another_is_another(self) -> None:
        """Blanks, letter cases and cut names do not lead to the super user."""
        for name in ("Root", "root ", " root", "root\0", "User:root", "root*", "ro\u200bot"):
            reply = self.ask_fields((name, ROOT[1]), RequestCode.GET_BROKER_CONFIG, {})
            self.assertEqual((reply.code, reply.remark), (16, f"User:{name} is not found."))

    def test_a_signature_is_of_the_fields_and_the_body(self) -> None:
        """A changed, added or missing field makes the signature wrong. The code is not signed, as
        in Apache's scheme, so a recorded request passes with another code.
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
