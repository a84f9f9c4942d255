"""RESUME_CHECK_HALF_MESSAGE: half messages that were given up are checked again."""

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
    """A request of an administrator."""

    settings = {"transactionCheckMax": "1"}  # noqa: RUF012

    def resume(self, message_id: str | None) -> tuple[int, str | None]:
        reply = self.box.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE,
                             ResumeCheckHalfMessageRequestHeader(topic="T", msg_id=message_id))
        return reply.code, reply.remark

    def give_up(self) -> StoredMessage:
        """Return a half message that was given up."""
        self.half()
        self.assertEqual(self.asked(6000) + self.asked(30_000), [b"half"])
        [found] = self.stored(CHECK_MAX_TIME_TOPIC, 0)
        return found

    def test_a_requeued_half_message_is_checked_like_a_new_one(self) -> None:
        """It is checked as often as a new half message, and can be committed."""
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
        """Ids that are invalid, of another broker, of no message, or of an ordinary message."""
        self.send(b"whole", TRAN_MSG="false")
        [other] = self.stored()
        for message_id in (None, "", "x", "00" * 16,
                           offset_message_id(other.store_host, 10**9),
                           offset_message_id(other.store_host, other.physical_offset)):
            self.assertEqual(self.resume(message_id), NOT_FOUND, msg=str(message_id))
        self.assertEqual(self.halves(), [])

    def test_a_requeue_that_cannot_be_stored_fails(self) -> None:
        """The request fails when the disk refuses the message."""
        found = self.give_up()
        self.disk.fail_write_in = 1
        self.assertEqual(
            self.resume(offset_message_id(found.store_host, found.physical_offset)), FAILED)
        self.disk.fail_write_in = None
