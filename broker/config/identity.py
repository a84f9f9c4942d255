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

    :param settings: names, role and address are read once here; the name of a host is resolved.
    :param started_ms: when the broker was made, Unix ms.
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
        #: "host:port" that clients connect to.
        self.broker_address = ""
        #: The same address in the binary form of message ids.
        self.store_host = b""
        self.set_port(settings.int("listenPort"))
        #: The port that name servers tell slaves; 0: haListenPort. A plugin that listens sets it.
        self.ha_port = 0
        #: Whether name servers may let this broker, as a slave, stand in for its master, and after
        #: how long a silence they forget it, ms; None: what they do for all.
        self.enable_acting_master = False
        self.heartbeat_timeout_ms: int | None = None
        #: Whether it registers. A plugin that has it wait until it can serve sets this to False.
        self.registers = True
        #: Whether this slave stands in for its master, which is gone.
        self.is_acting = False
        #: Whether this slave is connected to its master: then it delivers nothing.
        self.has_master = False
        #: Makes the unique keys of messages that the broker itself sends.
        self.unique_ids = UniqueIdMaker(
            host_bytes(self._ip, 0)[:-4], os.getpid(), random.getrandbits(31))

    def set_port(self, port: int) -> None:
        """Set the port of the address; called again when a port of 0 became a real one."""
        self._port = port
        self.broker_address = f"{self._host_name}:{port}"
        self.store_host = host_bytes(self._ip, port)

    @property
    def ha_address(self) -> str:
        """The "host:port" that slaves connect to."""
        port = self.ha_port or self._settings.int("haListenPort") or self._port + 1
        return f"{self._settings.text('brokerIP2')}:{port}"

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"

    @property
    def delivers(self) -> bool:
        """Whether it delivers what falls due: a master that registers, a slave that stands in.

        A slave that is connected to its master does not, though name servers know no master yet:
        the one that returns first asks how far the slave has come.
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
