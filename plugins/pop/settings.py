"""The settings of pop consumption.

Source: BrokerConfig @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from twistmq.broker.api import Setting, Settings
from twistmq.broker.api.config import INT_MAX, LONG_MAX
from twistmq.broker.api.limits import TOPIC_QUEUES_MAX

__all__ = ["POP_SETTINGS", "PopSettings"]

_BROKER: Final = "BrokerConfig"

POP_SETTINGS: Final = (
    Setting("reviveQueueNum", "int", 8,
            "The number of queues of the revive topic, in which check points meet their "
            "acknowledgements; read at start.",
            unit="queues", least=1, most=TOPIC_QUEUES_MAX, source=_BROKER),
    Setting("reviveInterval", "int", 1000,
            "The interval of the search for popped messages that were not acknowledged in time.",
            unit="ms", least=1, source=_BROKER),
    Setting("popPollingSize", "int", 1024,
            "The number of pops of one group and queue that may wait for messages; any further pop "
            "is answered with POLLING_FULL.",
            unit="requests", least=0, source=_BROKER),
    Setting("maxPopPollingSize", "int", 100_000,
            "The total number of pops that may wait for messages.",
            unit="requests", least=0, most=LONG_MAX, source=_BROKER),
    Setting("popLongPollingForceNotifyInterval", "int", 800,
            "A message whose queue offset is divisible by this number wakes a pop even if its "
            "filter does not match; 0 disables this.",
            unit="messages", least=0, most=LONG_MAX, source=_BROKER),
    Setting("enablePopBufferMerge", "flag", False,
            "Whether check points wait in memory for their acknowledgements; read at start.",
            source=_BROKER, important=True),
    Setting("popCkStayBufferTime", "int", 10_000,
            "The longest time that a check point waits in memory; read at start.",
            unit="ms", least=0,
            source=_BROKER),
    Setting("popCkStayBufferTimeOut", "int", 3000,
            "A check point is written at the latest this long before its messages become visible "
            "again; read at start.", unit="ms", least=0, source=_BROKER),
    Setting("popCkMaxBufferSize", "int", 200_000,
            "With this many check points in memory, new ones are written at once; read at start.",
            unit="check points", least=0, source=_BROKER),
    Setting("popCkOffsetMaxQueueSize", "int", 20_000,
            "With this many unsettled check points of one group and queue, new ones are written at "
            "once; read at start.", unit="check points", least=0, source=_BROKER),
    Setting("enablePopBatchAck", "flag", False,
            "Whether the acknowledgements of a check point that leaves the memory are written as "
            "one message; read at start.", source=_BROKER),
    Setting("initPopOffsetByCheckMsgInMem", "flag", True,
            "Whether a group that would begin with the newest messages begins with the first "
            "message of the queue, as long as that message is in memory.", source=_BROKER),
    Setting("enableRetryTopicV2", "flag", False,
            "Whether retries go to %RETRY%GROUP+TOPIC instead of %RETRY%GROUP_TOPIC; read at "
            "start.", source=_BROKER),
    Setting("retrieveMessageFromPopRetryTopicV1", "flag", True,
            "Whether %RETRY%GROUP_TOPIC is also popped under enableRetryTopicV2; read at start.",
            source=_BROKER),
    Setting("popFromRetryProbability", "int", 20,
            "The percentage of pops that look for retries first; the others look for them last.",
            most=100, source=_BROKER),
    Setting("popFromRetryProbabilityForPriority", "int", 0,
            "The same for pops from a topic of the type PRIORITY that take the highest priority "
            "first.", most=100, source="BrokerConfig @5.5.0"),
    Setting("priorityOrderAsc", "flag", True,
            "Whether the last queue of a topic of the type PRIORITY has the highest priority, and "
            "not the first.", source="BrokerConfig @5.5.0"),
    Setting("useMessageFilterForNotification", "flag", True,
            "Whether a notification counts only messages that match the filter of its request.",
            source="BrokerConfig @5.5.0"),
    Setting("maxMessageFilterNumForNotification", "int", 64,
            "The number of messages of a queue from which on a notification does not compare their "
            "tags.", most=1024, source="BrokerConfig @5.5.0"),
    Setting("popResponseReturnActualRetryTopic", "flag", False,
            "Whether retries are delivered under the name of the retry topic; read at start.",
            source=_BROKER),
    Setting("enablePopMessageThreshold", "flag", False,
            "Whether popInflightMessageThreshold applies; read at start.", source=_BROKER),
    Setting("popInflightMessageThreshold", "int", 10_000,
            "With this many unacknowledged messages of one group and queue, no more messages are "
            "given out.", unit="messages", least=0, most=LONG_MAX, source=_BROKER),
    Setting("enableNotifyAfterPopOrderLockRelease", "flag", True,
            "Whether a waiting ordered pop is woken when hidden messages of its queue become "
            "visible again; read at start.", source=_BROKER),
    Setting("skipWhenCKRePutReachMaxTimes", "flag", False,
            "Whether a message is dropped when it could not be stored for its retry 17 times.",
            source=_BROKER),
    Setting("serverLoadBalancerEnable", "flag", True,
            "Whether a consumer that asks for its queues is assigned a share instead of all.",
            source=_BROKER),
    Setting("defaultMessageRequestMode", "text", "PULL",
            "The request mode of groups and topics for which none is set.",
            choices=("PULL", "POP"), source=_BROKER),
    Setting("defaultPopShareQueueNum", "int", -1,
            "The number of following members with which a consumer shares its queues by default; "
            "0 or less: all have all queues.", least=-INT_MAX, source=_BROKER),
    Setting("loadBalancePollNameServerInterval", "int", 30_000,
            "The age up to which a cached route is used to assign queues.", unit="ms", least=0,
            most=LONG_MAX, source=_BROKER),
)


@dataclass(frozen=True, slots=True)
class PopSettings:
    """The settings that are read once, when the broker starts."""

    revive_queues: int
    buffer_merge: bool
    stay_ms: int
    stay_timeout_ms: int
    buffer_size_max: int
    #: The maximum number of unsettled ranges of one queue.
    queue_size_max: int
    batch_ack: bool
    retry_v2: bool
    retry_v1_too: bool
    #: Whether retries keep the name of the retry topic.
    actual_retry_topic: bool
    #: Whether messages in flight are counted.
    has_threshold: bool
    order_notify: bool

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """Read the current values of the settings."""
        return cls(
            settings.int("reviveQueueNum"), settings.flag("enablePopBufferMerge"),
            settings.int("popCkStayBufferTime"), settings.int("popCkStayBufferTimeOut"),
            settings.int("popCkMaxBufferSize"), settings.int("popCkOffsetMaxQueueSize"),
            settings.flag("enablePopBatchAck"), settings.flag("enableRetryTopicV2"),
            settings.flag("retrieveMessageFromPopRetryTopicV1"),
            settings.flag("popResponseReturnActualRetryTopic"),
            settings.flag("enablePopMessageThreshold"),
            settings.flag("enableNotifyAfterPopOrderLockRelease"))
