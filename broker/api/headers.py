"""The headers of requests and replies, by Apache's names.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.protocol.headers import offset
from twistmq.protocol.headers.admin import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    GetBrokerConfigResponseHeader,
    GetConsumeStatsInBrokerHeader,
    NotifyBrokerRoleChangedRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    ResetMasterFlushOffsetHeader,
    UpdateGroupForbiddenRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from twistmq.protocol.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.protocol.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
)
from twistmq.protocol.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)
from twistmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from twistmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.protocol.headers.query import (
    QueryConsumeQueueRequestHeader,
    ViewMessageRequestHeader,
)
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    RecallRefusedResponseHeader,
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    SendRefusedResponseHeader,
)
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from twistmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

__all__ = [
    "AckMessageRequestHeader",
    "AclRequestHeader",
    "BrokerHeartbeatRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeInvisibleTimeResponseHeader",
    "CheckTransactionStateRequestHeader",
    "CloneGroupOffsetRequestHeader",
    "ConsumeMessageDirectlyResultRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteAclRequestHeader",
    "EndTransactionRequestHeader",
    "ExchangeHAInfoRequestHeader",
    "ExchangeHAInfoResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetBrokerMemberGroupRequestHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "GetSubscriptionGroupConfigRequestHeader",
    "GetTopicConfigRequestHeader",
    "GetTopicStatsInfoRequestHeader",
    "ListAclsRequestHeader",
    "ListUsersRequestHeader",
    "NotificationRequestHeader",
    "NotificationResponseHeader",
    "NotifyBrokerRoleChangedRequestHeader",
    "NotifyMinBrokerIdChangeRequestHeader",
    "PeekMessageRequestHeader",
    "PollingInfoRequestHeader",
    "PollingInfoResponseHeader",
    "PopMessageRequestHeader",
    "PopMessageResponseHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QueryCorrectionOffsetHeader",
    "QueryDataVersionRequestHeader",
    "QuerySubscriptionByConsumerRequestHeader",
    "QueryTopicConsumeByWhoRequestHeader",
    "QueryTopicsByConsumerRequestHeader",
    "RecallMessageRequestHeader",
    "RecallMessageResponseHeader",
    "RecallRefusedResponseHeader",
    "ReplyMessageRequestHeader",
    "ResetMasterFlushOffsetHeader",
    "ResetOffsetRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
    "SendRefusedResponseHeader",
    "UpdateGroupForbiddenRequestHeader",
    "UserRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
    "ViewMessageRequestHeader",
    "offset",
]
