"""Capture a store with batch queues and light queues, as golden/store-batch.

One broker with small files: batches and single messages in a topic whose queue.type is BatchCQ,
over several files of its first queue; messages that enter light queues beside their own; offsets
committed by a light group. ``answers.json`` has what the broker answered to each send and to
questions about the queues: reply code, extFields, and of pulls the places of the records.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from tests.interop.capture_store import wait_for
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import Exchange, PlainClient
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.record import decode_record, record_size

__all__ = ["capture_batch"]

TOPIC: Final = "GoldenBatch"
PARENT: Final = "GoldenParent"
#: Five entries a file, so that a few batches roll.
SETTINGS: Final = {
    "mappedFileSizeCommitLog": "16384", "mapperFileSizeBatchConsumeQueue": "230",
    "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "40", "maxIndexNum": "120",
    "enableLmq": "true", "enableMultiDispatch": "true",
}
#: Messages of each batch in queue 0; 0: a message by itself.
SIZES: Final = (3, 1, 0, 5, 2, 4, 0, 7, 1, 1, 0, 0, 6)
#: Light queues each message of the parent enters.
LIGHT: Final = ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b", "", "%LMQ%a,%LMQ%c,%LMQ%b")


class _Asked:
    """Sends requests to a broker and keeps its answers."""

    def __init__(self, client: PlainClient) -> None:
        self.rows: list[dict[str, Any]] = []
        self._client = client

    def ask(self, what: str, code: int, fields: dict[str, str], body: bytes = b"") -> Exchange:
        """Send a request and note its answer."""
        exchange = self._client.call(code, fields, body)
        reply = exchange.reply
        assert reply is not None
        row: dict[str, Any] = {"what": what, "request": code, "fields": fields,
                               "code": reply.code, "reply": reply.fields}
        if code == 11:
            row["places"] = list(_places(reply.body))
        self.rows.append(row)
        return exchange


def _places(body: bytes) -> list[tuple[int, int]]:
    """(queue offset, place) of each record of a pull's reply."""
    found = []
    at = 0
    while at < len(body):
        message = decode_record(body, at)
        found.append((message.queue_offset, message.physical_offset))
        at += record_size(body, at)
    return found


def _send(asked: _Asked, topic: str, queue_id: int, number: int, body: bytes, properties: str,
          batch: bool = False) -> None:
    exchange = asked.ask("send", 320 if batch else 310, {
        "a": "GoldenP", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": str(1_700_000_000_000 + number), "h": "3", "i": properties, "j": "0", "k": "false",
        "m": "true" if batch else "false"}, body)
    assert exchange.reply is not None and exchange.reply.code == 0, exchange.reply
    # Store times that differ tell one entry from the next.
    time.sleep(0.003)


def _workload(asked: _Asked) -> None:
    for topic, attributes in ((TOPIC, "+queue.type=BatchCQ"), (PARENT, "")):
        asked.ask("topic", 17, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "attributes": attributes})
    for number, size in enumerate(SIZES):
        unique = f"7F000001{number:024X}"
        if size:
            inner = encode_batch([
                (index, b"batch %d message %d" % (number, index),
                 f"TAGS\x01T{index}\x02UNIQ_KEY\x017F000002{number:020X}{index:04X}\x02")
                for index in range(size)])
            _send(asked, TOPIC, 0, number, inner, f"KEYS\x01batch{number}\x02UNIQ_KEY\x01{unique}"
                  "\x02WAIT\x01true\x02", batch=True)
        else:
            _send(asked, TOPIC, 0, number, b"single %d" % number,
                  f"TAGS\x01S\x02KEYS\x01single{number}\x02UNIQ_KEY\x01{unique}\x02")
    # A batch without a unique key is taken apart, in a batch queue as well.
    plain = encode_batch([(0, b"apart %d" % index, f"UNIQ_KEY\x017F000003{index:024X}\x02")
                          for index in range(2)])
    _send(asked, TOPIC, 1, 100, plain, "", batch=True)
    for number in range(15):
        light = LIGHT[number % len(LIGHT)]
        properties = (f"TAGS\x01L\x02KEYS\x01light{number}\x02UNIQ_KEY\x017F000004{number:024X}"
                      "\x02WAIT\x01true\x02")
        if light:
            properties += f"INNER_MULTI_DISPATCH\x01{light}\x02"
        _send(asked, PARENT, number % 2, 200 + number, b"light %d" % number, properties)


