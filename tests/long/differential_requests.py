"""The requests of the differential run, made from a seed."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from tests.long.malformed import captures, mutated
from twistmq.broker.testing.kernel import KernelBox
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.frame import JSON, ROCKETMQ, encode_frame
from twistmq.protocol.header import CommandHeader, EmptyHeader
from twistmq.protocol.headers.table import HEADERS

__all__ = ["requests_of"]

TOPICS: Final = ("T0", "T1", "T2", "Ordered", "under_score-dash", "%RETRY%G0")
GROUPS: Final = ("G0", "G1", "G2")
#: Values of the fields of headers, by name; other fields have one by their type.
_POOLS: Final[dict[str, Sequence[object]]] = {
    "topic": (*TOPICS * 6, "missing", "été", ""), "consumerGroup": (*GROUPS * 6, "other"),
    "group": GROUPS, "groupName": GROUPS, "producerGroup": ("p", "", "été"),
    "queueId": (*(0, 1, 2, 3) * 6, 9, -1), "bornTime": (0,),
    "queueOffset": (0, 0, 1, 5, 32, 100, 10**6, -1),
    "offset": (0, 1, 7, 100, -1), "commitOffset": (0, 1, 7, 100, -1),
    "maxMsgNums": (1, 8, 32, 32, 0, -5), "sysFlag": (0, 0, 0, 1, 4, 4, 8, 12), "expType": ("TAG",),
    "subscription": ("*", "tag1", "tag1||tag2", "missing"), "expressionType": ("TAG", "SQL92", ""),
    "invisibleTime": (1000, 60_000), "pollTime": (0,), "suspendTimeoutMillis": (0, 0, 1000),
    "defaultTopic": ("TBW102",), "subVersion": (0,), "initMode": (0, 1), "exp": ("*", "tag1"),
    "key": ("key1", "key2", "missing"), "delayLevel": (0, 1, 3), "perm": (6, 6, 6, 4),
    "readQueueNums": (4,), "writeQueueNums": (4,), "topicFilterType": ("SINGLE_TAG",),
}
#: Codes that end or change the broker as a whole are left out.
_LEFT_OUT: Final = frozenset((RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER,
                              RequestCode.DELETE_SUBSCRIPTIONGROUP))
_ODD_TEXTS: Final = ("", "x" * 300, "\x01", "\x02", "a\x01b\x02", "-1", "null", "1e9", "été", "\0",
                     "9" * 30, "true", "😀")
_OPAQUES: Final = range(-2**31, 2**31)


def requests_of(chance: random.Random, box: KernelBox) -> Iterator[bytes]:
    """Generate frames without end; topics and groups are created first.

    :param box: told for the clock, by which messages are born and timed.
    """
    yield from _beginning(chance)
    frames = captures()
    kinds: list[Callable[[], bytes]] = [
        *[lambda: _send(chance, box.now_ms)] * 180, *[lambda: _batch(chance, box.now_ms)] * 20,
        *[lambda: _of_code(chance, RequestCode.PULL_MESSAGE)] * 50,
        *[lambda: _of_code(chance, RequestCode.POP_MESSAGE)] * 15,
        *[lambda: _of_code(chance, chance.choice(_CODES))] * 30,
        # It may make the rest of a read unreadable.
        lambda: mutated(chance.choice(frames), chance)]
    while True:
        yield chance.choice(kinds)()


_CODES: Final = sorted(code for code in HEADERS if code not in _LEFT_OUT)


def _beginning(chance: random.Random) -> Iterator[bytes]:
    for topic in TOPICS:
        yield _frame(chance, RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
            "perm": "6", "topicFilterType": "SINGLE_TAG"})
    for group in GROUPS:
        yield _frame(chance, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {},
                     SubscriptionGroupConfig(group).encode())
    yield _frame(chance, RequestCode.HEART_BEAT, {}, json.dumps({
        "clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": topic, "subString": "*", "tagsSet": [],
                                     "codeSet": [], "subVersion": 0, "expressionType": "TAG",
                                     "classFilterMode": False} for topic in TOPICS],
        } for group in GROUPS]}).encode())


def _properties(chance: random.Random, now_ms: int) -> str:
    """Return the properties of a message, as they are sent."""
    number = chance.randrange(10**6)
    pairs = {"KEYS": f"key{number % 40}", "UNIQ_KEY": f"7F0000010BAB18B4AAC2{number:012d}",
             "WAIT": chance.choice(("true", "false")), "TAGS": f"tag{number % 4}"}
    for name in list(pairs):
        if chance.random() < 0.3:
            del pairs[name]
    odd = chance.random()
    if odd < 0.05:
        pairs["DELAY"] = chance.choice(("1", "2", "3", "40", "-1", "x"))
    elif odd < 0.1:
        pairs["TIMER_DELAY_MS"] = str(chance.choice((1, 1000, 3000)))
    elif odd < 0.13:
        pairs["TIMER_DELIVER_MS"] = str(now_ms + chance.choice((-5, 2000, 10**12)))
    elif odd < 0.17:
        pairs.update({"TRAN_MSG": "true", "PGROUP": "p"})
    elif odd < 0.25:
        pairs[chance.choice(("own", "été", "KEYS"))] = chance.choice(_ODD_TEXTS)
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    return text + chance.choice(("", "", "\x02", "\x02\x02", "x"))


def _body(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 20, 100, 100, 500, 3000))
    body = chance.randbytes(size)
    return zlib.compress(body) if chance.random() < 0.05 else body


def _send_fields(chance: random.Random, now_ms: int, batch: bool) -> dict[str, str]:
    """The fields of a send; version 2 has letters for names."""
    values = ("p", _pick(chance, "topic"), "TBW102", "4", chance.choice(("0", "1", "2", "3", "-1")),
              chance.choice(("0", "0", "0", "1", "4", "8")), str(now_ms - chance.randrange(100)),
              "0", _properties(chance, now_ms), chance.choice(("0", "0", "3")), "false", "0",
              str(batch).lower())
    return dict(zip("abcdefghijklm", values, strict=True))


def _send(chance: random.Random, now_ms: int) -> bytes:
    fields = _send_fields(chance, now_ms, False)
    code = RequestCode.SEND_MESSAGE_V2
    if chance.random() < 0.1:
        code = RequestCode.SEND_MESSAGE
        names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
                 "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
                 "maxReconsumeTimes", "batch")
        fields = dict(zip(names, fields.values(), strict=True))
    return _frame(chance, code, fields, _body(chance))


def _batch(chance: random.Random, now_ms: int) -> bytes:
    """A send of several messages: for each its size, four fields, the body, the properties."""
    messages = []
    for _ in range(chance.randint(1, 6)):
        body, properties = _body(chance), _properties(chance, now_ms).encode()
        size = 22 + len(body) + len(properties)
        messages.append(size.to_bytes(4) + bytes(12) + len(body).to_bytes(4) + body
                        + len(properties).to_bytes(2) + properties)
    data = b"".join(messages)
    if chance.random() < 0.1:
        data = data[:chance.randrange(len(data))]
    return _frame(chance, RequestCode.SEND_BATCH_MESSAGE, _send_fields(chance, now_ms, True), data)


def _pick(chance: random.Random, name: str, kind: object = str) -> str:
    """Return a text for a field."""
    pool = _POOLS.get(name)
    if pool is not None:
        return str(chance.choice(pool))
    if kind is bool:
        return chance.choice(("true", "false"))
    if "int" in str(kind):
        return str(chance.choice((0, 1, 2, 4, 6, 100, -1)))
    return chance.choice(("a", "T0", "G0", "key1"))


def _of_code(chance: random.Random, code: int) -> bytes:
    header: type[CommandHeader] = HEADERS[code].request  # type: ignore[index]
    fields = {} if header is EmptyHeader else {
        each.encode_name: _pick(chance, each.encode_name, each.type)
        for each in msgspec.structs.fields(header) if each.required or chance.random() < 0.6}
    return _frame(chance, code, fields, b"" if chance.random() < 0.8 else _body(chance))


def _frame(
    chance: random.Random, code: int, fields: dict[str, str], body: bytes = b""
) -> bytes:
    """A frame in either encoding; one in forty has a value that does not fit, or is one-way."""
    odd = chance.random()
    if fields and odd < 0.02:
        fields = {**fields, chance.choice(list(fields)): chance.choice(_ODD_TEXTS)}
    elif fields and odd < 0.03:
        fields = dict(chance.sample(sorted(fields.items()), len(fields)))
    elif fields and odd < 0.04:
        fields = {**fields, "more": chance.choice(_ODD_TEXTS)}
    flag = 2 if odd > 0.99 else 0
    opaque = chance.randrange(1000) if chance.random() < 0.95 else chance.choice(_OPAQUES)
    if code < 2**15 and chance.random() < 0.5:
        return encode_frame(ROCKETMQ, encode_binary_header(
            code, "JAVA", 479, opaque, flag, None, fields), body)
    header: dict[str, Any] = {
        "code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479}
    if chance.random() < 0.1:
        header = dict(chance.sample(sorted(header.items()), len(header)))
    is_loose = chance.random() < 0.1
    text = json.dumps(header, ensure_ascii=chance.random() < 0.3,
                      separators=(", ", ": ") if is_loose else (",", ":"))
    return encode_frame(JSON, text.encode(), body)
