"""Capture the stores of Apache's brokers that keep their log by DLedger, as golden/dledger.

A broker of each version forms a group alone, with small files. It takes messages of every kind: of
mixed size, with keys and tags, batches, delayed ones and half messages. ``VERSION/stopped.zip`` is
its store after a clean stop, and ``VERSION/killed.zip`` after a start, further messages and the end
of the process. The zeros at the end of each file are left out, and ``lengths.json`` in the archive
has the length of each file.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Final

from tests.interop.capture_replication import TOPIC, send_numbered
from tests.interop.capture_store import wait_for
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient

__all__ = ["FIRST_COUNT", "LEDGER_SETTINGS", "MORE_COUNT", "capture_ledger", "packed_store"]

VERSIONS: Final = ("4.9.4", "5.3.3", "5.5.0")
#: The number of sends before the clean stop, and between the next start and the kill.
FIRST_COUNT: Final = 120
MORE_COUNT: Final = 30
#: What one piece of a file is that is read at once.
_PIECE_SIZE: Final = 1 << 22
#: A group of one member, with small files.
LEDGER_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(16 * 1024), "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "400", "maxIndexNum": "1200", "maxMessageSize": "20000",
    "transactionCheckInterval": "3600000", "enableDLegerCommitLog": "true", "dLegerGroup": "G0",
    "dLegerSelfId": "n0"}


def _written(path: Path) -> bytes:
    """Return the bytes of a file without the zeros at its end; an index file has
    160 MiB of them.
    """
    parts = []
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_SIZE):
            parts.append(piece if any(piece) else len(piece))
    while parts and isinstance(parts[-1], int):
        parts.pop()
    return b"".join(
        bytes(part) if isinstance(part, int) else part for part in parts).rstrip(b"\0")


def packed_store(store: Path) -> bytes:
    """Pack the files of a store into an archive that is the same for the same store."""
    lengths = {}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name: str, data: bytes) -> None:
            row = zipfile.ZipInfo(name)
            row.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(row, data)

        for path in sorted(path for path in store.rglob("*") if path.is_file()):
            name = str(path.relative_to(store))
            if name == "lock" or name.startswith("timer"):
                continue
            lengths[name] = path.stat().st_size
            add(name, _written(path))
        add("lengths.json", (json.dumps(lengths, indent=0) + "\n").encode())
    return target.getvalue()


def _send(port: int, begin: int, count: int) -> None:
    """Send messages as soon as the broker leads its group, and wait until they are readable."""
    with PlainClient(port) as client:
        def is_leader() -> bool:
            reply = client.call(310, {
                "a": "GoldenP", "b": "GoldenFirst", "c": "TBW102", "d": "1", "e": "0", "f": "0",
                "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
            }, b"first").reply
            return reply is not None and reply.code == 0

        wait_for("the broker leads", is_leader, 60)
        for number in range(begin, begin + count):
            send_numbered(client, number)
        ends = [0] * 4

        def is_dispatched() -> bool:
            for queue_id in range(4):
                reply = client.call(30, {"topic": TOPIC, "queueId": str(queue_id)}).reply
                assert reply is not None and reply.code == 0, reply
                ends[queue_id] = int(reply.fields["offset"])
            reply = client.call(28).reply
            assert reply is not None
            # In its first second the broker of 5.3.3 answers with an error.
            return reply.code == 0 and (
                json.loads(reply.body)["table"]["dispatchBehindBytes"] == "0")

        wait_for("all are in their queues", is_dispatched)


def capture_ledger(folder: Path, first_port: int) -> None:
    """Write tests/golden/dledger; ``folder`` is for the peers' data."""
    gallery = Gallery("dledger", f"{__doc__} Brokers with {LEDGER_SETTINGS}.")
    for number, version in enumerate(VERSIONS):
        port = first_port + 10 * number
        peer = Peer(folder / version, version, port, port + 1035, "512m", settings={
            **LEDGER_SETTINGS, "dLegerPeers": f"n0-127.0.0.1:{port + 2035}"})
        for state, begin, count in (("stopped", 0, FIRST_COUNT),
                                    ("killed", FIRST_COUNT, MORE_COUNT)):
            peer.start()
            try:
                _send(peer.broker_port, begin, count)
            finally:
                peer.stop(kill=state == "killed")
            gallery.add(f"{version}/{state}.zip", packed_store(peer.home / "store"),
                        f"the store of a broker that was {state}", version=version)
    gallery.close()
