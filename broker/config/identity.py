"""The identity of a broker: its names, role and address, and the ids made from them.

Source: BrokerConfig and BrokerController.changeToMaster @5.3.3.
"""

from __future__ import annotations

import os
import random

from twistmq.broker.config.host_address import resolved
from twistmq.broker.config.settings import Settings
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.message_id import UniqueIdMaker
from twistmq.protocol.record import host_bytes

__all__ = ["Identity"]


class Identity:
    """The names, the role and the address of one broker.

    :param settings: the names, the role and the address are read once, here; a host name is
        resolved.
    :param started_ms: the time at which the broker was created, Unix ms.
    """

    def __init__(self, settings: Settings, started_ms: int) -> None:
        self._settings = settings
        self._ip = resolved(settings, "brokerIP1")
        self._host_name = settings.text("brokerIP1").strip()
        self.started_ms = started_ms
        #: The broker's name in routes.
        self.broker_name = settings.text("brokerName")
        self.cluster_name = settings.text("brokerClusterName")
        self.broker_id = settings.int("brokerId")
        #: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        self.role = settings.text("brokerRole")
        #: The "host:port" to which clients connect.
        self.broker_address = ""
        #: The same address in the binary form of message ids.
        self.store_host = b""
        self.set_port(settings.int("listenPort"))
        #: The port for slaves that name servers announce; 0: haListenPort. A plugin that listens
        #: for slaves sets it.
        self.ha_port = 0
        #: Whether name servers may let this broker, as a slave, stand in for its master, and the
        #: silence after which they forget it, ms; None: their usual time.
        self.enable_acting_master = False
        self.heartbeat_timeout_ms: int | None = None
        #: Whether the broker registers. A plugin that delays this until the broker can serve sets
        #: it to False.
        self.registers = True
        #: Whether this slave stands in for a master that is gone.
        self.is_acting = False
        #: Whether this slave is connected to its master, in which case it delivers nothing.
        self.has_master = False
        #: Creates the unique keys of the messages that the broker itself sends.
        self.unique_ids = UniqueIdMaker(
            host_bytes(self._ip, 0)[:-4], os.getpid(), random.getrandbits(31))

    def set_port(self, port: int) -> None:
        """Set the port of the address; called again once a port of 0 has become a real one."""
        self._port = port
        self.broker_address = f"{self._host_name}:{port}"
        self.store_host = host_bytes(self._ip, port)

    @property
    def ha_address(self) -> str:
        """The "host:port" to which slaves connect."""
        port = self.ha_port or self._settings.int("haListenPort") or self._port + 1
        return f"{self._settings.text('brokerIP2')}:{port}"

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"

    @property
    def delivers(self) -> bool:
        """Whether the broker delivers due messages.

        A master that registers and a slave that stands in deliver them. A slave that is connected
        to its master does not deliver them, even if name servers do not know a master yet, because
        a returning master first asks for the progress of the slave.
        """
        return self.is_acting and not self.has_master if self.is_slave else self.registers

    def set_role(self, role: str, broker_id: int) -> None:
        """Become master or slave.

        :param role: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        :param broker_id: the id of a slave; a master has id 0.
        """
        self.role = role
        self.is_acting = False
        self.broker_id = broker_id if role == "SLAVE" else MASTER_ID
