"""Queue locks."""

from __future__ import annotations

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import CLIENT_ID_LENGTH_MAX, LOCK_BODY_SIZE_MAX
from twistmq.broker.plugin.interfaces import IQueueLocks
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import orderly
from twistmq.plugins.orderly import (
    LOCK_AGE_MAX_MS,
    LOCKS_FREE,
    QueueLocks,
)
from twistmq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
    UnlockBatchRequestBody,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.log_rate import EVENTS_A_MINUTE

QUEUES = (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1))
START_MS = 1_000_000


class QueueLocksTests(SynchronousTestCase):
    """The holders of locks, and the time for which they hold them."""

    def test_first_comes_first(self) -> None:
        """The first client gets the lock of a queue; another one gets the remaining queues."""
        locks = QueueLocks()
        self.assertEqual(locks.lock("g", "one", QUEUES[:1], START_MS), QUEUES[:1])
        self.assertEqual(locks.lock("g", "two", QUEUES, START_MS), QUEUES[1:])
        self.assertEqual(locks.lock("g", "one", QUEUES, START_MS), QUEUES[:1])

    def test_lines_of_the_log(self) -> None:
        """Locks that change hands, however often, fill no log."""
        locks = QueueLocks()
        with capturedLogs() as events:
            for number in range(200):
                locks.lock("g", "one", QUEUES, START_MS + number)
                locks.lock("g", "two", QUEUES, START_MS + number)
                locks.unlock("g", "two", QUEUES)
                locks.unlock("g", "one", QUEUES)
        lines = [str(event["log_format"]) for event in events]
        self.assertEqual([len([line for line in lines if words in line]) for words in (
            "locks {queue}{more} for", "does not get", "but {holder}", "unlocks {queue}{more}")],
            [EVENTS_A_MINUTE, EVENTS_A_MINUTE, EVENTS_A_MINUTE, 2 * EVENTS_A_MINUTE])

    def test_named_twice(self) -> None:
        """A queue that a request names twice is locked, counted and answered once."""
        locks = QueueLocks()
        self.assertEqual(locks.lock("g", "one", QUEUES[:1] * 2, START_MS), QUEUES[:1])
        self.assertEqual(locks.lock("g", "one", QUEUES[:1] * 2, START_MS), QUEUES[:1])
        self.assertEqual(locks.count, 1)

    def test_groups_do_not_mind_each_other(self) -> None:
        """Two groups can lock the same queue."""
        locks = QueueLocks()
        self.assertEqual(locks.lock("g", "one", QUEUES, START_MS), QUEUES)
        self.assertEqual(locks.lock("h", "two", QUEUES, START_MS), QUEUES)

    def test_renewal_keeps_and_silence_loses(self) -> None:
        """A lock lasts 60 s after its last renewal, including that millisecond."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        locks.lock("g", "one", QUEUES, START_MS + 30_000)
        last_ms = START_MS + 30_000 + LOCK_AGE_MAX_MS
        self.assertEqual(locks.lock("g", "two", QUEUES, last_ms), ())
        self.assertEqual(locks.lock("g", "two", QUEUES, last_ms + 1), QUEUES)
        self.assertEqual(locks.lock("g", "one", QUEUES, last_ms + 1), ())

    def test_holder_of_an_expired_lock_gets_it_again(self) -> None:
        """A client that was silent for too long gets its lock again if no other client took it."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        later_ms = START_MS + 2 * LOCK_AGE_MAX_MS
        self.assertEqual(locks.lock("g", "one", QUEUES, later_ms), QUEUES)
        self.assertEqual(locks.lock("g", "two", QUEUES, later_ms), ())

    def test_only_the_holder_unlocks(self) -> None:
        """A queue is free after its unlock; the queue of another client stays locked."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        locks.unlock("g", "two", QUEUES)
        self.assertEqual(locks.lock("g", "two", QUEUES, START_MS), ())
        locks.unlock("g", "one", QUEUES[:1])
        self.assertEqual(locks.lock("g", "two", QUEUES, START_MS), QUEUES[:1])

    def test_whether_all_expired(self) -> None:
        """True of a group that never locked, gave all back, or was silent for too long."""
        locks = QueueLocks()
        self.assertTrue(locks.is_lock_all_expired("g", START_MS))
        locks.lock("g", "one", QUEUES[:1], START_MS)
        locks.lock("g", "two", QUEUES[1:], START_MS + 1)
        self.assertFalse(locks.is_lock_all_expired("g", START_MS + LOCK_AGE_MAX_MS + 1))
        self.assertTrue(locks.is_lock_all_expired("g", START_MS + LOCK_AGE_MAX_MS + 2))
        locks.lock("g", "two", QUEUES, START_MS + LOCK_AGE_MAX_MS + 2)
        locks.unlock("g", "two", QUEUES)
        self.assertTrue(locks.is_lock_all_expired("g", START_MS + LOCK_AGE_MAX_MS + 2))

    def test_many_queues_are_one_line(self) -> None:
        """The log has a line a request, however many queues it names."""
        queues = tuple(MessageQueue("T", "broker-a", number) for number in range(500))
        locks = QueueLocks()
        with capturedLogs() as events:
            locks.lock("g", "one", queues, START_MS)
            locks.lock("g", "two", queues, START_MS)
            locks.unlock("g", "two", queues)
            locks.lock("g", "two", queues, START_MS + LOCK_AGE_MAX_MS + 1)
            locks.unlock("g", "two", queues)
        self.assertEqual([event["more"] for event in events], [" and 499 more"] * 5)
        self.assertEqual(locks.count, 0)

    def test_expired_locks_are_forgotten(self) -> None:
        """Locks that were not renewed are removed, and the others are kept."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        locks.lock("h", "one", QUEUES, START_MS)
        locks.lock("h", "one", QUEUES[:1], START_MS + 1)
        locks.expire(START_MS + LOCK_AGE_MAX_MS + 1)
        self.assertEqual(locks.count, 1)
        self.assertEqual(list(locks._groups), ["h"])
        locks.expire(START_MS + LOCK_AGE_MAX_MS + 2)
        self.assertEqual((locks.count, locks._groups), (0, {}))

    def test_locks_of_all_groups_are_bounded_but_can_be_renewed(self) -> None:
        """The locks of all groups have a limit, at which holders can still renew theirs."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        self.patch(orderly, "LOCKS_BYTES_MAX", locks.size_bytes)
        locks.unlock("g", "one", QUEUES)
        self.assertEqual(locks.size_bytes, 0)
        locks.lock("g", "one", QUEUES, START_MS)
        error = self.assertRaises(RequestRefused, locks.lock, "h", "two", QUEUES, START_MS)
        self.assertEqual(error.response_code, ResponseCode.SYSTEM_BUSY)
        self.assertEqual(list(locks._groups), ["g"])
        self.assertEqual(locks.lock("g", "one", QUEUES, START_MS), QUEUES)
        locks.unlock("g", "one", QUEUES)
        self.assertEqual(locks.lock("h", "two", QUEUES, START_MS), QUEUES)

    def test_known_group_goes_on(self) -> None:
        """A known group gets some locks however many others have, in one request or two."""
        locks = QueueLocks()
        self.patch(orderly, "LOCKS_BYTES_MAX", 0)
        queues = tuple(MessageQueue("T", "broker-a", each) for each in range(LOCKS_FREE + 1))
        self.assertRaises(RequestRefused, locks.lock, "h", "two", queues, START_MS)
        self.assertEqual(locks.lock("g", "one", queues[:2], START_MS, True), queues[:2])
        self.assertEqual(locks.lock("g", "one", queues, START_MS, True), queues[:-1])
        error = self.assertRaises(
            RequestRefused, locks.lock, "g", "one", queues[-1:], START_MS, True)
        self.assertEqual(error.response_code, ResponseCode.SYSTEM_BUSY)
        self.assertEqual(locks.count, LOCKS_FREE)
        locks.unlock("g", "one", queues)
        self.assertEqual((locks.count, locks.size_bytes, locks._groups), (0, 0, {}))

    def test_each_name_counts_with_its_bytes(self) -> None:
        """Each name counts with its bytes, during the whole life of a lock."""
        locks = QueueLocks()
        locks.lock("g", "one", QUEUES, START_MS)
        each = locks.size_bytes // 2
        later_ms = START_MS + LOCK_AGE_MAX_MS + 1
        locks.lock("g", "o" * 1003, QUEUES[:1], later_ms)
        self.assertEqual(locks.size_bytes, 2 * each + 1000)
        locks.expire(later_ms)
        self.assertEqual(locks.size_bytes, each + 1000)
        locks.unlock("g", "o" * 1003, QUEUES)
        self.assertEqual(locks.size_bytes, 0)
        locks.lock("g", "one", [MessageQueue("T", "broker-ä", 0)], START_MS)
        self.assertEqual(locks.size_bytes, each + 3 * len("broker-ä"))


class LockRequestsTests(SynchronousTestCase):
    """The requests 41 and 42."""

    def setUp(self) -> None:
        self.box = KernelBox([("orderly", orderly.Plugin)])
        self.addCleanup(self.box.stop)
        self.make_topic(self.box)

    def make_topic(self, box: KernelBox) -> None:
        box.kernel.topic_config.update(TopicConfig("T", 4, 4, 6), {})

    def test_too_large(self) -> None:
        """More queues than a request may name, and a body that is long, are refused."""
        queues = tuple(MessageQueue("T", "b", number)
                       for number in range(orderly.LOCK_QUEUES_MAX + 1))
        body = LockBatchRequestBody("g", "one", mq_set=queues).encode_standard()
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            self.assertEqual(self.box.ask(code, body=body).code, ResponseCode.INVALID_PARAMETER)
            long_body = bytes(LOCK_BODY_SIZE_MAX + 1)
            reply = self.box.ask(code, body=long_body)
            self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
            self.assertIn(f"over the limit of {LOCK_BODY_SIZE_MAX}", reply.remark or "")

    def lock(self, client_id: str) -> tuple[MessageQueue, ...]:
        body = LockBatchRequestBody("g", client_id, mq_set=QUEUES).encode_standard()
        reply = self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set

    def test_lock_and_unlock(self) -> None:
        """A queue changes hands when its holder gives it back."""
        self.assertEqual(self.lock("one"), QUEUES)
        self.assertEqual(self.lock("two"), ())
        body = UnlockBatchRequestBody("g", "one", mq_set=QUEUES[:1]).encode_standard()
        reply = self.box.ask(RequestCode.UNLOCK_BATCH_MQ, body=body)
        self.assertEqual((reply.code, reply.body), (ResponseCode.SUCCESS, b""))
        self.assertEqual(self.lock("two"), QUEUES[:1])

    def test_answer_has_apaches_field(self) -> None:
        """The response has the field lockOKMQSet, which clients read."""
        body = LockBatchRequestBody("g", "one", mq_set=QUEUES[:1]).encode_standard()
        reply = self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        self.assertIn(b"lockOKMQSet", reply.body)

    def test_locks_follow_the_clock(self) -> None:
        """The queues of a lost client are free 60 s after its last request."""
        self.lock("one")
        for peer in self.box.kernel.channels:
            self.box.kernel.channels.remove(peer)
        self.assertEqual(self.lock("two"), ())
        self.box.now_ms += LOCK_AGE_MAX_MS + 1
        self.assertEqual(self.lock("two"), QUEUES)

    def test_other_age(self) -> None:
        """The duration of a lock is a setting."""
        box = KernelBox([("orderly", orderly.Plugin)], {"orderly.lock_age_max": "5000"})
        self.addCleanup(box.stop)
        self.box = box
        self.make_topic(box)
        self.lock("one")
        box.now_ms += 5000
        self.assertEqual(self.lock("two"), ())
        box.now_ms += 1
        self.assertEqual(self.lock("two"), QUEUES)

    def test_at_the_limit_a_known_group_still_gets_locks(self) -> None:
        """When the limit is reached, a known group still gets some locks."""
        self.patch(orderly, "LOCKS_BYTES_MAX", 0)
        self.box.kernel.subscription_group.update(SubscriptionGroupConfig("g"), {})
        self.assertEqual(self.lock("one"), QUEUES)
        body = LockBatchRequestBody("h", "one", mq_set=QUEUES).encode_standard()
        self.assertEqual(self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body).code,
                         ResponseCode.SYSTEM_BUSY)

    def test_topics_that_are_not_there(self) -> None:
        """Queues of missing topics, or of a broker with an invalid name, are not locked."""
        others = (MessageQueue("t" * 100_000, "broker-a", 0), MessageQueue("U", "broker-a", 0),
                  MessageQueue("T", "b" * 256, 0))
        body = LockBatchRequestBody("g", "one", mq_set=QUEUES + others).encode_standard()
        reply = self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        self.assertEqual(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set, QUEUES)
        self.assertEqual(self.box.plugin(orderly.Plugin).locks.count, 2)

    def test_long_names(self) -> None:
        """A client or a group with a name that no heartbeat could have."""
        for group, client_id in (("g" * 256, "one"), ("a b", "one"),
                                 ("g", "c" * (CLIENT_ID_LENGTH_MAX + 1))):
            body = LockBatchRequestBody(group, client_id, mq_set=QUEUES).encode_standard()
            for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
                self.assertEqual(self.box.ask(code, body=body).code,
                                 ResponseCode.INVALID_PARAMETER, msg=group[:3])
        self.assertEqual(self.lock("c" * CLIENT_ID_LENGTH_MAX), QUEUES)

    def test_nameless_client(self) -> None:
        """A request without a client id is refused."""
        body = LockBatchRequestBody("g", mq_set=QUEUES).encode_standard()
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            reply = self.box.ask(code, body=body)
            self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER, msg=str(code))

    def test_broken_body(self) -> None:
        """A body that is not JSON is refused with the reason."""
        reply = self.box.ask(RequestCode.LOCK_BATCH_MQ, body=b"{")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("LockBatchRequestBody", reply.remark or "")

    def test_other_plugins_find_the_locks(self) -> None:
        """Other plugins get the locks by IQueueLocks; each broker has its own."""
        self.lock("one")
        self.assertTrue(self.box.kernel.hooks.provider(IQueueLocks).keeps_order("g"))
        other = KernelBox([("orderly", orderly.Plugin)])
        self.addCleanup(other.stop)
        self.assertFalse(other.kernel.hooks.provider(IQueueLocks).keeps_order("g"))

    def test_without_the_plugin(self) -> None:
        """No locks are provided, and the requests are not supported."""
        bare = KernelBox()
        self.addCleanup(bare.stop)
        self.assertIsNone(bare.kernel.hooks.provider(IQueueLocks))
        reply = bare.ask(RequestCode.LOCK_BATCH_MQ)
        self.assertEqual(reply.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
