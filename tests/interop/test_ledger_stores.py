"""Our ledgers are opened and continued by Apache's brokers, and then by ours again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.interop.capture_ledger import LEDGER_SETTINGS
from tests.interop.capture_store import send, wait_for
from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer
from tests.interop.recorder import PlainClient
from tests.interop.servers import free_port
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE
from twistmq.broker.store.ledger.state_files import HardState, write_hard_state
from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import message, small_settings

TOPIC: Final = "LedgerExchange"
QUEUES: Final = 4
COUNT: Final = 160


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


class LedgerStoreTests(JavaTestCase):
    """A group of one member, which is ours, then Apache's, then ours again."""

    version = "5.5.0"

    def exchange(self, version: str, *, kill: bool) -> None:
        """Fill a ledger, have Apache's broker read all of it and append, and read that."""
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
        if kill:
            box.store.flush_step(box.now_ms)
            box.store.close()
        else:
            self.successResultOf(box.store.stop())
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
        self.exchange("4.9.4", kill=False)

    def test_5_5_0_goes_on_after_a_kill(self) -> None:
        """Version 5.5.0 reads and appends after kills."""
        self.exchange("5.5.0", kill=True)
