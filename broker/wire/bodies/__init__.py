"""Bodies in JSON: one typed Struct each, under Apache's names, with Apache's defaults."""

from twistmq.broker.wire.bodies.body import (
    Body,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
    TopicFilterType,
)
from twistmq.broker.wire.bodies.client import (
    CheckClientRequestBody,
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerData,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from twistmq.broker.wire.bodies.group import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    CustomizedRetryPolicy,
    DelayOffsetSerializeWrapper,
    ExponentialRetryPolicy,
    GetConsumerStatusBody,
    GroupRetryPolicy,
    LmqConsumerOffsetSerializeWrapper,
    OffsetWrapper,
    ResetOffsetBody,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from twistmq.broker.wire.bodies.registration import RegisterBrokerBody
from twistmq.broker.wire.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
    wants_standard_json,
)
from twistmq.broker.wire.bodies.topic import (
    CreateTopicListRequestBody,
    DataVersion,
    GroupList,
    KVTable,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicQueueMappingInfo,
    TopicStatsTable,
)

__all__ = [
    "Body", "BrokerData", "BrokerMemberGroup", "CheckClientRequestBody", "ClusterInfo",
    "Connection", "ConsumeFromWhere", "ConsumeStats", "ConsumeType", "ConsumerConnection",
    "ConsumerData", "ConsumerOffsetSerializeWrapper", "ConsumerRunningInfo",
    "CreateTopicListRequestBody", "CustomizedRetryPolicy", "DataVersion",
    "DelayOffsetSerializeWrapper", "ExponentialRetryPolicy", "GetBrokerMemberGroupResponseBody",
    "GetConsumerListByGroupResponseBody", "GetConsumerStatusBody", "GroupList",
    "GroupRetryPolicy", "HeartbeatData", "KVTable",
    "LmqConsumerOffsetSerializeWrapper", "LockBatchRequestBody", "LockBatchResponseBody",
    "MessageModel", "MessageQueue", "OffsetWrapper",
    "ProducerConnection", "ProducerData", "QueueData", "RegisterBrokerBody", "ResetOffsetBody",
    "SimpleSubscriptionData", "SubscriptionData", "SubscriptionGroupConfig",
    "SubscriptionGroupList", "SubscriptionGroupWrapper", "TopicConfig",
    "TopicConfigSerializeWrapper", "TopicFilterType", "TopicList", "TopicOffset",
    "TopicQueueMappingInfo", "TopicRouteData", "TopicStatsTable", "UnlockBatchRequestBody",
    "wants_standard_json",
]
