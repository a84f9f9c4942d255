"""The resources and actions that each request code needs: one row for every code a broker serves.

Both schemes of access control authorize requests by this table. A row states where a request
names a resource (in a header field, in the body, or through a message that is identified by its
place in the log) and which actions on this resource are enough:

- ACL 2.0 requires one of ``Need.actions``. These are the actions that Apache's broker requires, or
  stricter ones where it requires nothing. A code without a row is reserved for super users.
- ACL 1.0 interprets ``Need.action``: ``PUB`` and ``SUB`` are its own permissions, and either of
  them fulfils ``GET``. ``LIST``, ``CREATE``, ``UPDATE`` and ``DELETE``, and all actions on the
  cluster, are reserved for administrators. A code without a row needs only an account.

README.md shows the table, and a test fails for a code without a row.

Differs from Apache: its ACL 1.0 has rows for fifteen codes, and every account may send all other
codes. Its ACL 2.0 allows each code whose header has no annotation to every user. DESIGN.md gives
the reasons.

Source: DefaultAuthorizationContextBuilder and the annotations RocketMQAction and RocketMQResource
of the request headers @5.3.3; 5.5.0 has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from twistmq.broker.api import RequestCode as Code

__all__ = ["ACCESS", "Action", "CodeAccess", "Kind", "Need", "RequestedAccess", "access_page",
           "needs_administrator"]


class Kind(Enum):
    """The kind of a resource."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class Action(Enum):
    """An action on a resource, with its name in Apache's ACL 2.0."""

    PUB = "PUB"
    SUB = "SUB"
    GET = "GET"
    LIST = "LIST"
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class RequestedAccess(NamedTuple):
    """A resource of a request, and the actions that would permit the request to use it.

    :param actions: actions, one of which must be allowed.
    """

    kind: Kind
    name: str
    actions: tuple[Action, ...]


