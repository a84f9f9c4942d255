"""Our ledgers are opened and continued by Apache's brokers, and then by ours again."""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.interop.capture_ledger import LEDGER_SETTINGS
from tests.interop.capture_store import send, wait_for
from tests.interop.clients import JavaTestCase
from tests.interop.debugger import Debugger, agent_option
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient
from tests.interop.servers import free_port
from twistmq.broker.store.disk import RealDisk, RealFile
from twistmq.broker.store.entry_heads import ENTRY_FILLER, ENTRY_HEAD, ENTRY_MAGIC, UNIT_SIZE
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE
from twistmq.broker.store.ledger.state_files import (
    HardState,
    read_hard_state,
    write_hard_state,
)
from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import message, small_settings
from twistmq.protocol.record import decode_record

TOPIC: Final = "LedgerExchange"
QUEUES: Final = 4
COUNT: Final = 160
#: What a kill leaves of a write: the magic, the size and the index of a head.
_TORN_BYTES: Final = 16
#: Apache's class of a file of the log or of its index.
_FILE: Final = "io.openmessaging.storage.dledger.store.file.DefaultMmapFile"


class _Box(LedgerBox):
    """Our store over a folder, with files of the lengths that Apache's brokers expect."""

    index_file_size = INDEX_FILE_SIZE

    @classmethod
    def over(cls, root: Path) -> _Box:
        """Open the store."""
        cls.folder = f"{root}/dledger-n0"
        return cls(RealDisk(), small_settings(
            str(root), mapped_file_size_commit_log=16 * 1024, mapped_file_size_consume_queue=4000,
            max_hash_slot_num=400, max_index_num=1200)).open()


