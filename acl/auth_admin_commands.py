"""The commands for users and policies of ACL 2.0: ``twistmq admin createUser``, ...

A command with a cluster asks its masters, because slaves copy users and policies. No command
prints a password; ``copyUser`` passes passwords on from one broker to the other, and needs a super
user for that. A password that is given as ``-`` is read interactively.

Source: the classes of tools/command/auth @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twistmq.acl.errors import AclError
from twistmq.acl.initial_users import accounts_in, policies_of_account, user_of_account
from twistmq.acl.policies import policies_info
from twistmq.acl.users import MASK
from twistmq.broker.api import CommandHeader, RequestCode
from twistmq.broker.api.admin_commands import AdminError, Row, Session
from twistmq.broker.api.bodies import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    decode_infos,
)
from twistmq.broker.api.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from twistmq.broker.api.wire import RemotingCommand

__all__ = ["copy_acls", "copy_users", "create_acl", "create_user", "delete_acl", "delete_user",
           "list_acls", "list_users", "migrate_accounts", "show_acl", "show_user", "update_acl",
           "update_user"]


def _change(
    session: Session, code: RequestCode, header: CommandHeader, body: bytes, broker: str | None,
    cluster: str | None, shown: str,
) -> Iterator[Row]:
    for server, _ in session.for_each(session.brokers(broker, cluster),
                                      lambda each: session.ask(each.address, code, header, body)):
        yield server.name, server.address, shown


def _bodies(
    session: Session, code: RequestCode, header: CommandHeader, broker: str | None,
    cluster: str | None,
) -> Iterator[tuple[str, bytes]]:
    """Ask each broker; :returns: the name or the address of each, and the body of its answer."""
    for server, reply in session.for_each(session.brokers(broker, cluster),
                                          lambda each: session.ask(each.address, code, header)):
        assert isinstance(reply, RemotingCommand)
        yield server.name or server.address, reply.body


# --- users


def create_user(
    session: Session, *, broker: str | None, cluster: str | None, user: str, password: str,
    user_type: str | None,
) -> Iterator[Row]:
    """Create a user."""
    info = UserInfo(user, password, user_type)
    return _change(session, RequestCode.AUTH_CREATE_USER, UserRequestHeader(username=user),
                   info.encode_standard(), broker, cluster, user)


def update_user(
    session: Session, *, broker: str | None, cluster: str | None, user: str, password: str | None,
    user_type: str | None, status: str | None,
) -> Iterator[Row]:
    """Change a user; values that are not given stay unchanged."""
    info = UserInfo(user, password, user_type, status)
    return _change(session, RequestCode.AUTH_UPDATE_USER, UserRequestHeader(username=user),
                   info.encode_standard(), broker, cluster, user)


def delete_user(
    session: Session, *, broker: str | None, cluster: str | None, user: str
) -> Iterator[Row]:
    """Delete a user and the user's policies."""
    return _change(session, RequestCode.AUTH_DELETE_USER, UserRequestHeader(username=user), b"",
                   broker, cluster, user)


def show_user(
    session: Session, *, broker: str | None, cluster: str | None, user: str | None
) -> Iterator[Row]:
    """Return a user."""
    for name, body in _bodies(session, RequestCode.AUTH_GET_USER,
                              UserRequestHeader(username=user), broker, cluster):
        if body:
            yield _user_row(UserInfo.decode(body), name)


def list_users(
    session: Session, *, broker: str | None, cluster: str | None, name_filter: str | None
) -> Iterator[Row]:
    """Return users."""
    for name, body in _bodies(session, RequestCode.AUTH_LIST_USER,
                              ListUsersRequestHeader(filter=name_filter), broker, cluster):
        for info in decode_infos(UserInfo, body):
            yield _user_row(info, name)


def _user_row(info: UserInfo, broker: str) -> Row:
    return info.username, MASK, info.user_type, info.user_status, broker


def copy_users(
    session: Session, *, from_broker: str, to_broker: str, users: str | None, dry: bool
) -> Iterator[Row]:
    """Copy users; a user that exists on the other broker is changed.

    :param dry: whether the changes are only shown.
    :raises AdminError: when the broker does not return the passwords.
    """
    for info in _users_of(session, from_broker, users):
        if info.password == MASK:
            raise AdminError(f"{from_broker} returns masked passwords: copyUser needs a super user")
        outcome = _store(session, to_broker, UserRequestHeader(username=info.username), info, (
            RequestCode.AUTH_GET_USER, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER),
            dry)
        yield info.username, from_broker, to_broker, outcome


def _store(
    session: Session, address: str, header: CommandHeader, info: UserInfo | AclInfo,
    codes: tuple[RequestCode, RequestCode, RequestCode], dry: bool,
) -> str:
    """Create a user or the policies of a subject on a broker, or change the existing ones.

    :param codes: the codes of the requests that get, create and update them.
    :param dry: whether the change is only described.
    :returns: the outcome for the table.
    """
    get, create, update = codes
    is_new = not session.ask(address, get, header).body
    if dry:
        return "would be created" if is_new else "would be changed"
    session.ask(address, create if is_new else update, header, info.encode_standard())
    return "created" if is_new else "changed"


def _users_of(session: Session, address: str, users: str | None) -> list[UserInfo]:
    if users is None:
        return decode_infos(UserInfo, session.ask(
            address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader()).body)
    bodies = [session.ask(address, RequestCode.AUTH_GET_USER, UserRequestHeader(username=name)).body
              for name in _split(users)]
    return [UserInfo.decode(body) for body in bodies if body]


# --- policies


