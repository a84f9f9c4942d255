"""From a command line to the settings of a start: checks, derived values, and the output of ``-p``.

Exit statuses are Apache's: 0 when the settings were printed, 1 for a bad command line, 255 (its
-1) for a start that failed, also if a settings file cannot be read or a store could not be stopped
cleanly, 253 (its -3) for settings that are not valid for a broker or a store that cannot be loaded,
252 (its -4) for two kinds of replication at once. 254 (its -2) is not used.
Differs from Apache: ROCKETMQ_HOME is not needed, because nothing is read from an installation
folder.
Differs from Apache: every setting that is not valid ends with 253, so that a supervisor does not
start such a broker again and again. Apache's broker ignores a value of the wrong type, and ends
with 255 for a port above 65535.

Source: BrokerStartup, NamesrvStartup @5.3.3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from twistmq.broker.compiled import build_warning
from twistmq.broker.config.port_checks import ports_of
from twistmq.broker.config.setting_rows import broker_rows, namesrv_rows, up_rows
from twistmq.broker.config.settings import SettingCheck, Settings, similar_name
from twistmq.broker.edge.address_server_url import (
    ADDRESS_SERVER,
    address_server_url,
    asks_address_server,
)
from twistmq.broker.errors import SettingsError, SettingUnavailable
from twistmq.broker.net.tls_options import tls_notices
from twistmq.protocol.decimal_text import PORT_MAX, whole_number
from twistmq.protocol.errors import BrokerError, StoreError

__all__ = [
    "DURABILITY_MARK",
    "EXIT_CONFLICT",
    "EXIT_FAILED",
    "EXIT_OK",
    "EXIT_REFUSED",
    "EXIT_USAGE",
    "EXPECTED_FAILURES",
    "WILDCARDS",
    "StartRefused",
    "broker_settings",
    "durability_notice",
    "exit_status",
    "failure_text",
    "log_folder",
    "name_server_settings",
    "namesrv_settings",
    "notices",
    "own_name_server",
    "refuse_unread",
    "unknown_names",
    "up_settings",
]

EXIT_OK: Final = 0
EXIT_USAGE: Final = 1
EXIT_FAILED: Final = -1 & 0xFF
EXIT_REFUSED: Final = -3 & 0xFF
EXIT_CONFLICT: Final = -4 & 0xFF

#: The errors of a start that are not bugs: settings, a port in use, a store or disk that is not
#: usable.
EXPECTED_FAILURES: Final = (SettingsError, BrokerError, OSError)

#: The settings that request kinds of replication which are not supported here.
_REPLICATION: Final = ("enableDLegerCommitLog", "enableControllerMode")
#: The settings that request access control: the requesting value, and the missing part.
_ACL_2: Final = {
    "authorizationEnabled": ("true", "the plugin auth, which checks requests, is not in use"),
}
#: The difference between a slave's accessMessageInMemoryMaxRatio and its given value, percent.
_SLAVE_MEMORY_LESS: Final = 10
#: Other roles of the name server in Apache, and the part that is missing here.
_OTHER_NAME_SERVERS: Final = {
    "clusterTest": "routes that are not known here are not asked for elsewhere",
    "enableControllerInNamesrv": "there is no controller here",
}
_LOCAL: Final = "127.0.0.1"
_LOOPBACK: Final = (_LOCAL, "::1", "localhost")
#: The beginning of the line that states when a send is acknowledged.
DURABILITY_MARK: Final = "flushDiskType="
#: The addresses that stand for any address of the host: one can listen on them, but not connect to
#: them.
WILDCARDS: Final = ("0.0.0.0", "::", "")


class StartRefused(SettingsError):
    """Settings that are well formed, but not valid for a broker.

    :param status: the exit status of the process.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def exit_status(error: BaseException) -> int:
    """Return the exit status of a process after a failed start."""
    if isinstance(error, StartRefused):
        return error.status
    if isinstance(error, SettingUnavailable):
        return EXIT_FAILED
    return EXIT_REFUSED if isinstance(error, (SettingsError, StoreError)) else EXIT_FAILED


