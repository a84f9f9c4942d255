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
            "Queues of the revive topic, where check points and acknowledgements come together; "
            "read at start.", unit="queues", least=1, most=TOPIC_QUEUES_MAX, source=_BROKER),
    Setting("reviveInterval", "int", 1000,
            "How often popped messages that were not acknowledged in time are looked for.",
            unit="ms", least=1, source=_BROKER),
    Setting("popPollingSize", "int", 1024,
            "Pops of one group and queue that may wait for messages; a further one is answered "
            "POLLING_FULL.",
            unit="requests", least=0, source=_BROKER),
    Setting("maxPopPollingSize", "int", 100_000, "Pops that may wait for messages in all.",
            unit="requests", least=0, most=LONG_MAX, source=_BROKER),
    Setting("popLongPollingForceNotifyInterval", "int", 800,
            "A message whose queue offset this divides wakes a pop whether its filter wants it or "
            "not; 0: none does.", unit="messages", least=0, most=LONG_MAX, source=_BROKER),
    Setting("enablePopBufferMerge", "flag", False,
            "Whether check points wait in memory for their acknowledgements; read at start.",
            source=_BROKER, important=True),
    Setting("popCkStayBufferTime", "int", 10_000,
            "How long a check point waits in memory at most; read at start.", unit="ms", least=0,
            source=_BROKER),
    Setting("popCkStayBufferTimeOut", "int", 3000,
            "The time before its messages become visible again at which a check point is written; "
            "read at start.", unit="ms", least=0, source=_BROKER),
    Setting("popCkMaxBufferSize", "int", 200_000,
            "Check points in memory from which on more are written at once; read at start.",
            unit="check points", least=0, source=_BROKER),
    Setting("popCkOffsetMaxQueueSize", "int", 20_000,
            "Check points of one group and queue from which on more are written at once; read at "
            "start.", unit="check points", least=0, source=_BROKER),
    Setting("enablePopBatchAck", "flag", False,
            "Whether a check point that leaves the memory takes its acknowledgements along as one "
            "message; read at start.", source=_BROKER),
    Setting("initPopOffsetByCheckMsgInMem", "flag", True,
            "Whether a group that begins with the newest messages begins with the first one, as "
            "long as that is in memory.", source=_BROKER),
    Setting("enableRetryTopicV2", "flag", False,
            "Whether retries go to %RETRY%GROUP+TOPIC instead of %RETRY%GROUP_TOPIC; read at "
            "start.", source=_BROKER),
    Setting("retrieveMessageFromPopRetryTopicV1", "flag", True,
            "Whether %RETRY%GROUP_TOPIC is popped under enableRetryTopicV2 too; read at start.",
            source=_BROKER),
    Setting("popFromRetryProbability", "int", 20,
            "How many of a hundred pops look for retries first; the others look for them last.",
            most=100, source=_BROKER),
    Setting("popResponseReturnActualRetryTopic", "flag", False,
            "Whether retries are given out under the name of the retry topic; read at start.",
            source=_BROKER),
    Setting("enablePopMessageThreshold", "flag", False,
            "Whether popInflightMessageThreshold holds; read at start.", source=_BROKER),
    Setting("popInflightMessageThreshold", "int", 10_000,
            "Messages of one group and queue that are given out and not acknowledged, from which "
            "on no more are.", unit="messages", least=0, most=LONG_MAX, source=_BROKER),
    Setting("enableNotifyAfterPopOrderLockRelease", "flag", True,
            "Whether a pop that keeps order is woken when what it waits for becomes visible "
            "again; read at start.", source=_BROKER),
    Setting("skipWhenCKRePutReachMaxTimes", "flag", False,
            "Whether a message that could not be stored for its retry 17 times is given up.",
            source=_BROKER),
    Setting("serverLoadBalancerEnable", "flag", True,
            "Whether a consumer that asks for its queues gets a share of them, not all.",
            source=_BROKER),
    Setting("defaultMessageRequestMode", "text", "PULL",
            "The mode of a group and topic without one of their own, for consumers that ask.",
            choices=("PULL", "POP"), source=_BROKER),
    Setting("defaultPopShareQueueNum", "int", -1,
            "The number of members after it with which a consumer shares its queues then; 0 or "
            "less: all have all queues.", least=-INT_MAX, source=_BROKER),
    Setting("loadBalancePollNameServerInterval", "int", 30_000,
            "The age up to which a known route is used to assign queues.", unit="ms", least=0,
            most=LONG_MAX, source=_BROKER),
)


@dataclass(frozen=True, slots=True)
class PopSettings:
    """The settings that hold from the start on."""

    revive_queues: int
    buffer_merge: bool
    stay_ms: int
    stay_timeout_ms: int
    buffer_size_max: int
    #: Parts of one queue that are not settled.
    queue_size_max: int
    batch_ack: bool
    retry_v2: bool
    retry_v1_too: bool
    #: Whether retries keep the name of their topic.
    actual_retry_topic: bool
    #: Whether messages in flight are counted.
    has_threshold: bool
    order_notify: bool

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """Read what the user set."""
        return cls(
            settings.int("reviveQueueNum"), settings.flag("enablePopBufferMerge"),
            settings.int("popCkStayBufferTime"), settings.int("popCkStayBufferTimeOut"),
            settings.int("popCkMaxBufferSize"), settings.int("popCkOffsetMaxQueueSize"),
            settings.flag("enablePopBatchAck"), settings.flag("enableRetryTopicV2"),
            settings.flag("retrieveMessageFromPopRetryTopicV1"),
            settings.flag("popResponseReturnActualRetryTopic"),
            settings.flag("enablePopMessageThreshold"),
            settings.flag("enableNotifyAfterPopOrderLockRelease"))
