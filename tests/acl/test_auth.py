"""The plugin: settings of both schemes, the first users, files, and slaves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.acl.auth_box import ALICE, ROOT, AuthTestCase, policy
from twistmq.acl import auth, plain
from twistmq.acl.auth_table import decode_policies, decode_users, users_of
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import admin
from twistmq.protocol.bodies import UserInfo, encode_infos
from twistmq.protocol.errors import StoreDamaged, WireError
from twistmq.protocol.headers.auth import UserRequestHeader

USERS, ACLS = "/store/config/users.json", "/store/config/acls.json"
INNER = json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"})


class SettingsTests(AuthTestCase):
    """The settings with which a broker may or may not start."""

    def refused_start(self, error: type[Exception], **settings: str) -> str:
        """Return the error text of a start that is refused."""
        return str(self.assertRaises(error, self.start, **settings))

    def test_both_schemes_at_once(self) -> None:
        """A broker with both schemes does not start, and the text names the remedy."""
        text = self.refused_start(SettingsError, aclEnable="true")
        self.assertIn("leave one out", text)
        self.assertIn("migrateAuthFromV1Enabled", text)

    def test_policies_without_signatures(self) -> None:
        """Policies alone are refused, because an unsigned name proves nothing."""
        self.assertIn("needs authenticationEnabled", self.refused_start(
            SettingsError, authenticationEnabled="false"))

    def test_nobody_could_administer_it(self) -> None:
        """A start without a super user is refused, because no user could ever create one."""
        self.assertIn("there is no super user", self.refused_start(
            SettingsError, initAuthenticationUser=""))

    def test_what_cannot_be_read_is_not_shown(self) -> None:
        """The setting may contain a password, so the error does not show its text."""
        for name in ("initAuthenticationUser", "innerClientAuthenticationCredentials"):
            for text in ('{"sesame"', '["sesame"]', '{"username":"sesame"}', "sesame"):
                shown = self.refused_start(SettingsError, **{name: text})
                self.assertTrue(shown.startswith(f"{name} must be"), shown)
                self.assertNotIn("sesame", shown)

    def test_a_white_list_has_numbers(self) -> None:
        """The name of a code is refused; it would otherwise be ignored without notice."""
        for name in ("authenticationWhitelist", "authorizationWhitelist"):
            self.assertIn("must be numbers", self.refused_start(
                SettingsError, **{name: "310,SEND_MESSAGE"}))

    def test_no_plugin_checks(self) -> None:
        """A broker that must check requests does not start without a plugin that checks them."""
        error = self.assertRaises(SettingsError, KernelBox, [("acl", plain.Plugin)],
                                  {"authenticationEnabled": "true"})
        self.assertIn("authenticationEnabled=true, but no plugin", str(error))


class FirstUserTests(AuthTestCase):
    """initAuthenticationUser, innerClientAuthenticationCredentials."""

    def names(self, disk: MemoryDisk) -> list[str]:
        return [each["username"] for each in json.loads(disk.read_file(USERS))["users"]]

    def test_the_first_user_is_for_an_empty_store_only(self) -> None:
        """A later start with another name creates no user and logs this."""
        disk = MemoryDisk()
        self.start(disk).stop()
        self.assertEqual(self.names(disk), ["root"])
        with capturedLogs() as events:
            self.start(disk, initAuthenticationUser='{"username":"eve","password":"x"}').stop()
        self.assertEqual(self.names(disk), ["root"])
        self.assertIn("initAuthenticationUser is not used: there are users already",
                      [formatEvent(event) for event in events])

    def test_a_changed_password_stays_changed(self) -> None:
        """The setting counts only at the first start."""
        disk = MemoryDisk()
        self.box = self.start(disk)
        self.accepted(self.ask(ROOT, 3002, UserRequestHeader(username="root"),
                               UserInfo(password="another").encode()))
        self.box.stop()
        self.box = self.start(disk)
        self.refused(self.ask(ROOT, 26), "check signature failed.")
        self.accepted(self.ask(("root", "another"), 26))

    def test_the_inner_user_is_a_super_user(self) -> None:
        """It is created both with the setting of the first user and without it."""
        for first in (self.settings["initAuthenticationUser"], ""):
            self.box = self.start(innerClientAuthenticationCredentials=INNER,
                                  initAuthenticationUser=first)
            self.accepted(self.ask(("inner", "secret-of-inner"), 3005))

    def test_another_password_of_the_inner_user_is_said(self) -> None:
        """The stored password counts, because otherwise a setting could open a broker."""
        disk = MemoryDisk()
        self.start(disk, innerClientAuthenticationCredentials=INNER).stop()
        with capturedLogs() as events:
            self.box = self.start(disk, innerClientAuthenticationCredentials=INNER.replace(
                "secret-of-inner", "sesame"))
        texts = [formatEvent(event) for event in events]
        self.assertTrue(any("has another password than its user inner" in text for text in texts))
        self.refused(self.ask(("inner", "sesame"), 26), "check signature failed.")


class FileTests(AuthTestCase):
    """users.json and acls.json."""

    def filled(self) -> MemoryDisk:
        """Return a disk on which both files have a backup."""
        disk = MemoryDisk()
        self.box = self.start(disk)
        self.add_user(*ALICE)
        self.add_policy("alice", policy("Topic:a"))
        self.add_user("bob", "secret-of-bob")
        self.add_policy("bob", policy("Topic:b"))
        self.box.stop()
        return disk

    def test_another_start_has_all_of_it(self) -> None:
        """The next start reads all users and policies."""
        self.box = self.start(self.filled())
        self.assertEqual(len(json.loads(self.accepted(self.ask(ROOT, 3005)))), 3)
        self.assertEqual(len(json.loads(self.accepted(self.ask(ROOT, 3010)))), 2)

    def test_a_damaged_file_falls_back_to_its_backup(self) -> None:
        """The backup contains the file as it was before the last change."""
        for path, code, count in ((USERS, 3005, 2), (ACLS, 3010, 1)):
            disk = self.filled()
            disk.write_file(path, b'{"users": [{')
            self.box = self.start(disk)
            self.assertEqual(len(json.loads(self.accepted(self.ask(ROOT, code)))), count, msg=path)

    def test_without_a_backup_the_start_ends(self) -> None:
        """The error names the file and the position, and contains no password."""
        for path, text, reason in [
            (USERS, '{"users": [\n{"username":"a","password":"sesame"},\n{"username"', "in line 3"),
            (USERS, '{"users": [{"username":"a","password":["sesame"]}]}', "$.users[0].password"),
            (USERS, '{"users": [{"username":"a"}]}', "row 1: password can not be blank"),
            (USERS, '{"users": [{"username":"a","password":"sesame"},'
                    '{"username":"a","password":"sesame"}]}', "row 2: 'a' occurs twice"),
            (ACLS, '{"acls": [{"subject":"a"}]}', "row 1: 'a' is not a subject"),
            (ACLS, '{"acls": [{"subject":"User:a","policies":[{"entries":[{"resource":"T"}]}]}]}',
             "row 1, 'User:a': The resource is null."),
        ]:
            disk = self.filled()
            for each in (path, f"{path}.bak"):
                disk.write_file(each, text.encode())
            error = self.assertRaises(StoreDamaged, self.start, disk)
            self.assertIn(path, str(error))
            self.assertIn(reason, str(error))
            self.assertNotIn("sesame", str(error))

    def test_only_the_owner_may_read_them(self) -> None:
        """This also holds for a backup, and for a file that replaces one with another mode."""
        from twistmq.broker.store.config_file import ConfigFile
        from twistmq.broker.store.disk import RealDisk

        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "users.json")
        Path(folder.name, "users.json.tmp").write_text("left by a crash")
        file = ConfigFile(RealDisk(), str(path), is_private=True)
        file.save("1")
        file.save("2")
        for each in (path, Path(f"{path}.bak")):
            self.assertEqual(each.stat().st_mode & 0o777, 0o600, msg=each)

    def test_a_store_check_reads_them(self) -> None:
        """The check reports the same faults that a start refuses."""
        disk = self.filled()
        self.assertEqual(list(decode_users(disk.read_file(USERS))), ["root", "alice", "bob"])
        self.assertEqual(list(decode_policies(disk.read_file(ACLS))), ["alice", "bob"])
        self.assertRaises(ValueError, decode_users, b"{")


class SlaveTests(AuthTestCase):
    """The tables that a slave copies."""

    def test_it_has_what_its_master_has(self) -> None:
        """The slave reads the answers to its own user, and drops users that were deleted."""
        self.add_policy("alice", policy("Topic:a"))
        users, acls = (self.accepted(self.ask(ROOT, code)) for code in (3005, 3010))
        slave = self.start(brokerRole="SLAVE", brokerId="1", initAuthenticationUser="")
        tables = slave.kernel.hooks.collect_synced_tables()
        take = {table.code: table.take for table in tables}
        self.box, master = slave, self.box
        self.refused(self.ask(ROOT, 26), "User:root is not found.")
        take[3005](users)
        take[3010](acls)
        self.assertEqual(self.accepted(self.ask(ROOT, 3005)), users)
        self.assertEqual(self.accepted(self.ask(ROOT, 3010)), acls)
        self.refused(self.ask(ROOT, 3001, UserRequestHeader(username="b"),
                              UserInfo(password="secret").encode()),
                     "Can't modify users or policies from slave broker, please execute it from "
                     "master broker.", 1)
        self.box = master
        self.accepted(self.ask(ROOT, 3003, UserRequestHeader(username="alice")))
        users, acls = (self.accepted(self.ask(ROOT, code)) for code in (3005, 3010))
        self.box = slave
        self.accepted_by_alice = self.ask(ALICE, 34, None, b"{}")
        take[3005](users)
        take[3010](acls)
        self.refused(self.ask(ALICE, 34, None, b"{}"), "User:alice is not found.")
        self.assertEqual(self.accepted(self.ask(ROOT, 3010)), b"")

    def test_masked_passwords_are_not_copied(self) -> None:
        """Otherwise every user would get the mask as the password."""
        self.assertRaises(WireError, users_of, encode_infos([UserInfo("a", "******")]))
        self.assertRaises(WireError, users_of, b"[{")


class MigrationTests(SynchronousTestCase):
    """migrateAuthFromV1Enabled."""

    accounts = """\
