"""Capture a queue with its extension, as golden/extension.

A group that filters by an expression lets the broker make bitmaps. Files of 1024 bytes let the
extension roll. The answer to 321 says how the broker reads what it wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.interop.capture_store import QUEUE_UNIT, send, wait_for
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient

__all__ = ["capture_extension"]

TOPIC: Final = "GoldenExtension"
GROUP: Final = "golden_extension_group"
FILE_SIZE: Final = 1024
#: Units of 34 bytes, the bitmap has 14: 30 of them fill a file but for its last 4 bytes.
COUNT: Final = 32
PLAIN_TOPIC: Final = "GoldenExtensionPlain"


def workload(port: int) -> bytes:
    """Send messages, some of which the group wants; :returns: the answer to 321 about the first."""
    with PlainClient(port) as client:
        for topic in (TOPIC, PLAIN_TOPIC):
            client.call(17, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1",
                "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false"})
        client.call(34, {}, json.dumps({
            "clientID": "golden@1", "producerDataSet": [],
            "consumerDataSet": [
                {"groupName": GROUP, "consumeType": "CONSUME_PASSIVELY",
                 "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                 "unitMode": False, "subscriptionDataSet": [
                    {"topic": TOPIC, "subString": "price > 5", "tagsSet": [], "codeSet": [],
                     "subVersion": 1700000000000, "classFilterMode": False,
                     "expressionType": "SQL92"}]}]}).encode())
        for number in range(COUNT):
            send(client, TOPIC, 0, b"body", f"TAGS\x01Tag{number % 3}\x02price\x01{number}\x02")
        for properties in ("TAGS\x01T\x02", ""):
            send(client, PLAIN_TOPIC, 0, b"body", properties)
        answers: list[bytes] = []

        def is_dispatched() -> bool:
            reply = client.call(321, {"topic": TOPIC, "queueId": "0", "index": "0", "count": "8",
                                      "consumerGroup": GROUP}).reply
            assert reply is not None
            answers.append(reply.body)
            return f'"maxQueueIndex":{COUNT}'.encode() in reply.body

        wait_for("all are in their queue", is_dispatched)
        return answers[-1]


def capture_extension(folder: Path, first_port: int) -> None:
    """Write tests/golden/extension; ``folder`` is for the peer's data."""
    settings = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true",
                "mappedFileSizeConsumeQueueExt": str(FILE_SIZE)}
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings=settings)
    gallery = Gallery("extension", f"{__doc__} Broker 5.3.3 with {settings}.")
    peer.start()
    try:
        answer = workload(peer.broker_port)
    finally:
        peer.stop()
    gallery.add("answer-321.json", answer, "body of the answer to QUERY_CONSUME_QUEUE, 8 entries")
    store = folder.resolve() / "store"
    for topic, count in ((TOPIC, COUNT), (PLAIN_TOPIC, 2)):
        queue = f"consumequeue/{topic}/0/{0:020d}"
        gallery.add(f"{topic}/queue.bin", (store / queue).read_bytes()[:count * QUEUE_UNIT],
                    "the queue's entries", source=queue, source_offset=0)
        for path in sorted((store / "consumequeue_ext" / topic / "0").iterdir()):
            gallery.add(f"{topic}/{path.name}", path.read_bytes(), "a file of its extension",
                        source=f"consumequeue_ext/{topic}/0/{path.name}", source_offset=0)
    gallery.close()