def _pull(asked: _Asked, topic: str, queue_id: int, offset: int, count: int,
          group: str = "GoldenG") -> None:
    asked.ask("pull", 11, {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": str(count), "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG"})


def _questions(asked: _Asked, times: list[int]) -> None:
    asked.ask("heartbeat", 34, {}, json.dumps({
        "clientID": "golden@1", "producerDataSet": [], "consumerDataSet": [
            {"groupName": "GoldenG", "consumeType": "CONSUME_ACTIVELY",
             "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
             "unitMode": False, "subscriptionDataSet": []}]}).encode())
    queues = [(TOPIC, 0), (TOPIC, 1), (PARENT, 0), (PARENT, 1), ("%LMQ%a", 0), ("%LMQ%b", 0),
              ("%LMQ%c", 0), ("%LMQ%none", 0)]
    for topic, queue_id in queues:
        fields = {"topic": topic, "queueId": str(queue_id)}
        asked.ask("max offset", 30, fields)
        asked.ask("min offset", 31, fields)
        asked.ask("earliest", 32, fields)
    total = sum(size or 1 for size in SIZES)
    for offset in range(total + 2):
        _pull(asked, TOPIC, 0, offset, 32)
        _pull(asked, TOPIC, 0, offset, 4)
    for topic, queue_id in queues[2:]:
        for offset in range(3):
            _pull(asked, topic, queue_id, offset, 32)
    for each in times:
        for boundary in ("lower", "upper"):
            for moved in (-1, 0, 1):
                asked.ask("offset by time", 29, {
                    "topic": TOPIC, "queueId": "0", "timestamp": str(each + moved),
                    "boundaryType": boundary})
    for group, topic, offset in (("%LMQ%g", "%LMQ%a", 4), ("GoldenG", "%LMQ%b", 2),
                                 ("GoldenG", TOPIC, 8)):
        asked.ask("commit", 15, {"consumerGroup": group, "topic": topic, "queueId": "0",
                                 "commitOffset": str(offset)})
        asked.ask("committed", 14, {"consumerGroup": group, "topic": topic, "queueId": "0"})


def capture_batch(folder: Path, first_port: int) -> None:
    """Write tests/golden/store-batch; ``folder`` is for the peer's data."""
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings=dict(SETTINGS))
    gallery = Gallery("store-batch", f"{__doc__} Broker 5.3.3 with {SETTINGS}.")
    store = folder.resolve() / "store"
    peer.start()
    try:
        with PlainClient(peer.broker_port) as client:
            asked = _Asked(client)
            _workload(asked)
            queue = store / "batchconsumequeue" / TOPIC / "0"
            wait_for("all entries", lambda: sum(
                data[at + 36:at + 38] > b"\0\0" for path in queue.iterdir()
                for data in [path.read_bytes()] for at in range(0, 230, 46)) == len(SIZES))
            wait_for("the light queues", lambda: (
                store / "consumequeue" / "%LMQ%c" / "0" / ("0" * 20)).exists())
            time.sleep(1)
            times = [int.from_bytes(data[at + 20:at + 28], "big")
                     for path in sorted(queue.iterdir()) for data in [path.read_bytes()]
                     for at in range(0, 230, 46) if data[at + 37]]
            _questions(asked, times)
    finally:
        peer.stop()
    rows = ",\n".join(json.dumps(row) for row in asked.rows)
    gallery.add("answers.json", f"[\n{rows}\n]\n".encode(), "requests and what was answered")
    names = [path.relative_to(store).as_posix()
             for part in ("batchconsumequeue", "commitlog", "consumequeue", "index")
             for path in sorted((store / part).rglob("*")) if path.is_file()]
    for name in [*names, "checkpoint", "config/topics.json", "config/lmqConsumerOffset.json"]:
        gallery.add(f"store/{name}", (store / name).read_bytes(), "as a clean stop leaves it",
                    source=name, source_offset=0)
    gallery.close()
