"""The requests 3001 to 3010: their answers, their refusals, and the users that may send them."""

from __future__ import annotations

import json

from tests.acl.auth_box import ALICE, ROOT, AuthTestCase, policy
from twistmq.acl.users import MASK
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.bodies import AclInfo, PolicyInfo, UserInfo, decode_infos
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)

CREATE_USER = RequestCode.AUTH_CREATE_USER
UPDATE_USER = RequestCode.AUTH_UPDATE_USER
DELETE_USER = RequestCode.AUTH_DELETE_USER
GET_USER = RequestCode.AUTH_GET_USER
LIST_USER = RequestCode.AUTH_LIST_USER
CREATE_ACL = RequestCode.AUTH_CREATE_ACL
UPDATE_ACL = RequestCode.AUTH_UPDATE_ACL
DELETE_ACL = RequestCode.AUTH_DELETE_ACL
GET_ACL = RequestCode.AUTH_GET_ACL
LIST_ACL = RequestCode.AUTH_LIST_ACL
CLUSTER_WORK = policy("Cluster:*", "All")


def named(name: str | None) -> UserRequestHeader:
    return UserRequestHeader(username=name)


def about(name: str) -> AclRequestHeader:
    return AclRequestHeader(subject=f"User:{name}")


class UserRequestTests(AuthTestCase):
    """3001 to 3005."""

    def change(self, name: str, **values: str) -> None:
        self.accepted(self.ask(ROOT, UPDATE_USER, named(name), UserInfo(**values).encode()))

    def test_a_user_is_created_got_and_listed(self) -> None:
        """The answers have Apache's form; the list is ordered by name and can be filtered."""
        self.add_user("bob", "secret-of-bob")
        self.assertEqual(self.accepted(self.ask(ROOT, GET_USER, named("bob"))), (
            b'{"password":"secret-of-bob","userStatus":"enable","userType":"Normal",'
            b'"username":"bob"}'))
        for text, names in [(None, ["alice", "bob", "root"]), ("o", ["bob", "root"]), ("zz", [])]:
            body = self.accepted(self.ask(ROOT, LIST_USER, ListUsersRequestHeader(filter=text)))
            self.assertEqual([each.username for each in decode_infos(UserInfo, body)], names)

    def test_a_change_concerns_only_what_is_given(self) -> None:
        """The other values stay."""
        self.change("alice", user_status="disable")
        [alice] = decode_infos(UserInfo, self.accepted(
            self.ask(ROOT, LIST_USER, ListUsersRequestHeader(filter="alice"))))
        self.assertEqual(alice, UserInfo("alice", ALICE[1], "Normal", "disable"))

    def test_a_user_without_rights_is_refused_all_of_it(self) -> None:
        """Even a request for the user itself is refused."""
        for code in range(CREATE_USER, 3011):
            self.refused(self.ask(ALICE, code, named("alice"), b"{}"),
                         "User:alice has no permission to access Cluster:DefaultCluster from "
                         "127.0.0.1, no matched policies.")

    def test_faults(self) -> None:
        """Each fault has Apache's code and text."""
        user = UserInfo(password="secret").encode()
        for text, code, number, header, body in [
            ("The username is blank", 29, CREATE_USER, named(""), user),
            ("The username is blank", 29, CREATE_USER, named(None), user),
            ("username can not be blank", 16, CREATE_USER, named(" "), user),
            ("password can not be blank", 16, CREATE_USER, named("bob"), b"{}"),
            ("The user is existed", 16, CREATE_USER, named("alice"), user),
            ("The username is blank", 29, UPDATE_USER, named(""), user),
            ("The user is not exist", 16, UPDATE_USER, named("bob"), user),
            ("username can not be blank", 16, DELETE_USER, named(""), b""),
            ("The username is blank", 29, GET_USER, named(" "), b""),
            ("the body is not a UserInfo in JSON", 1, CREATE_USER, named("bob"), b"{"),
            ("the body is not a UserInfo in JSON", 1, CREATE_USER, named("bob"),
             b'{"password":["x"]}'),
            ("username has 300 characters, the limit is 255", 16, CREATE_USER, named("b" * 300),
             user),
            ("password is masked: only a super user can read and copy it", 16, CREATE_USER,
             named("bob"), UserInfo(password=MASK).encode()),
        ]:
            self.refused(self.ask(ROOT, number, header, body), text, code)
        self.assertEqual(self.accepted(self.ask(ROOT, GET_USER, named("bob"))), b"")
        self.accepted(self.ask(ROOT, DELETE_USER, named("bob")))

    def test_only_a_super_user_is_concerned_with_super_users(self) -> None:
        """An administrator of the cluster who is not a super user can neither create nor change
        one.
        """
        self.add_policy("alice", CLUSTER_WORK)
        as_super = UserInfo(password="secret", user_type="super").encode()
        self.refused(self.ask(ALICE, CREATE_USER, named("bob"), as_super),
                     "The super user can only be create by super user", 1)
        self.refused(self.ask(ALICE, UPDATE_USER, named("alice"), as_super),
                     "The super user can only be update by super user", 1)
        for code, body in [(UPDATE_USER, UserInfo(password="stolen").encode()), (DELETE_USER, b"")]:
            self.refused(self.ask(ALICE, code, named("root"), body),
                         "The super user can only be update by super user")
        another = UserInfo(password="another").encode()
        self.accepted(self.ask(ALICE, CREATE_USER, named("bob"), another))
        self.accepted(self.ask(ROOT, UPDATE_USER, named("root"), another))

    def test_passwords_are_shown_to_super_users_only(self) -> None:
        """Other users see a mask, which cannot become a password."""
        self.add_policy("alice", CLUSTER_WORK)
        for body in (self.accepted(self.ask(ALICE, LIST_USER, ListUsersRequestHeader())),
                     self.accepted(self.ask(ALICE, GET_USER, named("root")))):
            self.assertIn(MASK.encode(), body)
            self.assertNotIn(b"secret", body)

    def test_the_last_usable_super_user_stays(self) -> None:
        """A disabled super user does not count."""
        text = "The last super user cannot be deleted, disabled or made normal"
        self.add_user("second", "secret", "Super")
        self.change("second", user_status="disable")
        for code, body in [(DELETE_USER, b""), (UPDATE_USER, UserInfo(user_type="Normal").encode()),
                           (UPDATE_USER, UserInfo(user_status="disable").encode())]:
            self.refused(self.ask(ROOT, code, named("root"), body), text)
        self.change("second", user_status="enable")
        self.accepted(self.ask(ROOT, DELETE_USER, named("root")))
        self.refused(self.ask(ROOT, LIST_USER), "User:root is not found.")

    def test_policies_go_with_their_user(self) -> None:
        """A new user with the same name has none of the old policies."""
        self.add_policy("alice", policy("*"))
        self.accepted(self.ask(ROOT, DELETE_USER, named("alice")))
        self.add_user(*ALICE)
        self.assertEqual(self.accepted(self.ask(ROOT, GET_ACL, about("alice"))), b"")


