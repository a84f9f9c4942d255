"""Checks of the resources of a start: addresses, ports, folders and the files of the store.

A start runs these checks before it does anything else. ``twistmq doctor`` runs them as well, and a
change of a setting by a tool is refused if one of them fails. A check that stops a start because of
settings belongs here, in ``boot``, in ``kernel_checks``, or in the ``register_setting_checks`` of a
plugin.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twistmq.broker.config.folder_checks import (
    is_locked,
    is_own_store,
    lock_holder,
    nearest_folder,
    not_writable,
    require_size,
)
from twistmq.broker.config.host_address import resolved
from twistmq.broker.config.port_checks import require_address, require_number, require_port
from twistmq.broker.config.settings import SettingCheck, Settings
from twistmq.broker.constants import VIP_PORT_DISTANCE
from twistmq.broker.edge.boot import log_folder
from twistmq.broker.edge.logs import is_log_on_stderr, level_filter
from twistmq.broker.errors import SettingsError
from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.store_recovery import require_commit_log
from twistmq.protocol.errors import StoreError

__all__ = ["PORTS", "STORE", "broker_host_checks", "namesrv_host_checks"]

#: The parts of the doctor.
PORTS: Final = "port"
STORE: Final = "store"

_FOLDERS: Final = ("storePathRootDir", "storePathCommitLog")
#: Kinds of files in the store: the setting with the file size, the folder, and the number of folder
#: levels between that folder and the files. The folder of the commit log is a setting.
_ROWS: Final = (
    ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue", "consumequeue", 2),
    ("mapperFileSizeBatchConsumeQueue", "mapper_file_size_batch_consume_queue",
     "batchconsumequeue", 2),
    ("mappedFileSizeConsumeQueueExt", "mapped_file_size_consume_queue_ext",
     "consumequeue_ext", 2),
)


def broker_host_checks(*, on_disk: bool = True) -> list[SettingCheck]:
    """Return the host checks of a broker.

    :param on_disk: whether its store is on a disk of the host; a test may use another store.
    """
    checks = [
        _BIND,
        SettingCheck(("bindAddress", "listenPort"), _broker_ports, PORTS),
        SettingCheck(("bindAddress", "namesrv.port"), _up_port, PORTS),
        SettingCheck(("brokerIP1",), _announced_address, "address"),
        _LOGS, _LEVELS,
    ]
    if on_disk:
        checks += [
            SettingCheck(_FOLDERS, _store_folders, STORE),
            SettingCheck((*_FOLDERS, "mappedFileSizeCommitLog", *(row[0] for row in _ROWS)),
                         _store_files, STORE),
        ]
    return checks


def namesrv_host_checks(port_setting: str = "listenPort") -> list[SettingCheck]:
    """Return the host checks of a name server.

    :param port_setting: the setting that gives its port.
    """
    def port(settings: Settings) -> None:
        if settings.int("listenPort"):
            require_port(settings, settings.int("listenPort"),
                         f"the name server's port: {port_setting}")

    return [_BIND, SettingCheck(("bindAddress", "listenPort"), port, PORTS),
            SettingCheck(("kvConfigPath",), _kv_folder), _LOGS, _LEVELS]


def _broker_ports(settings: Settings) -> None:
    """:raises BrokerError: when the broker cannot listen on one of its ports."""
    port = settings.int("listenPort")
    if not port:
        return
    require_port(settings, port, "the broker's port: listenPort")
    if port > VIP_PORT_DISTANCE:
        require_port(settings, port - VIP_PORT_DISTANCE,
                     f"the broker's VIP port: two below listenPort {port}")


def _up_port(settings: Settings) -> None:
    """:raises BrokerError: when the name server cannot listen on its port."""
    if settings.has("namesrv.port") and settings.int("namesrv.port"):
        require_port(settings, settings.int("namesrv.port"),
                     "the name server's port: namesrv.port")


def _announced_address(settings: Settings) -> None:
    """:raises SettingsError: when it is not the address of a host."""
    require_number(settings, "brokerIP1")
    resolved(settings, "brokerIP1")


def _log_folder(settings: Settings) -> None:
    """:raises SettingsError: when the log cannot be written."""
    if is_log_on_stderr(settings):
        return
    folder = log_folder(settings)
    why = not_writable(Path(folder))
    if why:
        raise SettingsError(f"log.dir={folder}: {why}")


def _kv_folder(settings: Settings) -> None:
    """:raises SettingsError: when the folder of the file cannot exist."""
    try:
        existing_folder = nearest_folder(Path(settings.text("kvConfigPath")).parent)
        why = "" if existing_folder.is_dir() else f"{existing_folder} is not a folder"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise settings.error("kvConfigPath", f"names no file: {why}")


def _store_folders(settings: Settings) -> None:
    """:raises StoreError: when a folder is not writable or belongs to another broker."""
    store = settings.store_settings()
    for name, folder in zip(_FOLDERS, (store.store_path_root_dir, store.commit_log_path),
                            strict=True):
        why = not_writable(Path(folder))
        if why:
            raise StoreError(f"the store cannot be opened: {name}={folder}: {why}")
    if settings.running is None or is_own_store(settings):
        return  # a start acquires the lock itself
    process = lock_holder(Path(store.path("lock")))
    if process is not None:
        raise StoreError(f"{store.store_path_root_dir} is locked by "
                         f"{f'process {process}' if process else 'another process'}")
    log, own_log = (os.path.realpath(each.commit_log_path)
                    for each in (store, settings.running.store_settings()))
    if log != own_log and is_locked(Path(log)):
        raise StoreError(f"storePathCommitLog={store.commit_log_path}: another broker uses the "
                         "folder")


def _store_files(settings: Settings) -> None:
    """:raises StoreError, SettingsError: when files are missing or have another size or type."""
    try:
        _check_store_files(settings)
    except OSError as error:
        raise StoreError(f"the store cannot be opened: {error}") from error


def _check_store_files(settings: Settings) -> None:
    store, running = settings.store_settings(), settings.running
    name = "storePathCommitLog"
    is_own = running is not None and is_own_store(settings)
    if running is not None and is_own and (
            os.path.realpath(running.store_settings().commit_log_path)
            != os.path.realpath(store.commit_log_path)):
        raise settings.error(name, "is not where this broker writes the commit log: change it "
                                   "only in the file, after the log was moved")
    require_size(settings, "mappedFileSizeCommitLog", Path(store.commit_log_path),
                 store.mapped_file_size_commit_log)
    for name, field, folder, depth in _ROWS:
        is_made = running is not None and (
            folder != "consumequeue_ext" or running.flag("enableConsumeQueueExt"))
        require_size(settings, name, Path(store.path(folder)), getattr(store, field), depth,
                     is_made=is_made)
    if not is_own:
        disk = RealDisk()
        path = store.path("checkpoint")
        checkpoint = (Checkpoint.decode(disk.read_file(path), path) if disk.exists(path)
                      else Checkpoint())
        require_commit_log(disk, store, checkpoint, disk.exists(store.path("abort")))


_BIND: Final = SettingCheck(
    ("bindAddress",), lambda settings: require_address(settings, "bindAddress"), PORTS)
_LEVELS: Final = SettingCheck(("log.level", "log.levels"), level_filter)
_LOGS: Final = SettingCheck(
    ("log.dir", "log.output", "isolateLogEnable", "brokerName", "storePathRootDir", "kvConfigPath"),
    _log_folder, STORE)
