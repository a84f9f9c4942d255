"""Requests for locks of queues, after those of `questions.py`.

What of it takes time, renewal and expiry, `test_orderly_members.py` shows with both brokers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.interop.questions import Question
from twistmq.protocol.codes import RequestCode

__all__ = ["lock_questions"]

_LOCK: Final = RequestCode.LOCK_BATCH_MQ
_UNLOCK: Final = RequestCode.UNLOCK_BATCH_MQ


def _ask(what: str, code: RequestCode, client: str | None, queue_ids: str = "0123",
         group: str | None = "L1", **fields: Any) -> Question:
    return Question(f"{code.name} {what}", code, {}, json.dumps({
        "consumerGroup": group, "clientId": client, "onlyThisBroker": True, "mqSet": [
            {"topic": "T1", "brokerName": "broker-a", "queueId": int(number)}
            for number in queue_ids], **fields}).encode())


def lock_questions() -> Iterator[Question]:
    """Return all requests, in order."""
    yield _ask("first", _LOCK, "one", "01")
    yield _ask("first again", _LOCK, "one", "01")
    yield _ask("second gets what is left", _LOCK, "two")
    yield _ask("first gets none of those", _LOCK, "one")
    yield _ask("other group", _LOCK, "two", group="L2")
    yield _ask("topic that is not there", _LOCK, "one", mqSet=[
        {"topic": "nope", "brokerName": "elsewhere", "queueId": 99}])
    yield _ask("same queue twice", _LOCK, "one", "00")
    yield _ask("no queues", _LOCK, "one", "")
    yield _ask("queues missing", _LOCK, "one", mqSet=None)
    yield _ask("strict", _LOCK, "one", "0", onlyThisBroker=False)
    yield _ask("another's", _UNLOCK, "two", "0")
    yield _ask("another's is kept", _LOCK, "two", "0")
    yield _ask("own", _UNLOCK, "one", "01")
    yield _ask("own again", _UNLOCK, "one", "01")
    yield _ask("unknown group", _UNLOCK, "one", group="L9")
    yield _ask("what was given back", _LOCK, "two")
    yield _ask("all is another's", _LOCK, "one")
    yield _ask("none", _UNLOCK, "two", "")
    yield _ask("all", _UNLOCK, "two")
    yield _ask("all that was given back", _LOCK, "one")
    for code in (_LOCK, _UNLOCK):
        yield _ask("nobody", code, None, "0", group="L3")
        yield _ask("no group", code, "one", "0", group=None)
        for what, body in (("no body", b""), ("broken", b"{"), ("a list", b"[]")):
            yield Question(f"{code.name} {what}", code, {}, body)
    yield from _dead_letters()


def _dead_letters() -> Iterator[Question]:
    """Return requests of a group with locks, whose messages to its retry topic are dead letters."""
    yield Question("HEART_BEAT of who keeps order", RequestCode.HEART_BEAT, {}, json.dumps({
        "clientID": "locker", "producerDataSet": [], "consumerDataSet": [{
            "groupName": "L1", "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T1", "subString": "*"}]}]}).encode())
    yield _given_up("while there are locks")
    for client in ("one", "two"):
        yield _ask(f"{client}, before the rest", _UNLOCK, client)
    yield _ask("where elsewhere", _UNLOCK, "one", mqSet=[
        {"topic": "nope", "brokerName": "elsewhere", "queueId": 99}])
    yield _given_up("without locks")
    for topic in ("%RETRY%L1", "%DLQ%L1"):
        yield Question(f"GET_MAX_OFFSET {topic}", RequestCode.GET_MAX_OFFSET,
                       {"topic": topic, "queueId": "0"})


def _given_up(what: str) -> Question:
    return Question(f"SEND_MESSAGE_V2 given up {what}", RequestCode.SEND_MESSAGE_V2, {
        "a": "P", "b": "%RETRY%L1", "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "1700000000000", "h": "0", "i": f"UNIQ_KEY\x01{what}", "j": "1", "k": "false",
        "l": "16", "m": "false"}, b"given up")
