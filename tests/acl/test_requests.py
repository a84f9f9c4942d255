"""The administration of accounts by the requests 50 to 54."""

from __future__ import annotations

import json
from typing import Any

from tests.acl.box import ADMIN, ALICE, BOB, PREFIX, AclTestCase
from twistmq.acl.requests import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetBrokerClusterAclConfigResponseBody,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader

CAROL = ("carol-key", "secret-of-carol")
UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
WHITE, CONFIG = (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
                 RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
VERSIONS = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
UPDATE_FAILED = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED


def account(keys: tuple[str, str] = CAROL, **fields: Any) -> CreateAccessConfigRequestHeader:
    return CreateAccessConfigRequestHeader(keys[0], keys[1], **fields)


class AccountRequestsTests(AclTestCase):
    """Requests of an administrator and of other accounts."""

    def answer(self, code: int, header: CommandHeader | None = None) -> tuple[int, str | None]:
        reply = self.ask(ADMIN, code, header)
        return reply.code, reply.remark

    def passes(self, keys: tuple[str, str]) -> bool:
        return self.ask(keys, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code == 0

    def configs(self) -> GetBrokerClusterAclConfigResponseBody:
        return GetBrokerClusterAclConfigResponseBody.decode(self.ask(ADMIN, CONFIG).body)

    def versions(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        reply: RemotingCommand = self.ask(ADMIN, VERSIONS)
        header = reply.header(GetBrokerAclConfigResponseHeader)
        self.assertEqual((header.broker_name, header.broker_addr, header.cluster_name),
                         ("broker-a", "127.0.0.1:10911", "DefaultCluster"))
        return json.loads(header.version), json.loads(header.all_acl_file_version)

    def test_new_account(self) -> None:
        """The account takes effect at once and after a restart, and the version is raised."""
        self.assertFalse(self.passes(CAROL))
        self.assertEqual(self.answer(UPDATE, account(topic_perms="a=PUB,b=SUB")), (0, None))
        self.assertTrue(self.passes(CAROL))
        version, versions = self.versions()
        self.assertEqual((version["counter"], version["timestamp"]), (4, self.box.now_ms))
        self.assertEqual({path: row["counter"] for path, row in versions.items()},
                         {str(self.plain): 4, str(self.bobs): 0})
        self.box = self.start()
        self.assertTrue(self.passes(CAROL))
        [carol] = [c for c in self.configs().plain_access_configs if c.access_key == CAROL[0]]
        self.assertEqual((carol.topic_perms, carol.group_perms), (["a=PUB", "b=SUB"], None))

    def test_changed_account(self) -> None:
        """A new secret key replaces the old one, in the file of the account."""
        changed = (BOB[0], "new-secret-of-bob")
        self.assertEqual(self.answer(UPDATE, account(changed)), (0, None))
        self.assertTrue(self.passes(changed))
        self.assertFalse(self.passes(BOB))
        self.assertIn(changed[1], self.bobs.read_text())

    def test_refused_accounts(self) -> None:
        """The answer has Apache's code and text, and nothing is written."""
        before = self.plain.read_bytes()
        table = (
            (account(("abc", "secret-of-carol")), "The accessKey=abc and secretKey=****** cannot"),
            (account((CAROL[0], "short")), "The accessKey=carol-key and secretKey=****** cannot"),
            (CreateAccessConfigRequestHeader("carol-key"), "secretKey=null cannot be null"),
            (CreateAccessConfigRequestHeader(), "The accessKey=null and secretKey=null cannot"),
            (account(topic_perms="a=FOO"), "Parse resource permission error for a=FOO.\n"),
            (account(group_perms="a"), "Parse Resource format error for a.\n"),
            (account(topic_perms=""), "Parse Resource format error for .\n"),
            (account(white_remote_address="1.2.3"),
             "Netaddress examine Exception netaddress is 1.2.3"),
        )
        for header, said in table:
            code, remark = self.answer(UPDATE, header)
            self.assertEqual(code, UPDATE_FAILED, msg=said)
            self.assertIn(said, remark or "")
            self.assertNotIn("secret-of", remark or "")
        self.assertEqual(self.plain.read_bytes(), before)

    def test_deleted_account(self) -> None:
        """The account's requests are refused from then on; an unknown account cannot be deleted."""
        self.assertEqual(self.answer(DELETE, DeleteAccessConfigRequestHeader(BOB[0])), (0, None))
        self.assertFalse(self.passes(BOB))
        for key in (BOB[0], ""):
            self.assertEqual(
                self.answer(DELETE, DeleteAccessConfigRequestHeader(key)),
                (ResponseCode.DELETE_ACL_CONFIG_FAILED, f"The accesskey[{key}] corresponding to "
                 "accessConfig has been deleted failed."))

    def test_white_addresses(self) -> None:
        """The addresses of the default file, or of a named file, are replaced."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader("10.9.9.9,10.8.*.*")
        self.assertEqual(self.answer(WHITE, header), (0, None))
        header = UpdateGlobalWhiteAddrsConfigRequestHeader("10.7.7.7", str(self.bobs))
        self.assertEqual(self.answer(WHITE, header), (0, None))
        self.assertEqual(self.configs().global_white_addrs, ["10.7.7.7", "10.9.9.9", "10.8.*.*"])
        reply = self.ask(None, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                         peer=self.peer("10.8.0.1:1"))
        self.assertEqual(reply.code, 0)

    def test_refused_white_addresses(self) -> None:
        """The cases are another file, no addresses, and an invalid address."""
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        for addresses, path, said in (
            ("10.0.0.1", "/nowhere", "The globalWhiteAddresses[10.0.0.1] has been updated failed."),
            (None, None, "The globalWhiteAddresses[None] has been updated failed."),
            ("10.0.0", None, "Netaddress examine Exception netaddress is 10.0.0"),
        ):
            header = UpdateGlobalWhiteAddrsConfigRequestHeader(addresses, path)
            self.assertEqual(self.answer(WHITE, header), (failed, said))

    def test_all_accounts(self) -> None:
        """An administrator sees all accounts."""
        keys = [config.access_key for config in self.configs().plain_access_configs]
        self.assertEqual(keys, [BOB[0], ADMIN[0], ALICE[0]])
        self.assertEqual(self.configs().global_white_addrs, ["10.2.2.*"])

    def test_only_administrators(self) -> None:
        """In Apache's broker every account may send these requests, and so can become an
        administrator.
        """
        before = self.plain.read_bytes()
        headers: dict[int, CommandHeader | None] = {
            UPDATE: account((ALICE[0], ALICE[1]), admin=True),
            DELETE: DeleteAccessConfigRequestHeader(ADMIN[0]),
            WHITE: UpdateGlobalWhiteAddrsConfigRequestHeader("*"), CONFIG: None}
        for code, header in headers.items():
            reply = self.ask(ALICE, code, header)
            self.assertEqual((reply.code, reply.remark, reply.body), (
                1, f"{PREFIX}Need admin permission for request code={int(code)}, "
                "but accessKey=alice-key is not", b""))
        self.assertEqual(self.plain.read_bytes(), before)

    def test_repr_of_requests_and_answers_hides_the_secret_key(self) -> None:
        """The text for a log contains no secret key."""
        shown = f"{account()!r} {account()} {self.configs()!r}"
        self.assertNotIn("secret-of", shown)
        self.assertIn("carol-key", shown)


class DisabledTests(AclTestCase):
    """Without access control there are no accounts to administer."""

    settings = {"aclEnable": "false"}  # noqa: RUF012

    def test_each_request_is_refused_and_no_file_is_touched(self) -> None:
        """Each request gets a refusal with the reason, and no file is changed."""
        before = self.plain.read_bytes()
        for code, failed in ((UPDATE, 209), (DELETE, 210), (WHITE, 211), (VERSIONS, 1),
                             (CONFIG, 1)):
            reply = self.ask(None, code, account() if code == UPDATE else None)
            self.assertEqual((reply.code, reply.remark),
                             (failed, "aclEnable is false: there are no accounts"))
        self.assertEqual(self.plain.read_bytes(), before)
