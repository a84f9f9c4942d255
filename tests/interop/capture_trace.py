"""Capture the messages that tracing clients store in the trace topic, as golden/trace.

`trace_java/TraceRound.java` and `go_trace/main.go` say what is sent and consumed. A file is the
body of one message of the trace topic; its row has the message's keys.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.interop.capture_store import wait_for
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.trace_round import go_trace, java_trace
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.properties import KEYS
from twistmq.protocol.record import StoredMessage

__all__ = ["capture_trace"]

TOPIC: Final = "GoldenTrace"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
#: Where a client of the access channel CLOUD puts its records.
CLOUD_TOPIC: Final = "rmq_sys_TRACE_DATA_DefaultRegion"
SETTINGS: Final = {"timerWheelEnable": "true", "recallMessageEnable": "true"}
#: What each Java client does, one process a group.
JAVA_PARTS: Final = {
    "4.9.4": (("plain", "delayed", "consume"), ("transaction",), ("plain", "cloud")),
    "5.3.3": (("plain", "delayed", "consume"), ("transaction",), ("recall",), ("plain", "cloud")),
}
#: Kinds of records that are there when a run of parts that ends so is done.
WANTED: Final = {
    "consume": {b"Pub", b"SubBefore", b"SubAfter"}, "cloud": {b"Pub", b"SubBefore", b"SubAfter"},
    "transaction": {b"Pub", b"EndTransaction"}, "recall": {b"Pub", b"Recall"},
}


class TraceTopics:
    """The two topics of one broker, read message by message."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._offsets: dict[tuple[str, int], int] = {}
        self._group = "golden_trace_reader"

    def new_messages(self) -> list[StoredMessage]:
        """Return the messages since the last call."""
        found: list[StoredMessage] = []
        with RawClient(self._address) as client:
            for topic in (TRACE_TOPIC, CLOUD_TOPIC):
                for queue_id in range(1 if topic == TRACE_TOPIC else 4):
                    at = self._offsets.get((topic, queue_id), 0)
                    end = client.max_offset(topic, queue_id)
                    while at < end:
                        messages = client.pull(topic, at, queue_id=queue_id, group=self._group)
                        found += messages
                        at += len(messages)
                    self._offsets[topic, queue_id] = at
        return found


def wait_for_types(
    topics: TraceTopics, wanted: set[bytes], kept: list[StoredMessage], ids: dict[str, str]
) -> None:
    """Wait until records of these types are in the topics; add the messages to ``kept``."""
    types: set[bytes] = set()

    def are_there() -> bool:
        messages = topics.new_messages()
        kept.extend(messages)
        types.update(record.split(b"\x01")[0] for message in messages
                     for record in message.body.split(b"\x02"))
        return wanted <= types

    wait_for(f"records of {wanted}, of {ids}", are_there)


def add(gallery: Gallery, folder: str, messages: list[StoredMessage]) -> None:
    for number, message in enumerate(messages):
        gallery.add(f"{folder}/{number}.bin", message.body, "body of a message of the trace topic",
                    topic=message.topic, keys=message.properties_map().get(KEYS))


def capture_trace(folder: Path, first_port: int) -> None:
    """Write tests/golden/trace; ``folder`` is for the peer's data."""
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings=SETTINGS)
    gallery = Gallery("trace", f"{__doc__} Broker 5.3.3 with {SETTINGS}.")
    peer.start()
    topics = TraceTopics(peer.broker_port)
    try:
        with RawClient(f"127.0.0.1:{peer.broker_port}") as client:
            client.send(CLOUD_TOPIC, b"makes the topic")
        topics.new_messages()
        for version, runs in JAVA_PARTS.items():
            kept: list[StoredMessage] = []
            for number, parts in enumerate(runs):
                wait = partial(wait_for_types, topics, WANTED[parts[-1]], kept)
                java_trace(version, peer.namesrv_address, f"{TOPIC}{version[0]}{number}", True,
                           parts, wait)
                kept += topics.new_messages()
            add(gallery, f"java-{version}", kept)
        kept = []
        go_trace(peer.namesrv_address, f"{TOPIC}Go",
                 partial(wait_for_types, topics, WANTED["consume"], kept))
        add(gallery, "go-2.1.2", kept + topics.new_messages())
    finally:
        peer.stop()
    gallery.close()