def namesrv_settings(file: str | None, overrides: Mapping[str, str]) -> Settings:
    """Return the settings of ``twistmq namesrv``.

    :raises SettingsError: when they are not valid for a name server.
    """
    settings = Settings.load(namesrv_rows(), file, overrides)
    settings.checks += [_NAMESRV, _UNREAD]
    settings.check()
    if file is not None:
        settings.put_default("configStorePath", file)
    settings.file = settings.text("configStorePath")
    return settings


def broker_settings(file: str | None, overrides: Mapping[str, str]) -> Settings:
    """Return the settings of ``twistmq broker``.

    :raises SettingsError: when they are not valid for a broker.
    """
    settings = Settings.load(broker_rows(), file, overrides)
    settings.file = settings.file or settings.text("brokerConfigPath")
    if (bound := settings.text("bindAddress")) not in WILDCARDS:
        # The port for slaves is opened only at this address, so no other address leads to it.
        settings.put_default("brokerIP2", bound)
    _make_broker(settings, _BROKER_CHECKS)
    return settings


def up_settings(data: str, file: str | None, overrides: Mapping[str, str]) -> Settings:
    """Return the settings of ``twistmq up``: one folder for all data, the loopback address.

    ``DATA/broker.conf`` is read if no other file is given. Settings that a tool changes are saved
    there, so that they are kept after a restart.

    :param data: the folder.
    """
    data = os.path.abspath(os.path.expanduser(data))
    own = os.path.join(data, "broker.conf")
    if file is None and os.path.exists(own):
        file = own
    settings = Settings.load(up_rows(), file, overrides)
    settings.file = settings.file or own
    settings.is_file_read = True
    for name, relative_path in (("storePathRootDir", "store"), ("log.dir", "logs"),
                                ("kvConfigPath", "namesrv/kvConfig.json"),
                                ("configStorePath", "namesrv/namesrv.properties")):
        settings.put_default(name, os.path.join(data, relative_path))
    settings.put_default("namesrvAddr", "")
    settings.put_default("brokerConfigPath", settings.file)
    for name in ("bindAddress", "brokerIP1", "brokerIP2"):
        settings.put_default(name, _LOCAL)
    _make_broker(settings, (_NAMESRV, *_BROKER_CHECKS, SettingCheck(
        ("namesrv.port", "listenPort"), _check_ports)))
    return settings


def name_server_settings(up: Settings) -> Settings:
    """Return the name server's part of the settings of ``twistmq up``."""
    names = {row.name for row in namesrv_rows()} - {"listenPort", "configBlackList"}
    stored = up.text("configStorePath")
    settings = Settings.load(namesrv_rows(), stored if os.path.exists(stored) else None)
    for row in up.rows:
        if row.name in names:
            settings.put_from(up, row.name)
    settings.put("listenPort", up.int("namesrv.port"))
    settings.checks += [_NAMESRV, _UNREAD]
    settings.file = stored
    return settings


def own_name_server(bound: str, broker_ip: str, port: int) -> tuple[str, ...]:
    """Return the addresses of this process's name server: the one to use, then its synonyms.

    :param bound: ``bindAddress``.
    :param broker_ip: ``brokerIP1``: the user may have given an address of this host.
    :param port: the port on which it listens.
    """
    host = _LOCAL if bound in WILDCARDS else bound
    return f"{host}:{port}", f"localhost:{port}", f"{broker_ip}:{port}"


def log_folder(settings: Settings) -> str:
    """Return the folder of the logs: ``log.dir``, or ``logs`` in the data folder.

    With ``isolateLogEnable``, the logs are in a subfolder that is named after the broker. Source:
    BrokerStartup @5.3.3.
    """
    folder = settings.text("log.dir")
    if not folder:
        data = settings.text("storePathRootDir") if settings.has("storePathRootDir") else (
            os.path.dirname(os.path.abspath(settings.text("kvConfigPath"))))
        folder = os.path.join(data, "logs")
    if settings.has("isolateLogEnable") and settings.flag("isolateLogEnable"):
        folder = os.path.join(
            folder, f"{settings.text('brokerName')}_{settings.int('brokerId')}")
    return os.path.abspath(folder)


