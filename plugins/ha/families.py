"""The metrics of replication. Apache's broker lacks them, so all names are specific to twistmq."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import single

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.follower import Follower
    from twistmq.plugins.ha.slaves import Slaves
    from twistmq.plugins.replica.tables import TableCopies

__all__ = ["families"]


def families(
    broker: Broker, slaves: Slaves, follower: Follower, tables: TableCopies
) -> list[MetricFamily]:
    """Make the families: a slave's about its master, or a master's about its slaves."""
    if broker.is_slave:
        ages = MetricFamily("ha_table_age_seconds", "gauge",
                            "Time since a table last equalled the master's.", ("table",))
        for name, age_ms in tables.ages_ms().items():
            ages.add(age_ms / 1000, name)
        return [
            ages,
            single("ha_master_connected", "Whether the master is followed.",
                   int(follower.is_connected)),
            single("ha_master_connections", "Connections to the master that were established.",
                   follower.connections, "counter"),
            single("ha_received_bytes", "Bytes of the master's log that were received.",
                   follower.received_bytes, "counter"),
        ]
    behind = MetricFamily("ha_slave_behind_bytes", "gauge",
                          "Bytes of the log that a slave has not reported.", ("slave",))
    seconds = MetricFamily("ha_slave_behind_seconds", "gauge",
                           "Time since the log was as long as a slave has it now.", ("slave",))
    rate = MetricFamily("ha_slave_bytes_per_second", "gauge",
                        "Bytes of the log that a slave was sent in the last second.", ("slave",))
    now_ms = broker.steady.awake_ms()
    for link in slaves.links:
        seconds.add(link.sender.behind_ms(now_ms) / 1000, link.peer)
        behind.add(link.sender.behind_bytes(), link.peer)
        rate.add(link.sender.rate.in_second(now_ms), link.peer)
    return [
        behind, seconds, rate,
        single("ha_slaves", "Slaves that are connected.", len(slaves.links)),
        single("ha_waiting_sends", "Sends that wait for slaves.", slaves.waits.count),
        single("ha_waited_sends", "Sends that waited for slaves.", slaves.waits.waits, "counter"),
        single("ha_late_sends", "Sends that waited longer than slaveTimeout.",
               slaves.waits.timeouts, "counter"),
    ]
