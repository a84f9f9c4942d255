"""The users and policies of a broker, in ``config/users.json`` and ``config/acls.json``.

    users.json   {"users": [            acls.json   {"acls": [
                 {a UserInfo},                      {an AclInfo},
                 {a UserInfo}                       {an AclInfo}
                 ]}                                 ]}

Both files have one row per line. They are replaced as a whole and synced, and only their owner can
read them. A file that cannot be read is replaced by its backup. Without a usable backup the broker
does not start, because it would permit requests that a lost policy denies.

Each save encodes the rows from the table again. The rows are not kept as text, because a broker may
have tens of thousands of entries, and their text takes more memory than the entries.

Policies of a user that does not exist have no effect. Both tables of a slave are copied separately,
so this can happen for a moment. A new user never gets policies of an earlier user with his name.

Source: LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider,
AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from twistmq.acl.decide import Subject
from twistmq.acl.errors import AclError
from twistmq.acl.policies import (
    Policies,
    PolicyType,
    entries_of,
    policies_info,
    subject_name,
)
from twistmq.acl.users import User, changed_user, new_user
from twistmq.broker.api.bodies import AclInfo, UserInfo, decode_infos
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.requests import SavedTable, Saving
from twistmq.broker.api.store import ConfigFile

__all__ = ["AuthTable", "PolicyTable", "UserTable", "decode_policies", "decode_users",
           "policies_of", "users_of"]

_NO_POLICIES: Final = Policies()
#: The number of rows that are written between two checks of the clock.
_ROWS_AT_ONCE: Final = 50

F = TypeVar("F", bound=msgspec.Struct)


class _Users(msgspec.Struct):
    """The contents of users.json."""

    users: list[UserInfo]
    #: Whether the accounts of ACL 1.0 became users.
    migrated: bool = False


class _Acls(msgspec.Struct):
    """The contents of acls.json."""

    acls: list[AclInfo]


def _decode(kind: type[F], text: str | bytes) -> F:
    """Read a file; :raises ValueError: with the line, when it cannot be read."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        # The text of a wrong value may be a password, so only its type and position are shown.
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(_with_line(str(error), text)) from None


def _with_line(reason: str, text: str | bytes) -> str:
    """Replace the byte position in an error of msgspec by a line, by default the last one."""
    before, _, byte = reason.rstrip(")").rpartition("(byte ")
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    end = int(byte) if byte.isdecimal() else len(data)
    return f"{before.rstrip() or reason} in line {data[:end].count(10) + 1}"


def decode_users(text: str | bytes) -> dict[str, User]:
    """Read users.json.

    :raises ValueError: when a user is not valid; the text never contains a password.
    """
    return _users(_decode(_Users, text).users)


def _users(infos: Iterable[UserInfo]) -> dict[str, User]:
    users: dict[str, User] = {}
    for row, info in enumerate(infos, 1):
        try:
            user = new_user(info.username or "", info)
        except AclError as error:
            raise ValueError(f"row {row}: {error}") from None
        if user.name in users:
            raise ValueError(f"row {row}: {user.name!r} occurs twice")
        users[user.name] = user
    return users


def decode_policies(text: str | bytes) -> dict[str, Policies]:
    """Read acls.json.

    :raises ValueError: when a row is not valid.
    """
    return _policies(_decode(_Acls, text).acls)


def _policies(infos: Iterable[AclInfo]) -> dict[str, Policies]:
    table: dict[str, Policies] = {}
    for row, info in enumerate(infos, 1):
        name = subject_name(info.subject)
        if name is None or name in table:
            raise ValueError(f"row {row}: {info.subject!r} is not a subject, or occurs twice")
        try:
            table[name] = entries_of(info)
        except AclError as error:
            raise ValueError(f"row {row}, {info.subject!r}: {error}") from None
    return table


def users_of(body: bytes) -> dict[str, User]:
    """Read a master's answer with all users; :raises WireError: when it is not valid."""
    try:
        return _users(decode_infos(UserInfo, body))
    except (AclError, ValueError) as error:
        raise WireError(f"users: {error}") from None


