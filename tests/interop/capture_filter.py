"""Capture the results of Apache's filter library and broker, as golden/filter.

The library is asked for the answers of the expressions of ``filter_cases``. The broker runs with
two groups that filter one topic and one that filters another; one of them is gone when the broker
stops. Of a fourth the expression is wrong: it leaves no trace.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.interop.capture_store import QUEUE_UNIT, send, wait_for
from tests.interop.filter_cases import (
    BLOOM_NAMES,
    BLOOM_SIZES,
    EXPRESSIONS,
    PROPERTIES,
    bloom_answers,
    filter_answers,
)
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient

__all__ = ["CONSUMERS", "COUNT", "TOPIC", "capture_filter", "heartbeat", "properties_of"]

TOPIC: Final = "GoldenFilter"
OTHER_TOPIC: Final = "GoldenFilterOther"
#: Group, topic, expression, version of the subscription.
CONSUMERS: Final = (
    ("golden_dear", TOPIC, "price > 5", 1700000000001),
    ("golden_near", TOPIC, "price < 3 OR region IN ('eu', 'na')", 1700000000002),
    ("golden_other", OTHER_TOPIC, "TAGS IS NOT NULL", 1700000000003),
    ("golden_wrong", TOPIC, "price > 'x'", 1700000000004),
)
COUNT: Final = 24
_LETTERS: Final = {"TRUE": "T", "FALSE": "F", "NULL": "N", "ERROR": "E", "REFUSED": "R"}


def properties_of(number: int) -> dict[str, str]:
    """Return the properties of a message; some have no price, and one price is not a number."""
    properties = {"TAGS": f"Tag{number % 3}"}
    if number % 5:
        properties["price"] = "much" if number == 7 else str(number % 11)
    if number % 4 == 0:
        properties["region"] = ("eu", "as")[number % 8 // 4]
    return properties


def heartbeat(client_id: str, group: str, subscriptions: list[dict[str, Any]]) -> bytes:
    """Return the body of a heartbeat of one consumer."""
    return json.dumps({
        "clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [
                {"tagsSet": [], "codeSet": [], "classFilterMode": False,
                 "expressionType": "SQL92", **subscription} for subscription in subscriptions]}],
    }).encode()


def workload(port: int) -> None:
    """Register groups, send messages, and unregister one group."""
    with PlainClient(port) as client:
        for topic in (TOPIC, OTHER_TOPIC):
            client.call(17, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1",
                "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false"})
        for group, topic, expression, version in CONSUMERS:
            client.call(34, {}, heartbeat("golden@1", group, [
                {"topic": topic, "subString": expression, "subVersion": version}]))
        for number in range(COUNT):
            send(client, TOPIC, 0, b"body", "".join(
                f"{name}\x01{value}\x02" for name, value in properties_of(number).items()))

        def is_dispatched() -> bool:
            reply = client.call(321, {"topic": TOPIC, "queueId": "0", "index": "0",
                                      "count": "1"}).reply
            return reply is not None and f'"maxQueueIndex":{COUNT}'.encode() in reply.body

        wait_for("all are in their queue", is_dispatched)
        client.call(35, {"clientID": "golden@1", "consumerGroup": CONSUMERS[2][0]})


def capture_filter(folder: Path, first_port: int) -> None:
    """Write tests/golden/filter; ``folder`` is for the peer's data."""
    settings = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true",
                "mappedFileSizeConsumeQueueExt": "2048"}
    gallery = Gallery("filter", f"{__doc__} Broker 5.3.3 with {settings}.")
    with tempfile.TemporaryDirectory() as home:
        answers = filter_answers(EXPRESSIONS, PROPERTIES, Path(home))
        bits = [*bloom_answers(BLOOM_SIZES, BLOOM_NAMES[:3], Path(home)),
                *bloom_answers(BLOOM_SIZES[-1:], BLOOM_NAMES, Path(home))]
    table = {expression: "".join(_LETTERS[word] for word in words)
             for expression, words in zip(EXPRESSIONS, answers, strict=True)}
    lines = ",\n".join(f"{json.dumps(expression)}: {json.dumps(letters)}"
                       for expression, letters in table.items())
    gallery.add("answers.json", f'{{"properties": {json.dumps(PROPERTIES)},\n"answers": {{\n'
                                f'{lines}\n}}}}\n'.encode(),
                "a letter for each map of properties: TRUE, FALSE, NULL, ERROR; or one REFUSED")
    rows = ",\n".join(map(json.dumps, bits))
    gallery.add("bloom.json", f"[\n{rows}\n]\n".encode(), "bits that BloomFilter gives names")
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings=settings)
    peer.start()
    try:
        workload(peer.broker_port)
    finally:
        peer.stop()
    store = folder.resolve() / "store"
    gallery.add("consumerFilter.json", (store / "config/consumerFilter.json").read_bytes(),
                "the file as the broker left it", source="config/consumerFilter.json")
    queue = f"consumequeue/{TOPIC}/0/{0:020d}"
    gallery.add("queue.bin", (store / queue).read_bytes()[:COUNT * QUEUE_UNIT],
                "the queue's entries", source=queue, source_offset=0)
    [extension] = sorted((store / "consumequeue_ext" / TOPIC / "0").iterdir())
    gallery.add("extension.bin", extension.read_bytes(), "the file of its extension",
                source=f"consumequeue_ext/{TOPIC}/0/{extension.name}", source_offset=0)
    gallery.close()