def _check_name_server(settings: Settings) -> None:
    """Refuse settings that would leave clients without routes or brokers without a controller."""
    for name, missing in _OTHER_NAME_SERVERS.items():
        if _requested_value(settings, name) == "true":
            # Differs from Apache: refused, because the requested feature does not exist here.
            raise StartRefused(EXIT_REFUSED, f"{name}=true: {missing}")


def _make_broker(settings: Settings, checks: Sequence[SettingCheck]) -> None:
    """Refuse settings that are not valid for a broker, and derive the dependent ones."""
    settings.checks += checks
    settings.check()
    # Plugins may declare settings that nothing else reads, so these are checked once the plugins
    # are loaded.
    settings.checks.append(_UNREAD)
    if settings.text("brokerRole") != "SLAVE":
        settings.put("brokerId", 0)
    else:
        name = "accessMessageInMemoryMaxRatio"
        ratio = max(settings.int(name) - _SLAVE_MEMORY_LESS, 1)
        if settings.is_given(name):
            settings.put(name, ratio)
        else:
            settings.put_default(name, ratio)
    settings.derive = _derive
    _derive(settings)


def _derive(settings: Settings) -> None:
    """Set the defaults that depend on other settings."""
    settings.put_default("storePathCommitLog",
                         os.path.join(settings.text("storePathRootDir"), "commitlog"))
    port = settings.int("listenPort")
    # 0 stays as it is: the port is known only after listening.
    settings.put_default("haListenPort", min(port + 1, PORT_MAX) if port else 0)


def _check_names(settings: Settings) -> None:
    for name in ("brokerName", "brokerClusterName"):
        if re.fullmatch(r"[\w.%|-]+", settings.text(name)) is None:
            raise settings.error(name, "must be letters, digits and . _ - % |, at least one")


def _check_address_server(settings: Settings) -> None:
    if settings.flag(ADDRESS_SERVER):
        address_server_url(settings)


def _requested_value(settings: Settings, name: str) -> str:
    """Return the requested value of a setting that no code here reads, in lower case."""
    return settings.unknown.get(name, "").strip().lower()


def refuse_unread(settings: Settings) -> None:
    """Refuse settings that nothing reads and that must not be ignored silently.

    The function must be called after plugins have declared their settings: a plugin that declares
    such a setting reads it, and a plugin whose setting ``provides`` a role implements the role.
    Differs from Apache only in that its broker has all of these features.

    :raises StartRefused: when ACL 2.0, another store or replication is requested.
    """
    for name, (refused_value, missing) in _ACL_2.items():
        if _requested_value(settings, name) == refused_value:
            raise StartRefused(EXIT_REFUSED, f"{name}={refused_value}: {missing}")
    if _requested_value(settings, "storeType") not in ("", "default"):
        raise StartRefused(EXIT_REFUSED, f"storeType={settings.unknown['storeType'].strip()}: "
                                         "consume queues can only be stored in files here")
    if settings.has("brokerRole"):
        _refuse_unreplicated(settings)


def _check_replication(settings: Settings) -> None:
    if all(_requested_value(settings, name) == "true" for name in _REPLICATION):
        raise StartRefused(EXIT_CONFLICT, "The config enableControllerMode and "
                                          "enableDLegerCommitLog cannot both be true.")


def _refuse_unreplicated(settings: Settings) -> None:
    """Refuse a replication role that no plugin provides.

    :raises StartRefused: when no plugin provides the role, or when a slave has no id of its own.
    """
    for name in _REPLICATION:
        if _requested_value(settings, name) == "true":
            # Differs from Apache: a single broker must not look like a replicated one.
            raise StartRefused(EXIT_REFUSED, f"{name}=true: this kind of replication is not "
                                             "supported here")
    role = settings.text("brokerRole")
    if role != "ASYNC_MASTER" and not settings.is_provided("brokerRole", role):
        missing = ("no master's messages come here" if role == "SLAVE"
                   else "no slave has a message when its sender is answered")
        raise StartRefused(EXIT_REFUSED, f"brokerRole={role}: there is no replication here, "
                                         f"{missing}; ASYNC_MASTER is the role of a lone broker")
    if role == "SLAVE" and settings.int("brokerId") <= 0:
        raise StartRefused(EXIT_REFUSED, "Slave's brokerId must be > 0")


