"""Makes the store of a broker: with an ordinary commit log, or with a ledger if a plugin needs one.

Source: BrokerController.initializeMessageStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from twistmq.broker.config.settings import Settings
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.store.commit_flush import RunSync
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE
from twistmq.broker.store.ledger.ledger import make_ledger_store
from twistmq.broker.store.message_store import MessageStore

__all__ = ["make_store", "use_ledger_folder"]


def use_ledger_folder(settings: Settings, hooks: Hooks) -> None:
    """Let ``storePathCommitLog`` name the folder of a ledger, if a plugin needs one.

    :raises SettingsError: when the settings of a ledger are not valid.
    """
    folder = hooks.ledger_folder(settings)
    if folder is not None:
        settings.put("storePathCommitLog", f"{folder}/data")


def make_store(
    settings: Settings, hooks: Hooks, io: IStoreIO, now_ms: Callable[[], int],
    in_thread: Callable[[Callable[[], None]], Deferred[None]], run_sync: RunSync | None = None,
    steady_ms: Callable[[], int] | None = None, index_file_size: int = INDEX_FILE_SIZE,
) -> MessageStore:
    """Make the store that the settings and the plugins require; it is not loaded yet.

    The parameters have the same meaning as in :class:`MessageStore` and :func:`make_ledger_store`.

    :raises SettingsError: when the settings of a ledger are not valid.
    """
    folder = hooks.ledger_folder(settings)
    if folder is None:
        return MessageStore(settings.store_settings(), io, now_ms, in_thread, run_sync, steady_ms)
    return make_ledger_store(settings.store_settings(), folder, io, now_ms, in_thread, run_sync,
                             steady_ms, index_file_size)[0]
