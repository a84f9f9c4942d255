"""The kinds of requests that flow control distinguishes, and how long each may wait.

Apache's broker has an executor with a queue of its own for each kind. Here all wait in one queue,
in the order of their turns; what is a kind's own is how many requests there may be in front of one
of it, and how long it may wait.

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
#: Of a kind that may wait as long as it takes, ms.
_FOR_EVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of requests.

    :param name: for people.
    :param processor: what metrics call who serves it.
    :param codes: which they are; none: all that are of no other kind.
    :param capacity_setting: and its default: requests that may wait when one of these comes.
    :param wait_setting: and its default, ms: how long one may wait; empty: as long as it takes.
    """

    name: str
    processor: str
    codes: frozenset[RequestCode]
    capacity_setting: str
    capacity: int
    wait_setting: str = ""
    wait_ms: int = 0


_C = RequestCode
#: The one that is refused first, and the only one a slow disk or a slave's role refuses.
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
    Kind("what else clients say of themselves", "client_manager", frozenset({
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
#: Kinds that are refused while no message can be appended. Source:
#: SendMessageProcessor.rejectRequest.
REJECTED_SENDS: Final = SEND.codes - {_C.RECALL_MESSAGE}
#: Kinds that a slave refuses when it may not be read from. Source:
#: PullMessageProcessor.rejectRequest.
PULLS: Final = _PULL.codes & {_C.PULL_MESSAGE} | _LITE_PULL.codes


def kind_of(code: int) -> Kind:
    return _KIND_OF_CODE.get(code, _ADMIN)


def _rows_of(kind: Kind) -> list[Setting]:
    rows = [Setting(
        kind.capacity_setting, "int", kind.capacity,
        f"Requests of any kind that may wait when one more comes; for {kind.name}.",
        unit="requests", least=1, source=_SOURCE)]
    if kind.wait_setting:
        rows.append(Setting(
            kind.wait_setting, "int", kind.wait_ms,
            f"A request that waited for so long is refused; for {kind.name}.",
            unit="ms", least=1, source=_SOURCE))
    return rows


KIND_SETTINGS: Final = tuple(row for kind in KINDS for row in _rows_of(kind))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of each kind, from the settings."""

    #: Requests that may wait when one more comes, by its code; and for codes not named.
    capacity_of: Mapping[int, int]
    capacity_otherwise: int
    #: How long one may wait, ms.
    wait_ms_of: Mapping[int, int]
    wait_ms_otherwise: int
    #: The least of each: below it no request needs to be looked at.
    least_capacity: int
    least_wait_ms: int


def read_bounds(settings: Settings) -> Bounds:
    def wait_ms(kind: Kind) -> int:
        return settings.int(kind.wait_setting) if kind.wait_setting else _FOR_EVER

    capacities = {kind: settings.int(kind.capacity_setting) for kind in KINDS}
    waits = {kind: wait_ms(kind) for kind in KINDS}
    # By plain integers: they are found in less time.
    return Bounds({int(code): capacities[kind] for code, kind in _KIND_OF_CODE.items()},
                  capacities[_ADMIN],
                  {int(code): waits[kind] for code, kind in _KIND_OF_CODE.items()},
                  waits[_ADMIN], min(capacities.values()), min(waits.values()))


assert len(_KIND_OF_CODE) == sum(len(kind.codes) for kind in KINDS)
