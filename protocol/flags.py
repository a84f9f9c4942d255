"""Bits and ids of the protocol that several parts of the product use.

Source: PermName, PullSysFlag, MixAll, TopicSysFlag @5.3.3.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BROKER_ID_MAX",
    "MASTER_ID",
    "PERM_INHERIT",
    "PERM_READ",
    "PERM_READ_WRITE",
    "PERM_WRITE",
    "PULL_CLASS_FILTER",
    "PULL_COMMIT_OFFSET",
    "PULL_LITE",
    "PULL_SUBSCRIPTION",
    "PULL_SUSPEND",
    "UNIT",
    "UNIT_SUB",
]

#: The broker id of a master; a slave has a greater one. Source: MixAll.MASTER_ID.
MASTER_ID: Final = 0
#: The largest broker id. Replication sends an id in the place of a report, and half of the negative
#: int64 values are reserved for ids.
BROKER_ID_MAX: Final = (1 << 62) - 1

#: Permissions of a topic or a broker. Source: PermName.
PERM_READ: Final = 4
PERM_WRITE: Final = 2
#: Topics that are created from this one inherit its permissions.
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

#: The ``sysFlag`` of a pull: it commits an offset, it may be held until messages arrive, and it
#: carries its own subscription. Source: PullSysFlag.
PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
#: Two bits that clients set and the broker passes on: a class filter, a lite pull consumer.
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

#: The ``topicSysFlag`` of unit mode: a topic that belongs to a unit, and a topic to which a unit
#: subscribes. Source: TopicSysFlag.
UNIT: Final = 1
UNIT_SUB: Final = 2