def policies_of(body: bytes) -> dict[str, Policies]:
    """Read a master's answer with all policies; :raises WireError: when it is not valid."""
    try:
        return _policies(decode_infos(AclInfo, body))
    except ValueError as error:
        raise WireError(f"policies: {error}") from None


class UserTable(SavedTable):
    """The users by name.

    :param file: users.json.
    """

    def __init__(self, file: ConfigFile) -> None:
        super().__init__(file)
        self.users: dict[str, User] = {}
        #: Whether the accounts of ACL 1.0 became users.
        self.is_migrated = False

    def load(self) -> None:
        """Read the file; :raises StoreDamaged: when neither it nor its backup can be read."""
        def take(text: str) -> None:
            self.users = decode_users(text)
            self.is_migrated = _decode(_Users, text).migrated

        self._file.load(take)

    def saving(self) -> Saving:
        """See SavedTable."""
        self.dirty = False
        begin = b'{"migrated": true, "users": [\n' if self.is_migrated else b'{"users": [\n'
        rows: list[bytes] = []
        for count, user in enumerate(list(self.users.values()), 1):
            rows.append(msgspec.json.encode(user.info()))
            if count % _ROWS_AT_ONCE == 0:
                yield
        return lambda: _save(self._file, begin, rows)

class PolicyTable(SavedTable):
    """The policies by the name of their user.

    :param file: acls.json.
    """

    def __init__(self, file: ConfigFile) -> None:
        super().__init__(file)
        self.policies: dict[str, Policies] = {}

    def load(self) -> None:
        """Read the file; :raises StoreDamaged: when neither it nor its backup can be read."""
        def take(text: str) -> None:
            self.policies = decode_policies(text)

        self._file.load(take)

    def saving(self) -> Saving:
        """See SavedTable."""
        self.dirty = False
        rows: list[bytes] = []
        for count, (name, policies) in enumerate(list(self.policies.items()), 1):
            rows.append(msgspec.json.encode(policies_info(name, policies)))
            if count % _ROWS_AT_ONCE == 0:
                yield
        return lambda: _save(self._file, b'{"acls": [\n', rows)


def _save(file: ConfigFile, begin: bytes, rows: list[bytes]) -> None:
    """Save a file of rows."""
    file.save_bytes(b"".join((begin, b",\n".join(rows), b"\n]}\n")))


