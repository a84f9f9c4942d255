"""Access control by accounts in ``conf/plain_acl.yml`` and ``conf/acl``, with ``aclEnable=true``.

This is the ACL 1.0 of Apache's brokers 4.4 to 5.2. Every request must contain an access key and a
signature made with the secret key, or come from a white address; see ``validator``. Without
aclEnable no file is read and requests have no additional cost.

The scheme signs only the content of requests. Connections are not encrypted, answers are not
signed, and a recorded request passes when it is sent again unchanged, in Apache's broker as well.

Source: BrokerController.initialAcl, PlainAccessValidator, AclFileWatchService @4.9.4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.acl.errors import AclError
from twistmq.acl.requests import AccountRequests
from twistmq.broker.api import (
    AnyHandler,
    IAccessValidator,
    PeriodicTask,
    Setting,
    SettingCheck,
    SettingsError,
    hookimpl,
)

if TYPE_CHECKING:
    from twistmq.acl.table import AccountTable
    from twistmq.broker.api import Broker, Settings

__all__ = ["Plugin"]

#: The interval at which files are checked, ms. Source: AclFileWatchService.WATCH_INTERVAL.
_WATCH_PERIOD_MS: Final = 5000


def _home() -> str:
    return os.environ.get("ROCKETMQ_HOME", "")


def home_of(settings: Settings) -> str:
    """Return the broker's home."""
    store = os.path.abspath(settings.text("storePathRootDir"))
    return settings.text("rocketmqHome") or os.path.dirname(store)


def _read_accounts(settings: Settings, now_ms: Callable[[], int]) -> AccountTable | None:
    """Read the accounts, or return None if access control is off.

    :raises SettingsError: when a file is not valid.
    """
    if not settings.flag("aclEnable"):
        return None
    # Imported here, because a broker without accounts needs neither these modules nor YAML.
    from twistmq.acl.folder import AclFolder
    from twistmq.acl.table import AccountTable

    folder = AclFolder(home_of(settings), settings.text("rocketmq.acl.plain.file"))
    table = AccountTable(folder, now_ms)
    try:
        table.load()
    except AclError as error:
        raise SettingsError(f"aclEnable=true: {error}") from None
    return table


_SETTINGS: Final = (
    Setting("rocketmqHome", "path", _home,
            "The folder whose conf/ contains the accounts; empty: the parent of storePathRootDir.",
            source="BrokerConfig", default_text="$ROCKETMQ_HOME", at_start=True,
            of_each="above_store"),
    Setting("rocketmq.acl.plain.file", "path", "conf/plain_acl.yml",
            "The file to which new accounts are written, below rocketmqHome; Apache's system "
            "property of this name.", source="PlainPermissionManager", at_start=True),
)


class Plugin:
    """The accounts of one broker.

    :raises SettingsError: when a file is not valid.
    """

    #: The setting that requests the validators of this plugin.
    access_setting: Final = "aclEnable"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._table = _read_accounts(broker.settings, broker.now_ms)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return [SettingCheck(
            ("aclEnable", "rocketmqHome", "rocketmq.acl.plain.file", "storePathRootDir"),
            lambda settings: _read_accounts(settings, lambda: 0))]

    @hookimpl
    def provide_access_validators(self) -> Sequence[IAccessValidator] | None:
        if self._table is None:
            return None
        from twistmq.acl.known_names import KnownNames
        from twistmq.acl.validator import PlainAccessValidator

        broker = self._broker
        return (PlainAccessValidator(self._table, KnownNames(
            lambda name: broker.topic_config.get(name) is not None,
            broker.subscription_group.has, broker.send_forbidden_topics,
            f"{broker.cluster_name}_REPLY_TOPIC"),
            lambda: broker.settings.int("maxMessageSize")),)

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return AccountRequests(self._broker, self._table).handlers()

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        """Watch the account files, as Apache's broker does."""
        table = self._table
        if table is None:
            return ()

        def look(now_ms: int) -> None:
            table.reload()

        return (PeriodicTask("watch the accounts' files", _WATCH_PERIOD_MS, _WATCH_PERIOD_MS,
                             look),)