def create_acl(
    session: Session, *, broker: str | None, cluster: str | None, subject: str, resources: str,
    actions: str, sources: str | None, decision: str,
) -> Iterator[Row]:
    """Add entries to the policies of a user."""
    return _change(session, RequestCode.AUTH_CREATE_ACL, AclRequestHeader(subject=subject),
                   _acl_body(subject, resources, actions, sources, decision), broker, cluster,
                   subject)


def update_acl(
    session: Session, *, broker: str | None, cluster: str | None, subject: str, resources: str,
    actions: str, sources: str | None, decision: str,
) -> Iterator[Row]:
    """Change entries of the policies of a user."""
    return _change(session, RequestCode.AUTH_UPDATE_ACL, AclRequestHeader(subject=subject),
                   _acl_body(subject, resources, actions, sources, decision), broker, cluster,
                   subject)


def _acl_body(
    subject: str, resources: str, actions: str, sources: str | None, decision: str
) -> bytes:
    entries = [PolicyEntryInfo(resource, _split(actions), _split(sources) if sources else None,
                               decision) for resource in _split(resources)]
    return AclInfo(subject, [PolicyInfo("Custom", entries)]).encode_standard()


def delete_acl(
    session: Session, *, broker: str | None, cluster: str | None, subject: str,
    resource: str | None,
) -> Iterator[Row]:
    """Delete policies of a user, or the entries about one resource."""
    header = DeleteAclRequestHeader(subject=subject, resource=resource)
    return _change(session, RequestCode.AUTH_DELETE_ACL, header, b"", broker, cluster, subject)


def show_acl(
    session: Session, *, broker: str | None, cluster: str | None, subject: str | None
) -> Iterator[Row]:
    """Return the policies of a user."""
    for name, body in _bodies(session, RequestCode.AUTH_GET_ACL, AclRequestHeader(subject=subject),
                              broker, cluster):
        if body:
            yield from _entry_rows([AclInfo.decode(body)], name)


def list_acls(
    session: Session, *, broker: str | None, cluster: str | None, subject: str | None,
    resource: str | None,
) -> Iterator[Row]:
    """Return policies."""
    header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    for name, body in _bodies(session, RequestCode.AUTH_LIST_ACL, header, broker, cluster):
        yield from _entry_rows(decode_infos(AclInfo, body), name)


def _entry_rows(infos: Sequence[AclInfo], broker: str) -> Iterator[Row]:
    for info in infos:
        for policy in info.policies or ():
            for entry in policy.entries or ():
                yield (info.subject, policy.policy_type, entry.resource, list(entry.actions or ()),
                       list(entry.source_ips or ()), entry.decision, broker)


def copy_acls(
    session: Session, *, from_broker: str, to_broker: str, subjects: str | None, dry: bool
) -> Iterator[Row]:
    """Copy policies; entries about other resources stay as they are on the other broker.

    :param dry: whether the changes are only shown; the subjects must exist on the other broker.
    """
    for info in _policies_of(session, from_broker, subjects):
        outcome = _store(session, to_broker, AclRequestHeader(subject=info.subject), info, (
            RequestCode.AUTH_GET_ACL, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL),
            dry)
        yield info.subject, from_broker, to_broker, outcome


def _policies_of(session: Session, address: str, subjects: str | None) -> list[AclInfo]:
    if subjects is None:
        return decode_infos(AclInfo, session.ask(
            address, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader()).body)
    bodies = [session.ask(address, RequestCode.AUTH_GET_ACL, AclRequestHeader(subject=name)).body
              for name in _split(subjects)]
    return [AclInfo.decode(body) for body in bodies if body]


# --- accounts of ACL 1.0


def migrate_accounts(
    session: Session, *, home: str, to_broker: str, dry: bool
) -> Iterator[Row]:
    """Make users and policies of the accounts in files, as ``migrateAuthFromV1Enabled`` does.

    :param home: the home of the broker with the files.
    :param dry: whether the changes are only shown.
    :raises AdminError: when a file is not valid; nothing is changed then.
    """
    accounts = accounts_in(home, "conf/plain_acl.yml", lambda: 0)
    try:
        accounts.load()
        pairs = [(user_of_account(each), policies_of_account(each)) for each in accounts.configs()]
    except AclError as error:
        raise AdminError(str(error)) from None
    if not pairs:
        raise AdminError(f"there are no accounts below {home}: is this the home of a broker?")
    for user, policies in pairs:
        name = user.username or ""
        acl = None if policies is None else policies_info(name, policies)
        texts = {policy.policy_type: [_text_of(entry) for entry in policy.entries or ()]
                 for policy in (acl.policies if acl and acl.policies else ())}
        yield (name, user.user_type or "Normal", texts.get("Custom", []),
               texts.get("Default", []), _migrate(session, to_broker, user, acl, dry))


def _migrate(
    session: Session, address: str, user: UserInfo, acl: AclInfo | None, dry: bool
) -> str:
    """Create a user with policies; :returns: the outcome for the table."""
    header = UserRequestHeader(username=user.username)
    if session.ask(address, RequestCode.AUTH_GET_USER, header).body:
        return "left out: the user exists"
    if dry:
        return "would be created"
    session.ask(address, RequestCode.AUTH_CREATE_USER, header, user.encode_standard())
    if acl is not None:
        session.ask(address, RequestCode.AUTH_CREATE_ACL, AclRequestHeader(subject=acl.subject),
                    acl.encode_standard())
    return "created"


def _text_of(entry: PolicyEntryInfo) -> str:
    return f"{entry.decision} {'|'.join(entry.actions or ())} on {entry.resource}"


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
