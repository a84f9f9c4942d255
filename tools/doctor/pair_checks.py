"""Checks of a master and its slave: their mutual addresses, and settings that must be equal.

For the set-up of a slave, its master is asked if it runs already.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import WILDCARDS
from twistmq.broker.errors import SettingsError
from twistmq.protocol.decimal_text import PORT_MAX, whole_number
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.flags import MASTER_ID
from twistmq.tools.doctor.findings import Finding, broken, fine, warning
from twistmq.tools.doctor.server_queries import broker_settings_at, registered_addresses

__all__ = ["pair_findings"]

_TIMEOUT_SECONDS: Final = 3.0
_CHECK: Final = "replication"
_FILE_SIZE: Final = "mappedFileSizeCommitLog"


def pair_findings(settings: Settings, *, running: bool) -> Iterator[Finding]:
    """Check a broker of a pair; a single ASYNC_MASTER and a member of a group have no findings.

    :param running: whether the broker is expected to run, so that its port must answer.
    """
    role = settings.text("brokerRole")
    if not settings.has("ha.master") or role == "ASYNC_MASTER":
        return
    if settings.has("enableDLegerCommitLog") and settings.flag("enableDLegerCommitLog"):
        return
    if role == "SLAVE":
        yield from _of_slave(settings)
        return
    if settings.int("inSyncReplicas") == 1:
        yield warning(_CHECK, "brokerRole=SYNC_MASTER with inSyncReplicas=1: no send waits for a "
                              "slave", "with inSyncReplicas=2, a sender is answered once a slave "
                                       "has its message")
    announced_host = settings.text("brokerIP2").strip()
    if announced_host in WILDCARDS:
        yield broken(_CHECK,
                     f"slaves get brokerIP2={announced_host}, which is not an address to connect "
                     "to",
                     "set brokerIP2 to the address at which slaves reach this host")
    elif running:
        port = settings.int("haListenPort") or settings.int("listenPort") + 1
        yield _reached(announced_host, port, "the port for slaves")


def _reached(host: str, port: int, what: str) -> Finding:
    """Check whether the port for slaves is open at its announced address."""
    try:
        socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
    except OSError as error:
        return broken(_CHECK, f"{what}, brokerIP2={host} port {port}, does not answer: "
                              f"{error.strerror or error}",
                      "set the master's brokerIP2 to the address at which slaves reach it; a "
                      "firewall may block the connection")
    return fine(_CHECK, f"{what}, {host}:{port}, answers")


def _of_slave(settings: Settings) -> Iterator[Finding]:
    """Ask the master of a slave."""
    try:
        address = settings.text("ha.master").strip() or _known_master(settings)
        if not address:
            yield warning(_CHECK, f"no name server knows a master {settings.text('brokerName')}",
                          "start the master, with the same brokerName; until then the slave waits")
            return
        theirs = broker_settings_at(address, settings)
    except (BrokerError, SettingsError, ValueError, OSError) as error:
        yield warning(_CHECK, f"the master cannot be asked: {error}",
                      "start it, or correct the address; then check again")
        return
    own = str(settings.int(_FILE_SIZE))
    size = theirs.get(_FILE_SIZE, own)
    if size != own:
        yield broken(_CHECK, f"{_FILE_SIZE} is {own} here and {size} of the master at {address}: "
                             "the slave would stop at the end of the first file",
                     f"start the slave with {_FILE_SIZE}={size} and an empty store")
    else:
        yield fine(_CHECK, f"the master at {address} has the same {_FILE_SIZE}")
    ha_address = settings.text("haMasterAddress").strip()
    host, _, port = ha_address.rpartition(":")
    if not host:
        host, port = theirs.get("brokerIP2", ""), _ha_port(theirs, address)
    number = whole_number(port, PORT_MAX)
    if host and number:
        yield _reached(host, number, "the master's port for slaves")


def _ha_port(theirs: Mapping[str, str], address: str) -> str:
    """Return the port for slaves of a master, according to its settings."""
    port = theirs.get("haListenPort", "0")
    return port if port != "0" else str(int(address.rpartition(":")[2]) + 1)


def _known_master(settings: Settings) -> str:
    """Return the address of the master that name servers know; empty if they know none.

    :raises BrokerError, OSError: when a name server does not answer, and no other one knows it.
    """
    return next((addresses[MASTER_ID] for addresses in registered_addresses(settings)
                 if MASTER_ID in addresses), "")
