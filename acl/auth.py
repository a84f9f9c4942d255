"""Access control by users and policies in the store, with ``authenticationEnabled=true``.

This is the ACL 2.0 of Apache's brokers from 5.3 on. Every request must be signed with the password
of a user, and with ``authorizationEnabled=true`` the policies of the user must allow the
request; see ``auth_validator``. ACL 1.0 (``aclEnable=true``) and ACL 2.0 exclude each other.
Without authenticationEnabled no file is read, and requests have no additional cost.

The first super user comes from ``initAuthenticationUser``. The user of
``innerClientAuthenticationCredentials`` signs the requests of brokers and proxies to other brokers.

Source: BrokerController.initializeAuth, AuthenticationMetadataManagerImpl.initUser,
AuthMigrator @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.acl.auth_requests import AuthRequests
from twistmq.acl.initial_users import init_user_of, require_names_of_codes
from twistmq.broker.api import (
    AnyHandler,
    IAccessValidator,
    PeriodicTask,
    RequestCode,
    Setting,
    SettingCheck,
    SettingsError,
    hookimpl,
)
from twistmq.broker.api.config import inner_credentials
from twistmq.broker.api.requests import SyncedTable

if TYPE_CHECKING:
    from twistmq.acl.auth_table import AuthTable
    from twistmq.broker.api import Broker, Settings
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["Plugin"]

_SOURCE: Final = "AuthConfig"
_USERS_FILE: Final = "users.json"
_POLICIES_FILE: Final = "acls.json"
#: The time between two copies of the master's users and policies, ms.
_COPY_PERIOD_MS: Final = 3000
#: The time after which tables that could not be saved are saved again, ms.
_SAVE_PERIOD_MS: Final = 10_000

_SETTINGS: Final = (
    Setting("authorizationEnabled", "flag", False,
            "Whether the policies of a user must allow each action of a request; it needs "
            "authenticationEnabled.", source=_SOURCE, at_start=True, is_fixed=True),
    Setting("authenticationWhitelist", "names", (),
            "The codes of requests that need no signature.", source=_SOURCE, at_start=True,
            is_fixed=True),
    Setting("authorizationWhitelist", "names", (),
            "The codes of requests that every user may send.", source=_SOURCE, at_start=True,
            is_fixed=True),
    Setting("initAuthenticationUser", "text", "",
            'The first super user, as {"username":"...","password":"..."}; it is created only if '
            "there are no users yet.", source=_SOURCE, at_start=True, is_fixed=True,
            is_secret=True),
    Setting("migrateAuthFromV1Enabled", "flag", False,
            "Whether the accounts of ACL 1.0 become users and policies, once.", source=_SOURCE,
            at_start=True, is_fixed=True),
)


def _check(settings: Settings) -> None:
    """:raises SettingsError: when settings of both schemes, or only half of one, are given."""
    is_on = settings.flag("authenticationEnabled")
    if is_on and settings.flag("aclEnable"):
        raise SettingsError(
            "aclEnable=true is ACL 1.0 and authenticationEnabled=true is ACL 2.0, and a broker has "
            "one of them: leave one out. To move from 1.0, leave out aclEnable and set "
            "migrateAuthFromV1Enabled=true, which copies the accounts once")
    if settings.flag("authorizationEnabled") and not is_on:
        raise SettingsError("authorizationEnabled=true needs authenticationEnabled=true: without a "
                            "signature, a request does not prove whose policies count")
    init_user_of(settings)
    inner_credentials(settings)
    for name in ("authenticationWhitelist", "authorizationWhitelist"):
        require_names_of_codes(settings, name)


class Plugin:
    """The users of one broker.

    :raises SettingsError: when the broker would have no super user.
    :raises StoreDamaged: when a file and its backup cannot be read.
    """

    log = Logger()
    #: The setting that requests the validators of this plugin.
    access_setting: Final = "authenticationEnabled"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._table: AuthTable | None = None
        _check(broker.settings)
        if broker.settings.flag("authenticationEnabled"):
            self._table = self._load()

    def _load(self) -> AuthTable:
        # Imported here, because a broker without users does not need these modules.
        from twistmq.acl.auth_table import AuthTable, PolicyTable, UserTable
        from twistmq.acl.initial_users import add_initial_users

        broker = self._broker
        table = AuthTable(
            UserTable(broker.store.config_file(_USERS_FILE, is_private=True)),
            PolicyTable(broker.store.config_file(_POLICIES_FILE, is_private=True)))
        table.load()
        if not broker.is_slave:
            add_initial_users(table, broker.settings, broker.now_ms, self.log)
            if not table.has_super_user():
                raise SettingsError(
                    "authenticationEnabled=true, but there is no super user, so that nobody could "
                    'create one: set initAuthenticationUser={"username":"...","password":"..."}')
        return table

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return [SettingCheck(
            ("aclEnable", "authenticationEnabled", "innerClientAuthenticationCredentials",
             *[row.name for row in _SETTINGS]), _check)]

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.acl.auth_table import decode_policies, decode_users
        from twistmq.broker.api.store_files import PluginFiles

        return [PluginFiles("users", tables={
            _USERS_FILE: decode_users, _POLICIES_FILE: decode_policies})]

    @hookimpl
    def provide_access_validators(self) -> Sequence[IAccessValidator] | None:
        if self._table is None:
            return None
        from twistmq.acl.auth_validator import AuthRules, UserValidator
        from twistmq.acl.denials import Denials

        settings = self._broker.settings
        return (UserValidator(self._table, AuthRules(
            self._broker.cluster_name, settings.flag("authorizationEnabled"),
            frozenset(map(int, settings.names("authenticationWhitelist"))),
            frozenset(map(int, settings.names("authorizationWhitelist"))),
            lambda: settings.int("maxMessageSize")), Denials()),)

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return AuthRequests(self._broker, self._table).handlers()

    @hookimpl
    def on_start(self) -> None:
        """Save the initial users before the broker listens."""
        self._save()

    def _save(self) -> None:
        table = self._table
        if table is not None:
            self._broker.saves.save_if_changed(table.user_table, table.policy_table)

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        if self._table is None:
            return ()
        # A table that could not be saved is saved again later.
        return (PeriodicTask("save users and policies", _SAVE_PERIOD_MS, _SAVE_PERIOD_MS,
                             lambda now_ms: self._save()),)

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        """Copy users and policies from the master. Apache's slaves never copy them."""
        table = self._table
        if table is None:
            return ()
        return (SyncedTable("users", RequestCode.AUTH_LIST_USER, self._replace_users,
                            _COPY_PERIOD_MS),
                SyncedTable("policies", RequestCode.AUTH_LIST_ACL, self._replace_policies,
                            _COPY_PERIOD_MS))

    def _replace_users(self, body: bytes) -> None:
        from twistmq.acl.auth_table import users_of

        assert self._table is not None
        self._table.replace_users(users_of(body))
        self._save()

    def _replace_policies(self, body: bytes) -> None:
        from twistmq.acl.auth_table import policies_of

        assert self._table is not None
        self._table.replace_policies(policies_of(body))
        self._save()
