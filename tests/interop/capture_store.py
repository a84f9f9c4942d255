"""Capture special cases of the store that tests/golden/store lacks, as golden/store-edges.

What is there while the broker runs (abort, lock); a record in the V2 layout, which only a retry
topic is long enough for; the used regions of an index file of the default size; the filler at the
start of a consume queue whose first messages are gone; and every file below config.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import Exchange, PlainClient

__all__ = ["capture_store"]

LOG_FILE_SIZE: Final = 16384
V2_MAGIC: Final = bytes.fromhex("daa320ab")
QUEUE_UNIT: Final = 20
INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_ITEM_SIZE: Final = 20
#: Slots of an index file when maxHashSlotNum is not set.
SLOT_COUNT: Final = 5_000_000
#: With %RETRY% in front it is longer than the 127 bytes that a V1 record can tell.
LONG_GROUP: Final = "g" * 125
TOPIC: Final = "GoldenEdges"


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition; :raises TimeoutError: when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def send(client: PlainClient, topic: str, queue_id: int, body: bytes, properties: str) -> Exchange:
    """Send a message; :raises RuntimeError: when the broker refuses it."""
    exchange = client.call(310, {
        "a": "GoldenP", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": "1700000000000", "h": "3", "i": properties, "j": "0", "k": "false", "m": "false",
    }, body)
    if exchange.reply is None or exchange.reply.code:
        raise RuntimeError(f"{topic}: {exchange.reply}")
    return exchange


def workload(port: int) -> None:
    """Send forty messages in three log files, send one of them back, and commit an offset."""
    with PlainClient(port) as client:
        client.call(17, {
            "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "attributes": "+message.type=NORMAL"})
        client.call(34, {}, json.dumps({
            "clientID": "golden@1", "producerDataSet": [{"groupName": "GoldenP"}],
            "consumerDataSet": [
                {"groupName": LONG_GROUP, "consumeType": "CONSUME_PASSIVELY",
                 "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                 "unitMode": False, "subscriptionDataSet": [
                    {"topic": TOPIC, "subString": "price > 5 AND TAGS = 'T'", "tagsSet": [],
                     "codeSet": [], "subVersion": 1700000000000, "classFilterMode": False,
                     "expressionType": "SQL92"}]}]}).encode())
        for index in range(40):
            send(client, TOPIC, 0, b"body %d " % index + b"x" * 700,
                 f"TAGS\x01T\x02KEYS\x01key{index} shared\x02price\x01{index}\x02")
        # A send to such a topic is refused; the broker's own copy for the retry is not. The first
        # record begins at offset 0 of the log.
        back = client.call(36, {"offset": "0", "group": LONG_GROUP, "delayLevel": "1",
                                "originTopic": TOPIC, "unitMode": "false",
                                "maxReconsumeTimes": "16"})
        if back.reply is None or back.reply.code:
            raise RuntimeError(f"send back: {back.reply}")
        client.call(15, {"consumerGroup": LONG_GROUP, "topic": TOPIC, "queueId": "0",
                         "commitOffset": "17"})


def used_index(gallery: Gallery, path: Path) -> None:
    """The header, the slots that are used and the items of an index file of 420 MB."""
    with open(path, "rb") as file:
        header = file.read(INDEX_HEADER.size)
        slots = struct.unpack(f">{SLOT_COUNT}i", file.read(4 * SLOT_COUNT))
        count = INDEX_HEADER.unpack(header)[-1]
        start = file.tell()
        items = file.read(INDEX_ITEM_SIZE * count)
    source = f"index/{path.name}"
    gallery.add("index/header.bin", header, "an index file's header", source=source,
                source_offset=0)
    used = [[slot, item] for slot, item in enumerate(slots) if item]
    gallery.add("index/slots.json", (json.dumps(used) + "\n").encode(),
                "the slots that are not 0: [slot, newest item]; 4 bytes each in the file",
                source=source, source_offset=INDEX_HEADER.size)
    gallery.add("index/items.bin", items, "items 0 (never used) to the last",
                source=source, source_offset=start)


def v2_record(gallery: Gallery, log: Path) -> None:
    """The only record of the log with the second magic number."""
    for path in sorted(log.iterdir()):
        data = path.read_bytes()
        at = data.find(V2_MAGIC)
        if at < 0:
            continue
        (size,) = struct.unpack_from(">i", data, at - 4)
        gallery.add("v2-record.bin", data[at - 4:at - 4 + size],
                    "a record with two bytes for its topic's length",
                    source=f"commitlog/{path.name}", source_offset=at - 4)
        return
    raise LookupError("no record in the V2 layout")


def filler(gallery: Gallery, peer: Peer, store: Path) -> None:
    """Delete the log's first file and all queues, which the broker builds from the rest."""
    (store / "commitlog" / ("0" * 20)).unlink()
    shutil.rmtree(store / "consumequeue")
    queue = store / "consumequeue" / TOPIC / "0" / ("0" * 20)
    peer.start()
    wait_for("the queue is built again", lambda: queue.exists() and b"\x7f\xff" in queue.read_bytes(
        )[:40] and any(queue.read_bytes()[39 * QUEUE_UNIT:40 * QUEUE_UNIT]))
    peer.stop()
    gallery.add("queue-with-filler.bin", queue.read_bytes()[:40 * QUEUE_UNIT],
                "a queue of 40 whose first entries are filler, their log file being gone",
                source=f"consumequeue/{TOPIC}/0/{queue.name}", source_offset=0)


def capture_store(folder: Path, first_port: int) -> None:
    """Write tests/golden/store-edges; ``folder`` is for the peer's data."""
    settings = {"mappedFileSizeCommitLog": str(LOG_FILE_SIZE)}
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings=settings)
    gallery = Gallery("store-edges", f"{__doc__} Broker 5.3.3 with {settings}.")
    peer.start()
    store = folder.resolve() / "store"
    try:
        workload(peer.broker_port)
        index = store / "index"
        wait_for("the copy for the retry topic", lambda: any(
            V2_MAGIC in path.read_bytes() for path in (store / "commitlog").iterdir()))
        wait_for("an index file", lambda: index.exists() and any(index.iterdir()))
        for name in ("abort", "lock"):
            gallery.add(name, (store / name).read_bytes(), f"{name} while the broker runs",
                        source=name, source_offset=0)
    finally:
        peer.stop()
    assert not (store / "abort").exists()
    gallery.add("checkpoint", (store / "checkpoint").read_bytes(), "checkpoint after a clean stop",
                source="checkpoint", source_offset=0)
    v2_record(gallery, store / "commitlog")
    used_index(gallery, next(index.iterdir()))
    for path in sorted((store / "config").iterdir()):
        if path.is_file() and path.suffix != ".bak" and path.stat().st_size <= 8192:
            gallery.add(f"config/{path.name}", path.read_bytes(), "as a clean stop leaves it",
                        source=f"config/{path.name}", source_offset=0)
    filler(gallery, peer, store)
    gallery.close()