class PolicyRequestTests(AuthTestCase):
    """3006 to 3010."""

    def listed(self, subject: str | None = None, resource: str | None = None) -> list[str]:
        """Return the resources of all listed policies, each with its subject."""
        body = self.accepted(self.ask(ROOT, LIST_ACL, ListAclsRequestHeader(
            subject_filter=subject, resource_filter=resource)))
        return [f"{acl.subject} {part.policy_type} {entry.resource}"
                for acl in decode_infos(AclInfo, body) for part in acl.policies or ()
                for entry in part.entries or ()]

    def test_entries_are_added_changed_got_and_listed(self) -> None:
        """The codes 3006 and 3007 have the same effect."""
        self.add_policy("alice", policy("Topic:a", "Pub,Sub", "Allow", "10.0.0.0/8"))
        reads_b = policy("Topic:b*", "Sub").encode()
        self.accepted(self.ask(ROOT, UPDATE_ACL, about("alice"), reads_b))
        self.add_policy("root", policy("*", policy_type="Default"))
        self.assertEqual(self.accepted(self.ask(ROOT, GET_ACL, about("alice"))), (
            b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow",'
            b'"resource":"Topic:a","sourceIps":["10.0.0.0/8"]},{"actions":["Sub"],'
            b'"decision":"Allow","resource":"Topic:b*"}],"policyType":"Custom"}],'
            b'"subject":"User:alice"}'))
        alice_a, alice_b = "User:alice Custom Topic:a", "User:alice Custom Topic:b*"
        self.assertEqual(self.listed(), [alice_a, alice_b, "User:root Default *"])
        self.assertEqual(self.listed("root"), ["User:root Default *"])
        self.assertEqual(self.listed(None, "b"), [alice_b])
        self.assertEqual(self.listed("User:z"), [])
        self.accepted(self.ask(ROOT, UPDATE_ACL, about("alice"),
                               policy("Topic:a", "Sub", "Deny").encode()))
        self.assertIn(b'"actions":["Sub"],"decision":"Deny","resource":"Topic:a"}',
                      self.accepted(self.ask(ROOT, GET_ACL, about("alice"))))

    def test_entries_are_deleted(self) -> None:
        """One entry, the entries of a type, or all entries are deleted; a type counts only if it is
        given.
        """
        def delete(policy_type: str | None = None, resource: str | None = None) -> None:
            self.accepted(self.ask(ROOT, DELETE_ACL, DeleteAclRequestHeader(
                subject="User:alice", policy_type=policy_type, resource=resource)))

        def fill() -> None:
            for each in ("Topic:a", "Topic:b"):
                for policy_type in ("Custom", "Default"):
                    self.add_policy("alice", policy(each, policy_type=policy_type))

        fill()
        delete(resource="topic:a")
        self.assertEqual(self.listed(), ["User:alice Custom Topic:b", "User:alice Default Topic:b"])
        delete("default", "Topic:b")
        self.assertEqual(self.listed(), ["User:alice Custom Topic:b"])
        delete(resource="Topic:b")
        self.refused(self.ask(ROOT, DELETE_ACL, DeleteAclRequestHeader(subject="User:alice")),
                     "The acl is not exist.")
        fill()
        delete("Default")
        self.assertEqual(self.listed(), ["User:alice Custom Topic:a", "User:alice Custom Topic:b"])
        delete()
        self.assertEqual(self.listed(), [])

    def test_faults(self) -> None:
        """Each fault has Apache's code and text, and an invalid resource deletes nothing."""
        body = policy("Topic:a").encode()
        unexpected = "An system error occurred, please try again later."
        cases: list[tuple[str, int, int, CommandHeader, bytes]] = [
            ("The subject of User:nobody is not exist.", 16, CREATE_ACL, about("nobody"), body),
            ("The subject of User:nobody is not exist.", 16, UPDATE_ACL, about("nobody"), body),
            ("The body of acl is null", 1, CREATE_ACL, about("alice"), b"{}"),
            ("The policies is empty.", 16, CREATE_ACL, about("alice"),
             AclInfo(None, [PolicyInfo("Custom", [])]).encode()),
            ("The resource is null.", 16, CREATE_ACL, about("alice"), policy("Queue:a").encode()),
            ("the body is not a AclInfo in JSON", 1, CREATE_ACL, about("alice"), b"["),
            (unexpected, 1, CREATE_ACL, AclRequestHeader(subject="Role:a"), body),
            ("The subject is null.", 16, DELETE_ACL, DeleteAclRequestHeader(subject="alice"), b""),
            ("The subject is not exist.", 16, DELETE_ACL,
             DeleteAclRequestHeader(subject="User:nobody"), b""),
            ("The acl is not exist.", 16, DELETE_ACL,
             DeleteAclRequestHeader(subject="User:alice"), b""),
            ("The subject is null.", 16, GET_ACL, AclRequestHeader(), b""),
            ("The subject is not exist.", 16, GET_ACL, about("nobody"), b""),
        ]
        for text, code, number, header, content in cases:
            self.refused(self.ask(ROOT, number, header, content), text, code)
        self.add_policy("alice", policy("Topic:a"))
        self.refused(self.ask(ROOT, DELETE_ACL, DeleteAclRequestHeader(
            subject="User:alice", resource="Queue:a")), "The resource is null.")
        self.assertEqual(self.listed(), ["User:alice Custom Topic:a"])