class AuthTable:
    """The users with their policies, and the rules for changing them.

    Every change takes effect at the next request, which gets a new ``Subject`` of the user.
    """

    def __init__(self, users: UserTable, policies: PolicyTable) -> None:
        self.user_table = users
        self.policy_table = policies
        #: The users that have sent requests since their last change, by name.
        self.subjects: dict[str, Subject] = {}

    def load(self) -> None:
        """Read both files; :raises StoreDamaged: when one and its backup cannot be read."""
        self.user_table.load()
        self.policy_table.load()

    # --- queries

    def subject_of(self, name: str) -> Subject | None:
        """Return a user in the form in which requests are checked; None without one."""
        subject = self.subjects.get(name)
        if subject is None:
            user = self.user_table.users.get(name)
            if user is None:
                return None
            subject = self.subjects[name] = Subject(
                user, self.policy_table.policies.get(name, _NO_POLICIES))
        return subject

    def user_named(self, name: str) -> User | None:
        """Return a user, or None when the table does not have that name."""
        return self.user_table.users.get(name)

    def policies_of_user(self, name: str) -> Policies | None:
        """Return the policies of a user; None if there are none."""
        return self.policy_table.policies.get(name)

    def sorted_users(self) -> list[User]:
        """Return all users in the order of their names, as Apache's broker lists them."""
        users = self.user_table.users
        return [users[name] for name in sorted(users, key=str.encode)]

    def sorted_policies(self) -> Iterator[tuple[str, Policies]]:
        """Yield the policies of all users in the order of their names."""
        table = self.policy_table.policies
        for name in sorted(table, key=str.encode):
            yield name, table[name]

    # --- users

    def create_user(self, name: str, info: UserInfo) -> None:
        """Add a user.

        :raises AclError: when the user exists or is not valid.
        """
        user = new_user(name, info)
        if name in self.user_table.users:
            raise AclError("The user is existed")
        if self.policy_table.policies.pop(name, None) is not None:
            self.policy_table.dirty = True
        self._put(user)

    def update_user(self, name: str, info: UserInfo) -> None:
        """Change a user.

        :raises AclError: when the user does not exist, or is the last usable super user and would
            no longer be one.
        """
        old = self.user_table.users.get(name)
        if old is None:
            raise AclError("The user is not exist")
        user = changed_user(old, info)
        if not (user.is_super and user.is_enabled):
            self._require_other_super(old)
        self._put(user)

    def delete_user(self, name: str) -> None:
        """Remove a user and the user's policies.

        :raises AclError: when the user is the last usable super user.
        """
        old = self.user_table.users.get(name)
        if old is None:
            return
        self._require_other_super(old)
        del self.user_table.users[name]
        self.user_table.dirty = True
        if self.policy_table.policies.pop(name, None) is not None:
            self.policy_table.dirty = True
        self.subjects.pop(name, None)

    def has_super_user(self) -> bool:
        """Whether there is a user who can administer all users."""
        return any(_is_usable_super(user) for user in self.user_table.users.values())

    def _require_other_super(self, old: User) -> None:
        if _is_usable_super(old) and not any(
                _is_usable_super(user) for user in self.user_table.users.values()
                if user.name != old.name):
            raise AclError("The last super user cannot be deleted, disabled or made normal")

    def _put(self, user: User) -> None:
        self.user_table.users[user.name] = user
        self.user_table.dirty = True
        self.subjects.pop(user.name, None)

    # --- policies

    def merge_policies(self, name: str, policies: Policies) -> None:
        """Add entries to a user's policies; an entry about the same resource is replaced.

        :raises AclError: when there is no such user.
        """
        if name not in self.user_table.users:
            raise AclError(f"The subject of User:{name} is not exist.")
        old = self.policy_table.policies.get(name, _NO_POLICIES)
        self._put_policies(name, old.merged(policies))

    def delete_policies(
        self, name: str, policy_type: PolicyType | None, resource: str | None
    ) -> None:
        """Remove one entry, or all entries, of a user's policies.

        Differs from Apache: without a type the entries of both types are removed, because
        no tool can remove default entries from Apache's broker (issue 9966). With a type and no
        resource, only the entries of this type are removed.

        :param policy_type: None for both.
        :param resource: the resource in the form that tools display; None for every resource.
        :raises AclError: when the user does not exist or has no policies.
        """
        if name not in self.user_table.users:
            raise AclError("The subject is not exist.")
        policies = self.policy_table.policies.get(name)
        if policies is None:
            raise AclError("The acl is not exist.")
        if resource is not None:
            policies = policies.without(policy_type, resource)
        else:
            policies = Policies(
                policies.custom if policy_type is PolicyType.DEFAULT else (),
                policies.default if policy_type is PolicyType.CUSTOM else ())
        self._put_policies(name, policies)

    def _put_policies(self, name: str, policies: Policies) -> None:
        if any(policies):
            self.policy_table.policies[name] = policies
        else:
            self.policy_table.policies.pop(name, None)
        self.policy_table.dirty = True
        self.subjects.pop(name, None)

    # --- the tables of another broker

    def replace_users(self, users: Mapping[str, User]) -> None:
        """Replace the users by the users of the master."""
        table = self.user_table
        if table.users != users:
            self._forget_changed(table.users, users)
            table.users = dict(users)
            table.dirty = True

    def replace_policies(self, policies: Mapping[str, Policies]) -> None:
        """Replace the policies by the policies of the master."""
        table = self.policy_table
        if table.policies != policies:
            self._forget_changed(table.policies, policies)
            table.policies = dict(policies)
            table.dirty = True

    def _forget_changed(self, old: Mapping[str, object], new: Mapping[str, object]) -> None:
        for name in list(self.subjects):
            if old.get(name) != new.get(name):
                del self.subjects[name]


def _is_usable_super(user: User) -> bool:
    return user.is_super and user.is_enabled

