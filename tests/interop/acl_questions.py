"""Requests to brokers with access control: those that are accepted, and those that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.acl_servers import ADMIN, ALICE, BOB, Broker, signed
from twistmq.protocol.codes import RequestCode

__all__ = ["AclQuestion", "acl_questions", "answers"]

#: What the requests say of themselves: that of ``encode_request``.
_VERSION: Final = 479
_UNKNOWN_CODE: Final = 29_999


@dataclass(frozen=True)
class AclQuestion:
    """One request.

    :param sent_body: what is sent in place of what was signed; None: the same.
    """

    name: str
    keys: tuple[str, str] | None
    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent_body: bytes | None = None


def answers(broker: Broker) -> dict[str, tuple[int, str]]:
    """Return the code and the remark of each request, by name."""
    found = {}
    for question in acl_questions():
        fields = signed(question.keys, question.fields, question.body, _VERSION)
        body = question.body if question.sent_body is None else question.sent_body
        reply = broker.ask(question.code, fields, body)
        found[question.name] = (reply.code, reply.remark or "")
    return found


def _send(topic: str, group: str = "Producers") -> dict[str, str]:
    return {"a": group, "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}


def _pull(topic: str, group: str) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG"}


def _heartbeat(group: str, *topics: str) -> bytes:
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    body: dict[str, Any] = {
        "clientID": "asker", "producerDataSet": [{"groupName": "Producers"}], "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": subscriptions}]}
    return json.dumps(body).encode()


def acl_questions() -> Iterator[AclQuestion]:
    """Return all requests, in order."""
    yield from _keys()
    yield from _messages()
    yield from _consumers()
    yield from _administration()


def _keys() -> Iterator[AclQuestion]:
    send = RequestCode.SEND_MESSAGE_V2
    for name, code in (("config", 26), ("runtime", 28), ("heartbeat", 34), ("unregister", 35),
                       ("send", 310), ("topic", 17), ("unknown code", _UNKNOWN_CODE),
                       ("lock", 41), ("accounts", 54)):
        body = _heartbeat("Group", "AliceTopic") if code == RequestCode.HEART_BEAT else b""
        yield AclQuestion(f"no key: {name}", None, code, {}, body)
    yield AclQuestion("unknown key", ("nobody-key", ALICE[1]), send, _send("AliceTopic"), b"x")
    yield AclQuestion("empty key", ("", ALICE[1]), send, _send("AliceTopic"), b"x")
    yield AclQuestion("wrong secret", (ALICE[0], BOB[1]), send, _send("AliceTopic"), b"x")
    yield AclQuestion("changed body", ALICE, send, _send("AliceTopic"), b"paid", b"PAID")
    yield AclQuestion("no signature", None, send, {**_send("AliceTopic"), "AccessKey": ALICE[0]})
    yield AclQuestion("unchanged", ALICE, send, _send("AliceTopic"), b"paid")
    yield AclQuestion("unchanged again", ALICE, send, _send("AliceTopic"), b"paid")
    yield AclQuestion("unknown code", ALICE, _UNKNOWN_CODE)


def _messages() -> Iterator[AclQuestion]:
    send = RequestCode.SEND_MESSAGE_V2
    for topic in ("AliceTopic", "WriteTopic", "ReadTopic", "NoTopic", "OtherTopic",
                  "RMQ_SYS_TRACE_TOPIC"):
        yield AclQuestion(f"send to {topic}", ALICE, send, _send(topic), b"x")
    yield AclQuestion("batch", ALICE, RequestCode.SEND_BATCH_MESSAGE, _send("NoTopic"), b"x")
    for group in ("BobGroup", "OtherGroup"):
        yield AclQuestion(f"send to the retry topic of {group}", ALICE, send,
                          _send(f"%RETRY%{group}", group), b"x")
        yield AclQuestion(f"send to the retry topic of {group} as another", ALICE, send,
                          _send(f"%RETRY%{group}", "CLIENT_INNER_PRODUCER"), b"x")
    for name, keys in (("administrator", ADMIN), ("client", BOB)):
        yield AclQuestion(f"send by the {name}", keys, send, _send("OtherTopic"), b"x")
    for topic, group in (("AliceTopic", "BobGroup"), ("WriteTopic", "OtherGroup"),
                         ("OtherTopic", "OtherGroup"), ("RMQ_SYS_TRACE_TOPIC", "OtherGroup")):
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            yield AclQuestion(f"{code.name} of {topic} for {group}", ALICE, code,
                              _pull(topic, group))
    yield AclQuestion("query", ALICE, RequestCode.QUERY_MESSAGE, {
        "topic": "NoTopic", "key": "k", "maxNum": "8", "beginTimestamp": "0",
        "endTimestamp": "9999999999999"})
    yield AclQuestion("query by unique key", ALICE, RequestCode.QUERY_MESSAGE, {
        "topic": "AliceTopic", "key": "k", "maxNum": "8", "beginTimestamp": "0",
        "endTimestamp": "9999999999999", "_UNIQUE_KEY_QUERY": "true"})


def _consumers() -> Iterator[AclQuestion]:
    beat = RequestCode.HEART_BEAT
    yield AclQuestion("heartbeat", ALICE, beat, {}, _heartbeat("OtherGroup", "AliceTopic"))
    yield AclQuestion("heartbeat of a group", ALICE, beat, {}, _heartbeat("BobGroup", "AliceTopic"))
    yield AclQuestion("heartbeat for a topic", ALICE, beat, {},
                      _heartbeat("OtherGroup", "WriteTopic"))
    for name, code, fields in (
        ("leave", RequestCode.UNREGISTER_CLIENT, {"clientID": "asker"}),
        ("members", RequestCode.GET_CONSUMER_LIST_BY_GROUP, {}),
        ("offset", RequestCode.UPDATE_CONSUMER_OFFSET,
         {"topic": "AliceTopic", "queueId": "0", "commitOffset": "0"}),
    ):
        yield AclQuestion(name, ALICE, code, {**fields, "consumerGroup": "BobGroup"})
    yield AclQuestion("send back", ALICE, RequestCode.CONSUMER_SEND_MSG_BACK, {
        "group": "BobGroup", "offset": "0", "delayLevel": "0"})
    yield AclQuestion("offset of a topic", ALICE, RequestCode.UPDATE_CONSUMER_OFFSET, {
        "topic": "WriteTopic", "queueId": "0", "commitOffset": "0", "consumerGroup": "OtherGroup"})


def _administration() -> Iterator[AclQuestion]:
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_BROKER_CONFIG,
                 RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP,
                 RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP):
        yield AclQuestion(f"{code.name} by Alice", ALICE, code, {"topic": "AliceTopic"})
    update, delete, white = (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                             RequestCode.DELETE_ACL_CONFIG,
                             RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    carol = {"accessKey": "carol-key", "secretKey": "secret-of-carol", "admin": "false"}
    yield AclQuestion("accounts by Alice", ALICE, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    yield AclQuestion("versions by Alice", ALICE, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    yield AclQuestion("short key", ADMIN, update, {**carol, "accessKey": "carol"})
    yield AclQuestion("no secret key", ADMIN, update, {"accessKey": "carol-key", "admin": "true"})
    for number, (name, value) in enumerate((
        ("topicPerms", "a=ANY"), ("topicPerms", "a"), ("groupPerms", "a=b=c"), ("topicPerms", ""),
        ("whiteRemoteAddress", "1.2.3"), ("whiteRemoteAddress", "1.2.3.5-4"),
    )):
        # Each by a key of its own: Apache's broker keeps some keys of accounts it refuses.
        yield AclQuestion(f"{name}={value}", ADMIN, update, {
            **carol, "accessKey": f"refused-{number}", name: value})
    yield AclQuestion("new account", ADMIN, update, {**carol, "defaultTopicPerm": "SUB"})
    yield AclQuestion("as the new account", ("carol-key", "secret-of-carol"),
                      RequestCode.GET_ALL_TOPIC_CONFIG)
    yield AclQuestion("deleted account", ADMIN, delete, {"accessKey": "carol-key"})
    yield AclQuestion("as the deleted account", ("carol-key", "secret-of-carol"),
                      RequestCode.GET_ALL_TOPIC_CONFIG)
    yield AclQuestion("deleted again", ADMIN, delete, {"accessKey": "carol-key"})
    yield AclQuestion("white addresses", ADMIN, white, {"globalWhiteAddrs": "10.0.0.1"})
    yield AclQuestion("white addresses elsewhere", ADMIN, white, {
        "globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/nowhere.yml"})
    yield AclQuestion("faulty white addresses", ADMIN, white, {"globalWhiteAddrs": "10.0.0"})
