"""Apache's broker opens our store after a kill in the middle of a flush of its index."""

from __future__ import annotations

import time
from pathlib import Path

from tests.broker.store.test_inspect import check
from tests.interop.clients import JavaTestCase
from tests.interop.contents import is_dispatched, pipelined
from tests.interop.exchange import FILE_SETTINGS
from tests.interop.peer import Peer
from tests.interop.servers import free_port, wait_until
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.index_file import IndexFile
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import records_of
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.query import QueryMessageRequestHeader

TOPIC = "IndexRounds"
#: Messages a round.
COUNT = 3000
#: Steps before which a round ends. All but its slots, and all but its header, are on disk then.
STEPS = ("write_pages", "write_header")


class Killed(BaseException):
    """The end of the process; no code of a store may catch it."""


class IndexRoundTests(JavaTestCase):
    """An incomplete round hides no key from Apache's broker."""

    def test_apache_5_finds_every_key(self) -> None:
        """The keys of earlier rounds, whose slots are ahead of the header, and of this one are
        found.
        """
        self.assert_all_found("5.3.3")

    def long_apache_4_finds_every_key(self) -> None:
        """Version 4.9.4 finds them as well."""
        self.assert_all_found("4.9.4")

    def assert_all_found(self, version: str) -> None:
        for step in STEPS:
            home = self.folder / step
            self.killed_before(step, home / "store")
            missing = self.missing(version, home)
            self.assertEqual(missing, [], msg=f"{len(missing)} before {step}")
            # Apache's broker indexed the messages of the round a second time.
            lines, _ = check(home / "store")
            self.assertEqual(lines, [], msg=f"before {step}")

    def killed_before(self, step: str, root: Path) -> None:
        """Leave a store whose second round of the index ended before a step."""
        settings = StoreSettings(
            store_path_root_dir=str(root),
            store_path_commit_log=str(root / "commitlog"),
            mapped_file_size_commit_log=int(FILE_SETTINGS["mappedFileSizeCommitLog"]),
            mapped_file_size_consume_queue=int(FILE_SETTINGS["mappedFileSizeConsumeQueue"]),
            max_hash_slot_num=int(FILE_SETTINGS["maxHashSlotNum"]),
            max_index_num=int(FILE_SETTINGS["maxIndexNum"]))
        box = StoreBox(RealDisk(), settings)
        # Apache's broker removes what is days old.
        box.now_ms = int(time.time() * 1000) - 600_000
        box.open()
        self.send(box, 0)
        box.step(61_000, 50)
        self.send(box, COUNT)

        def die(file: IndexFile) -> bool:
            raise Killed

        patch = self.patch(IndexFile, step, die)
        with self.assertRaises(Killed):
            box.step(1000, 100)
        patch.restore()
        box.store.close()

    def send(self, box: StoreBox, first: int) -> None:
        """Send messages at different times, each with a key of its own."""
        for number in range(first, first + COUNT):
            box.now_ms += 2
            box.append(message(TOPIC, b"x" * 500, keys=f"key{number}", unique_key=f"id{number}"))

    def missing(self, version: str, home: Path) -> list[str]:
        """Start Apache's broker, and list the keys that lead it to no message."""
        peer = Peer(home, version, free_port(), free_port(), "512m", settings=dict(FILE_SETTINGS))
        keys = [f"key{number}" for number in range(2 * COUNT)]
        peer.start()
        try:
            with RawClient(f"127.0.0.1:{peer.broker_port}", 30) as client:
                wait_until("it has read what is there", lambda: is_dispatched(client))
                replies = pipelined(client, (
                    (RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(
                        topic=TOPIC, key=key, max_num=64, begin_timestamp=0,
                        end_timestamp=2**62), b"") for key in keys))
                return [key for key, reply in zip(keys, replies, strict=True)
                        if reply.code != ResponseCode.SUCCESS or not any(
                            each.properties_map()["KEYS"] == key
                            for each in records_of(reply.body))]
        finally:
            peer.stop()
