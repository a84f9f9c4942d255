"""The tests of each request code, which are a column of broker/CODES.md.

Each code has one class of tests: of the classes that ask it, the one that is about it. The test of
refusals shows a code that no server supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.reference_rows import fault_of_test
from twistmq.protocol.codes import REFUSED, SENT_TO_CLIENTS, RequestCode
from twistmq.tools.pages.codes_page import codes_page, servers

__all__ = ["CODE_TESTS", "faults", "page"]

_TESTS: Final = Path(__file__).parent
_Code = RequestCode

_SHOWN: Final[Mapping[str, tuple[RequestCode, ...]]] = {
    "acl/test_auth_requests.py::PolicyRequestTests": (
        _Code.AUTH_CREATE_ACL, _Code.AUTH_UPDATE_ACL, _Code.AUTH_DELETE_ACL, _Code.AUTH_GET_ACL,
        _Code.AUTH_LIST_ACL),
    "acl/test_auth_requests.py::UserRequestTests": (
        _Code.AUTH_CREATE_USER, _Code.AUTH_UPDATE_USER, _Code.AUTH_DELETE_USER, _Code.AUTH_GET_USER,
        _Code.AUTH_LIST_USER),
    "acl/test_requests.py::AccountRequestsTests": (
        _Code.UPDATE_AND_CREATE_ACL_CONFIG, _Code.DELETE_ACL_CONFIG,
        _Code.GET_BROKER_CLUSTER_ACL_INFO, _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        _Code.GET_BROKER_CLUSTER_ACL_CONFIG),
    "broker/namesrv/test_broker_requests.py::LifeTests": (
        _Code.UNREGISTER_BROKER, _Code.QUERY_DATA_VERSION, _Code.BROKER_HEARTBEAT),
    "broker/namesrv/test_broker_requests.py::RegisterBrokerTests": (_Code.REGISTER_BROKER,),
    "broker/namesrv/test_broker_requests.py::TopicRequestTests": (
        _Code.WIPE_WRITE_PERM_OF_BROKER, _Code.DELETE_TOPIC_IN_NAMESRV,
        _Code.REGISTER_TOPIC_IN_NAMESRV, _Code.ADD_WRITE_PERM_OF_BROKER),
    "broker/namesrv/test_config_requests.py::SettingRequestTests": (
        _Code.UPDATE_NAMESRV_CONFIG, _Code.GET_NAMESRV_CONFIG),
    "broker/namesrv/test_config_requests.py::ValueRequestTests": (
        _Code.PUT_KV_CONFIG, _Code.GET_KV_CONFIG, _Code.DELETE_KV_CONFIG,
        _Code.GET_KVLIST_BY_NAMESPACE),
    "broker/namesrv/test_route_requests.py::ReadRequestTests": (
        _Code.GET_BROKER_CLUSTER_INFO, _Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        _Code.GET_TOPICS_BY_CLUSTER, _Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        _Code.GET_UNIT_TOPIC_LIST, _Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        _Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _Code.GET_BROKER_MEMBER_GROUP),
    "broker/namesrv/test_route_requests.py::RouteRequestTests": (_Code.GET_ROUTEINFO_BY_TOPIC,),
    "broker/request/test_client_requests.py::CheckTests": (_Code.CHECK_CLIENT_CONFIG,),
    "broker/request/test_client_requests.py::HeartbeatTests": (_Code.HEART_BEAT,),
    "broker/request/test_client_requests.py::MembersTests": (_Code.GET_CONSUMER_LIST_BY_GROUP,),
    "broker/request/test_client_requests.py::PushTests": (_Code.NOTIFY_CONSUMER_IDS_CHANGED,),
    "broker/request/test_client_requests.py::UnregisterTests": (_Code.UNREGISTER_CLIENT,),
    "broker/request/test_offset_requests.py::AllOffsetsTests": (_Code.GET_ALL_CONSUMER_OFFSET,),
    "broker/request/test_offset_requests.py::BoundTests": (
        _Code.GET_MAX_OFFSET, _Code.GET_MIN_OFFSET, _Code.GET_EARLIEST_MSG_STORETIME),
    "broker/request/test_offset_requests.py::CommitTests": (
        _Code.QUERY_CONSUMER_OFFSET, _Code.UPDATE_CONSUMER_OFFSET),
    "broker/request/test_offset_requests.py::SearchTests": (_Code.SEARCH_OFFSET_BY_TIMESTAMP,),
    "broker/request/test_pull.py::ReadTests": (_Code.PULL_MESSAGE, _Code.LITE_PULL_MESSAGE),
    "broker/request/test_query_requests.py::KeyTests": (_Code.QUERY_MESSAGE,),
    "broker/request/test_query_requests.py::PlaceTests": (_Code.VIEW_MESSAGE_BY_ID,),
    "broker/request/test_send.py::InnerBatchTests": (_Code.SEND_BATCH_MESSAGE,),
    "broker/request/test_send.py::StoredTests": (_Code.SEND_MESSAGE, _Code.SEND_MESSAGE_V2),
    "broker/request/test_topic_requests.py::AllTopicsTests": (_Code.GET_ALL_TOPIC_CONFIG,),
    "broker/request/test_topic_requests.py::CreateTopicTests": (
        _Code.UPDATE_AND_CREATE_TOPIC, _Code.DELETE_TOPIC_IN_BROKER),
    "broker/request/test_topic_requests.py::CreateTopicsTests": (
        _Code.UPDATE_AND_CREATE_TOPIC_LIST,),
    "broker/request/test_topic_requests.py::GroupTests": (
        _Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _Code.DELETE_SUBSCRIPTIONGROUP,
        _Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    "broker/remoting/test_channels.py::ServerToClientTests": (_Code.CHECK_TRANSACTION_STATE,),
    "plugins/admin/test_clients.py::AllProducersTests": (_Code.GET_ALL_PRODUCER_INFO,),
    "plugins/admin/test_clients.py::ConnectionsTests": (
        _Code.GET_CONSUMER_CONNECTION_LIST, _Code.GET_PRODUCER_CONNECTION_LIST),
    "plugins/admin/test_clients.py::ConsumeDirectlyTests": (_Code.CONSUME_MESSAGE_DIRECTLY,),
    "plugins/admin/test_clients.py::RunningInfoTests": (_Code.GET_CONSUMER_RUNNING_INFO,),
    "plugins/admin/test_clients.py::StatusTests": (
        _Code.GET_CONSUMER_STATUS_FROM_CLIENT, _Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    "plugins/admin/test_groups.py::ConsumedTests": (
        _Code.QUERY_TOPICS_BY_CONSUMER, _Code.QUERY_SUBSCRIPTION_BY_CONSUMER),
    "plugins/admin/test_groups.py::ForbiddenTests": (_Code.UPDATE_AND_GET_GROUP_FORBIDDEN,),
    "plugins/admin/test_groups.py::GroupQuestionsTests": (
        _Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _Code.GET_SUBSCRIPTIONGROUP_CONFIG),
    "plugins/admin/test_groups.py::ProgressTests": (_Code.GET_CONSUME_STATS,),
    "plugins/admin/test_progress.py::AllProgressTests": (_Code.GET_BROKER_CONSUME_STATS,),
    "plugins/admin/test_progress.py::CloneTests": (_Code.CLONE_GROUP_OFFSET,),
    "plugins/admin/test_progress.py::CorrectionTests": (_Code.QUERY_CORRECTION_OFFSET,),
    "plugins/admin/test_progress.py::TimeSpanTests": (_Code.QUERY_CONSUME_TIME_SPAN,),
    "plugins/admin/test_queues.py::QueueQuestionsTests": (_Code.QUERY_CONSUME_QUEUE,),
    "plugins/admin/test_offset_reset.py::ResetByBrokerTests": (
        _Code.INVOKE_BROKER_TO_RESET_OFFSET,),
    "plugins/admin/test_offset_reset.py::ResetByClientsTests": (
        _Code.RESET_CONSUMER_CLIENT_OFFSET,),
    "plugins/admin/test_retention.py::RetentionRequestsTests": (
        _Code.CLEAN_EXPIRED_CONSUMEQUEUE, _Code.CLEAN_UNUSED_TOPIC, _Code.DELETE_EXPIRED_COMMITLOG),
    "plugins/admin/test_runtime.py::RuntimeTableTests": (_Code.GET_BROKER_RUNTIME_INFO,),
    "plugins/admin/test_settings.py::ReadTests": (_Code.GET_BROKER_CONFIG,),
    "plugins/admin/test_settings.py::UpdateTests": (_Code.UPDATE_BROKER_CONFIG,),
    "plugins/admin/test_stats.py::StatsTests": (_Code.VIEW_BROKER_STATS_DATA,),
    "plugins/admin/test_topics.py::TopicQuestionsTests": (
        _Code.GET_TOPIC_STATS_INFO, _Code.QUERY_TOPIC_CONSUME_BY_WHO,
        _Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _Code.GET_TOPIC_CONFIG),
    "plugins/ha/test_role_change.py::RoleChangeTests": (_Code.NOTIFY_BROKER_ROLE_CHANGED,),
    "plugins/ha/test_acting_master.py::LowestIdTests": (_Code.NOTIFY_MIN_BROKER_ID_CHANGE,),
    "plugins/ha/test_acting_master.py::ExchangeTests": (_Code.EXCHANGE_BROKER_HA_INFO,),
    "plugins/ha/test_admin.py::ReplicationTests": (
        _Code.GET_BROKER_HA_STATUS, _Code.RESET_MASTER_FLUSH_OFFSET),
    "plugins/pop/test_ack.py::AckTests": (_Code.ACK_MESSAGE,),
    "plugins/pop/test_ack.py::BatchTests": (_Code.BATCH_ACK_MESSAGE,),
    "plugins/pop/test_assignment.py::AssignmentTests": (_Code.QUERY_ASSIGNMENT,),
    "plugins/pop/test_hold.py::HoldTests": (_Code.POLLING_INFO,),
    "plugins/pop/test_invisible.py::ChangeTests": (_Code.CHANGE_MESSAGE_INVISIBLETIME,),
    "plugins/pop/test_notification.py::NotificationTests": (_Code.NOTIFICATION,),
    "plugins/pop/test_pop_requests.py::PeekTests": (_Code.PEEK_MESSAGE,),
    "plugins/pop/test_pop_requests.py::PopTests": (_Code.POP_MESSAGE,),
    "plugins/pop/test_pop_requests.py::RollBackTests": (_Code.POP_ROLLBACK,),
    "plugins/pop/test_request_mode.py::ModeTests": (
        _Code.SET_MESSAGE_REQUEST_MODE, _Code.GET_ALL_MESSAGE_REQUEST_MODE),
    "plugins/schedule/test_service.py::ProgressTests": (_Code.GET_ALL_DELAY_OFFSET,),
    "plugins/static_topic/test_topics.py::UpdateTests": (_Code.UPDATE_AND_CREATE_STATIC_TOPIC,),
    "plugins/test_orderly.py::LockRequestsTests": (_Code.LOCK_BATCH_MQ, _Code.UNLOCK_BATCH_MQ),
    "plugins/test_reply.py::PushTests": (
        _Code.SEND_REPLY_MESSAGE, _Code.SEND_REPLY_MESSAGE_V2, _Code.PUSH_REPLY_MESSAGE_TO_CLIENT),
    "plugins/test_retry.py::SendBackTests": (_Code.CONSUMER_SEND_MSG_BACK,),
    "plugins/timer/test_metrics.py::TimerMetricsTests": (_Code.GET_TIMER_METRICS,),
    "plugins/timer/test_recall.py::RecallTests": (_Code.RECALL_MESSAGE,),
    "plugins/timer/test_service.py::FigureTests": (_Code.GET_TIMER_CHECK_POINT,),
    "transaction/test_end.py::EndTests": (_Code.END_TRANSACTION,),
    "transaction/test_half_message_requeue.py::ResumeTests": (_Code.RESUME_CHECK_HALF_MESSAGE,),
}
#: Asks every code of ``REFUSED``.
_REFUSED: Final = "broker/remoting/test_dispatcher.py::RefusedCodesTests"

#: The tests of each code.
CODE_TESTS: Final[Mapping[int, str]] = {
    **{code: _REFUSED for code in REFUSED if code not in SENT_TO_CLIENTS},
    **{code: test for test, codes in _SHOWN.items() for code in codes},
}


def page() -> str:
    """Return the page that the table produces."""
    return codes_page(CODE_TESTS)


def faults() -> list[str]:
    """Return the faults of the table: missing tests, and tests of another code."""
    found = [f"{code.name} has no test" for code in RequestCode if code not in CODE_TESTS]
    found += [f"{RequestCode(code).name} is served, and its test shows a refusal"
              for code in servers() if CODE_TESTS.get(code) == _REFUSED]
    for test, codes in _SHOWN.items():
        file, _, case = test.partition("::")
        fault = fault_of_test(file.removesuffix(".py"), case)
        if fault:
            found.append(fault)
            continue
        text = (_TESTS / file).read_text()
        found += [f"{file} does not ask {code.name}" for code in codes if code.name not in text]
    return found