def read_queue(client: PlainClient, queue_id: int) -> list[bytes]:
    """Pull a queue, one message after the other; :returns: the stored records."""
    end = client.call(30, {"topic": TOPIC, "queueId": str(queue_id)}).reply
    assert end is not None and end.code == 0, end
    records = []
    for offset in range(int(end.fields["offset"])):
        reply = client.call(11, {
            "consumerGroup": "G", "topic": TOPIC, "queueId": str(queue_id), "maxMsgNums": "1",
            "queueOffset": str(offset), "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}).reply
        assert reply is not None and reply.code == 0, reply
        records.append(reply.body)
    return records


class Roll(enum.Enum):
    """Moments of a roll, from the filler in the old file to the unit of the entry in the index."""

    NO_FILE = "the new file does not exist"
    EMPTY_FILE = "the new file is empty"
    NO_UNIT = "the new file has one entry, which is not in the index"


def roll_of(folder: Path) -> Roll | None:
    """Return the moment of a roll that the files of a ledger show; None: they show none."""
    paths = sorted((folder / "data").glob("0*"))
    index, end = last_entry(paths[-1])
    if paths[-1].read_bytes()[end : end + 4] == ENTRY_FILLER:
        return Roll.NO_FILE
    _, end_before = last_entry(paths[-2])
    if paths[-2].read_bytes()[end_before : end_before + 4] != ENTRY_FILLER:
        return None
    if not any(paths[-1].read_bytes()):
        return Roll.EMPTY_FILE
    with sorted((folder / "index").glob("0*"))[-1].open("rb") as file:
        file.seek(index * UNIT_SIZE)
        has_unit = any(file.read(UNIT_SIZE))
    first_size = ENTRY_HEAD.unpack_from(paths[-1].read_bytes())[1]
    return Roll.NO_UNIT if first_size == end and not has_unit else None


def last_entry(path: Path) -> tuple[int, int]:
    """Return the index of the last entry of a file, -1 for none, and where it ends in the file."""
    data, index, at = path.read_bytes(), -1, 0
    while data[at : at + 4] == ENTRY_MAGIC.to_bytes(4, "big"):
        _, size, index, *_ = ENTRY_HEAD.unpack_from(data, at)
        at += size
    return index, at


class _Killed(BaseException):
    """The process ends here."""


class LedgerStoreTests(JavaTestCase):
    """A group of one member, which is ours, then Apache's, then ours again."""

    version = "5.5.0"

    def stop_box(self, box: _Box) -> None:
        """Stop our store cleanly."""
        self.successResultOf(box.store.stop())

    def kill_box(self, box: _Box) -> None:
        """End our store as a kill does."""
        box.store.flush_step(box.now_ms)
        box.store.close()

    def kill_in_roll(self, box: _Box, changes: int) -> None:
        """End our store while an append begins a new file of the log.

        The append writes the units of the index, the filler of the old file, and the entry.

        :param changes: the writes that are complete; the first bytes of the next one are written.
        """
        log = box.store.commit_log
        record = message(TOPIC, b"x" * 2000, queue_id=2)
        while log.next_file_start(log.max_offset) - log.max_offset > 2000:
            box.append(record)
        box.commit()
        write_at, left = RealFile.write_at, changes

        def write(file: RealFile, position: int, data: bytes | bytearray | memoryview) -> None:
            nonlocal left
            if not left:
                write_at(file, position, bytes(data)[:_TORN_BYTES])
                raise _Killed
            left -= 1
            write_at(file, position, data)

        self.patch(RealFile, "write_at", write)
        self.assertRaises(_Killed, box.append, record)
        self.patch(RealFile, "write_at", write_at)
        box.store.close()

    def exchange(
        self, version: str, end: Callable[[_Box], None], *, kill: bool
    ) -> None:
        """Fill a ledger, have Apache's broker read all of it and append, and read that.

        :param end: ends our store.
        :param kill: whether Apache's broker is killed at the end.
        """
        root = self.folder / "peer/store"
        box = _Box.over(root)
        box.lead_term(1)
        for number in range(COUNT):
            box.append(message(TOPIC, b"%d " % number * (number % 90), queue_id=number % QUEUES,
                               tag="A", keys=f"k{number}"))
        box.commit()
        write_hard_state(box.disk, box.folder, HardState(1, "n0", True))
        entries = box.ledger.read(0, 1 << 30)
        expected: list[list[bytes]] = [[] for _ in range(QUEUES)]
        for entry in entries[1:]:
            expected[(entry.index - 1) % QUEUES].append(entry.body)
        end(box)
        peer: Peer = self.start_apache(version=version, settings={
            **LEDGER_SETTINGS, "dLegerPeers": f"n0-127.0.0.1:{free_port()}"})
        with PlainClient(peer.broker_port) as client:
            def is_taken() -> bool:
                try:
                    send(client, TOPIC, 1, b"from Java", "TAGS\x01A\x02")
                except RuntimeError:
                    return False
                return True

            wait_for("the broker leads its group", is_taken, 90)
            wait_for("it dispatched all", lambda: len(read_queue(client, 1)) > COUNT // QUEUES, 30)
            queues = [read_queue(client, queue_id) for queue_id in range(QUEUES)]
        self.assertEqual([queue[: COUNT // QUEUES] for queue in queues], expected)
        peer.stop(kill=kill)
        again = _Box.over(root)
        self.addCleanup(again.store.close)
        found = again.ledger.read(0, 1 << 30)
        self.assertEqual(found[: len(entries)], entries)
        self.assertIn(queues[1][-1], [entry.body for entry in found[len(entries) :]])
        again.commit()
        self.assertEqual(again.bodies(TOPIC, 1)[-1], b"from Java")

    def test_4_9_4_goes_on_after_a_stop(self) -> None:
        """Version 4.9.4 reads and appends after clean stops."""
        self.exchange("4.9.4", self.stop_box, kill=False)

    def test_5_5_0_goes_on_after_a_kill(self) -> None:
        """Version 5.5.0 reads and appends after kills."""
        self.exchange("5.5.0", self.kill_box, kill=True)

    def test_5_5_0_goes_on_after_a_kill_at_the_begin_of_a_file(self) -> None:
        """The old file has its filler, and the new one a part of a head."""
        self.exchange("5.5.0", lambda box: self.kill_in_roll(box, 2), kill=True)

    def long_4_9_4_goes_on_after_a_kill_at_the_begin_of_a_file(self) -> None:
        """The same with version 4.9.4."""
        self.exchange("4.9.4", lambda box: self.kill_in_roll(box, 2), kill=True)

    def long_5_5_0_goes_on_after_a_kill_at_the_end_of_a_file(self) -> None:
        """The index has a unit whose entry does not exist, and the filler is torn."""
        self.exchange("5.5.0", lambda box: self.kill_in_roll(box, 1), kill=True)

    def kill_apaches_in_rolls(self, version: str, moments: Iterable[Roll]) -> None:
        """Kill Apache's broker in a roll; ours opens the store and goes on, and so does Apache's.

        :param moments: the moments of the kills, one after the other.
        """
        root, port = self.folder / "peer/store", free_port()
        peer = Peer(self.folder / "peer", version, broker_port=free_port(), heap="512m",
                    with_namesrv=False, broker_options=[agent_option(port)], settings={
                        **LEDGER_SETTINGS, "dLegerPeers": f"n0-127.0.0.1:{free_port()}"})
        self.addCleanup(peer.stop, kill=True)
        acknowledged: list[bytes] = []
        for moment in moments:
            peer.start()
            self.fill_until_roll(peer, port, moment, acknowledged)
            self.assertEqual(roll_of(root / "dledger-n0"), moment)
            box = _Box.over(root)
            entries = {decode_record(entry.body).body for entry in box.ledger.read(0, 1 << 30)}
            self.assertEqual([body[:9] for body in acknowledged if body not in entries], [])
            term = read_hard_state(box.disk, box.folder).term + 1
            box.commit()
            box.lead_term(term)
            (record,) = box.append(message(TOPIC, b"ours %d" % term))
            box.commit()
            acknowledged.append(record.body)
            self.assertEqual(box.bodies(TOPIC)[-1], record.body)
            self.assertEqual(
                [body[:9] for body in set(acknowledged) - set(box.bodies(TOPIC))], [])
            write_hard_state(box.disk, box.folder, HardState(term, "n0", True))
            self.stop_box(box)

    def fill_until_roll(
        self, peer: Peer, port: int, moment: Roll, acknowledged: list[bytes]
    ) -> None:
        """Send messages that are half as long as a file, and kill the broker in a roll.

        :param port: the port of the debugger.
        """
        def send_until_end() -> None:
            with contextlib.suppress(OSError):
                while True:
                    is_sent()

        with PlainClient(peer.broker_port) as client:
            def is_sent() -> bool:
                body = b"%08d " % len(acknowledged) * 700
                try:
                    send(client, TOPIC, 0, body, "")
                except RuntimeError:
                    return False
                acknowledged.append(body)
                return True

            wait_for("the broker leads its group", is_sent, 90)
            debugger = Debugger(port)
            self.addCleanup(debugger.close)
            # A roll writes the filler, makes the new file, and writes the entry and its unit.
            debugger.stop_in(f"{_FILE}.<init>")
            sender = threading.Thread(target=send_until_end)
            sender.start()
            try:
                debugger.wait_for_stop()
                if moment is not Roll.NO_FILE:
                    debugger.stop_in(f"{_FILE}.appendMessage(byte[],int,int)")
                    debugger.go_on()
                if moment is Roll.NO_UNIT:
                    debugger.go_on()
            finally:
                peer.stop(kill=True)
                sender.join()

    def test_kills_of_5_5_0_in_a_roll(self) -> None:
        """It is killed before the new file exists, and while that file is empty."""
        self.kill_apaches_in_rolls("5.5.0", (Roll.NO_FILE, Roll.EMPTY_FILE))

    def long_kills_of_5_5_0_in_a_roll(self) -> None:
        """It is killed at each moment, and at each again after a roll of ours."""
        self.kill_apaches_in_rolls("5.5.0", (*Roll, *Roll))

    def long_kills_of_4_9_4_in_a_roll(self) -> None:
        """It is killed at each moment of a roll."""
        self.kill_apaches_in_rolls("4.9.4", Roll)