accounts:
- {accessKey: admin-key, secretKey: secret-of-admin, admin: true}
- accessKey: alice-key
  secretKey: secret-of-alice
  whiteRemoteAddress: 10.1.1.1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [hers=PUB|SUB, read=SUB, not-hers=DENY]
  groupPerms: [G=SUB]
- {accessKey: nothing-key, secretKey: secret-of-nothing}
globalWhiteRemoteAddresses: [10.2.2.*]
"""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        (self.home / "conf").mkdir()
        (self.home / "conf/plain_acl.yml").write_text(self.accounts)
        self.disk = MemoryDisk()

    def start(self) -> dict[str, list[dict[str, object]]]:
        """Start a broker, and return the rows of its files after the start."""
        box = KernelBox([("acl", plain.Plugin), ("auth", auth.Plugin), ("admin", admin.Plugin)], {
            "rocketmqHome": str(self.home), "authenticationEnabled": "true",
            "authorizationEnabled": "true", "migrateAuthFromV1Enabled": "true"}, disk=self.disk)
        box.stop()
        return {**json.loads(self.disk.read_file(USERS)), **json.loads(self.disk.read_file(ACLS))}

    def test_accounts_become_users_and_policies(self) -> None:
        """An administrator becomes a super user, permissions become actions, and defaults become
        default entries.
        """
        with capturedLogs() as events:
            rows = self.start()
        self.assertEqual([(each["username"], each["userType"]) for each in rows["users"]], [
            ("admin-key", "Super"), ("alice-key", "Normal"), ("nothing-key", "Normal")])

        def entry(resource: str, actions: list[str], decision: str) -> dict[str, object]:
            return {"resource": resource, "actions": actions, "sourceIps": None,
                    "decision": decision}

        self.assertEqual(rows["acls"], [{"subject": "User:alice-key", "policies": [
            {"policyType": "Custom", "entries": [
                entry("Topic:hers", ["Pub", "Sub"], "Allow"), entry("Topic:read", ["Sub"], "Allow"),
                entry("Topic:not-hers", ["All"], "Deny"), entry("Group:G", ["Sub"], "Allow")]},
            {"policyType": "Default", "entries": [
                entry("Topic:*", ["All"], "Deny"), entry("Group:*", ["Sub"], "Allow")]}]}])
        texts = [formatEvent(event) for event in events]
        self.assertIn("the white address of alice-key has no counterpart in ACL 2.0", texts)
        self.assertIn("3 accounts of ACL 1.0 became users", texts)

    def test_only_once(self) -> None:
        """A user that was deleted after the migration does not come back."""
        rows = self.start()
        users = json.dumps({"migrated": True, "users": rows["users"][:1]}).encode()
        self.disk.write_file(USERS, users)
        self.assertEqual(len(self.start()["users"]), 1)

    def test_a_bad_file_ends_the_start(self) -> None:
        """No account is copied, because a part of the accounts would be a trap."""
        (self.home / "conf/plain_acl.yml").write_text("accounts: [{accessKey: a}]")
        error = self.assertRaises(SettingsError, self.start)
        self.assertIn("migrateAuthFromV1Enabled=true", str(error))
