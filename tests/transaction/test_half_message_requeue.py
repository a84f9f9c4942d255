"""RESUME_CHECK_HALF_MESSAGE: what was given up is checked anew."""

from __future__ import annotations

from tests.transaction.case import COMMIT, TransactionTestCase
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.transaction import ResumeCheckHalfMessageRequestHeader
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import CHECK_MAX_TIME_TOPIC

FAILED = (ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")

NOT_FOUND = (ResponseCode.SYSTEM_ERROR,
             "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")


class ResumeTests(TransactionTestCase):
    """An administrator asks."""

    settings = {"transactionCheckMax": "1"}  # noqa: RUF012

    def resume(self, message_id: str | None) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE,
                             ResumeCheckHalfMessageRequestHeader(topic="T", msg_id=message_id))
        return reply.code, reply.remark

    def give_up(self) -> StoredMessage:
        """A half message that was given up."""
        self.half()
        self.assertEqual(self.asked(6000) + self.asked(30_000), [b"half"])
        [found] = self.stored(CHECK_MAX_TIME_TOPIC, 0)
        return found

    def test_a_requeued_half_message_is_checked_like_a_new_one(self) -> None:
        """It is asked for again as often as one that came now, and can be committed."""
        found = self.give_up()
        self.assertEqual(self.service.metrics.count("T"), 0)
        place = offset_message_id(found.store_host, found.physical_offset)
        self.assertEqual(self.resume(place), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.service.metrics.count("T"), 1)
        # The property says 0, so that Apache's broker and ours count this question.
        [asked] = self.check(30_000)
        self.assertEqual(asked.message.properties_map()["TRANSACTION_CHECK_TIMES"], "1")
        self.answer(asked, COMMIT)
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.bodies(), len(self.given_up())), ([b"half"], 1))

    def test_wrong_ids(self) -> None:
        """No id, none of ours, nothing there, and a message that is no half one."""
        self.send(b"whole", TRAN_MSG="false")
        [other] = self.stored()
        for message_id in (None, "", "x", "00" * 16,
                           offset_message_id(other.store_host, 10**9),
                           offset_message_id(other.store_host, other.physical_offset)):
            self.assertEqual(self.resume(message_id), NOT_FOUND, msg=str(message_id))
        self.assertEqual(self.halves(), [])

    def test_a_requeue_that_cannot_be_stored_fails(self) -> None:
        """A disk that does not take it."""
        found = self.give_up()
        self.disk.fail_write_in = 1
        self.assertEqual(
            self.resume(offset_message_id(found.store_host, found.physical_offset)), FAILED)
        self.disk.fail_write_in = None
