"""Capture the streams that Apache's masters send to slaves, as golden/replication.

A broker of each version, with small commit-log files, takes messages of every kind: of mixed size,
with keys and tags, batches, delayed ones and half messages. Then a plain socket asks as a slave
does, for the log from several places on, and keeps all that the master sends, up to its first
heartbeat. ``VERSION/log.gz`` is the log itself, file after file, up to its end;
``VERSION/from-PLACE.gz`` is the stream of a slave that reports PLACE. ``VERSION/queues.json`` has
the ends of the queues.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
from pathlib import Path
from typing import Final

from tests.interop.capture_store import wait_for
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient

__all__ = ["TOPIC", "capture_replication", "send_numbered"]

VERSIONS: Final = ("4.9.4", "5.3.3")
TOPIC: Final = "GoldenReplica"
QUEUES: Final = 4
COUNT: Final = 400
#: Two whole frames and a rest; files of another length show nothing of the borders of frames.
FILE_SIZE: Final = 80 * 1024
#: Nothing of the broker's own may come into the log while it is captured.
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(FILE_SIZE), "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "400", "maxIndexNum": "1200", "maxMessageSize": "20000",
    "transactionCheckInterval": "3600000"}
#: A delay of two hours.
DELAY_LEVEL: Final = 18
PREPARED: Final = 4
_HEAD: Final = struct.Struct(">qi")


def _inner(body: bytes, properties: str) -> bytes:
    """Return one message of a batch."""
    text = properties.encode()
    size = 4 * 5 + len(body) + 2 + len(text)
    return struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(
        ">h", len(text)) + text


def send_numbered(client: PlainClient, number: int) -> None:
    """Send the message of a number, from which its kind and its size follow."""
    properties = (f"KEYS\x01key{number}\x02TAGS\x01T{number % 7}\x02"
                  f"UNIQ_KEY\x017F000001{number:024X}\x02")
    body, code, sys_flag = b"%d " % number + b"x" * (number * 37 % 1300), 310, 0
    kind = number % 10
    if kind == 2:
        code, properties = 320, ""
        body = b"".join(_inner(
            b"%d-%d" % (number, each), f"UNIQ_KEY\x017F000002{number:020X}{each:04X}\x02")
            for each in range(3))
    elif kind == 4:
        properties += f"DELAY\x01{DELAY_LEVEL}\x02"
    elif kind == 5:
        properties += "TRAN_MSG\x01true\x02PGROUP\x01GoldenP\x02"
        sys_flag = PREPARED
    reply = client.call(code, {
        "a": "GoldenP", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES),
        "f": str(sys_flag), "g": str(1_700_000_000_000 + number), "h": "3", "i": properties,
        "j": "0", "k": "false", "m": str(code == 320).lower()}, body).reply
    assert reply is not None and reply.code == 0, reply


def _status(client: PlainClient) -> dict[str, str]:
    """Return the runtime table of the broker."""
    reply = client.call(28).reply
    assert reply is not None and reply.code == 0, reply
    table: dict[str, str] = json.loads(reply.body)["table"]
    return table


def _workload(client: PlainClient) -> tuple[int, list[int]]:
    """Send all; :returns: where the log ends, and where the queues of the topic do."""
    for number in range(COUNT):
        send_numbered(client, number)
    wait_for("all are in their queues", lambda: _status(client)["dispatchBehindBytes"] == "0")
    ends = []
    for queue_id in range(QUEUES):
        reply = client.call(30, {"topic": TOPIC, "queueId": str(queue_id)}).reply
        assert reply is not None and reply.code == 0, reply
        ends.append(int(reply.fields["offset"]))
    return int(_status(client)["commitLogMaxOffset"]), ends


def _stream(port: int, place: int) -> bytes:
    """Return the stream to a slave that reports an offset, with the first heartbeat."""
    data = b""
    at = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slave:
        slave.sendall(struct.pack(">q", place))
        while True:
            more = slave.recv(65536)
            if not more:
                raise ConnectionError(f"the master closed the connection after {len(data)} bytes")
            data += more
            while len(data) - at >= _HEAD.size:
                _, size = _HEAD.unpack_from(data, at)
                if size == 0:
                    return data[: at + _HEAD.size]
                if len(data) - at < _HEAD.size + size:
                    break
                at += _HEAD.size + size


def _capture(gallery: Gallery, folder: Path, version: str, first_port: int) -> None:
    """Capture the streams of one version."""
    peer = Peer(folder, version, first_port, first_port + 1035, "512m", settings=SETTINGS)
    peer.start()
    try:
        with PlainClient(peer.broker_port) as client:
            end, ends = _workload(client)
            places = (0, 1, FILE_SIZE + 777, 2 * FILE_SIZE - 1, 3 * FILE_SIZE, end)
            streams = {place: _stream(peer.broker_port + 1, place) for place in places}
            assert int(_status(client)["commitLogMaxOffset"]) == end, "the log grew meanwhile"
    finally:
        peer.stop()
    log = b"".join(path.read_bytes() for path in sorted((peer.home / "store/commitlog").glob("0*")))
    gallery.add(f"{version}/log.gz", gzip.compress(log[:end], mtime=0),
                "the commit log up to its end, file after file", source="commitlog")
    for place, data in streams.items():
        gallery.add(f"{version}/from-{place}.gz", gzip.compress(data, mtime=0),
                    f"the stream of a slave that reports {place}", version=version, place=place)
    gallery.add(f"{version}/queues.json", (json.dumps({TOPIC: ends}) + "\n").encode(),
                "the end of each queue of the topic")


def capture_replication(folder: Path, first_port: int) -> None:
    """Write tests/golden/replication; ``folder`` is for the peers' data."""
    gallery = Gallery("replication", f"{__doc__} Brokers with {SETTINGS}.")
    for number, version in enumerate(VERSIONS):
        _capture(gallery, folder / version, version, first_port + 10 * number)
    gallery.close()