class Need(NamedTuple):
    """One resource that a request needs."""

    kind: Kind
    #: The action that ACL 1.0 interprets.
    action: Action
    #: The header field that names the resource; empty if it is named in another place.
    field: str = ""
    #: A description of the part of the request that names the resource if no field does.
    named_by: str = ""
    #: The actions of ACL 2.0; empty if ``action`` is the only one.
    of_users: tuple[Action, ...] = ()
    #: The text between the names in the field, if it can have several.
    separator: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of ACL 2.0, one of which must be allowed."""
        return self.of_users or (self.action,)

    @property
    def is_for_administrators(self) -> bool:
        """Whether no permission of ACL 1.0 is sufficient."""
        return self.kind is Kind.CLUSTER or self.action not in _PERMISSIONS

    def text(self) -> str:
        """Describe the resource and the actions of ACL 2.0 for the page."""
        actions = " or ".join(action.value for action in self.actions)
        if self.kind is Kind.CLUSTER:
            return f"{actions} on the cluster"
        each = "each " if self.separator else "the "
        by = f"`{self.field}`" if self.field else self.named_by
        return f"{actions} on {each}{self.kind.value} of {by}"


_PERMISSIONS: Final = frozenset({Action.PUB, Action.SUB, Action.GET})


class CodeAccess(NamedTuple):
    """One row: everything that a request of this code needs."""

    #: The needed resources; empty if a request needs only an account.
    needs: tuple[Need, ...]
    #: Further conditions, described for the page.
    note: str = ""
    #: The needed resources in ACL 2.0, if they are different ones.
    of_users: tuple[Need, ...] = ()

    @property
    def user_needs(self) -> tuple[Need, ...]:
        """The needed resources in ACL 2.0."""
        return self.of_users or self.needs


def _topic(action: Action, field: str = "topic", *of_users: Action, separator: str = "") -> Need:
    return Need(Kind.TOPIC, action, field, "", of_users, separator)


def _group(
    action: Action, field: str = "consumerGroup", *of_users: Action, separator: str = ""
) -> Need:
    return Need(Kind.GROUP, action, field, "", of_users, separator)


def _cluster(action: Action, *of_users: Action) -> CodeAccess:
    return CodeAccess((Need(Kind.CLUSTER, action, of_users=of_users),))


def _named_by(
    named_by: str, *needs: tuple[Kind, Action], of_users: tuple[Action, ...] = ()
) -> tuple[Need, ...]:
    return tuple(Need(kind, action, "", named_by, of_users) for kind, action in needs)


_PUB, _SUB, _GET, _UPDATE = Action.PUB, Action.SUB, Action.GET, Action.UPDATE
_SENT_NOTE: Final = (
    "a retry topic: SUB on its group and on the sender's; a message that recalls another message "
    "(`TIMER_DEL_UNIQKEY`) or goes into light queues (`INNER_MULTI_DISPATCH`): PUB on those topics")
_REPLY_NOTE: Final = "`CLUSTER_REPLY_TOPIC`: only an account; properties as for 310"
_POPPED_NOTE: Final = "a pop retry topic counts as the topic and the group to which it belongs"
_CONSUMES: Final = CodeAccess((_topic(_SUB), _group(_SUB)))
_POPS: Final = CodeAccess((_topic(_SUB), _group(_SUB)), _POPPED_NOTE)
_LOOKS: Final = CodeAccess((_topic(_GET),))
_OF_BODY: Final = ((Kind.TOPIC, _SUB), (Kind.GROUP, _SUB))

_NEEDS_NOTHING: Final = "the answer names nothing that a user created"

#: Request code to its row.
ACCESS: Final[Mapping[int, CodeAccess]] = MappingProxyType({
    # --- messages
    Code.SEND_MESSAGE: CodeAccess((_topic(_PUB),), _SENT_NOTE),
    Code.SEND_MESSAGE_V2: CodeAccess((_topic(_PUB, "b"),), "as 10"),
    Code.SEND_BATCH_MESSAGE: CodeAccess((_topic(_PUB, "b"),), "as 10, for each of its messages"),
    Code.SEND_REPLY_MESSAGE: CodeAccess((_topic(_PUB),), _REPLY_NOTE),
    Code.SEND_REPLY_MESSAGE_V2: CodeAccess((_topic(_PUB, "b"),), _REPLY_NOTE),
    Code.RECALL_MESSAGE: CodeAccess((_topic(_PUB),)),
    Code.END_TRANSACTION: CodeAccess(
        _named_by("the stored half message", (Kind.TOPIC, _PUB)),
        "and the name of the group that sent it"),
    Code.CONSUMER_SEND_MSG_BACK: CodeAccess(
        (_group(_SUB, "group"), *_named_by("the stored message", (Kind.TOPIC, _SUB)))),
    Code.PULL_MESSAGE: _CONSUMES,
    Code.LITE_PULL_MESSAGE: _CONSUMES,
    Code.POP_MESSAGE: _POPS,
    Code.PEEK_MESSAGE: _POPS,
    Code.ACK_MESSAGE: _POPS,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _POPS,
    Code.NOTIFICATION: _POPS,
    Code.POLLING_INFO: CodeAccess(
        (_topic(_SUB, "topic", _GET), _group(_SUB, "consumerGroup", _GET)), _POPPED_NOTE),
    Code.BATCH_ACK_MESSAGE: CodeAccess(
        _named_by("each acknowledgement in the body", *_OF_BODY), _POPPED_NOTE),
    Code.QUERY_MESSAGE: CodeAccess((_topic(_SUB, "topic", _SUB, _GET),)),
    Code.VIEW_MESSAGE_BY_ID: CodeAccess(
        _named_by("the stored message", (Kind.TOPIC, _SUB), of_users=(_SUB, _GET))),
    Code.CONSUME_MESSAGE_DIRECTLY: CodeAccess(
        _CONSUMES.needs, "and SUB on the topic of the stored message"),
    Code.QUERY_CONSUME_QUEUE: CodeAccess(
        (_topic(_SUB, "topic", _GET), _group(_SUB, "consumerGroup", _GET))),
    # --- clients of a group
    Code.HEART_BEAT: CodeAccess(
        _named_by("each consumer group and subscription in the body", *_OF_BODY),
        "a producer group needs nothing, but its members are asked about a half message only "
        "while they may PUB on its topic"),
    Code.UNREGISTER_CLIENT: CodeAccess(
        (_group(_SUB,),), "it affects only the connection on which it arrives"),
    Code.GET_CONSUMER_LIST_BY_GROUP: CodeAccess((_group(_SUB, "consumerGroup", _SUB, _GET),)),
    Code.CHECK_CLIENT_CONFIG: CodeAccess(_named_by("the body", *_OF_BODY)),
    Code.LOCK_BATCH_MQ: CodeAccess(_named_by("the body", *_OF_BODY)),
    Code.UNLOCK_BATCH_MQ: CodeAccess(_named_by("the body", *_OF_BODY)),
    Code.QUERY_ASSIGNMENT: CodeAccess(_named_by("the body", *_OF_BODY)),
    Code.SET_MESSAGE_REQUEST_MODE: CodeAccess(
        _named_by("the body", *_OF_BODY, of_users=(_UPDATE,))),
    # --- offsets
    Code.QUERY_CONSUMER_OFFSET: CodeAccess(
        (_topic(_GET, "topic", _SUB, _GET), _group(_SUB, "consumerGroup", _SUB, _GET))),
    Code.UPDATE_CONSUMER_OFFSET: CodeAccess(
        (_topic(_SUB, "topic", _SUB, _UPDATE), _group(_SUB, "consumerGroup", _SUB, _UPDATE))),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: CodeAccess(
        (_topic(_SUB, "topic", _UPDATE), _group(_SUB, "group", _UPDATE))),
    Code.CLONE_GROUP_OFFSET: CodeAccess(
        (_topic(_SUB, "topic", _UPDATE), _group(_SUB, "srcGroup", _SUB, _GET),
         _group(_SUB, "destGroup", _UPDATE))),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _LOOKS,
    Code.GET_MAX_OFFSET: _LOOKS,
    Code.GET_MIN_OFFSET: _LOOKS,
    Code.GET_EARLIEST_MSG_STORETIME: _LOOKS,
    Code.QUERY_CORRECTION_OFFSET: CodeAccess(
        (_topic(_GET), _group(_SUB, "compareGroup")), of_users=(
            _topic(_GET), _group(_GET, "compareGroup"),
            _group(_GET, "filterGroups", separator=","))),
    Code.GET_ALL_CONSUMER_OFFSET: _cluster(_GET),
    Code.GET_ALL_DELAY_OFFSET: _cluster(_GET),
    # --- information about one topic or one group
    Code.GET_TOPIC_CONFIG: _LOOKS,
    Code.GET_TOPIC_STATS_INFO: _LOOKS,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _LOOKS,
    Code.QUERY_CONSUME_TIME_SPAN: CodeAccess((_topic(_GET), _group(_SUB, "group", _GET))),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: CodeAccess((_group(_SUB, "group", _GET),)),
    Code.GET_CONSUMER_CONNECTION_LIST: CodeAccess((_group(_SUB, "consumerGroup", _GET),)),
    Code.GET_CONSUME_STATS: CodeAccess(
        (_topic(_GET), _group(_SUB)), "in 1.0 also GET on each topic of `topicList`", (
            _topic(_GET), _group(_GET), _topic(_GET, "topicList", separator=";"))),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: CodeAccess(
        (_topic(_GET), _group(_SUB, "group", _GET))),
    Code.GET_CONSUMER_RUNNING_INFO: CodeAccess(
        (_group(_SUB, "consumerGroup", _GET),),
        "with `jstackEnable`: GET on the cluster, because it shows all stacks"),
    Code.QUERY_TOPICS_BY_CONSUMER: CodeAccess((_group(_SUB, "group", _GET),)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: CodeAccess(
        (_topic(_GET), _group(_SUB, "group", _GET))),
    # --- lists of the objects of all users
    Code.GET_ALL_TOPIC_CONFIG: _cluster(Action.LIST),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _cluster(Action.LIST),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _cluster(Action.LIST),
    Code.GET_PRODUCER_CONNECTION_LIST: _cluster(Action.LIST, _GET),
    Code.GET_ALL_PRODUCER_INFO: _cluster(Action.LIST, _GET),
    Code.GET_BROKER_CONSUME_STATS: _cluster(Action.LIST, _GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: CodeAccess((), _NEEDS_NOTHING),
    # --- creating, changing and deleting topics and groups
    Code.UPDATE_AND_CREATE_TOPIC: CodeAccess((_topic(Action.CREATE),)),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: CodeAccess(
        _named_by("the body", (Kind.TOPIC, Action.CREATE))),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: CodeAccess((_topic(Action.CREATE),)),
    Code.DELETE_TOPIC_IN_BROKER: CodeAccess((_topic(Action.DELETE),)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: CodeAccess(
        _named_by("the body", (Kind.GROUP, Action.CREATE))),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: CodeAccess(
        _named_by("the body", (Kind.GROUP, Action.CREATE))),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: CodeAccess(
        (_group(_UPDATE, "group"),), of_users=(_topic(_UPDATE), _group(_UPDATE, "group"))),
    Code.DELETE_SUBSCRIPTIONGROUP: CodeAccess((_group(Action.DELETE, "groupName"),)),
    # --- the broker as a whole
    Code.UPDATE_BROKER_CONFIG: _cluster(_UPDATE),
    Code.GET_BROKER_CONFIG: _cluster(_GET),
    Code.GET_BROKER_RUNTIME_INFO: _cluster(_GET),
    Code.VIEW_BROKER_STATS_DATA: _cluster(_GET),
    Code.GET_TIMER_CHECK_POINT: _cluster(_GET),
    Code.GET_TIMER_METRICS: _cluster(_GET),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _cluster(_UPDATE),
    Code.CLEAN_UNUSED_TOPIC: _cluster(_UPDATE),
    Code.DELETE_EXPIRED_COMMITLOG: _cluster(_UPDATE),
    Code.RESUME_CHECK_HALF_MESSAGE: CodeAccess(
        _cluster(_UPDATE).needs, of_users=(_topic(_UPDATE),)),
    Code.POP_ROLLBACK: _cluster(_UPDATE),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: _cluster(_UPDATE),
    Code.DELETE_ACL_CONFIG: _cluster(_UPDATE),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _cluster(_UPDATE),
    Code.GET_BROKER_CLUSTER_ACL_INFO: _cluster(_GET),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _cluster(_GET),
    Code.AUTH_CREATE_USER: _cluster(Action.UPDATE),
    Code.AUTH_UPDATE_USER: _cluster(Action.UPDATE),
    Code.AUTH_DELETE_USER: _cluster(Action.UPDATE),
    Code.AUTH_GET_USER: _cluster(Action.GET),
    Code.AUTH_LIST_USER: _cluster(Action.GET),
    Code.AUTH_CREATE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_UPDATE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_DELETE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_GET_ACL: _cluster(Action.GET),
    Code.AUTH_LIST_ACL: _cluster(Action.GET),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(_UPDATE),
    Code.EXCHANGE_BROKER_HA_INFO: _cluster(_UPDATE),
    Code.GET_BROKER_HA_STATUS: _cluster(_GET),
    Code.RESET_MASTER_FLUSH_OFFSET: _cluster(_UPDATE),
    Code.NOTIFY_BROKER_ROLE_CHANGED: _cluster(_UPDATE),
})


def needs_administrator(code: int) -> bool:
    """Whether no permission of ACL 1.0 is sufficient for a code."""
    access = ACCESS.get(code)
    return access is not None and any(need.is_for_administrators for need in access.needs)


def access_page() -> str:
    """Return the table in Markdown, in the order of the codes, for README.md."""
    rows = ["| code | name | ACL 2.0 | ACL 1.0 | besides |", "| --- | --- | --- | --- | --- |"]
    for code in sorted(ACCESS):
        access = ACCESS[code]
        needs = "; ".join(need.text() for need in access.user_needs) or "a user"
        rows.append(f"| {code} | {Code(code).name} | {needs} | {_permissions(code)} | "
                    f"{access.note} |")
    return "\n".join(rows) + "\n"


def _permissions(code: int) -> str:
    """Describe for the page what ACL 1.0 makes of a row."""
    if needs_administrator(code):
        return "an administrator"
    needs = ACCESS[code].needs
    actions = {need.action for need in needs}
    if len(actions) == 1:
        return f"{actions.pop().value} on {'each' if len(needs) > 1 else 'it'}"
    return ", ".join(f"{need.action.value} on the {need.kind.value}" for need in needs) or (
        "an account")


if __name__ == "__main__":
    print(access_page(), end="")
