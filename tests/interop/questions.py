"""Requests to two brokers whose answers are compared.

Each is raw: fields and bodies as texts, so that wrong and missing ones can be asked too. The order
matters: what is created first is asked about later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twistmq.protocol.codes import RequestCode

__all__ = ["Question", "group_q", "heartbeat_q", "q", "questions", "send_q", "topic_q"]

_FAR: Final = "9999999999999"
_HEARTBEAT_ID: Final = "asker"


@dataclass(frozen=True)
class Question:
    """One request; its name is unique."""

    name: str
    code: RequestCode
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def q(what: str, code: RequestCode, body: Any = b"", **fields: str | None) -> Question:
    """Return a question. :param fields: fields with None are left out."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {name: value for name, value in fields.items() if value is not None}
    return Question(f"{code.name} {what}", code, given, data)


def questions() -> Iterator[Question]:
    """Return all requests, in order."""
    yield from _transactions()
    yield from _topics()
    yield from _attributes()
    yield from _sends()
    yield from _deletions()
    yield from _groups()
    yield from _offsets()
    yield from _look_ups()
    yield from _clients()
    yield from _replies()
    yield from _tables()


# --- transactions


def _transactions() -> Iterator[Question]:
    """The first message of the store is a half message, so that its place is known."""
    code = RequestCode.END_TRANSACTION
    right = {"producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0",
             "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "x"}
    properties = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01half-1\x02"
    yield q("half", RequestCode.SEND_MESSAGE_V2, b"half", a="P", b="Transactions", c="TBW102",
             d="4", e="1", f="4", g="1700000000000", h="0", i=properties)
    for what, fields in (
        ("other group", {"producerGroup": "Q"}), ("other offset", {"tranStateTableOffset": "7"}),
        ("place behind", {"commitLogOffset": _FAR}), ("place before", {"commitLogOffset": "-1"}),
        ("place between", {"commitLogOffset": "1"}), ("no group", {"producerGroup": None}),
        ("no offset", {"tranStateTableOffset": None}), ("no place", {"commitLogOffset": None}),
        ("no decision", {"commitOrRollback": None}), ("no number", {"commitLogOffset": "x"}),
    ):
        for how in ("8", "12"):
            yield q(f"{what}, {how}", code, **{"commitOrRollback": how, **right, **fields})
    yield q("commit without an id", code, **{**right, "msgId": None})
    yield q("rollback after it", code, **{**right, "commitOrRollback": "12"})
    for queue_id in range(4):
        yield q(f"Transactions {queue_id}", RequestCode.GET_MAX_OFFSET, topic="Transactions",
                 queueId=str(queue_id))
    host = "7F00000100002A9F"
    for what, message_id in (("none", None), ("no id", "x"), ("nothing", host + "7" * 16),
                             ("half", host + "0" * 16)):
        yield q(what, RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id, topic="x")
    yield q("half", RequestCode.GET_MAX_OFFSET, topic="RMQ_SYS_TRANS_HALF_TOPIC", queueId="0")


# --- topics


def topic_q(what: str, topic: str | None = "T1", **fields: str | None) -> Question:
    """Return the request that creates a topic."""
    return q(what, RequestCode.UPDATE_AND_CREATE_TOPIC, **{
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        **fields})


def _topics() -> Iterator[Question]:
    yield topic_q("new")
    yield topic_q("again")
    for what, topic in (
        ("blank", " "), ("empty", ""), ("illegal", "a*b"), ("128", "x" * 128), ("127", "y" * 127),
        ("template", "TBW102"), ("prefix", "rmq_sys_x"), ("half", "RMQ_SYS_TRANS_HALF_TOPIC"),
        ("cluster", "DefaultCluster"), ("broker", "broker-a"), ("unicode", "tö"),
        ("retry", "%RETRY%g9"), ("checkpoint", "CHECKPOINT_TOPIC"), ("none", None),
    ):
        yield topic_q(what, topic)
    yield topic_q("no queues", "NoQueues", readQueueNums="0", writeQueueNums="0")
    yield topic_q("negative queues", "Negative", readQueueNums="-1")
    yield topic_q("no permission", "Closed", perm="0")
    yield topic_q("no order", "NoOrder", order=None)
    yield topic_q("bad number", "Bad", perm="six")
    yield topic_q("bad filter", "Bad", topicFilterType="NONE")
    for topic in ("T1", "NoQueues", "nope"):
        yield q(topic, RequestCode.GET_TOPIC_CONFIG, topic=topic)


def _attributes() -> Iterator[Question]:
    for number, text in enumerate((
        "+message.type=FIFO", "+message.type=XX", "+message.type=MIXED", "+foo=bar",
        "message.type=FIFO", "-message.type", "message.type", "+message.type=", "+a-b=c", "", "-",
        "+message.type=FIFO,+message.type=DELAY", "+message.type=FIFO,+queue.type=SimpleCQ",
        "+reserve.time=5", "+reserve.time=x", "+reserve.time=-2", " +message.type=DELAY",
        "+message.type=DELAY,", "+=x", "+queue.type=x", "+cleanup.policy=x", "+message.type=FIFO=x",
    )):
        yield topic_q(f"with {text!r}", f"New{number}", attributes=text)
    yield topic_q("with two", "Old", attributes="+message.type=FIFO,+queue.type=SimpleCQ")
    for text in ("+message.type=DELAY", "+queue.type=SimpleCQ", "-queue.type", "-nope",
                 "-message.type", "-message.type ", "+message.type=NORMAL",
                 "+message.type=FIFO,-message.type", "+message.type= FIFO"):
        yield topic_q(f"later with {text!r}", "Old", attributes=text)
    yield topic_q("later with other queues", "Old", readQueueNums="5")
    yield q("Old", RequestCode.GET_TOPIC_CONFIG, topic="Old")
    yield topic_q("with batch queues", "Batches", attributes="+queue.type=BatchCQ")
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        yield q("of a batch queue that is empty", code, topic="Batches", queueId="0")


# --- messages


def send_q(what: str, topic: str, queue_id: int = 0, key: str = "", **fields: str) -> Question:
    properties = f"UNIQ_KEY\x01unique-{what}\x02KEYS\x01{key}" if key else f"UNIQ_KEY\x01u-{what}"
    return q(what, RequestCode.SEND_MESSAGE_V2, what.encode(), **{
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
        **fields})


def _sends() -> Iterator[Question]:
    yield send_q("creating", "Auto1")
    yield send_q("creating many queues", "Auto2", d="20")
    yield send_q("with a template that is none", "Auto3", c="T1")
    yield send_q("with a template that is not there", "Auto3", c="nope")
    yield send_q("with the broker's topic", "Auto4", c="broker-a")
    yield send_q("illegal", "a b")
    yield send_q("closed", "Closed")
    yield send_q("forbidden", "SCHEDULE_TOPIC_XXXX")
    yield send_q("no such queue", "T1", 9)
    for topic in ("Auto1", "Auto2", "Auto3", "Auto4"):
        yield q(topic, RequestCode.GET_TOPIC_CONFIG, topic=topic)
    for number in range(3):
        yield send_q(f"message {number}", "T1", 1, key="k1")


def _retry_topics() -> Iterator[Question]:
    """Return requests that show the deletion of a topic with its retry topics of pops."""
    yield group_q("that pops", "Popper")
    topics = ("Popped", "%RETRY%Popper_Popped", "%RETRY%Popper_Other", "%RETRY%Popper")
    for topic in topics:
        yield topic_q(f"{topic}, to be deleted", topic)
    for topic in topics[:2]:
        yield q(f"{topic}, to be deleted", RequestCode.UPDATE_CONSUMER_OFFSET, topic=topic,
                consumerGroup="Popper", queueId="0", commitOffset="0")
    yield q("that was popped", RequestCode.DELETE_TOPIC_IN_BROKER, topic="Popped")
    for topic in topics:
        yield q(f"{topic}, after it", RequestCode.GET_TOPIC_CONFIG, topic=topic)


def _deletions() -> Iterator[Question]:
    yield from _retry_topics()
    for topic in (" ", "", "TBW102", "nope", "a*b", "NoQueues", "DefaultCluster"):
        yield q(repr(topic), RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    yield q("NoQueues, deleted", RequestCode.GET_TOPIC_CONFIG, topic="NoQueues")


# --- groups


def group_q(what: str, name: str, **fields: Any) -> Question:
    return q(what, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
              {"groupName": name, "consumeEnable": True, **fields})


def _groups() -> Iterator[Question]:
    yield group_q("new", "G1")
    yield group_q("changed", "G1", retryMaxTimes=3)
    yield group_q("quiet", "Quiet", notifyConsumerIdsChangedEnable=False)
    yield group_q("system", "CID_RMQ_SYS_X")
    yield group_q("blank", " ")
    yield group_q("illegal", "a*b")
    yield group_q("attribute", "G2", attributes={"+nope": "1"})
    for what, body in (("no body", b""), ("broken", b"{"), ("a list", b"[]"), ("no name", b"{}")):
        yield q(what, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    for group in ("G1", "Quiet", "Demanded"):
        yield q(group, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)


# --- offsets


def _offset(what: str, code: RequestCode, **fields: str | None) -> Question:
    return q(what, code, **{"consumerGroup": "G1", "topic": "T1", "queueId": "1", **fields})


def _offsets() -> Iterator[Question]:
    query, update = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
    yield _offset("never", query)
    yield _offset("never, no zero", query, setZeroIfNotFound="false")
    yield _offset("empty queue", query, queueId="0")
    yield _offset("no such queue", query, queueId="9")
    yield _offset("no such topic", query, topic="nope")
    yield _offset("no such group", query, consumerGroup="nope")
    yield _offset("queue missing", query, queueId=None)
    yield _offset("queue -1", query, queueId="-1")
    for text in ("+1", "01", "1e0", "1.0", " 1", "2147483648", "null", ""):
        yield _offset(f"queue {text!r}", query, queueId=text)
    yield _offset("good", update, commitOffset="2")
    yield _offset("after good", query)
    yield _offset("back", update, commitOffset="1")
    yield _offset("after back", query)
    yield _offset("no such group", update, consumerGroup="nope", commitOffset="1")
    yield _offset("no such topic", update, topic="nope", commitOffset="1")
    yield _offset("queue missing", update, queueId=None, commitOffset="1")
    yield _offset("offset missing", update)
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
                 RequestCode.GET_EARLIEST_MSG_STORETIME):
        for topic, queue_id in (("T1", "1"), ("T1", "0"), ("T1", "9"), ("nope", "0"),
                                ("T1", "-1")):
            yield q(f"{topic} {queue_id}", code, topic=topic, queueId=queue_id)
    for topic, queue_id, timestamp, boundary in (
        ("T1", "1", "0", None), ("T1", "1", "0", "upper"), ("T1", "1", _FAR, None),
        ("T1", "1", _FAR, "UPPER"), ("T1", "0", "5", None), ("nope", "0", "5", None),
        ("T1", "1", "-1", None), ("T1", "1", None, None),
    ):
        yield q(f"{topic} {queue_id} {timestamp} {boundary}",
                 RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=topic, queueId=queue_id,
                 timestamp=timestamp, boundaryType=boundary)
    yield q("all", RequestCode.GET_ALL_CONSUMER_OFFSET)
    yield _offset("negative", update, queueId="2", commitOffset="-5")
    yield _offset("after negative", query, queueId="2")
    for group, topic in (("G1", None), ("nope", None), ("G1", "T1"), ("G1", "nope")):
        yield q(f"{group} {topic}", RequestCode.GET_CONSUME_STATS, consumerGroup=group,
                 topic=topic)


# --- looking at messages


def _look_ups() -> Iterator[Question]:
    for what, fields in (
        ("k1", {}), ("one", {"maxNum": "1"}), ("none", {"maxNum": "0"}), ("unknown", {"key": "x"}),
        ("empty", {"key": ""}), ("topic", {"topic": "nope"}), ("time", {"endTimestamp": "5"}),
        ("missing", {"maxNum": None}),
        ("unique", {"key": "unique-message 1", "maxNum": "0", "_UNIQUE_KEY_QUERY": "true"}),
    ):
        yield q(what, RequestCode.QUERY_MESSAGE, **{
            "topic": "T1", "key": "k1", "maxNum": "32", "beginTimestamp": "0",
            "endTimestamp": _FAR, **fields})
    for offset in ("0", "999999999", "-1", None):
        yield q(str(offset), RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)


# --- clients


def _subscription(topic: str = "T1", expression: str = "*", kind: str | None = "TAG") -> Any:
    return {"topic": topic, "subString": expression, "tagsSet": [], "codeSet": [],
            "subVersion": 1, "classFilterMode": False, "expressionType": kind}


def heartbeat_q(
    what: str, *groups: str, topics: tuple[str, ...] = ("T1",), **fields: Any
) -> Question:
    return q(what, RequestCode.HEART_BEAT, {
        "clientID": _HEARTBEAT_ID, "producerDataSet": [{"groupName": "P1"}],
        "consumerDataSet": [
            {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": group == "Unit",
             "subscriptionDataSet": [_subscription(topic) for topic in topics]}
            for group in groups], **fields})


def _clients() -> Iterator[Question]:
    members = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    yield q("nobody", members, consumerGroup="H1")
    yield q("missing", members)
    for what, body in (("no body", b""), ("broken", b"{"), ("a list", b"[]")):
        yield q(what, RequestCode.HEART_BEAT, body)
    yield heartbeat_q("new", "H1", "Unit", "bad*group")
    yield heartbeat_q("again", "H1", "Unit")
    yield heartbeat_q("second kind", "V1", heartbeatFingerprint=7)
    yield heartbeat_q("second kind again", "V1", topics=(), heartbeatFingerprint=7,
                     withoutSub=True)
    yield heartbeat_q("second kind changed", "V1", topics=(), heartbeatFingerprint=8,
                     withoutSub=True)
    for group in ("H1", "bad*group", "V1"):
        yield q(group, members, consumerGroup=group)
        yield q(group, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
    for group in ("P1", "nope"):
        yield q(group, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=group)
    for topic in ("%RETRY%H1", "%RETRY%Unit"):
        yield q(topic, RequestCode.GET_TOPIC_CONFIG, topic=topic)
    yield q("T1", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Auto1")
    yield q("nobody", RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="nope", clientId="c",
             jstackEnable="false")
    leave = RequestCode.UNREGISTER_CLIENT
    yield q("H1", leave, clientID=_HEARTBEAT_ID, consumerGroup="H1", producerGroup="P1")
    yield q("H1 left", members, consumerGroup="H1")
    check = RequestCode.CHECK_CLIENT_CONFIG
    yield q("nothing", check)
    yield q("no subscription", check, {"clientId": "c"})
    yield q("broken", check, b"{")
    for expression, kind in (("a||b", "TAG"), ("a", None), ("a > 1", "SQL92"), ("x", "OTHER")):
        yield q(f"{expression} {kind}", check,
                 {"subscriptionData": _subscription(expression=expression, kind=kind)})


# --- answers to who asked


def _reply(what: str, topic: str, properties: str, queue_id: int = 0) -> Question:
    fields = send_q("", topic, queue_id).fields
    return q(what, RequestCode.SEND_REPLY_MESSAGE_V2, b"answer", **{**fields, "i": properties})


def _replies() -> Iterator[Question]:
    topic = "DefaultCluster_REPLY_TOPIC"
    yield _reply("to nobody", topic, "CORRELATION_ID\x011\x02")
    yield _reply("to who is not there", topic, "REPLY_TO_CLIENT\x01nobody\x02TAGS\x01a\x02")
    yield _reply("no such queue", topic, "", 1)
    yield _reply("illegal", "a b", "")
    yield _reply("forbidden", "SCHEDULE_TOPIC_XXXX", "")
    yield _reply("no topic", "NoReplies", "REPLY_TO_CLIENT\x01nobody\x02")
    yield q("first form", RequestCode.SEND_REPLY_MESSAGE, b"answer", producerGroup="P1",
             topic=topic, defaultTopic="TBW102", defaultTopicQueueNums="4", queueId="0",
             sysFlag="0", bornTimestamp="1", flag="0", properties="KEYS\x01r1\x02")
    yield q("nothing", RequestCode.SEND_REPLY_MESSAGE_V2)
    yield q("stored", RequestCode.QUERY_MESSAGE, topic=topic, key="r1", maxNum="9",
             beginTimestamp="0", endTimestamp=_FAR)


# --- whole tables, and what is not there


def _tables() -> Iterator[Question]:
    yield q("T1", RequestCode.GET_TOPIC_STATS_INFO, topic="T1")
    yield q("nope", RequestCode.GET_TOPIC_STATS_INFO, topic="nope")
    yield q("G1", RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G1")
    yield _offset("group deleted", RequestCode.QUERY_CONSUMER_OFFSET)
    yield q("G1 and offsets", RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G1",
             cleanOffset="true")
    yield _offset("offsets deleted", RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false")
    yield q("missing", RequestCode.DELETE_SUBSCRIPTIONGROUP)
    yield q("all", RequestCode.CLEAN_UNUSED_TOPIC)
    yield q("T1 1, unused topics cleaned", RequestCode.GET_MAX_OFFSET, topic="T1", queueId="1")
    for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                 RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER):
        yield q("all", code)
