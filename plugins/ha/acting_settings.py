"""The settings of groups whose slaves may stand in for their master.

Source: BrokerConfig, MessageStoreConfig @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import Setting

__all__ = ["ACTING", "ACTING_SETTINGS"]

_BROKER: Final = "BrokerConfig"
_STORE: Final = "MessageStoreConfig"
#: Whether a slave may stand in for its master.
ACTING: Final = "enableSlaveActingMaster"

ACTING_SETTINGS: Final = (
    Setting(ACTING, "flag", False,
            "Whether the slave with the lowest id stands in for a master that is gone. All brokers "
            "of the name need the same value, and name servers need supportActingMaster.",
            at_start=True, source=_BROKER),
    Setting("totalReplicas", "int", 1,
            "The number of brokers of the name, including the master. With more than one, and "
            "enableSlaveActingMaster, a broker registers once it is connected to the other ones.",
            unit="brokers", least=1, most=1000, at_start=True, source=_STORE),
    Setting("enableRemoteEscape", "flag", False,
            "Whether a slave that stands in for its master stores delayed messages that fall due "
            "on other masters of the cluster. If not, they wait for its master.",
            at_start=True, source=_BROKER),
    Setting("enableAutoInSyncReplicas", "flag", False,
            "Whether a SYNC_MASTER with enableSlaveActingMaster waits for fewer than "
            "inSyncReplicas when fewer brokers are available.", source=_STORE),
    Setting("minInSyncReplicas", "int", 1,
            "The number of brokers, including the master, that it then waits for at least. When "
            "fewer are available, sends are refused.", unit="brokers", least=1, most=1000,
            source=_STORE),
    Setting("lockInStrictMode", "flag", False,
            "Whether a broker with enableSlaveActingMaster gives an ordered consumer the lock of a "
            "queue only if more than half of totalReplicas grant it, including the broker itself.",
            source=_BROKER),
    Setting("skipPreOnline", "flag", False,
            "Whether a broker with enableSlaveActingMaster registers without waiting for others.",
            at_start=True, source=_BROKER),
    Setting("compatibleWithOldNameSrv", "flag", True,
            "Whether a broker with enableSlaveActingMaster sends its heartbeats, and asks for its "
            "group, with requests that name servers before version 5 know.", source=_BROKER),
    Setting("brokerHeartbeatInterval", "int", 1000,
            "How often a broker with enableSlaveActingMaster sends a heartbeat to name servers.",
            unit="ms", least=1, source=_BROKER),
    Setting("sendHeartbeatTimeoutMillis", "int", 1000,
            "How long such a heartbeat waits for the connection.", unit="ms", least=1,
            source=_BROKER),
    Setting("brokerNotActiveTimeoutMillis", "int", 10_000,
            "The silence after which name servers forget a broker with enableSlaveActingMaster.",
            unit="ms", least=1, at_start=True, source=_BROKER),
    Setting("syncBrokerMemberGroupPeriod", "int", 1000,
            "How often a broker with enableSlaveActingMaster asks which brokers are in its group.",
            unit="ms", least=1, source=_BROKER),
)