def _check_ports(settings: Settings) -> None:
    """Refuse a port of the name server that the broker in the same process uses as well."""
    whose = ports_of(settings).get(settings.int("namesrv.port"))
    if whose is not None:
        raise settings.error("namesrv.port", f"is {whose}; choose another for one of them")


def _check_name_servers(settings: Settings) -> None:
    text = settings.text("namesrvAddr")
    for address in text.split(";") if text.strip() else []:
        host, _, port = address.strip().rpartition(":")
        if address.strip() and not (host and whole_number(port, PORT_MAX) is not None):
            raise StartRefused(
                EXIT_REFUSED, f"The Name Server Address[{text}] illegal, please set it as follows, "
                              '"127.0.0.1:9876;192.168.0.1:9876"')


_NAMESRV: Final = SettingCheck(tuple(_OTHER_NAME_SERVERS), _check_name_server)
_BROKER_CHECKS: Final = (
    SettingCheck(_REPLICATION, _check_replication),
    SettingCheck(("brokerName", "brokerClusterName"), _check_names),
    SettingCheck(("namesrvAddr",), _check_name_servers),
    SettingCheck((ADDRESS_SERVER, "rmqAddressServerDomain", "rmqAddressServerSubGroup"),
                 _check_address_server),
)
_UNREAD: Final = SettingCheck(
    (*_ACL_2, "storeType", *_REPLICATION, "brokerRole", "brokerId"), refuse_unread)


def notices(kind: str, settings: Settings, of_plugins: Sequence[str] = ()) -> list[str]:
    """Return the warnings to print before a server answers, one line each.

    :param kind: "up", "namesrv" or "broker".
    :param of_plugins: the warnings of the hooks.
    """
    warnings = [*of_plugins, *tls_notices(settings)]
    if warning := build_warning():
        warnings.append(warning)
    unknown = unknown_names(settings)
    if unknown:
        warnings.append(f"settings that nothing here reads are kept: {', '.join(unknown)}")
    if kind != "namesrv":
        warnings += _address_notices(settings)
    if kind == "broker" and not (
            settings.addresses("namesrvAddr") or asks_address_server(settings)):
        warnings.append("no name server is given (-n HOST:PORT): no client can find this broker")
    return warnings


def durability_notice(settings: Settings) -> str:
    """Describe which acknowledged messages a loss of power may destroy; empty: none.

    A slave does not acknowledge sends.
    """
    if settings.text("flushDiskType") == "SYNC_FLUSH" or settings.text("brokerRole") == "SLAVE":
        return ""
    return (f"{DURABILITY_MARK}{settings.text('flushDiskType')}: a send is acknowledged before its "
            "message is on the disk, and a loss of power may lose the messages of the last "
            f"{settings.int('flushIntervalCommitLog')} ms; set flushDiskType=SYNC_FLUSH to "
            "wait for the disk")


def unknown_names(settings: Settings) -> list[str]:
    """Return the settings that nothing reads, each with a suggestion if it looks misspelt."""
    known_names = [row.name for row in settings.rows]
    return [_with_guess(name, known_names) for name in sorted(settings.unknown)]


def _with_guess(name: str, known_names: Collection[str]) -> str:
    """Return an unknown name, with a suggestion if it looks like a misspelt setting."""
    meant = similar_name(name, known_names)
    return f"{name} (did you mean {meant}?)" if meant else name


def _address_notices(settings: Settings) -> list[str]:
    """Return a notice if clients cannot reach this broker at its announced address."""
    listens, broker_ip = settings.text("bindAddress"), settings.text("brokerIP1")
    if broker_ip in WILDCARDS:
        return [f"brokerIP1={broker_ip} is an address that no client can connect to"]
    if listens in WILDCARDS and broker_ip in _LOOPBACK:
        return [f"bindAddress={listens}, but clients get brokerIP1={broker_ip}: clients on "
                "other hosts will not find the broker"]
    if listens in _LOOPBACK and broker_ip not in _LOOPBACK:
        return [f"clients get brokerIP1={broker_ip}, but the broker listens on "
                f"bindAddress={listens} only"]
    return []


def failure_text(error: BaseException) -> str:
    """Return the message about a failed start."""
    if isinstance(error, (SettingsError, BrokerError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
