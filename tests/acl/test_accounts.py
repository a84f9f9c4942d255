"""Accounts: how they are read, which requests they permit, and that their secret keys are not
shown.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.accounts import Account, PlainAccessConfig, account_of, check_config, config_of
from twistmq.acl.errors import AclError
from twistmq.acl.known_names import KnownNames, retry_readings
from twistmq.acl.permissions import Permission
from twistmq.acl.resources import CLUSTER, PopRetries
from twistmq.protocol.codes import RequestCode

SECRET = "secret-of-alice"


def config(**fields: Any) -> PlainAccessConfig:
    return PlainAccessConfig(**{"access_key": "alice-key", "secret_key": SECRET, **fields})


def fault(account: Account, code: int, **needed: Permission) -> str:
    """Return the text of the refusal; empty if the request is permitted."""
    try:
        account.check(code, needed.items())
    except AclError as error:
        return str(error)
    return ""


class CheckTests(SynchronousTestCase):
    """The requests that an account permits."""

    def test_defaults_and_rows(self) -> None:
        """A resource with a row has the permission of the row, and any other one the default of its
        kind.
        """
        account = account_of(config(
            default_topic_perm="SUB", default_group_perm="DENY",
            topic_perms=["secret=DENY", "open=PUB|SUB"], group_perms=["g=SUB"]))
        pub, sub = Permission.PUB, Permission.SUB
        self.assertEqual(fault(account, 310, open=pub), "")
        self.assertEqual(fault(account, 310, other=pub), "No default permission for topic:other")
        self.assertEqual(fault(account, 11, other=sub), "")
        self.assertEqual(fault(account, 11, secret=sub), "No default permission for topic:secret")
        self.assertEqual(fault(account, 11, **{"%RETRY%g": sub}), "")
        self.assertEqual(fault(account, 11, **{"open": sub, "%RETRY%h": sub}),
                         "No default permission for group:h")

    def test_the_offsets_of_a_broadcast_group_belong_to_it(self) -> None:
        """A default permission does not include the separate name under which these offsets are
        stored.
        """
        account = account_of(config(
            default_group_perm="SUB", group_perms=["denied=DENY", "own=SUB"]))
        sub = Permission.SUB
        self.assertEqual(fault(account, 14, **{"%RETRY%denied@broadcast": sub}),
                         "No default permission for group:denied@broadcast")
        for group in ("own", "other"):
            self.assertEqual(fault(account, 14, **{f"%RETRY%{group}@broadcast": sub}), "")
        account = account_of(config(default_group_perm="DENY", group_perms=["own=SUB"]))
        self.assertEqual(fault(account, 14, **{"%RETRY%own@broadcast": sub}), "")
        self.assertNotEqual(fault(account, 14, **{"%RETRY%other@broadcast": sub}), "")
        for count in (8, 3000):
            name = "%RETRY%own" + "@broadcast" * count
            self.assertNotEqual(fault(account, 14, **{name: sub}), "")

    def test_no_defaults(self) -> None:
        """An account without permissions and defaults may use nothing."""
        account = account_of(config())
        self.assertEqual(fault(account, 11, t=Permission.SUB), "No default permission for topic:t")
        self.assertEqual(fault(account, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER), "")

    def test_admin_codes(self) -> None:
        """Only administrators change topics and groups, and they pass every check."""
        admin = account_of(config(admin=True, default_topic_perm="DENY", topic_perms=["t=DENY"]))
        admin.check(17, {"t": Permission.PUB, CLUSTER: Permission.ANY}.items())
        error = self.assertRaises(AclError, account_of(config()).check, 17,
                                  {CLUSTER: Permission.ANY}.items())
        self.assertEqual(
            str(error), "Need admin permission for request code=17, but accessKey=alice-key is not")


def names(topics: str, groups: str) -> KnownNames:
    """Return the names of a broker that has these topics and groups."""
    return KnownNames(topics.split().__contains__, groups.split().__contains__,
                      reply_topic="C_REPLY_TOPIC")


class DefaultTests(SynchronousTestCase):
    """A default permission does not open topics that may contain messages of denied resources."""

    def is_allowed(self, account: Account, resource: str | PopRetries, known: KnownNames,
                   permission: Permission = Permission.SUB) -> bool:
        try:
            account.check(11, [(resource, permission)], known)
        except AclError:
            return False
        return True

    def test_readings_of_a_retry_topic(self) -> None:
        """The separator may be a part of either name, and neither name is empty."""
        self.assertEqual(list(retry_readings("%RETRY%a_b+c")), [("a", "b+c"), ("a_b", "c")])
        for name in ("%RETRY%a", "%RETRY%_a", "%RETRY%a_", "%RETRY%", "%RETRY%" + "_" * 300):
            self.assertEqual(list(retry_readings(name)), [], msg=name)

    def test_retries_of_pops_of_what_is_denied(self) -> None:
        """The retries of a group and a topic are open to accounts that may read both."""
        account = account_of(config(default_group_perm="SUB", topic_perms=["a=PUB|SUB"],
                                    group_perms=["denied=DENY"]))
        there = names("a b", "denied other")
        for name, is_allowed in (
            ("denied_b", False), ("denied+b", False), ("denied_a", False), ("other_b", False),
            ("other_a", True), ("other_c", True), ("my_group", True), ("nobody_b", True),
        ):
            self.assertEqual(self.is_allowed(account, f"%RETRY%{name}", there), is_allowed, name)

    def test_a_row_of_its_own_opens_a_group_with_a_separator(self) -> None:
        """An explicit row of an operator is about that group, and counts."""
        account = account_of(config(topic_perms=["order=SUB"], group_perms=["pay_order=SUB"]))
        there = names("order", "pay pay_order")
        for resource in ("%RETRY%pay_order", PopRetries("order", "pay_order")):
            self.assertTrue(self.is_allowed(account, resource, there), str(resource))
        self.assertFalse(self.is_allowed(account, "%RETRY%pay", there))

    def test_a_pop_that_reads_the_retries_of_others(self) -> None:
        """The retry topic that a pop also reads may belong to another group and topic."""
        account = account_of(config(default_group_perm="SUB", topic_perms=["orders=SUB"]))
        resource = PopRetries("orders", "pay_eu")
        self.assertTrue(self.is_allowed(account, resource, names("orders", "pay")))
        self.assertFalse(self.is_allowed(account, resource, names("orders eu_orders", "pay")))
        self.assertTrue(self.is_allowed(account, PopRetries("orders", "pay"),
                                        names("orders eu_orders", "pay")))

    def test_what_could_change_is_not_remembered(self) -> None:
        """A name that may get another meaning with a new topic is examined each time."""
        account = account_of(config(default_group_perm="SUB", topic_perms=["a=SUB"],
                                    group_perms=["own_group=SUB"]))
        there = names("a", "")
        for resource, is_lasting in (("%RETRY%g_t", False), ("%RETRY%g", True), ("a", True),
                                     ("%RETRY%own_group", True), (PopRetries("a", "g_h"), False),
                                     (PopRetries("a", "g"), True)):
            self.assertEqual(account.check(11, [(resource, Permission.SUB)], there), is_lasting,
                             str(resource))

    def test_dead_letters_need_their_group(self) -> None:
        """A dead-letter topic may contain messages of any topic of the group."""
        account = account_of(config(default_topic_perm="PUB|SUB", default_group_perm="SUB",
                                    topic_perms=["%DLQ%row=SUB"], group_perms=["denied=DENY"]))
        for name, is_allowed in (("%DLQ%denied", False), ("%DLQ%g", True), ("%DLQ%row", True)):
            for permission in (Permission.SUB, Permission.PUB, Permission.ANY):
                if name != "%DLQ%row" or permission is not Permission.PUB:
                    self.assertEqual(self.is_allowed(account, name, KnownNames(), permission),
                                     is_allowed, msg=f"{name} {permission}")

    def test_the_brokers_own_topics_and_groups(self) -> None:
        """These topics and groups need an explicit row, or an administrator."""
        account = account_of(config(default_topic_perm="PUB|SUB", default_group_perm="SUB"))
        for name in ("rmq_sys_REVIVE_LOG_C", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX",
                     "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                     "%RETRY%CID_RMQ_SYS_TRANS", "%DLQ%CID_RMQ_SYS_TRANS"):
            self.assertFalse(self.is_allowed(account, name, KnownNames()), name)
        added = KnownNames(internal_topics={"of-a-plugin"})
        self.assertFalse(self.is_allowed(account, "of-a-plugin", added))
        self.assertTrue(self.is_allowed(account, "%RETRY%TOOLS_CONSUMER", KnownNames()))

    def test_topics_with_messages_of_all(self) -> None:
        """Traces, replies and light queues are open by default only to accounts that may read all
        topics.
        """
        shared = ("RMQ_SYS_TRACE_TOPIC", "C_REPLY_TOPIC", "%LMQ%x")
        whole = account_of(config(default_topic_perm="PUB|SUB", default_group_perm="SUB"))
        less = account_of(config(default_topic_perm="PUB|SUB", topic_perms=["b=DENY"]))
        row = account_of(config(default_topic_perm="SUB",
                                topic_perms=["b=PUB", *[f"{name}=SUB" for name in shared]]))
        for name in shared:
            for account, is_allowed in ((whole, True), (less, False), (row, True)):
                self.assertEqual(
                    self.is_allowed(account, name, names("", "")), is_allowed, name)
            self.assertTrue(self.is_allowed(less, name, names("", ""), Permission.PUB), name)


class PassedTests(SynchronousTestCase):
    """The permitted requests that an account remembers."""

    def test_remembered_permissions_are_bounded(self) -> None:
        """The number of remembered requests is bounded, and so is the length of their names."""
        account = account_of(config())
        for number in range(10_000):
            account.note_passed((310, f"t{number}", None))
        self.assertIn((310, "t9999", None), account.passed)
        self.assertNotIn((310, "t0", None), account.passed)
        self.assertNotIn((11, "t9999", None), account.passed)
        for names in (("t" * 513, None), ("t", "g" * 512), (None, "g" * 513)):
            account.note_passed((310, *names))
            self.assertNotIn((310, *names), account.passed, msg=str(names)[:9])

    def test_each_has_its_own(self) -> None:
        """The cache belongs to one account, and a changed file begins with an empty cache."""
        one, anew = account_of(config()), account_of(config())
        one.note_passed((310, "t", None))
        self.assertNotIn((310, "t", None), anew.passed)


class ConfigTests(SynchronousTestCase):
    """Accounts in files and in requests of tools."""

    def test_key_lengths(self) -> None:
        """Both keys have more than six characters."""
        self.assertEqual(account_of(config(access_key="7654321", secret_key="1234567")).access_key,
                         "7654321")
        for fields in ({"access_key": "654321"}, {"secret_key": "123456"}, {"access_key": None},
                       {"secret_key": None}, {"secret_key": ""}):
            for read in (account_of, check_config):
                error = self.assertRaises(AclError, read, config(**fields))
                self.assertIn("cannot be null and length should longer than 6", str(error))

    def test_text_of_key_error(self) -> None:
        """The error is Apache's, without the secret key."""
        error = self.assertRaises(AclError, check_config, config(access_key="abc"))
        self.assertEqual(str(error), "The accessKey=abc and secretKey=****** cannot be null and "
                                     "length should longer than 6")
        error = self.assertRaises(AclError, check_config, config(secret_key=None))
        self.assertIn("secretKey=null", str(error))

    def test_check_of_resources(self) -> None:
        """The permissions of a tool are checked more strictly than those in a file."""
        wrong = config(group_perms=["g=READ"])
        self.assertRaises(AclError, check_config, wrong)
        self.assertEqual(account_of(wrong).permissions, {"%RETRY%g": Permission.DENY})
        self.assertRaises(AclError, account_of, config(topic_perms=["t"]))
        self.assertRaises(AclError, account_of, config(white_remote_address="1.2.3"))

    def test_a_files_names(self) -> None:
        """The names in a file are read, and a missing value is None."""
        read = config_of({"accessKey": "alice-key", "secretKey": SECRET, "admin": "true",
                          "topicPerms": ["a=PUB"], "unknown": "x", "defaultTopicPerm": None})
        self.assertEqual(read, config(admin=True, topic_perms=["a=PUB"]))

    def test_yaml_booleans_are_read(self) -> None:
        """All words that YAML reads as true or false are accepted."""
        for flag, texts in ((True, ("true", "True", "yes", "on", True)),
                            (False, ("false", "no", "off", "", None, False))):
            for text in texts:
                self.assertEqual(config_of({"admin": text}).admin, flag, msg=repr(text))
        self.assertRaises(AclError, config_of, {"admin": "maybe"})

    def test_a_value_of_the_wrong_kind_is_named_by_its_field(self) -> None:
        """The error names the field, and does not show the value."""
        for name, value in (("secretKey", [SECRET]), ("accessKey", {"a": SECRET}),
                            ("topicPerms", SECRET), ("groupPerms", [[SECRET]])):
            error = self.assertRaises(AclError, config_of, {name: value})
            self.assertIn(name, str(error))
            self.assertNotIn(SECRET, str(error))

    def test_repr_hides_the_secret_key(self) -> None:
        """The text for a log or a traceback contains no secret key."""
        for value in (config(), account_of(config())):
            self.assertNotIn(SECRET, f"{value!r} {value!s} {value}")
            self.assertIn("alice-key", repr(value))
