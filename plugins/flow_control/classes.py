"""The kinds of requests that flow control distinguishes, and how long each may wait.

Apache's broker has one executor with a queue for each kind. Here all requests wait in a single
queue, in the order of their turns. A kind has its own limits for the number of requests that may
wait ahead of one of its requests, and for the time that such a request may wait.

Source: BrokerConfig, BrokerController.registerProcessor, BrokerFastFailure @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api import RequestCode, Setting, Settings

__all__ = ["KINDS", "KIND_SETTINGS", "PULLS", "REJECTED_SENDS", "SEND", "Bounds", "Kind", "kind_of",
           "read_bounds"]

_SOURCE: Final = "BrokerConfig"
#: The limit for a kind that may wait without limit, ms.
_FOR_EVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of requests.

    :param name: the name in descriptions of settings.
    :param processor: the name of the corresponding processor in metrics.
    :param codes: the request codes of this kind; empty for all codes of no other kind.
    :param capacity_setting: the setting for the number of requests that may wait when a request of
        this kind arrives; its default follows.
    :param wait_setting: the setting for the longest wait of a request, with its default in ms;
        empty if the wait is not limited.
    """

    name: str
    processor: str
    codes: frozenset[RequestCode]
    capacity_setting: str
    capacity: int
    wait_setting: str = ""
    wait_ms: int = 0


_C = RequestCode
#: Sends are refused first, and only sends are refused because of a slow disk or the slave role.
SEND: Final = Kind(
    "sends", "send", frozenset({_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE,
                        _C.CONSUMER_SEND_MSG_BACK, _C.RECALL_MESSAGE}),
    "sendThreadPoolQueueCapacity", 10_000, "waitTimeMillsInSendQueue", 200)
_PULL: Final = Kind(
    "pulls", "pull", frozenset({_C.PULL_MESSAGE, _C.POP_MESSAGE, _C.PEEK_MESSAGE, _C.NOTIFICATION,
                        _C.POLLING_INFO}),
    "pullThreadPoolQueueCapacity", 100_000, "waitTimeMillsInPullQueue", 5000)
_LITE_PULL: Final = Kind(
    "lite pulls", "lite_pull", frozenset({_C.LITE_PULL_MESSAGE}),
    "litePullThreadPoolQueueCapacity", 100_000, "waitTimeMillsInLitePullQueue", 5000)
_ADMIN: Final = Kind(
    "all others", "admin", frozenset(),
    "adminBrokerThreadPoolQueueCapacity", 10_000, "waitTimeMillsInAdminBrokerQueue", 5000)
KINDS: Final = (
    SEND, _PULL, _LITE_PULL, _ADMIN,
    Kind("acknowledgements of POP", "ack", frozenset({
        _C.ACK_MESSAGE, _C.BATCH_ACK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME}),
        "ackThreadPoolQueueCapacity", 100_000, "waitTimeMillsInAckQueue", 3000),
    Kind("replies to requests", "reply", frozenset({
        _C.SEND_REPLY_MESSAGE, _C.SEND_REPLY_MESSAGE_V2}),
        "replyThreadPoolQueueCapacity", 10_000),
    Kind("queries", "query_message", frozenset({_C.QUERY_MESSAGE, _C.VIEW_MESSAGE_BY_ID}),
         "queryThreadPoolQueueCapacity", 20_000),
    Kind("heartbeats", "heartbeat", frozenset({_C.HEART_BEAT}),
         "heartbeatThreadPoolQueueCapacity", 50_000, "waitTimeMillsInHeartbeatQueue", 31_000),
    Kind("other requests about clients", "client_manager", frozenset({
        _C.UNREGISTER_CLIENT, _C.CHECK_CLIENT_CONFIG}),
        "clientManagerThreadPoolQueueCapacity", 1_000_000),
    Kind("offsets and members of groups", "consumer_manager", frozenset({
        _C.GET_CONSUMER_LIST_BY_GROUP, _C.UPDATE_CONSUMER_OFFSET, _C.QUERY_CONSUMER_OFFSET}),
        "consumerManagerThreadPoolQueueCapacity", 1_000_000),
    Kind("ends of transactions", "transaction", frozenset({_C.END_TRANSACTION}),
         "endTransactionPoolQueueCapacity", 100_000, "waitTimeMillsInTransactionQueue", 3000),
    Kind("assignments of queues", "load_balance", frozenset({
        _C.QUERY_ASSIGNMENT, _C.SET_MESSAGE_REQUEST_MODE}),
        "loadBalanceThreadPoolQueueCapacity", 100_000),
)
_KIND_OF_CODE: Final[dict[int, Kind]] = {code: kind for kind in KINDS for code in kind.codes}
#: Requests that are refused while no message can be appended. Source:
#: SendMessageProcessor.rejectRequest.
REJECTED_SENDS: Final = SEND.codes - {_C.RECALL_MESSAGE}
#: Requests that a slave refuses when reading from it is not allowed. Source:
#: PullMessageProcessor.rejectRequest.
PULLS: Final = _PULL.codes & {_C.PULL_MESSAGE} | _LITE_PULL.codes


def kind_of(code: int) -> Kind:
    return _KIND_OF_CODE.get(code, _ADMIN)


def _rows_of(kind: Kind) -> list[Setting]:
    rows = [Setting(
        kind.capacity_setting, "int", kind.capacity,
        f"For {kind.name}: requests of any kind that may wait when another one arrives.",
        unit="requests", least=1, source=_SOURCE)]
    if kind.wait_setting:
        rows.append(Setting(
            kind.wait_setting, "int", kind.wait_ms,
            f"For {kind.name}: the time after which a waiting request is refused.",
            unit="ms", least=1, source=_SOURCE))
    return rows


KIND_SETTINGS: Final = tuple(row for kind in KINDS for row in _rows_of(kind))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of each kind, read from the settings."""

    #: The number of requests that may wait when another one arrives: by its code, and for all other
    #: codes.
    capacity_of: Mapping[int, int]
    capacity_otherwise: int
    #: The longest time that a request may wait, ms.
    wait_ms_of: Mapping[int, int]
    wait_ms_otherwise: int
    #: The smallest of these limits; below it no request has to be examined.
    least_capacity: int
    least_wait_ms: int


def read_bounds(settings: Settings) -> Bounds:
    def wait_ms(kind: Kind) -> int:
        return settings.int(kind.wait_setting) if kind.wait_setting else _FOR_EVER

    capacities = {kind: settings.int(kind.capacity_setting) for kind in KINDS}
    waits = {kind: wait_ms(kind) for kind in KINDS}
    # The keys are plain integers, because they are looked up faster.
    return Bounds({int(code): capacities[kind] for code, kind in _KIND_OF_CODE.items()},
                  capacities[_ADMIN],
                  {int(code): waits[kind] for code, kind in _KIND_OF_CODE.items()},
                  waits[_ADMIN], min(capacities.values()), min(waits.values()))


assert len(_KIND_OF_CODE) == sum(len(kind.codes) for kind in KINDS)
