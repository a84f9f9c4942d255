"""The settings of replication, and the conditions that a start checks.

Source: MessageStoreConfig @5.3.3.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from twistmq.broker.api import Setting, SettingCheck, Settings
from twistmq.broker.api.config import ports_of, require_address, require_port
from twistmq.broker.api.wire import split_address
from twistmq.plugins.ha.frames import BODY_SIZE_MAX
from twistmq.plugins.replica.allowed_hosts import AllowedHosts

__all__ = ["CHECKS", "OTHER_MASTER", "PEERS", "SETTINGS", "networks", "replica_notices"]

_STORE: Final = "MessageStoreConfig"
#: A haMasterAddress that is shorter is ignored. Source: DefaultMessageStore.start.
ADDRESS_LENGTH_MIN: Final = 6
PEERS: Final = "ha.peers"
OTHER_MASTER: Final = "ha.other_master"
TLS: Final = "ha.tls"
#: The time without its master after which a slave is unhealthy, ms; also the time after which a
#: master is unhealthy that lacks slaves its sends wait for.
FAULT_AFTER_MS: Final = 30_000

SETTINGS: Final = (
    Setting("haMasterAddress", "text", "",
            "The address that a slave connects to, HOST:PORT with haListenPort of its master.",
            source=_STORE, default_text="as name servers report", provides=("brokerRole=SLAVE",),
            of_each="one_broker"),
    Setting("haSendHeartbeatInterval", "int", 5000,
            "The silence after which master and slave write to each other.", unit="ms", least=1,
            source=_STORE),
    Setting("haHousekeepingInterval", "int", 20_000,
            "The silence of the other side after which master and slave close a connection.",
            unit="ms", least=1, source=_STORE),
    Setting("haTransferBatchSize", "int", 32 * 1024,
            "The maximum size of the log bytes in one frame to a slave. A Java slave does not have "
            "room for more than the upper limit.", unit="bytes", least=1, most=BODY_SIZE_MAX,
            source=_STORE),
    Setting("haMaxGapNotInSync", "int", 256 * 1024**2,
            "The lag above which a slave is not in sync.", unit="bytes", least=0,
            source=_STORE),
    Setting("slaveTimeout", "int", 3000,
            "How long the response to a send waits for slaves.", unit="ms", least=0, source=_STORE),
    Setting("inSyncReplicas", "int", 1,
            "The number of brokers, including the master, that have a message when its sender gets "
            "the response under SYNC_MASTER. With 1 no send waits for a slave.", unit="brokers",
            least=1, most=1000, source=_STORE, provides=("brokerRole=SYNC_MASTER",)),
    Setting("ha.bind", "text", "",
            "The address that haListenPort is bound to.", default_text="bindAddress",
            at_start=True),
    Setting(PEERS, "names", (),
            "Addresses and networks of slaves, such as 10.0.0.0/8, separated by commas: other "
            "hosts do not receive any part of the log. A slave does not have to give a password, "
            "so a broker with aclEnable=true has no port for slaves without this setting.",
            default_text="any", at_start=True),
    Setting(TLS, "flag", False,
            "Whether the connections of replication are encrypted: at a master by tls.server.*, "
            "at a slave by tls.client.*. Both sides need the same value. Apache's brokers do not "
            "support this.", at_start=True),
    Setting("ha.master", "text", "",
            "The address that a slave asks for its master's log and tables, HOST:PORT with "
            "listenPort of its master.", default_text="as name servers report",
            of_each="one_broker"),
    Setting("ha.full_copy", "flag", True,
            "Whether a slave with an empty log begins with the oldest message of its master. If "
            "not, it begins with the last commit-log file."),
    Setting("ha.send_all", "flag", False,
            "Whether a slave that asks for the beginning, as an empty Apache slave does, gets the "
            "whole log. If not, it gets the last commit-log file, as Apache's master sends it."),
    Setting("ha.resync", "flag", False,
            "Whether a slave whose log is not the beginning of its master's log removes the part "
            "that differs, or its whole log if the master has nothing left to compare. If not, it "
            "reports the difference and copies nothing."),
    Setting(OTHER_MASTER, "flag", False,
            "Whether a master starts although name servers know another live master of its name. "
            "Without this setting, a master does not start beside a master whose log begins in the "
            "same way, such as a promoted slave. Set it when a stranger registered under the name, "
            "but not to run two masters: they would store different messages at the same places."),
    Setting("ha.report_flushed", "flag", False,
            "Whether a slave reports to its master the bytes that are on its disk, instead of the "
            "bytes that its operating system has."),
)


def networks(settings: Settings) -> AllowedHosts:
    """Return the networks of ``ha.peers``.

    :raises SettingsError: when a text is neither an address nor a network.
    """
    return AllowedHosts.read(settings, PEERS)


def _check_address(settings: Settings, name: str) -> None:
    """:raises SettingsError: when an address is given and is not HOST:PORT."""
    text = settings.text(name).strip()
    if not text or (name == "haMasterAddress" and len(text) < ADDRESS_LENGTH_MIN):
        return
    try:
        split_address(text)
    except ValueError:
        raise settings.error(name, "is not HOST:PORT") from None


def _check_addresses(settings: Settings) -> None:
    for name in ("haMasterAddress", "ha.master"):
        _check_address(settings, name)


def _check_replicas(settings: Settings) -> None:
    """:raises SettingsError: when sends would wait for slaves that cannot connect."""
    if (settings.text("brokerRole") == "SYNC_MASTER" and settings.int("inSyncReplicas") > 1
            and settings.access_setting and not settings.names(PEERS)):
        raise settings.error(PEERS, f"must name the slaves: with {settings.access_setting}=true no "
                                    "other host can connect, and sends wait for slaves")


def _check_port(settings: Settings) -> None:
    """:raises SettingsError, BrokerError: when the port was given and cannot be listened on."""
    if not settings.is_given("haListenPort") or not settings.int("haListenPort"):
        return
    port = settings.int("haListenPort")
    owner = ports_of(settings, "haListenPort").get(port)
    if settings.has("namesrv.port") and port == settings.int("namesrv.port"):
        owner = f"the name server's: namesrv.port={port}"
    if owner is not None:
        raise settings.error("haListenPort", f"is {owner}; choose another for one of them")
    require_port(settings, port, "the port for slaves: haListenPort",
                 settings.text("ha.bind").strip() or None)


def _check_bind(settings: Settings) -> None:
    """:raises SettingsError: when an address is given that does not belong to this host."""
    if settings.text("ha.bind").strip():
        require_address(settings, "ha.bind")


def _check_tls(settings: Settings) -> None:
    """:raises SettingsError: when connections cannot be encrypted."""
    if settings.flag(TLS) and settings.text("tls.server.mode") == "disabled":
        raise settings.error(TLS, "needs a tls.server.mode other than disabled")


CHECKS: Final = (
    SettingCheck(("haListenPort", "ha.bind", "bindAddress", "listenPort", "namesrv.port"),
                 _check_port),
    SettingCheck((PEERS,), networks),
    SettingCheck((TLS, "tls.server.mode"), _check_tls),
    SettingCheck(("haMasterAddress", "ha.master"), _check_addresses),
    SettingCheck(("ha.bind",), _check_bind),
    SettingCheck(("brokerRole", "inSyncReplicas", "aclEnable", "authenticationEnabled", PEERS),
                 _check_replicas),
)


def _unreachable_fault(settings: Settings) -> str:
    """Why slaves on other hosts cannot connect to brokerIP2; empty if they possibly can."""
    slave_host, client_host = (settings.text(name).strip() for name in ("brokerIP2", "brokerIP1"))
    try:
        address = ipaddress.ip_address(slave_host)
    except ValueError:
        return ""
    if address.is_unspecified:
        return f"slaves get brokerIP2={slave_host}, which is not an address to connect to"
    if slave_host != client_host and (address.is_loopback or address.is_link_local):
        return (f"slaves get brokerIP2={slave_host}, which cannot be reached from other hosts, "
                f"and clients get brokerIP1={client_host}: set brokerIP2 to the address for "
                "slaves")
    return ""


def replica_notices(settings: Settings) -> list[str]:
    """Return warnings for a start whose settings promise less than they seem to."""
    fault = "" if settings.text("brokerRole") == "SLAVE" else _unreachable_fault(settings)
    return [*_promises(settings), *([fault] if fault else [])]


def _promises(settings: Settings) -> list[str]:
    if settings.text("brokerRole") == "SYNC_MASTER" and settings.int("inSyncReplicas") == 1:
        return ["brokerRole=SYNC_MASTER with inSyncReplicas=1: no send waits for a slave; "
                "inSyncReplicas=2 makes it wait for one slave"]
    if settings.text("brokerRole") != "SLAVE" and settings.access_setting and not (
            settings.names(PEERS)):
        return [f"{settings.access_setting}=true without ha.peers: no slave can connect, because a "
                "slave does not give a password"]
    return []
