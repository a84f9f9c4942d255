"""Locks of queues that a majority of the brokers of a group must grant."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.logger import capturedLogs, formatEvent

from tests.plugins.ha.group_case import MASTER, SLAVE, GroupCase
from tests.plugins.ha.test_acting_master import ACTING, OTHER
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import admin, ha, orderly
from twistmq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    TopicConfig,
    UnlockBatchRequestBody,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError

QUEUES = tuple(MessageQueue("T", "broker-a", number) for number in range(3))
STRICT = {**ACTING, "lockInStrictMode": "true", "skipPreOnline": "true"}


class StrictCase(GroupCase):
    """Both brokers lock queues of T."""

    plugins = (("admin", admin.Plugin), ("ha", ha.Plugin), ("orderly", orderly.Plugin))
    settings: Mapping[str, str] = STRICT

    def setUp(self) -> None:
        self.master_settings = self.slave_settings = dict(self.settings)
        super().setUp()
        for box, other in ((self.master, {1: SLAVE}), (self.slave, {0: MASTER})):
            box.kernel.topic_config.table["T"] = TopicConfig("T")
            plugin = box.kernel.hooks.find(ha.Plugin)
            assert plugin is not None
            plugin.acting.members = {box.kernel.broker_id: "itself", **other}
        self.asked.clear()

    def lock(
        self, client_id: str, *queues: MessageQueue, box: KernelBox | None = None,
        only_this_broker: bool = False,
    ) -> tuple[MessageQueue, ...]:
        box = box or self.master
        peer = box.peer()
        reply = box.send(peer, RequestCode.LOCK_BATCH_MQ, None, LockBatchRequestBody(
            "g", client_id, only_this_broker, queues).encode())
        if reply is None:
            [reply] = box.late_replies(peer)
        self.assertEqual((reply.code, reply.remark), (0, None))
        return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set

    def unlock(self, client_id: str, *queues: MessageQueue, only_this_broker: bool = False
               ) -> None:
        reply = self.master.ask(RequestCode.UNLOCK_BATCH_MQ, None, UnlockBatchRequestBody(
            "g", client_id, only_this_broker, queues).encode())
        self.assertEqual(reply.code, 0)


class StrictTests(StrictCase):
    """Two of two brokers are needed for a majority."""

    def test_both_give_it(self) -> None:
        """Another client gets the lock from neither, and the same one gets it again."""
        for _ in range(2):
            self.assertEqual(self.lock("one", *QUEUES[:2]), QUEUES[:2])
        self.assertEqual(self.lock("two", *QUEUES, box=self.slave), QUEUES[2:])
        self.assertEqual(self.lock("one", *QUEUES), QUEUES[:2])

    def test_one_that_the_other_has_given_away(self) -> None:
        """A slave that acted as master may have granted it."""
        self.lock("two", QUEUES[0], box=self.slave, only_this_broker=True)
        self.assertEqual(self.lock("one", *QUEUES[:2]), QUEUES[1:2])

    def test_a_request_of_a_broker_asks_no_further(self) -> None:
        self.assertEqual(self.lock("one", *QUEUES, only_this_broker=True), QUEUES)
        self.assertEqual(self.asked, [])

    def test_the_other_is_not_there_or_refuses(self) -> None:
        """The lock is not granted, and the log gives the reason."""
        with capturedLogs() as events:
            for answer in (BrokerError("it is away"), RemotingCommand(2, remark="busy")):
                self.answers[SLAVE, RequestCode.LOCK_BATCH_MQ] = answer
                self.assertEqual(self.lock("one", *QUEUES), ())
        lines = [formatEvent(event) or "" for event in events]
        self.assertEqual([line for line in lines if "not lock queues" in line], [
            f"the broker at {SLAVE} does not lock queues: it is away",
            f"the broker at {SLAVE} does not lock queues: it answered 2: busy"])

    def test_both_unlock(self) -> None:
        """The client does not wait for the other broker."""
        self.lock("one", *QUEUES)
        self.unlock("one", *QUEUES[:1], only_this_broker=True)
        self.assertEqual(self.lock("two", QUEUES[0]), ())
        self.unlock("one", *QUEUES)
        self.unlock("two", *QUEUES)
        self.assertEqual(self.lock("two", *QUEUES, box=self.slave), QUEUES)
        del self.servers[SLAVE]
        with capturedLogs() as events:
            self.unlock("two", *QUEUES)
        self.assertIn(f"the broker at {SLAVE} does not unlock queues: cannot connect to {SLAVE}",
                      [formatEvent(event) for event in events])

    def test_two_of_three(self) -> None:
        """The third broker may be away."""
        plugin = self.master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        plugin.acting.members = {0: MASTER, 1: SLAVE, 2: OTHER}
        self.master.kernel.settings.put("totalReplicas", 3)
        self.assertEqual(self.lock("one", *QUEUES), QUEUES)
        self.assertEqual([address for address, _ in self.asked], [SLAVE, OTHER])

    def test_without_the_setting(self) -> None:
        """The setting may be changed while the broker runs."""
        self.master.kernel.settings.put("lockInStrictMode", False)
        self.assertEqual(self.lock("one", *QUEUES), QUEUES)
        self.unlock("one", *QUEUES)
        self.assertEqual(self.asked, [])


class OffTests(StrictCase):
    """The setting alone changes nothing."""

    settings: Mapping[str, str] = {"lockInStrictMode": "true", "totalReplicas": "2"}

    def test_no_other_broker_is_asked(self) -> None:
        self.assertEqual(self.lock("one", *QUEUES), QUEUES)
        self.unlock("one", *QUEUES)
        self.assertEqual(self.asked, [])


class SingleTests(StrictCase):
    """A group of one broker."""

    settings: Mapping[str, str] = {**STRICT, "totalReplicas": "1"}

    def test_it_is_its_own_majority(self) -> None:
        self.assertEqual(self.lock("one", *QUEUES), QUEUES)
        self.assertEqual(self.asked, [])
