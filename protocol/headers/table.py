"""The header classes of each request code, for the request and for its response.

Source: remoting/protocol/header and the processors @5.3.3; protocol notes 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twistmq.protocol.codes import RequestCode
from twistmq.protocol.header import CommandHeader, EmptyHeader
from twistmq.protocol.headers import (
    admin,
    auth,
    client,
    namesrv,
    offset,
    pop,
    pull,
    query,
    send,
    topic,
    transaction,
)

__all__ = ["HEADERS", "HeaderPair"]


class HeaderPair(NamedTuple):
    """The header classes of one request code; EmptyHeader if a header has no fields."""

    request: type[CommandHeader]
    response: type[CommandHeader]


def _pair(
    request: type[CommandHeader] = EmptyHeader, response: type[CommandHeader] = EmptyHeader
) -> HeaderPair:
    return HeaderPair(request, response)


_MESSAGES: Final = {
    RequestCode.SEND_MESSAGE: _pair(
        send.SendMessageRequestHeader, send.SendMessageResponseHeader
    ),
    RequestCode.SEND_MESSAGE_V2: _pair(
        send.SendMessageRequestHeaderV2, send.SendMessageResponseHeader
    ),
    RequestCode.SEND_BATCH_MESSAGE: _pair(
        send.SendMessageRequestHeaderV2, send.SendMessageResponseHeader
    ),
    RequestCode.SEND_REPLY_MESSAGE: _pair(
        send.SendMessageRequestHeader, send.SendMessageResponseHeader
    ),
    RequestCode.SEND_REPLY_MESSAGE_V2: _pair(
        send.SendMessageRequestHeaderV2, send.SendMessageResponseHeader
    ),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _pair(send.ReplyMessageRequestHeader),
    RequestCode.CONSUMER_SEND_MSG_BACK: _pair(send.ConsumerSendMsgBackRequestHeader),
    RequestCode.RECALL_MESSAGE: _pair(
        send.RecallMessageRequestHeader, send.RecallMessageResponseHeader
    ),
    RequestCode.PULL_MESSAGE: _pair(
        pull.PullMessageRequestHeader, pull.PullMessageResponseHeader
    ),
    RequestCode.LITE_PULL_MESSAGE: _pair(
        pull.PullMessageRequestHeader, pull.PullMessageResponseHeader
    ),
    RequestCode.QUERY_MESSAGE: _pair(
        query.QueryMessageRequestHeader, query.QueryMessageResponseHeader
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: _pair(query.ViewMessageRequestHeader),
    RequestCode.QUERY_CONSUME_QUEUE: _pair(query.QueryConsumeQueueRequestHeader),
    RequestCode.END_TRANSACTION: _pair(transaction.EndTransactionRequestHeader),
    RequestCode.CHECK_TRANSACTION_STATE: _pair(transaction.CheckTransactionStateRequestHeader),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _pair(transaction.ResumeCheckHalfMessageRequestHeader),
}

_OFFSETS: Final = {
    RequestCode.QUERY_CONSUMER_OFFSET: _pair(
        offset.QueryConsumerOffsetRequestHeader, offset.QueryConsumerOffsetResponseHeader
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: _pair(offset.UpdateConsumerOffsetRequestHeader),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _pair(
        offset.SearchOffsetRequestHeader, offset.SearchOffsetResponseHeader
    ),
    RequestCode.GET_MAX_OFFSET: _pair(
        offset.GetMaxOffsetRequestHeader, offset.GetMaxOffsetResponseHeader
    ),
    RequestCode.GET_MIN_OFFSET: _pair(
        offset.GetMinOffsetRequestHeader, offset.GetMinOffsetResponseHeader
    ),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _pair(
        offset.GetEarliestMsgStoretimeRequestHeader, offset.GetEarliestMsgStoretimeResponseHeader
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _pair(),
}

_CLIENTS: Final = {
    RequestCode.HEART_BEAT: _pair(response=client.HeartbeatResponseHeader),
    RequestCode.UNREGISTER_CLIENT: _pair(client.UnregisterClientRequestHeader),
    RequestCode.CHECK_CLIENT_CONFIG: _pair(),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _pair(client.GetConsumerListByGroupRequestHeader),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _pair(client.NotifyConsumerIdsChangedRequestHeader),
    RequestCode.LOCK_BATCH_MQ: _pair(),
    RequestCode.UNLOCK_BATCH_MQ: _pair(),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _pair(
        client.GetConsumerConnectionListRequestHeader
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _pair(
        client.GetProducerConnectionListRequestHeader
    ),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _pair(client.ResetOffsetRequestHeader),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _pair(client.GetConsumerStatusRequestHeader),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _pair(client.GetConsumerRunningInfoRequestHeader),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _pair(
        client.ConsumeMessageDirectlyResultRequestHeader
    ),
    RequestCode.QUERY_ASSIGNMENT: _pair(),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _pair(),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _pair(),
}

_BROKER: Final = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _pair(topic.CreateTopicRequestHeader),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _pair(),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _pair(topic.CreateTopicRequestHeader),
    RequestCode.GET_ALL_TOPIC_CONFIG: _pair(),
    RequestCode.UPDATE_BROKER_CONFIG: _pair(),
    RequestCode.GET_BROKER_CONFIG: _pair(response=admin.GetBrokerConfigResponseHeader),
    RequestCode.TRIGGER_DELETE_FILES: _pair(),
    RequestCode.GET_BROKER_RUNTIME_INFO: _pair(),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _pair(),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _pair(),
    RequestCode.GET_TOPIC_STATS_INFO: _pair(topic.GetTopicStatsInfoRequestHeader),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _pair(topic.DeleteSubscriptionGroupRequestHeader),
    RequestCode.GET_CONSUME_STATS: _pair(topic.GetConsumeStatsRequestHeader),
    RequestCode.DELETE_TOPIC_IN_BROKER: _pair(topic.DeleteTopicRequestHeader),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _pair(topic.QueryTopicConsumeByWhoRequestHeader),
    RequestCode.GET_TOPIC_CONFIG: _pair(topic.GetTopicConfigRequestHeader),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _pair(
        topic.GetSubscriptionGroupConfigRequestHeader
    ),
}

_NAME_SERVER: Final = {
    RequestCode.PUT_KV_CONFIG: _pair(namesrv.PutKVConfigRequestHeader),
    RequestCode.GET_KV_CONFIG: _pair(
        namesrv.GetKVConfigRequestHeader, namesrv.GetKVConfigResponseHeader
    ),
    RequestCode.DELETE_KV_CONFIG: _pair(namesrv.DeleteKVConfigRequestHeader),
    RequestCode.REGISTER_BROKER: _pair(
        namesrv.RegisterBrokerRequestHeader, namesrv.RegisterBrokerResponseHeader
    ),
    RequestCode.UNREGISTER_BROKER: _pair(namesrv.UnRegisterBrokerRequestHeader),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _pair(namesrv.GetRouteInfoRequestHeader),
    RequestCode.GET_BROKER_CLUSTER_INFO: _pair(),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _pair(
        namesrv.WipeWritePermOfBrokerRequestHeader, namesrv.WipeWritePermOfBrokerResponseHeader
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _pair(
        namesrv.AddWritePermOfBrokerRequestHeader, namesrv.AddWritePermOfBrokerResponseHeader
    ),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _pair(),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _pair(namesrv.DeleteTopicFromNamesrvRequestHeader),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _pair(namesrv.RegisterTopicRequestHeader),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _pair(namesrv.GetKVListByNamespaceRequestHeader),
    RequestCode.GET_TOPICS_BY_CLUSTER: _pair(namesrv.GetTopicsByClusterRequestHeader),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _pair(),
    RequestCode.GET_UNIT_TOPIC_LIST: _pair(),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _pair(),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _pair(),
    RequestCode.UPDATE_NAMESRV_CONFIG: _pair(),
    RequestCode.GET_NAMESRV_CONFIG: _pair(),
    RequestCode.QUERY_DATA_VERSION: _pair(
        namesrv.QueryDataVersionRequestHeader, namesrv.QueryDataVersionResponseHeader
    ),
    RequestCode.GET_BROKER_MEMBER_GROUP: _pair(namesrv.GetBrokerMemberGroupRequestHeader),
    RequestCode.BROKER_HEARTBEAT: _pair(namesrv.BrokerHeartbeatRequestHeader),
}

_USERS: Final = {
    RequestCode.AUTH_CREATE_USER: _pair(auth.UserRequestHeader),
    RequestCode.AUTH_UPDATE_USER: _pair(auth.UserRequestHeader),
    RequestCode.AUTH_DELETE_USER: _pair(auth.UserRequestHeader),
    RequestCode.AUTH_GET_USER: _pair(auth.UserRequestHeader),
    RequestCode.AUTH_LIST_USER: _pair(auth.ListUsersRequestHeader),
    RequestCode.AUTH_CREATE_ACL: _pair(auth.AclRequestHeader),
    RequestCode.AUTH_UPDATE_ACL: _pair(auth.AclRequestHeader),
    RequestCode.AUTH_DELETE_ACL: _pair(auth.DeleteAclRequestHeader),
    RequestCode.AUTH_GET_ACL: _pair(auth.AclRequestHeader),
    RequestCode.AUTH_LIST_ACL: _pair(auth.ListAclsRequestHeader),
}

_POP: Final = {
    RequestCode.POP_MESSAGE: _pair(pop.PopMessageRequestHeader, pop.PopMessageResponseHeader),
    RequestCode.ACK_MESSAGE: _pair(pop.AckMessageRequestHeader),
    RequestCode.BATCH_ACK_MESSAGE: _pair(),
    RequestCode.PEEK_MESSAGE: _pair(pop.PeekMessageRequestHeader, pop.PopMessageResponseHeader),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pair(
        pop.ChangeInvisibleTimeRequestHeader, pop.ChangeInvisibleTimeResponseHeader
    ),
    RequestCode.NOTIFICATION: _pair(
        pop.NotificationRequestHeader, pop.NotificationResponseHeader
    ),
    RequestCode.POLLING_INFO: _pair(
        pop.PollingInfoRequestHeader, pop.PollingInfoResponseHeader
    ),
}

#: The header classes of every request that is served, or that the broker sends to clients.
HEADERS: Final[dict[RequestCode, HeaderPair]] = {
    **_MESSAGES, **_OFFSETS, **_CLIENTS, **_BROKER, **_NAME_SERVER, **_USERS, **_POP
}