class SavedTests(AuthTestCase):
    """A change is saved before it is answered."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = self.start(self.disk)
        self.add_user(*ALICE)

    def test_what_was_answered_is_in_the_files(self) -> None:
        """A broker that starts from a copy of the disk has the change."""
        self.add_policy("alice", policy("Topic:a"))
        users = json.loads(self.disk.read_file("/store/config/users.json"))
        self.assertEqual([each["username"] for each in users["users"]], ["root", "alice"])
        acls = json.loads(self.disk.read_file("/store/config/acls.json"))
        self.assertEqual([each["subject"] for each in acls["acls"]], ["User:alice"])

    def test_a_full_disk_is_said(self) -> None:
        """The change is in effect, and the answer is an error."""
        self.disk.before_write = lambda path, size: 0  # type: ignore[method-assign]
        reply = self.ask(ROOT, CREATE_USER, named("bob"), UserInfo(password="secret").encode())
        self.refused(reply, "the change is in effect but not saved yet: see the broker's log for "
                            "the reason", 1)
        self.flushLoggedErrors()


class OffTests(AuthTestCase):
    """authenticationEnabled=false."""

    settings = {}  # noqa: RUF012

    def setUp(self) -> None:
        self.box = self.start()

    def test_there_are_no_users(self) -> None:
        """Otherwise a user that was created before the switch could be a super user after it."""
        for code in range(CREATE_USER, 3011):
            self.refused(self.ask(None, code, named("root"), b"{}"),
                         "authenticationEnabled is false: there are no users", 1)
