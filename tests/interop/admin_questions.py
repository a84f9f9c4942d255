"""The requests of tools to a broker, except those about topics and groups.

To be asked behind ``questions``, whose clients are still connected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.interop.questions import Question, group_q, q, send_q, topic_q
from twistmq.protocol.codes import RequestCode

__all__ = ["admin_questions"]

_FAR: Final = "9999999999999"
#: The broker's address, the first half of an offset message id.
_HOST: Final = "7F00000100002A9F"


def admin_questions() -> Iterator[Question]:
    """Return all requests, in order."""
    yield topic_q("for tools", "A1", readQueueNums="2", writeQueueNums="2")
    yield topic_q("for tools, ordered", "A2", readQueueNums="1", writeQueueNums="1", order="true")
    for group in ("AG", "AH"):
        yield group_q(f"for tools, {group}", group)
    for number in range(3):
        yield send_q(f"for tools {number}", "A1", 0)
    yield _commit("tools", "1")
    yield _commit("tools, empty queue", "0", queueId="1")
    yield from _times()
    yield from _groups()
    yield from _offsets()
    yield from _resets()
    yield from _clients()
    yield from _figures()
    yield from _settings()


def _commit(what: str, offset: str, **fields: str) -> Question:
    return q(what, RequestCode.UPDATE_CONSUMER_OFFSET, **{
        "consumerGroup": "AG", "topic": "A1", "queueId": "0", "commitOffset": offset, **fields})


def _progress(what: str, group: str, queue_id: int = 0) -> Question:
    return q(what, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic="A1",
             queueId=str(queue_id), setZeroIfNotFound="false")


def _times() -> Iterator[Question]:
    for topic, group in (("A1", "AG"), ("A1", "nope"), ("nope", "AG"), (None, "AG")):
        yield q(f"{topic} {group}", RequestCode.QUERY_CONSUME_TIME_SPAN, topic=topic, group=group)


def _groups() -> Iterator[Question]:
    for group in ("AG", "nope", None):
        yield q(str(group), RequestCode.QUERY_TOPICS_BY_CONSUMER, group=group)
    for group, topic in (("Unit", "T1"), ("Unit", "nope"), ("nope", "T1"), (None, "T1")):
        yield q(f"{group} {topic}", RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group=group,
                topic=topic)
    for number, readable in enumerate((None, "false", None, "true", None)):
        yield q(f"{number} {readable}", RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, group="AG",
                topic="A1", readable=readable)
    yield q("no group", RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, topic="A1")


def _offsets() -> Iterator[Question]:
    correction, clone = RequestCode.QUERY_CORRECTION_OFFSET, RequestCode.CLONE_GROUP_OFFSET
    for compare, topic, left_out in (
        ("AG", "A1", None), ("nope", "A1", None), ("AG", "nope", None), ("nope", "A1", "x,y"),
        ("AG", None, None),
    ):
        yield q(f"{compare} {topic} {left_out}", correction, compareGroup=compare, topic=topic,
                filterGroups=left_out)
    for source, group, topic in (("AG", "AH", "A1"), ("nope", "AH", "A1"), ("AG", "AH", "nope")):
        yield q(f"{source} {group} {topic}", clone, srcGroup=source, destGroup=group, topic=topic,
                offline="true")
    for queue_id in (0, 1):
        yield _progress(f"AH {queue_id}, cloned", "AH", queue_id)


def _resets() -> Iterator[Question]:
    def reset(what: str, **fields: str | None) -> Question:
        return q(what, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **{
            "topic": "A1", "group": "AG", "timestamp": "0", "isForce": "true", **fields})

    for what, fields in (
        ("to the beginning", {}), ("to the end", {"timestamp": "-1"}),
        ("to what is to come", {"timestamp": _FAR}), ("one queue", {"queueId": "0"}),
        ("outside", {"queueId": "0", "offset": "9"}), ("before", {"queueId": "0", "offset": "-7"}),
        ("offset -1", {"queueId": "0", "offset": "-1"}),
        ("no such topic", {"topic": "nope"}), ("no such group", {"group": "nope"}),
        ("no topic", {"topic": None}),
        ("no time", {"timestamp": None}), ("no force", {"isForce": None}),
        ("to an offset", {"queueId": "0", "offset": "2"}),
    ):
        yield reset(what, **fields)
    yield _progress("after a reset", "AG")
    yield _commit("after a reset", "3")
    yield _progress("after a commit after a reset", "AG")


def _clients() -> Iterator[Question]:
    yield q("all", RequestCode.GET_ALL_PRODUCER_INFO)
    yield q("nobody", RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="A1", group="nope")
    consume = RequestCode.CONSUME_MESSAGE_DIRECTLY
    yield q("nobody", consume, consumerGroup="AG", clientId="c", msgId=_HOST + "0" * 16)
    yield q("nothing there", consume, consumerGroup="AG", clientId="c", msgId=_HOST + "7" * 16)
    yield q("no id", consume, consumerGroup="AG", clientId="c", msgId="x")
    yield q("no group", consume, clientId="c", msgId=_HOST + "0" * 16)


def _figures() -> Iterator[Question]:
    view = RequestCode.VIEW_BROKER_STATS_DATA
    for name, key in (("TOPIC_PUT_NUMS", "nope"), ("GROUP_GET_NUMS", "A1@nope"), ("NOPE", "A1")):
        yield q(f"{name} {key}", view, statsName=name, statsKey=key)
    for is_order in ("false", "true", None):
        yield q(str(is_order), RequestCode.GET_BROKER_CONSUME_STATS, isOrder=is_order)
    yield q("names", RequestCode.GET_BROKER_RUNTIME_INFO)
    yield q("of a master", RequestCode.GET_BROKER_HA_STATUS)
    for offset in (None, "0", "77"):
        yield q(f"{offset}", RequestCode.RESET_MASTER_FLUSH_OFFSET, masterFlushOffset=offset)
    yield q("at a master", RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, minBrokerId="0",
            brokerName="broker-a")


def _settings() -> Iterator[Question]:
    for what, text in (
        ("good", "fileReservedTime=48\nmaxTransferCountOnMessageInMemory=31\n"),
        ("spaces and a comment", "# more\n fileReservedTime : 47 \n"), ("unknown", "nowhere=1"),
        ("black list", "fileReservedTime=1\nbrokerConfigPath=/x"), ("empty", ""),
        ("no number", "fileReservedTime=soon"),
    ):
        yield q(what, RequestCode.UPDATE_BROKER_CONFIG, text.encode())
