"""Queue locks of a group of our broker and Apache's, under lockInStrictMode."""

from __future__ import annotations

from typing import ClassVar

from tests.interop.test_acting_pair import PATIENCE, ActingCase
from tests.plugins.ha.pair import wait_until
from tests.plugins.ha.test_acting_pair import ACTING
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from twistmq.protocol.codes import RequestCode

QUEUES = tuple(MessageQueue("T", "pair", number) for number in range(3))


class StrictLockTests(ActingCase):
    """A master of 5.3.3 and our slave: each asks the other one."""

    settings: ClassVar[dict[str, str]] = {**ACTING, "lockInStrictMode": "true"}

    @staticmethod
    def lock(address: str, client_id: str, *queues: MessageQueue) -> set[MessageQueue]:
        with RawClient(address) as client:
            reply = client.request(RequestCode.LOCK_BATCH_MQ, None, LockBatchRequestBody(
                "g", client_id, False, queues).encode())
            return set(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set)

    def test_each_asks_the_other(self) -> None:
        """A lock that one of them has granted is refused by the other; without one, none is
        granted.
        """
        namesrv = self.our_name_server()
        java, master, slave = self.apaches_master(namesrv)
        address = slave.kernel.broker_address
        self.create(master)
        self.wait_for_route(namesrv, {0: master, 1: address}, 6)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        # Each looks who is in the group once a second.
        wait_until(lambda: self.lock(master, "one", *QUEUES[:2]) == set(QUEUES[:2]),
                   "Apache's knows of ours", PATIENCE)
        wait_until(lambda: self.lock(address, "two", *QUEUES) == {QUEUES[2]},
                   "ours knows of Apache's", PATIENCE)
        self.assertEqual(self.lock(master, "one", *QUEUES), set(QUEUES[:2]))
        with RawClient(address) as client:
            client.request(RequestCode.UNLOCK_BATCH_MQ, None, UnlockBatchRequestBody(
                "g", "two", False, QUEUES[2:]).encode())
        wait_until(lambda: self.lock(master, "one", *QUEUES) == set(QUEUES), "it is unlocked")
        with RawClient(master) as client:
            client.request(RequestCode.UNLOCK_BATCH_MQ, None, UnlockBatchRequestBody(
                "g", "one", False, QUEUES).encode())
        wait_until(lambda: self.lock(address, "two", *QUEUES) == set(QUEUES), "all are unlocked")
        java.stop_one("broker", kill=True)
        self.assertEqual(self.lock(address, "two", *QUEUES), set())
