"""``twistmq admin createUser``, ``createAcl`` and the ten other commands for users and policies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from tests.tools.admin.case import AdminCase
from twistmq.broker.testing.in_process_broker import running_broker

AUTH = {"authenticationEnabled": "true", "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}'}
#: An account file of ACL 1.0.
ACCOUNTS = """\
accounts:
- accessKey: orders-service
  secretKey: secret-of-orders
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB]
  groupPerms: [billing=DENY]
- {accessKey: operator, secretKey: secret-of-operator, admin: true}
"""


class AuthCommandTests(AdminCase):
    """A broker with a super user, who types the commands."""

    settings = {**AdminCase.settings, **AUTH}  # noqa: RUF012

    def setUp(self) -> None:
        self.enterContext(mock.patch.dict(
            os.environ, {"ROCKETMQ_ACCESS_KEY": "admin",
                         "ROCKETMQ_SECRET_KEY": "secret-of-admin"}))
        super().setUp()

    def make_user(self, name: str = "shop", *more: str) -> None:
        self.assertEqual(
            self.rows("createUser", "-b", self.broker, "-u", name, "-p", f"secret-of-{name}",
                      *more),
            [{"broker": "broker-a", "address": self.broker, "user": name}])

    def users(self) -> dict[str, dict[str, Any]]:
        return {row["user"]: row for row in self.rows("listUser", "-b", self.broker)}

    def allow(self, subject: str, resources: str, actions: str = "Pub", *more: str) -> None:
        self.rows("createAcl", "-c", "DefaultCluster", "-s", subject, "-r", resources, "-a",
                  actions, "-d", "Allow", *more)

    def entries(self, *arguments: str) -> list[tuple[str, str, list[str], list[str], str]]:
        return [(row["policy"], row["resource"], row["actions"], row["sources"], row["decision"])
                for row in self.rows("getAcl", "-b", self.broker, *arguments)]

    def test_users_are_shown_without_their_passwords(self) -> None:
        """The commands show one user, all users, and the users whose names contain a text."""
        self.make_user()
        self.make_user("billing", "-t", "Super")
        self.assertEqual(self.users()["shop"], {
            "user": "shop", "password": "******", "type": "Normal", "status": "enable",
            "broker": "broker-a"})
        self.assertEqual(self.users()["billing"]["type"], "Super")
        self.assertEqual([row["user"] for row in self.rows(
            "listUser", "-c", "DefaultCluster", "-f", "ho")], ["shop"])
        [row] = self.rows("getUser", "-b", self.broker, "-u", "shop")
        self.assertEqual((row["user"], row["password"]), ("shop", "******"))
        self.assertEqual(self.rows("getUser", "-b", self.broker, "-u", "nobody"), [])

    def test_a_user_is_changed_and_deleted(self) -> None:
        """Values that are not given stay unchanged, and a password is asked for."""
        self.make_user()
        self.rows("updateUser", "-b", self.broker, "-u", "shop", "-s", "disable")
        self.rows("updateUser", "-c", "DefaultCluster", "-u", "shop", "-t", "Super")
        shop = self.users()["shop"]
        self.assertEqual((shop["type"], shop["status"]), ("Super", "disable"))
        with mock.patch("click.prompt", return_value="secret-that-is-new") as prompt:
            self.rows("updateUser", "-b", self.broker, "-u", "shop", "-p", "-", "-s", "enable")
        self.assertTrue(prompt.call_args.kwargs["hide_input"])
        with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": "shop",
                                          "ROCKETMQ_SECRET_KEY": "secret-that-is-new"}):
            self.assertIn("shop", self.users())
        self.rows("deleteUser", "-b", self.broker, "-u", "shop")
        self.assertNotIn("shop", self.users())

    def test_a_refusal_is_one_line_with_the_brokers_text(self) -> None:
        """The line does not show the password."""
        self.make_user()
        line = self.refusal("createUser", "-b", self.broker, "-u", "shop", "-p", "secret-of-shop")
        self.assertIn("The user is existed", line)
        self.assertNotIn("secret-of", line)
        self.assertIn("The decision is null or illegal", self.refusal(
            "createAcl", "-b", self.broker, "-s", "User:shop", "-r", "Topic:a", "-a", "Pub", "-d",
            "Perhaps"))

    def test_entries_of_policies(self) -> None:
        """Entries are added, changed, listed and deleted by their resource."""
        self.make_user()
        self.allow("User:shop", "Topic:a,Group:g*", "Pub,Sub", "-i", "10.0.0.0/8,::1")
        self.assertEqual(self.entries("-s", "User:shop"), [
            ("Custom", resource, ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow")
            for resource in ("Topic:a", "Group:g*")])
        self.rows("updateAcl", "-b", self.broker, "-s", "User:shop", "-r", "Topic:a", "-a", "All",
                  "-d", "Deny")
        self.assertEqual(self.entries("-s", "User:shop")[0],
                         ("Custom", "Topic:a", ["All"], [], "Deny"))
        self.assertEqual([(row["subject"], row["resource"]) for row in self.rows(
            "listAcl", "-b", self.broker, "-s", "sho", "-r", "Group")],
            [("User:shop", "Group:g*")])
        self.rows("deleteAcl", "-b", self.broker, "-s", "User:shop", "-r", "Topic:a")
        self.assertEqual([entry[1] for entry in self.entries("-s", "User:shop")], ["Group:g*"])
        self.rows("deleteAcl", "-c", "DefaultCluster", "-s", "User:shop")
        self.assertEqual(self.rows("listAcl", "-b", self.broker), [])

    def test_users_and_policies_are_copied(self) -> None:
        """Afterwards, the same password is right at the other broker."""
        self.make_user()
        self.make_user("billing")
        self.allow("User:shop", "Topic:a")
        self.allow("User:billing", "Topic:b")
        with running_broker({**self.settings, "brokerName": "broker-b"}) as other:
            target = other.broker_address
            ends = ("-f", self.broker, "-t", target)
            self.assertEqual(self.rows("copyUser", *ends, "-u", "shop,nobody"), [
                {"user": "shop", "from": self.broker, "to": target, "step": "created"}])
            self.assertEqual({row["user"]: row["step"] for row in self.rows("copyUser", *ends)},
                             {"admin": "changed", "billing": "created", "shop": "changed"})
            self.assertEqual(self.rows("copyAcl", *ends, "-s", "User:shop"), [
                {"subject": "User:shop", "from": self.broker, "to": target, "step": "created"}])
            self.assertEqual({row["subject"]: row["step"]
                              for row in self.rows("copyAcl", *ends)},
                             {"User:billing": "created", "User:shop": "changed"})
            [entry] = self.rows("getAcl", "-b", target, "-s", "User:billing")
            self.assertEqual(entry["resource"], "Topic:b")
            with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": "shop",
                                              "ROCKETMQ_SECRET_KEY": "secret-of-shop"}):
                self.assertIn("no permission to access Cluster:",
                              self.refusal("listUser", "-b", target))

    def test_a_copy_is_shown_before_anything_is_written(self) -> None:
        """Each row describes a change, and the other broker stays unchanged."""
        self.make_user()
        self.allow("User:shop", "Topic:a")
        with running_broker({**self.settings, "brokerName": "broker-b"}) as other:
            target = other.broker_address
            ends = ("-f", self.broker, "-t", target)
            for _ in range(2):
                self.assertEqual(
                    {row["user"]: row["step"] for row in self.rows("copyUser", *ends, "-d")},
                    {"admin": "would be changed", "shop": "would be created"})
            self.assertEqual([row["user"] for row in self.rows("listUser", "-b", target)],
                             ["admin"])
            self.rows("copyUser", *ends)
            for _ in range(2):
                self.assertEqual([row["step"] for row in self.rows("copyAcl", *ends, "--dryRun")],
                                 ["would be created"])
            self.assertEqual(self.rows("listAcl", "-b", target), [])
            self.rows("copyAcl", *ends)
            self.assertEqual([row["step"] for row in self.rows("copyAcl", *ends, "-d")],
                             ["would be changed"])

    def test_accounts_of_1_0_are_shown_before_they_become_users(self) -> None:
        """Then the accounts are users with the same passwords, and a second run leaves them out."""
        home = Path(self.mktemp())
        (home / "conf").mkdir(parents=True)
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
        command = ("migrateAcl", "-f", str(home), "-t", self.broker)
        expected = [
            {"user": "orders-service", "type": "Normal", "step": "would be created",
             "policies": ["Allow Pub|Sub on Topic:orders", "Deny All on Group:billing"],
             "defaults": ["Deny All on Topic:*", "Allow Sub on Group:*"]},
            {"user": "operator", "type": "Super", "policies": [], "defaults": [],
             "step": "would be created"}]
        for _ in range(2):
            self.assertEqual(self.rows(*command, "-d"), expected)
        self.assertEqual(set(self.users()), {"admin"})
        self.assertEqual(self.rows(*command), [{**row, "step": "created"} for row in expected])
        self.assertEqual({row["step"] for row in self.rows(*command)},
                         {"left out: the user exists"})
        self.assertEqual({name: row["type"] for name, row in self.users().items()}, {
            "admin": "Super", "operator": "Super", "orders-service": "Normal"})
        self.assertEqual(self.entries("-s", "User:orders-service"), [
            ("Custom", "Topic:orders", ["Pub", "Sub"], [], "Allow"),
            ("Custom", "Group:billing", ["All"], [], "Deny"),
            ("Default", "Topic:*", ["All"], [], "Deny"),
            ("Default", "Group:*", ["Sub"], [], "Allow")])
        with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": "operator",
                                          "ROCKETMQ_SECRET_KEY": "secret-of-operator"}):
            self.assertIn("operator", self.users())

    def test_files_that_are_not_valid_change_nothing(self) -> None:
        """A folder without accounts changes nothing either, and no text contains a secret key."""
        home = Path(self.mktemp())
        (home / "conf").mkdir(parents=True)
        command = ("migrateAcl", "-f", str(home), "-t", self.broker)
        self.assertIn("there are no accounts below", self.refusal(*command))
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS + "- {accessKey: x, secretKey: secret}\n")
        line = self.refusal(*command)
        self.assertIn("plain_acl.yml", line)
        self.assertNotIn("secret-of", line)
        self.assertEqual(set(self.users()), {"admin"})

    def test_masked_passwords_are_not_copied(self) -> None:
        """A user who may read users but is not a super user does not see passwords."""
        self.make_user()
        self.allow("User:shop", "Cluster:*", "Get,Update")
        with running_broker({**self.settings, "brokerName": "broker-b"}) as other:
            self.rows("copyUser", "-f", self.broker, "-t", other.broker_address)
            self.rows("copyAcl", "-f", self.broker, "-t", other.broker_address)
            with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": "shop",
                                              "ROCKETMQ_SECRET_KEY": "secret-of-shop"}):
                self.assertIn("needs a super user", self.refusal(
                    "copyUser", "-f", self.broker, "-t", other.broker_address))

    def test_a_table_shows_no_password(self) -> None:
        """The table has the columns of mqadmin."""
        status, out, err = self.call("listUser", "-b", self.broker)
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn("secret-of", out)
        self.assertEqual(out.split()[:4], ["user", "password", "type", "status"])
        self.assertNotIn("secret-of", json.dumps(self.users()))
