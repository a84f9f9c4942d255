"""Requests by users with different policies, for our broker and Apache's with ACL 2.0.

An outcome is Apache's text for a refusal, or LET_IN whatever the handler answers then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interop.acl_servers import Broker, signed
from twistmq.protocol.bodies import (
    AclInfo,
    ConsumerData,
    HeartbeatData,
    PolicyEntryInfo,
    PolicyInfo,
    SubscriptionData,
    UserInfo,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION, RemotingCommand

__all__ = ["LET_IN", "ROOT", "USERS", "Asked", "fault_requests", "matrix_requests", "outcome",
           "outcomes", "password_of", "prepare"]

ROOT: Final = ("root", "secret-of-root")
LET_IN: Final = "let in"
#: User to his entries: policy type, resource, actions, decision, sources.
USERS: Final[dict[str, list[tuple[str, str, str, str, list[str]]]]] = {
    "none": [],
    "literal": [("Custom", "Topic:T", "Pub,Sub", "Allow", []),
                ("Custom", "Group:G", "Sub", "Allow", [])],
    "prefix": [("Custom", "Topic:T*", "Pub,Sub", "Allow", []),
               ("Custom", "Group:G*", "Sub", "Allow", [])],
    "kinds": [("Custom", "Topic:*", "All", "Allow", []), ("Custom", "Group:*", "All", "Allow", [])],
    "all": [("Custom", "*", "All", "Allow", [])],
    "deny": [("Custom", "*", "All", "Allow", []), ("Custom", "Topic:T", "All", "Deny", []),
             ("Custom", "Group:G", "All", "Deny", [])],
    "inner": [("Custom", "Topic:T*", "All", "Deny", []),
              ("Custom", "Topic:TT*", "Pub", "Allow", []),
              ("Custom", "Topic:T", "Sub", "Allow", []), ("Custom", "Group:*", "All", "Allow", [])],
    "far": [("Custom", "Topic:*", "All", "Allow", ["10.0.0.0/8", "2001:db8::/32"]),
            ("Custom", "Group:*", "All", "Allow", ["10.1.1.1"])],
    "near": [("Custom", "Topic:*", "All", "Allow", ["127.0.0.0/8"]),
             ("Custom", "Group:*", "All", "Allow", ["127.0.0.1"])],
    "default": [("Default", "Topic:*", "All", "Allow", []),
                ("Default", "Group:*", "Sub", "Allow", []),
                ("Custom", "Topic:T", "Pub", "Deny", [])],
    "reader": [("Custom", "Cluster:*", "Get,List", "Allow", []),
               ("Custom", "Topic:*", "Get", "Allow", []),
               ("Custom", "Group:*", "Get", "Allow", [])],
    "keeper": [("Custom", "Cluster:*", "All", "Allow", []),
               ("Custom", "Topic:*", "Create,Update,Delete", "Allow", [])],
}


class Asked(NamedTuple):
    """A request.

    :param user: a name of ``USERS``, or one that does not exist.
    """

    label: str
    user: str
    code: int
    fields: dict[str, str]
    body: bytes = b""


def _heartbeat(topic: str, group: str) -> bytes:
    return HeartbeatData("c", consumer_data_set=(ConsumerData(
        group, subscription_data_set=(SubscriptionData(topic),)),)).encode()


def _send(topic: str) -> dict[str, str]:
    return {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
            "i": "", "j": "0", "k": "false", "l": "0", "m": "false"}


_PULL: Final = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
    "subVersion": "0", "expressionType": "TAG"}
_TOPIC: Final = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1",
                 "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
                 "topicSysFlag": "0", "order": "false"}
_QUEUE: Final = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
#: Label to code, fields and body; each user sends all of them.
_REQUESTS: Final[dict[str, tuple[int, dict[str, str], bytes]]] = {
    "send T": (RequestCode.SEND_MESSAGE_V2, _send("T"), b"x"),
    "send TTx": (RequestCode.SEND_MESSAGE_V2, _send("TTx"), b"x"),
    "send U": (RequestCode.SEND_MESSAGE_V2, _send("U"), b"x"),
    "pull": (RequestCode.PULL_MESSAGE, _PULL, b""),
    "heartbeat": (RequestCode.HEART_BEAT, {}, _heartbeat("T", "G")),
    "heartbeat of others": (RequestCode.HEART_BEAT, {}, _heartbeat("U", "H")),
    "max offset": (RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, b""),
    "consumer offset": (RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE, b""),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET, {**_QUEUE, "commitOffset": "0"}, b""),
    "members": (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, b""),
    "topic figures": (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}, b""),
    "create topic": (RequestCode.UPDATE_AND_CREATE_TOPIC, _TOPIC, b""),
    "delete topic": (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "New"}, b""),
    "create group": (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"NewG"}'),
    "settings": (RequestCode.GET_BROKER_CONFIG, {}, b""),
    "change settings": (RequestCode.UPDATE_BROKER_CONFIG, {}, b"longPollingEnable=true"),
    "figures": (RequestCode.GET_BROKER_RUNTIME_INFO, {}, b""),
    "users": (RequestCode.AUTH_LIST_USER, {"filter": ""}, b""),
    "policies": (RequestCode.AUTH_GET_ACL, {"subject": "User:none"}, b""),
    "unserved code": (99_999, {"a": "b"}, b""),
}


def matrix_requests() -> Iterator[Asked]:
    """Return each request by each user."""
    for user in USERS:
        for label, (code, fields, body) in _REQUESTS.items():
            yield Asked(f"{label} by {user}", user, int(code), fields, body)


def fault_requests() -> Iterator[Asked]:
    """Return the wrong requests about users and policies, by the super user."""
    def entry(**values: object) -> bytes:
        given = {"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow", **values}
        return json.dumps({"policies": [{"policyType": "Custom", "entries": [given]}]}).encode()

    name, subject = {"username": "none"}, {"subject": "User:none"}
    secret = b'{"password":"secret"}'
    for label, code, fields, body in [
        ("no name", 3001, {"username": ""}, secret),
        ("blank name", 3001, {"username": " "}, secret),
        ("no password", 3001, {"username": "new"}, b"{}"), ("existing", 3001, name, secret),
        ("change of nobody", 3002, {"username": "nobody"}, secret),
        ("delete nobody", 3003, {"username": "nobody"}, b""),
        ("delete blank", 3003, {"username": ""}, b""),
        ("get blank", 3004, {"username": ""}, b""),
        ("get nobody", 3004, {"username": "nobody"}, b""),
        ("list nothing", 3005, {"filter": "zzz"}, b""),
        ("policy of nobody", 3006, {"subject": "User:nobody"}, entry()),
        ("bad resource", 3006, subject, entry(resource="Queue:a")),
        ("no actions", 3006, subject, entry(actions=[])),
        ("unknown action", 3006, subject, entry(actions=["Fly"])),
        ("any", 3006, subject, entry(actions=["Any"])),
        ("bad address", 3006, subject, entry(sourceIps=["300.1.1.1"])),
        ("blank address", 3006, subject, entry(sourceIps=[" "])),
        ("long prefix", 3006, subject, entry(sourceIps=["10.0.0.0/33"])),
        ("bad decision", 3006, subject, entry(decision="Maybe")),
        ("no entries", 3006, subject, b'{"policies":[{"policyType":"Custom"}]}'),
        ("delete of nobody", 3008, {"subject": "User:nobody"}, b""),
        ("delete of nothing", 3008, subject, b""),
        ("no subject", 3008, {"resource": "Topic:a"}, b""),
        ("get of nobody", 3009, {"subject": "User:nobody"}, b""),
        ("get of nothing", 3009, subject, b""),
        ("list of nothing", 3010, {"subjectFilter": "zzz"}, b""),
    ]:
        yield Asked(label, ROOT[0], code, fields, body)


def password_of(user: str) -> tuple[str, str]:
    """Return the keys of a user."""
    return user, f"secret-of-{user}"


def prepare(broker: Broker) -> None:
    """Create the users and their policies."""
    for user, entries in USERS.items():
        body = UserInfo(password=password_of(user)[1], user_type="Normal").encode_standard()
        _require(_ask(broker, Asked("", ROOT[0], 3001, {"username": user}, body)))
        for policy_type, resource, actions, decision, sources in entries:
            acl = AclInfo(f"User:{user}", [PolicyInfo(policy_type, [PolicyEntryInfo(
                resource, actions.split(","), sources or None, decision)])])
            _require(_ask(broker, Asked("", ROOT[0], 3006, {"subject": f"User:{user}"},
                                        acl.encode_standard())))


def _require(reply: RemotingCommand) -> None:
    assert reply.code == ResponseCode.SUCCESS, reply


def _ask(broker: Broker, asked: Asked) -> RemotingCommand:
    keys = password_of(asked.user)
    return broker.ask(asked.code, signed(keys, asked.fields, asked.body, VERSION), asked.body)


def outcome(reply: RemotingCommand) -> str:
    """Return the result of a request in the matrix."""
    text = reply.remark or ""
    return text if reply.code == ResponseCode.NO_PERMISSION and (
        text.startswith(("User:", "check signature", "username"))) else LET_IN


def outcomes(broker: Broker) -> dict[str, str]:
    """Return all results, by label."""
    found = {asked.label: outcome(_ask(broker, asked)) for asked in matrix_requests()}
    for asked in fault_requests():
        reply = _ask(broker, asked)
        # Apache's answer has a remark even if the request succeeded.
        remark = reply.remark if reply.code else ""
        found[f"fault: {asked.label}"] = f"{reply.code} {remark} {reply.body!r}"
    return found
