"""``updateStaticTopic`` and ``remappingStaticTopic`` on two brokers with sockets."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.client import Client
from twistmq.plugins.static_topic import admin_commands
from twistmq.plugins.static_topic.admin_commands import (
    remapping_static_topic,
    update_static_topic,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader
from twistmq.protocol.record import records_of
from twistmq.tools.admin.session import AdminError, Session

A, B, TOPIC = "broker-a", "broker-b", "S"


class CommandTests(SynchronousTestCase):
    """The commands, and their effects on two brokers."""

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch("tempfile.gettempdir", lambda: self.folder))
        first = stack.enter_context(running_broker({"brokerName": A}))
        second = stack.enter_context(running_broker(
            {"brokerName": B, "namesrvAddr": first.namesrv_address}))
        self.brokers: dict[str, RunningBroker] = {A: first, B: second}
        self.session = stack.enter_context(Session(first.namesrv_address))
        self.cluster = stack.enter_context(Client(first.namesrv_address))

    def update(self, total: int, brokers: str | None = f"{A},{B}", clusters: str | None = None,
               file: str | None = None, force: bool = False) -> dict[str, tuple[object, ...]]:
        rows = update_static_topic(self.session, topic=TOPIC, brokers=brokers, clusters=clusters,
                                   total=total, file=file, force=force)
        return {str(row[0]): row[3:6] for row in rows}

    def remap(self, brokers: str | None, clusters: str | None = None, file: str | None = None
              ) -> dict[str, tuple[object, ...]]:
        rows = remapping_static_topic(self.session, topic=TOPIC, brokers=brokers,
                                      clusters=clusters, file=file, force=False)
        return {str(row[0]): row[3:6] for row in rows}

    def leads(self) -> dict[int, str]:
        mappings = self.cluster.route(TOPIC, again=True).topic_queue_mapping_by_broker or {}
        return {queue: name for name, info in mappings.items() for queue in info.curr_id_map}

    def send(self, queue: int, body: bytes) -> int:
        with self.brokers[self.leads()[queue]].client() as client:
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header(
                TOPIC, 1, queue_id=queue), body)
        self.assertEqual((reply.code, reply.remark), (0, None))
        return reply.header(SendMessageResponseHeader).queue_offset

    def read(self, queue: int) -> list[bytes]:
        """Return all messages of a queue, as a consumer reads them."""
        bodies: list[bytes] = []
        offset = 0
        with self.brokers[self.leads()[queue]].client() as client:
            while True:
                reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                    TOPIC, offset, queue_id=queue))
                self.assertIn(reply.code, (0, 19, 20, 21), msg=reply.remark)
                header = reply.header(PullMessageResponseHeader)
                bodies += [message.body for message in records_of(reply.body)]
                if header.next_begin_offset == offset:
                    return bodies
                offset = header.next_begin_offset

    def test_a_topic_is_made(self) -> None:
        """A topic is made, used, enlarged, moved, read over both brokers, and deleted."""
        self.assertEqual(self.update(3, A), {A: (3, 3, 3), B: (0, 0, 0)})
        self.assertEqual(self.leads(), dict.fromkeys(range(3), A))
        self.assertEqual([self.send(0, b"1"), self.send(0, b"2")], [0, 1])
        self.assertEqual(self.update(4), {A: (3, 3, 3), B: (1, 1, 1)})
        self.assertEqual(self.remap(B), {A: (3, 3, 0), B: (4, 4, 4)})
        self.assertEqual(self.leads(), dict.fromkeys(range(4), B))
        self.assertEqual(self.send(0, b"3"), 10_000)
        self.assertEqual(self.read(0), [b"1", b"2", b"3"])
        self.assertEqual(self.remap(None, "DefaultCluster"), {A: (5, 5, 2), B: (4, 4, 2)})
        for queue in range(4):
            self.send(queue, b"4")
        self.assertEqual([self.read(queue)[-1] for queue in range(4)], [b"4"] * 4)
        self.assertEqual(self.read(0), [b"1", b"2", b"3", b"4"])
        for broker in self.brokers.values():
            with broker.client() as client:
                client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
        self.session.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                     DeleteTopicRequestHeader(TOPIC))
        self.assertEqual(self.brokers[A].service.namesrv.name_server.routes.tables.mappings, {})

    def test_plans_are_files_and_an_interrupted_plan_is_resumed(self) -> None:
        """The state before and after is in files; an interrupted change is
        completed from its file.
        """
        self.update(2, A)
        with mock.patch.object(admin_commands, "_send_configs",
                               side_effect=BrokerError("broke off")):
            self.assertRaises(BrokerError, self.remap, B)
        names = sorted(path.suffix for path in Path(self.folder).glob(f"{TOPIC}-*"))
        self.assertEqual(names, [".after", ".after", ".before", ".before"])
        oldest, newest = sorted(map(str, Path(self.folder).glob("*.after")))
        self.assertEqual(self.leads(), {0: A, 1: A})
        self.assertEqual(self.remap(B, file=newest), {A: (2, 2, 0), B: (2, 2, 2)})
        self.assertEqual(self.leads(), {0: B, 1: B})
        self.send(0, b"1")
        # Where messages lie that were sent since then must not be decided again.
        error = self.assertRaises(BrokerError, self.remap, B, file=newest)
        self.assertIn("must not change", str(error))
        error = self.assertRaises(BrokerError, self.update, 2, file=oldest)
        self.assertIn("Can't accept data with small epoch", str(error))
        self.assertEqual(self.update(2, file=oldest, force=True)[A], (2, 2, 2))

    def test_an_impossible_plan_is_refused_and_sent_to_no_broker(self) -> None:
        """The command reports the reason, and no broker gets a request."""
        for error, call in (
            (AdminError, lambda: self.update(2, None, "nowhere")),
            (AdminError, lambda: self.remap("broker-z")),
            (AdminError, lambda: self.remap(A)),
            (AdminError, lambda: self.update(2, file=f"{self.folder}/none")),
        ):
            self.assertRaises(error, call)
        self.update(2, A)
        for total, why in ((1, "Cannot decrease"), (2, "do nothing")):
            failure = self.assertRaises(BrokerError, self.update, total)
            self.assertIn(why, str(failure))
        broken = Path(self.folder) / "broken"
        for text in ("{", "{}", '{"brokerConfigMap":{"broker-a":{"topicName":"S"}}}'):
            broken.write_text(text)
            self.assertRaises(BrokerError, self.update, 3, file=str(broken))
        self.assertEqual(self.leads(), {0: A, 1: A})
