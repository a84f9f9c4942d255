"""Requests about permissions and limits, for brokers with several settings.

As in `questions`: each is raw, the order matters, names are unique.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tests.interop.questions import Question, group_q, heartbeat_q, q, send_q, topic_q
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.flags import PULL_SUBSCRIPTION

__all__ = ["CLOSED", "READ_ONLY", "WRITE_ONLY", "closed_questions", "permission_questions",
           "read_only_questions", "write_only_questions"]

#: Settings of a broker that creates nothing and takes little; one switch of the light queues.
CLOSED: Final = (
    "autoCreateTopicEnable=false", "autoCreateSubscriptionGroup=false",
    "rejectTransactionMessage=true", "litePullMessageEnable=false", "maxMessageSize=1000",
    "brokerTopicEnable=false", "clusterTopicEnable=false", "enableLmq=true",
)
#: A broker that is only read, with the other switch.
READ_ONLY: Final = ("brokerPermission=4", "enableMultiDispatch=true")
#: A broker that only takes messages.
WRITE_ONLY: Final = ("brokerPermission=2",)

_LITE: Final = RequestCode.LITE_PULL_MESSAGE
#: The longest that properties and a topic may be, bytes.
_PROPERTIES_MAX, _TOPIC_MAX = 32_767, 127
_BODY_MAX: Final = 4 * 1024 * 1024


def _pull(
    what: str, name: str, queue_id: int = 0, code: RequestCode = RequestCode.PULL_MESSAGE,
    **fields: str | None,
) -> Question:
    return q(what, code, **{
        "consumerGroup": "PullG", "topic": name, "queueId": str(queue_id), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": str(PULL_SUBSCRIPTION), "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG", **fields})


def _batch(what: str, name: str, messages: Sequence[tuple[bytes, str]], **fields: str) -> Question:
    """:param messages: the body and the properties of each message."""
    encoded = b""
    for body, text in messages:
        properties = text.encode()
        inner = struct.pack(f">iii i{len(body)}s h{len(properties)}s", 0, 0, 0, len(body), body,
                            len(properties), properties)
        encoded += struct.pack(">i", len(inner) + 4) + inner
    asked = send_q("", name, m="true", **fields)
    return Question(f"SEND_BATCH_MESSAGE {what}", RequestCode.SEND_BATCH_MESSAGE, asked.fields,
                    encoded)


# --- a broker as it comes


def permission_questions() -> Iterator[Question]:
    """Topics, groups and messages of a broker with the default settings."""
    yield from _topic_permissions()
    yield from _group_permissions()
    yield from _pulls()
    yield from _limits()
    yield from _batches()
    yield from _waits()


def _topic_permissions() -> Iterator[Question]:
    """Return sends and pulls for each permission, also of a template."""
    for perm in range(9):
        name = f"Perm{perm}"
        yield topic_q(f"perm {perm}", name, perm=str(perm))
        yield send_q(f"perm {perm}", name)
        yield _pull(f"perm {perm}", name)
        yield send_q(f"from perm {perm}", f"From{perm}", c=name)
        yield q(f"from perm {perm}", RequestCode.GET_TOPIC_CONFIG, topic=f"From{perm}")
    yield topic_q("perm -1", "PermNegative", perm="-1")
    yield topic_q("read more than written", "Shrunk", readQueueNums="6", writeQueueNums="2")
    yield topic_q("write more than read", "Grown", readQueueNums="2", writeQueueNums="6")
    for name in ("Shrunk", "Grown"):
        for queue_id in (1, 3, 6):
            yield send_q(f"{name} {queue_id}", name, queue_id)
            yield _pull(f"{name} {queue_id}", name, queue_id)
        yield _pull(f"{name} -1", name, -1)


def _group_permissions() -> Iterator[Question]:
    """Groups that may not consume, or not broadcast."""
    yield group_q("that may not consume", "NoConsume", consumeEnable=False)
    yield group_q("that may not broadcast", "NoBroadcast", consumeBroadcastEnable=False)
    yield group_q("without retry queues", "NoRetry", retryQueueNums=0)
    yield heartbeat_q("without retry queues", "NoRetry", "NoConsume")
    yield q("NoRetry", RequestCode.GET_TOPIC_CONFIG, topic="%RETRY%NoRetry")
    for name in ("NoConsume", "NoBroadcast", "NoRetry", "a*b", "", "CID_RMQ_SYS_TRANS"):
        yield _pull(f"of {name!r}", "Perm6", consumerGroup=name)
    back = {"offset": "0", "delayLevel": "0", "originMsgId": "x", "originTopic": "Perm6",
            "unitMode": "false", "maxReconsumeTimes": "16"}
    for name in ("NoRetry", "nope", "a*b"):
        yield q(f"of {name!r}", RequestCode.CONSUMER_SEND_MSG_BACK,
                       **{**back, "group": name, "offset": "1"})


def _pulls() -> Iterator[Question]:
    """Return pulls with different arguments and offsets."""
    for name in ("nope", "a b", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"):
        yield _pull(repr(name), name)
    for queue_id in (9, -1):
        yield _pull(f"queue {queue_id}", "Perm6", queue_id)
    for offset in ("1", "2", "-1"):
        yield _pull(f"offset {offset}", "Perm6", queueOffset=offset)
    for count in ("0", "-1", "2147483647"):
        yield _pull(f"{count} messages", "Perm6", maxMsgNums=count)
    yield _pull("lite", "Perm6", code=_LITE)
    yield _pull("no subscription known", "Perm6", consumerGroup="Nobody", sysFlag="0")
    yield _pull("bad expression", "Perm6", subscription="||")
    yield _pull("SQL", "Perm6", subscription="a > 1", expressionType="SQL92")
    for missing in ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
                    "commitOffset", "suspendTimeoutMillis", "subVersion"):
        yield _pull(f"without {missing}", "Perm6", **{missing: None})


def _limits() -> Iterator[Question]:
    """Return messages at and above the limits."""
    for what, size in (("longest", _BODY_MAX), ("too long", _BODY_MAX + 1)):
        asked = send_q(f"{what} body", "Perm6")
        yield Question(asked.name, asked.code, asked.fields, bytes(size))
    for size in (_PROPERTIES_MAX - 300, _PROPERTIES_MAX + 1, 2 * _PROPERTIES_MAX):
        text = f"UNIQ_KEY\x01p{size}\x02p\x01".ljust(size, "x")
        yield send_q(f"properties {size}", "Perm6", i=text)
    for size in (_TOPIC_MAX, _TOPIC_MAX + 1, 300):
        yield send_q(f"topic {size}", "z" * size)
    yield send_q("empty topic", "")
    yield send_q("no body", "Perm6")
    yield send_q("retry topic", "%RETRY%PullG")
    yield send_q("dead letters", "%DLQ%PullG")
    yield send_q("no group", "Perm6", a="")


def _batches() -> Iterator[Question]:
    """Return batches that are not permitted."""
    yield _batch("two", "Perm6", [(b"1", ""), (b"2", "TAGS\x01a\x02")])
    yield _batch("none", "Perm6", [])
    yield _batch("retry topic", "%RETRY%PullG", [(b"1", "")])
    yield _batch("read only", "Perm4", [(b"1", "")])
    yield _batch("long topic", "w" * 300, [(b"1", "")])
    yield _batch("no such topic", "Batches", [(b"1", "")])
    yield _batch("too long", "Perm6", [(bytes(_BODY_MAX // 2), "")] * 3)
    yield Question("SEND_BATCH_MESSAGE broken", RequestCode.SEND_BATCH_MESSAGE,
                   send_q("", "Perm6", m="true").fields, b"\0\0\0\x63broken")


def _waits() -> Iterator[Question]:
    """Return requests with and without WAIT, whose answers must not differ."""
    for text in ("true", "false", "no"):
        yield send_q(f"WAIT {text}", "Perm6", i=f"WAIT\x01{text}\x02UNIQ_KEY\x01w-{text}\x02")
        yield q(f"WAIT {text}", RequestCode.QUERY_MESSAGE, topic="Perm6", key=f"w-{text}",
                       maxNum="9", beginTimestamp="0", endTimestamp="9999999999999")


# --- brokers of other settings


def closed_questions() -> Iterator[Question]:
    """Return the requests for a broker with the settings CLOSED."""
    yield send_q("unknown", "Unknown")
    yield send_q("retry topic", "%RETRY%Nobody")
    yield q("broker's topic", RequestCode.GET_TOPIC_CONFIG, topic="broker-a")
    yield q("template", RequestCode.GET_TOPIC_CONFIG, topic="TBW102")
    yield topic_q("made by hand", "Made")
    yield send_q("made by hand", "Made")
    yield send_q("half", "Made", f="4", i="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01h\x02")
    for size in (1000, 1001):
        asked = send_q(f"body of {size}", "Made")
        yield Question(asked.name, asked.code, asked.fields, bytes(size))
    yield _batch("as long", "Made", [(bytes(400), "")] * 2)
    yield _batch("longer", "Made", [(bytes(600), "")] * 2)
    yield _pull("unknown group", "Made")
    yield heartbeat_q("unknown group", "Unheard", topics=("Made",))
    for name in ("Unheard", "Nobody"):
        yield q(name, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)
        yield q(name, RequestCode.GET_TOPIC_CONFIG, topic=f"%RETRY%{name}")
        yield q(name, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=name, topic="Made",
                       queueId="0", commitOffset="1")
        yield q(f"of {name}", RequestCode.CONSUMER_SEND_MSG_BACK, offset="0", group=name,
                       delayLevel="0", originMsgId="x", originTopic="Made", unitMode="false",
                       maxReconsumeTimes="16")
    yield group_q("made by hand", "MadeG")
    yield _pull("made by hand", "Made", consumerGroup="MadeG")
    yield _pull("lite", "Made", code=_LITE, consumerGroup="MadeG")
    yield send_q("of a light queue", "Made",
               i="INNER_MULTI_DISPATCH\x01%LMQ%a\x02UNIQ_KEY\x01l\x02")
    yield _pull("what names a light queue", "Made", consumerGroup="MadeG", queueOffset="3")
    yield _pull("light queue", "%LMQ%a", consumerGroup="MadeG")
    yield q("light queue", RequestCode.GET_MAX_OFFSET, topic="%LMQ%a", queueId="0")


def read_only_questions() -> Iterator[Question]:
    """Return the requests for a broker with the settings READ_ONLY."""
    yield topic_q("made", "Made")
    yield topic_q("ordered", "Ordered", order="true")
    for name in ("Made", "Ordered", "Unknown", "%RETRY%Nobody"):
        yield send_q(name, name)
        yield _batch(name, name, [(b"1", "")])
        yield _pull(name, name)
    yield send_q("light queue", "Made", i="INNER_MULTI_DISPATCH\x01%LMQ%a\x02UNIQ_KEY\x01l\x02")
    yield _pull("light queue", "%LMQ%a")
    yield q("light queue", RequestCode.GET_MAX_OFFSET, topic="%LMQ%a", queueId="0")


def write_only_questions() -> Iterator[Question]:
    """Return the requests for a broker with the settings WRITE_ONLY."""
    yield topic_q("made", "Made")
    yield topic_q("ordered", "Ordered", order="true")
    for name in ("Made", "Ordered"):
        yield send_q(name, name)
        yield _pull(name, name)
        yield _pull(f"lite {name}", name, code=_LITE)
