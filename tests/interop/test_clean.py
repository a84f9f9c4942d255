"""CLEAN_UNUSED_TOPIC deletes the same queues as Apache's broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.exchange import Exchange
from tests.interop.servers import free_port
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.json_dialect import decode as decode_json

USED: Final = "UsedTopic"
UNUSED: Final = "UnusedTopic"
#: Each is sent to.
TOPICS: Final = (USED, UNUSED, "%RETRY%unused_group", "BenchmarkTest", "TBW102")
TOPICS_FILE: Final = Path("store/config/topics.json")


class CleanTests(JavaTestCase):
    """Each broker has a copy of one store, whose table of topics lacks some."""

    def exchange(self, folder: Path) -> Exchange:
        return Exchange(folder, free_port(), self.version)

    def clean(self, client: RawClient) -> dict[str, int]:
        """Let a broker clean its topics; :returns: the remaining content of the queues."""
        self.assertEqual(client.max_offset(UNUSED), 1)
        reply = client.request(RequestCode.CLEAN_UNUSED_TOPIC)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        return {topic: client.max_offset(topic) for topic in TOPICS}

    def test_same_queues_are_left(self) -> None:
        """The view of a client and the files are compared for each topic."""
        first, second = self.folder / "first", self.folder / "second"
        self.exchange(first).apache(
            lambda client: [client.send(topic, b"one") for topic in TOPICS])
        tables = decode_json((first / TOPICS_FILE).read_bytes())
        for topic in TOPICS[1:]:
            tables["topicConfigTable"].pop(topic, None)
        (first / TOPICS_FILE).write_text(json.dumps(tables))
        (first / TOPICS_FILE).with_suffix(".json.bak").unlink(missing_ok=True)
        # Not the folder: it has a broker.conf that names this store.
        shutil.copytree(first / "store", second / "store")
        theirs = self.exchange(first).apache(self.clean)
        ours = self.exchange(second).ours(self.clean)
        self.assertEqual(ours, theirs)
        self.assertEqual((theirs[USED], theirs[UNUSED]), (1, 0))
        left = [sorted(path.name for path in (folder / "store/consumequeue").iterdir())
                for folder in (first, second)]
        self.assertEqual(left[1], left[0])
        self.assertIn(USED, left[0])
        self.assertNotIn(UNUSED, left[0])
