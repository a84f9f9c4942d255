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
            "of the name have it alike, and name servers have supportActingMaster.",
            at_start=True, source=_BROKER),
    Setting("totalReplicas", "int", 1,
            "The brokers of the name, the master counted. With more than one, and "
            "enableSlaveActingMaster, a broker registers once it is connected to the others.",
            unit="brokers", least=1, most=1000, at_start=True, source=_STORE),
    Setting("enableRemoteEscape", "flag", False,
            "Whether a slave that stands in for its master stores delayed messages that fall due "
            "on other masters of the cluster. If not, they wait for its master.",
            at_start=True, source=_BROKER),
    Setting("enableAutoInSyncReplicas", "flag", False,
            "Whether a SYNC_MASTER with enableSlaveActingMaster waits for fewer than "
            "inSyncReplicas when fewer brokers are there.", source=_STORE),
    Setting("minInSyncReplicas", "int", 1,
            "The brokers that it waits for at least then, the master counted. When fewer are "
            "there sends are refused.", unit="brokers", least=1, most=1000, source=_STORE),
    Setting("lockInStrictMode", "flag", False,
            "Whether a broker with enableSlaveActingMaster gives a consumer that keeps order the "
            "lock of a queue only if more than half of totalReplicas give it, itself counted.",
            source=_BROKER),
    Setting("skipPreOnline", "flag", False,
            "Whether a broker with enableSlaveActingMaster registers without waiting for others.",
            at_start=True, source=_BROKER),
    Setting("compatibleWithOldNameSrv", "flag", True,
            "Whether a broker with enableSlaveActingMaster tells name servers that it lives, and "
            "asks for its group, by requests that those before 5 know.", source=_BROKER),
    Setting("brokerHeartbeatInterval", "int", 1000,
            "How often a broker with enableSlaveActingMaster tells name servers that it lives.",
            unit="ms", least=1, source=_BROKER),
    Setting("sendHeartbeatTimeoutMillis", "int", 1000,
            "How long such a heartbeat waits for the connection.", unit="ms", least=1,
            source=_BROKER),
    Setting("brokerNotActiveTimeoutMillis", "int", 10_000,
            "The silence after which name servers forget a broker with enableSlaveActingMaster.",
            unit="ms", least=1, at_start=True, source=_BROKER),
    Setting("syncBrokerMemberGroupPeriod", "int", 1000,
            "How often a broker with enableSlaveActingMaster asks who is in its group.",
            unit="ms", least=1, source=_BROKER),
)
