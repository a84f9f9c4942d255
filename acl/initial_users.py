"""The users that settings name, and the accounts of ACL 1.0 that become users.

    initAuthenticationUser                 {"username":"root","password":"..."}
    innerClientAuthenticationCredentials   {"accessKey":"broker","secretKey":"..."}

Both become super users. Accounts of 1.0 are copied once: an administrator becomes a super user,
permissions become the custom entries of a policy, and the defaults its default entries. White
addresses have no counterpart and are only named in the log.

Differs from Apache: there the accounts are copied at every start, so that a deleted user comes
back.

Source: AuthenticationMetadataManagerImpl.initUser, AuthMigrator @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from twistmq.acl.accounts import PlainAccessConfig
from twistmq.acl.errors import AclError
from twistmq.acl.plain import home_of
from twistmq.acl.policies import Policies, entries_of
from twistmq.broker.api import SettingsError
from twistmq.broker.api.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from twistmq.broker.api.config import inner_credentials
from twistmq.broker.api.wire import Credentials

if TYPE_CHECKING:
    from twisted.logger import Logger

    from twistmq.acl.auth_table import AuthTable
    from twistmq.acl.table import AccountTable
    from twistmq.broker.api import Settings

__all__ = ["accounts_in", "add_initial_users", "init_user_of", "policies_of_account",
           "require_names_of_codes", "user_of_account"]

_INIT: Final = "initAuthenticationUser"
_INNER: Final = "innerClientAuthenticationCredentials"
_MIGRATE: Final = "migrateAuthFromV1Enabled"
_SUPER: Final = "Super"
#: The actions of each permission of ACL 1.0; everything else is a denial.
_ACTIONS: Final[Mapping[str, list[str]]] = {
    "PUB": ["Pub"], "SUB": ["Sub"], "PUB|SUB": ["Pub", "Sub"], "SUB|PUB": ["Pub", "Sub"]}


class _InitUser(msgspec.Struct):
    username: str
    password: str


def init_user_of(settings: Settings) -> tuple[str, str] | None:
    """Return the name and the password of ``initAuthenticationUser``; None if it is not set.

    :raises SettingsError: when it cannot be read; the text does not show it.
    """
    text = settings.text(_INIT).strip()
    if not text:
        return None
    try:
        user = msgspec.json.decode(text, type=_InitUser)
    except msgspec.MsgspecError:
        raise SettingsError(
            f'{_INIT} must be {{"username":"...","password":"..."}}') from None
    return user.username, user.password


def require_names_of_codes(settings: Settings, name: str) -> None:
    """:raises SettingsError: when a white list has anything but numbers."""
    for text in settings.names(name):
        if not text.isdecimal():
            raise settings.error(name, "must be numbers of request codes, separated by commas")


def add_initial_users(
    table: AuthTable, settings: Settings, now_ms: Callable[[], int], log: Logger
) -> None:
    """Add the users of the settings and of ACL 1.0 that do not exist yet.

    :raises SettingsError: when one of them is not valid.
    """
    inner = inner_credentials(settings)
    initial = init_user_of(settings)
    if initial is not None and table.user_named(initial[0]) is None:
        others = {user.name for user in table.sorted_users()} - {inner.access_key if inner else ""}
        if others:
            log.warn("{setting} is not used: there are users already", setting=_INIT)
        else:
            _add_super(table, _INIT, *initial)
            log.info("the super user {name} was created from {setting}", name=initial[0],
                     setting=_INIT)
    if inner is not None:
        _add_inner(table, inner, log)
    if settings.flag(_MIGRATE):
        _migrate(table, settings, now_ms, log)


def _add_super(table: AuthTable, setting: str, name: str, password: str) -> None:
    try:
        table.create_user(name, UserInfo(password=password, user_type=_SUPER))
    except AclError as error:
        raise SettingsError(f"{setting}: {error}") from None


def _add_inner(table: AuthTable, inner: Credentials, log: Logger) -> None:
    user = table.user_named(inner.access_key)
    if user is None:
        _add_super(table, _INNER, inner.access_key, inner.secret_key)
    elif user.password != inner.secret_key:
        log.warn("{setting} has another password than its user {name}, which stays as it is: "
                 "brokers that sign with the setting are refused", setting=_INNER, name=user.name)


# --- accounts of ACL 1.0


def policies_of_account(account: PlainAccessConfig) -> Policies | None:
    """Return the policies with the permissions of an account of ACL 1.0; None if it has none.

    :raises AclError: when a permission cannot be read.
    """
    custom = [*_entries("Topic", account.topic_perms or ()),
              *_entries("Group", account.group_perms or ())]
    default = [_entry(resource, permission) for resource, permission in (
        ("Topic:*", account.default_topic_perm), ("Group:*", account.default_group_perm))
        if permission is not None and permission.strip()]
    if not custom and not default:
        return None
    return entries_of(AclInfo(None, [PolicyInfo("Custom", custom), PolicyInfo("Default", default)]))


def _entries(kind: str, texts: Iterable[str]) -> Iterable[PolicyEntryInfo]:
    for text in texts:
        name, equals, permission = text.partition("=")
        if not equals or not name.strip():
            raise AclError(f"{text!r} is not a permission")
        yield _entry(f"{kind}:{name.strip()}", permission)


def _entry(resource: str, permission: str) -> PolicyEntryInfo:
    actions = _ACTIONS.get(permission.strip())
    return PolicyEntryInfo(resource, actions or ["All"], None, "Allow" if actions else "Deny")


def accounts_in(home: str, plain_file: str, now_ms: Callable[[], int]) -> AccountTable:
    """Return the table of the accounts of ACL 1.0, whose files are not read yet.

    :param home: the broker's home.
    :param plain_file: the path of the default file, relative to the home.
    """
    from twistmq.acl.folder import AclFolder
    from twistmq.acl.table import AccountTable

    return AccountTable(AclFolder(home, plain_file), now_ms)


def user_of_account(account: PlainAccessConfig) -> UserInfo:
    """Return the user that an account of ACL 1.0 becomes; an administrator is a super user."""
    return UserInfo(account.access_key, account.secret_key, _SUPER if account.admin else None)


def _migrate(
    table: AuthTable, settings: Settings, now_ms: Callable[[], int], log: Logger
) -> None:
    """Copy the accounts of ACL 1.0, unless that was done before."""
    if table.user_table.is_migrated:
        return
    accounts = accounts_in(home_of(settings), settings.text("rocketmq.acl.plain.file"), now_ms)
    try:
        accounts.load()
        count = sum([_copy_account(table, config, log) for config in accounts.configs()])
    except AclError as error:
        raise SettingsError(f"{_MIGRATE}=true: {error}") from None
    if accounts.has_white:
        log.warn("the white addresses of ACL 1.0 have no counterpart in ACL 2.0: clients there "
                 "need a user now")
    table.user_table.is_migrated = table.user_table.dirty = True
    log.info("{count} accounts of ACL 1.0 became users", count=count)


def _copy_account(table: AuthTable, account: PlainAccessConfig, log: Logger) -> bool:
    """:returns: whether the account was copied; False if the user exists already."""
    name = account.access_key or ""
    if table.user_named(name) is not None:
        log.info("the account {name} of ACL 1.0 is left out: the user exists", name=name)
        return False
    policies = policies_of_account(account)
    table.create_user(name, user_of_account(account))
    if policies is not None:
        table.merge_policies(name, policies)
    if account.white_remote_address:
        log.warn("the white address of {name} has no counterpart in ACL 2.0", name=name)
    return True
