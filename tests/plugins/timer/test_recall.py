"""The recall of messages: its handles, its request and its refusals."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.timer.case import TimerTestCase
from twistmq.plugins.timer.metrics import TimerMetricsSerializeWrapper
from twistmq.plugins.timer.recall import RecallHandle, decode_handle, encode_handle
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import StoreError
from twistmq.protocol.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    RecallRefusedResponseHeader,
)

HANDLE = RecallHandle("T", "broker-a", "1700000009001", "KEY")


class HandleTests(SynchronousTestCase):
    """The text that a client keeps."""

    def test_a_handle_has_apaches_text(self) -> None:
        """A handle has the same text as in Apache's broker."""
        self.assertEqual(encode_handle(HANDLE), "djEgVCBicm9rZXItYSAxNzAwMDAwMDA5MDAxIEtFWQ==")

    def test_a_handle_is_read_with_padding_and_both_alphabets(self) -> None:
        """Padding may be missing, more text may follow, and both alphabets are accepted."""
        text = encode_handle(HANDLE)
        self.assertEqual(decode_handle(text), HANDLE)
        self.assertEqual(decode_handle(text.rstrip("=")), HANDLE)
        odd = HANDLE._replace(topic="\u00ff\u00fe?>")
        self.assertIn("_", encode_handle(odd) + "-")
        self.assertEqual(decode_handle(encode_handle(odd)), odd)

    def test_what_is_none(self) -> None:
        """A text that is not base64, has another version, or is too short is not a handle."""
        for text in ("", "*", "djI=", "djIgVCBiIDEgaw==", "djEgVCBiIDE=", "a", "\u00e4"):
            self.assertIsNone(decode_handle(text), msg=text)


class RecallTests(TimerTestCase):
    """A broker that permits recalls."""

    settings = {"recallMessageEnable": "true"}  # noqa: RUF012

    def recall(self, handle: str, topic: str = "T") -> RemotingCommand:
        return self.box.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
            topic=topic, recall_handle=handle, producer_group="P"))

    def refusal(self, handle: str, topic: str = "T") -> tuple[int, str | None]:
        reply = self.recall(handle, topic)
        self.assertEqual(reply.header(RecallRefusedResponseHeader).msg_region, "DefaultRegion")
        return reply.code, reply.remark

    def handle_of(self, body: bytes = b"timed", **properties: str) -> str:
        handle = self.send(body, **properties).recall_handle
        assert handle is not None
        return handle

    def test_handle_of_a_send(self) -> None:
        """It has the topic, the broker, the time and the unique key; an ordinary
        message has none.
        """
        handle = decode_handle(self.handle_of(TIMER_DELAY_MS="4500", UNIQ_KEY="U"))
        self.assertEqual(handle, ("T", "broker-a", str(self.box.now_ms + 4001), "U"))
        self.assertIsNone(self.send(b"now").recall_handle)
        self.assertIsNone(self.send(b"past", TIMER_DELAY_MS="-1").recall_handle)
        self.assertIsNone(self.send(b"try", "%RETRY%g", TIMER_DELAY_MS="4500").recall_handle)
        # What a client says itself is not believed.
        self.assertIsNone(self.send(b"was", TIMER_OUT_MS="5").recall_handle)

    def test_a_recalled_message_does_not_come(self) -> None:
        """The message is not delivered, others of the same tick are, and no data remains."""
        handle = self.handle_of(b"back", TIMER_DELAY_MS="4500", UNIQ_KEY="U")
        self.send(b"stays", TIMER_DELAY_MS="4500", UNIQ_KEY="V")
        self.turn()
        self.assertEqual(self.service.metrics.count("T"), 2)
        reply = self.recall(handle)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        header = reply.header(RecallMessageResponseHeader)
        self.assertEqual((header.msg_id, header.msg_region), ("U", "DefaultRegion"))
        self.turn()
        self.assertEqual((self.service.metrics.count("T"), self.service.wheel.count), (1, 1))
        self.turns(6000)
        self.assertEqual(self.bodies(), [b"stays"])
        self.assertEqual((self.service.metrics.count("T"), self.service.wheel.count), (0, 0))
        self.assertEqual(self.stored(queue_id=0), [])

    def test_message_that_takes_back(self) -> None:
        """The record of the recall names the message, and has the fields of Apache's broker."""
        handle = self.handle_of(TIMER_DELAY_MS="4500", UNIQ_KEY="U")
        self.recall(handle)
        [_, stored] = self.waiting()
        fields = stored.properties_map()
        self.assertEqual(fields, {
            "TIMER_DEL_UNIQKEY": "T+U", "UNIQ_KEY": "U", "TAGS": "_RECALL_TAG_", "PGROUP": "P",
            "TIMER_DELIVER_MS": str(self.box.now_ms + 4001),
            "TIMER_OUT_MS": str(self.box.now_ms + 4000), "REAL_TOPIC": "T", "REAL_QID": "0",
            "BORN_TIMESTAMP": str(self.box.now_ms)})
        self.assertEqual(stored.body, b"0")

    def test_texts_that_would_add_properties_are_refused(self) -> None:
        """Otherwise a recall names the message of another topic, which access control allows."""
        self.send(b"kept", "Other", TIMER_DELAY_MS="4500", UNIQ_KEY="U")
        own = RecallHandle("T", "broker-a", str(self.box.now_ms + 4001), "X")
        self.send(b"own", TIMER_DELAY_MS="4500", UNIQ_KEY="X")
        added = "a\x02TIMER_DEL_UNIQKEY\x01Other+U\x02"
        why = "recall failed, the unique key or the producer group has a separator"
        for text in (added, "X\x02", "\x01"):
            self.assertEqual(self.refusal(encode_handle(own._replace(unique_key=text))),
                             (ResponseCode.ILLEGAL_OPERATION, why))
            reply = self.box.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
                topic="T", recall_handle=encode_handle(own), producer_group=text))
            self.assertEqual((reply.code, reply.remark), (ResponseCode.ILLEGAL_OPERATION, why))
        self.turns(6000)
        self.assertEqual((self.bodies(), self.bodies("Other")), ([b"own"], [b"kept"]))

    def test_last_moment(self) -> None:
        """A message can be recalled until its time, and not a millisecond later."""
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.turns(4000)
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        self.turn(1)
        self.assertEqual(self.refusal(handle), (
            ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"))
        self.turns(3000)
        self.assertEqual(self.bodies(), [])

    def test_behind_with_entering(self) -> None:
        """A message that was recalled in time is not delivered, even if nothing was entered yet."""
        handle = self.handle_of(TIMER_DELAY_MS="900")
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        self.after_kill()
        self.turn(60_000)
        self.turn(1000)
        self.assertEqual((self.bodies(), self.service.enqueue.backlog), ([], 0))

    def test_after_a_roll(self) -> None:
        """A rolled message is found in its last slot."""
        self.restart(timerRollWindowSlot="4")
        handle = self.handle_of(b"back", TIMER_DELAY_MS="20000")
        self.send(b"stays", TIMER_DELAY_MS="20000")
        self.turns(6000)
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        self.turns(16_000)
        self.assertEqual(self.bodies(), [b"stays"])
        self.assertEqual(self.service.metrics.count("T"), 0)

    def test_sent_by_hand(self) -> None:
        """A client may send the recall message itself; it needs a time in the future."""
        self.send(b"back", TIMER_DELIVER_MS=str(self.box.now_ms + 4500), UNIQ_KEY="U")
        self.send(b"hand", TIMER_DELIVER_MS=str(self.box.now_ms + 4500), TIMER_DEL_UNIQKEY="T+U")
        self.turns(6000)
        self.assertEqual(self.bodies(), [])
        code, remark = self.refused(TIMER_DELIVER_MS="5", TIMER_DEL_UNIQKEY="T+U")
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertTrue((remark or "").startswith("timer message illegal, the delay time"))

    def test_of_nothing(self) -> None:
        """A recall without a message changes no count."""
        handle = encode_handle(RecallHandle("T", "broker-a", str(self.box.now_ms + 4001), "none"))
        self.send(b"stays", TIMER_DELAY_MS="4500")
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        self.turns(6000)
        self.assertEqual(self.bodies(), [b"stays"])
        self.assertEqual(self.service.metrics.count("T"), 0)

    def counted(self, topic: str = "T") -> tuple[int, int]:
        """Return the count that is shown for a topic, and the count in the wheel."""
        told = TimerMetricsSerializeWrapper.decode(
            self.box.ask(RequestCode.GET_TIMER_METRICS).body).timing_count
        return told[topic].count if topic in told else 0, self.service.wheel.waiting_count

    def raw_counts(self) -> dict[str, int]:
        """Return the counts as they are saved, without zeros."""
        return {topic: metric.count for topic, metric
                in self.service.metrics.saved.timing_count.items() if metric.count}

    def test_a_message_that_is_recalled_again_counts_once(self) -> None:
        """A second recall does not count, before or after the time, over a restart or a roll."""
        for window, delay in (("100", "6000"), ("4", "20000")):
            self.restart(timerRollWindowSlot=window)
            handle = self.handle_of(b"back", TIMER_DELAY_MS=delay, UNIQ_KEY="U")
            self.send(b"stays", TIMER_DELAY_MS=delay, UNIQ_KEY="V")
            self.turn()
            for _ in range(3):
                self.recall(handle)
            self.turn()
            self.recall(handle)
            self.turn()
            self.assertEqual(self.counted(), (1, 1))
            self.restart(timerRollWindowSlot=window)
            self.assertEqual(self.counted(), (1, 1))
            self.recall(handle)
            self.turns(int(delay) + 2000)
            self.assertEqual((self.bodies()[-1], self.counted(), self.raw_counts()),
                             (b"stays", (0, 0), {}))
        self.assertEqual(self.bodies(), [b"stays"] * 2)

    def test_one_recall_of_two_messages_with_one_key(self) -> None:
        """Both messages are recalled, and neither is counted any more."""
        handle = self.handle_of(b"back", TIMER_DELAY_MS="4500", UNIQ_KEY="U")
        self.send(b"twin", TIMER_DELAY_MS="4500", UNIQ_KEY="U")
        self.send(b"later", TIMER_DELAY_MS="9500", UNIQ_KEY="W")
        self.recall(handle)
        self.turns(6000)
        self.assertEqual((self.bodies(), self.counted()), ([], (1, 1)))
        self.turns(5000)
        self.assertEqual((self.bodies(), self.raw_counts()), ([b"later"], {}))

    def test_nobody_is_told_of_less_than_no_message(self) -> None:
        """A recall without a message never makes a count negative."""
        handle = encode_handle(RecallHandle("T", "broker-a", str(self.box.now_ms + 4001), "none"))
        self.send(b"far", TIMER_DELAY_MS="900")
        self.turns(3000)
        self.recall(handle)
        self.turn()
        self.assertEqual(self.counted(), (0, 0))
        self.assertEqual(self.service.runtime_info()["timerCongestNum"], "0")
        self.turns(6000)
        self.assertEqual(self.raw_counts(), {})

    def test_a_topic_that_is_deleted_while_its_messages_wait(self) -> None:
        """The topic is not shown, and when it is created again its count is right."""
        self.send(b"old", TIMER_DELAY_MS="4500")
        self.turn()
        self.box.kernel.tables.delete_topic("T")
        self.run_task("forget the counts of deleted topics")
        self.assertEqual(self.counted(), (0, 1))
        self.turns(2000)
        self.send(b"new", TIMER_DELAY_MS="4500")
        self.turn()
        self.assertEqual(self.counted(), (2, 2))
        self.turns(3000)
        self.assertEqual(self.counted(), (1, 1))
        self.turns(4000)
        self.assertEqual(self.raw_counts(), {})
        self.box.kernel.tables.delete_topic("T")
        self.run_task("forget the counts of deleted topics")
        self.assertNotIn("T", self.service.metrics.saved.timing_count)

    def test_a_message_that_cannot_be_read_counts_until_its_time(self) -> None:
        """It is given up with an error, and is not counted afterwards."""
        self.send(b"lost", TIMER_DELAY_MS="4500")
        self.send(b"waits", TIMER_DELAY_MS="9500")
        self.turn()
        look = self.box.kernel.store.look_message
        [lost, _] = self.waiting()
        self.patch(self.box.kernel.store, "look_message", lambda place, *size: (
            None if place == lost.physical_offset else look(place, *size)))
        self.turns(6000)
        self.assertEqual((self.bodies(), self.counted()), ([], (1, 1)))

    def test_counts_fit_whatever_happened(self) -> None:
        """Sends, recalls, rolls, deletions, stops and kills leave no count behind."""
        chance = random.Random(20)
        settings = {"timerRollWindowSlot": "4", "recallMessageEnable": "true"}
        self.restart(**settings)
        handles = [encode_handle(RecallHandle(
            "T", "broker-a", str(self.box.now_ms + 8001), f"none{number}")) for number in range(3)]
        for number in range(400):
            what = chance.randrange(20)
            if what < 8:
                handles.append(self.handle_of(
                    TIMER_DELAY_MS=str(chance.randrange(1000, 20_000)), UNIQ_KEY=f"U{number % 50}"))
            elif what < 15:
                self.recall(chance.choice(handles[-10:]))
            elif what < 17:
                self.turn(chance.randrange(2000))
            elif what == 17:
                self.save()
            elif what == 18 and not number % 3:
                self.restart(**settings)
            elif what == 19 and not number % 3:
                self.after_kill(**settings)
            self.assertGreaterEqual(min(self.counted()), 0)
        self.assertNotEqual(self.counted(), (0, 0))
        self.patch(self.service.metrics, "nothing_waits", lambda: None)
        self.turns(22_000)
        self.assertEqual((self.service.wheel.count, self.raw_counts()), (0, {}))

    def test_refusals_come_in_apaches_order_and_words(self) -> None:
        """The refusals have Apache's order and texts."""
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        other = ResponseCode.ILLEGAL_OPERATION
        self.send(b"now", "Other")
        self.assertEqual(self.refusal(handle, "nope"), (
            ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[nope] not exist"))
        self.assertEqual(self.refusal("*"), (other, "recall handle is invalid"))
        self.assertEqual(self.refusal(handle, "Other"), (other, "recall failed, topic not match"))
        good = decode_handle(handle)
        assert good is not None
        self.assertEqual(self.refusal(encode_handle(good._replace(broker_name="b"))),
                         (other, "recall failed, broker service not available"))
        far = str(self.box.now_ms + 3 * 86_400_000)
        for text in ("x", "0", far):
            self.assertEqual(self.refusal(encode_handle(good._replace(timestamp=text))),
                             (other, "recall failed, timestamp invalid"), msg=text)

    def test_recall_is_off_by_default_and_can_be_allowed(self) -> None:
        """By default recalls are forbidden; a setting permits them where sends are permitted."""
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.restart(recallMessageEnable="false")
        self.assertEqual(self.refusal(handle), (
            ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"))
        self.restart(brokerPermission="4", allowRecallWhenBrokerNotWriteable="false")
        unavailable = "recall failed, broker service not available"
        self.assertEqual(self.refusal(handle), (ResponseCode.SERVICE_NOT_AVAILABLE, unavailable))
        self.restart(brokerPermission="4")
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        self.box.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.refusal(handle), (ResponseCode.SLAVE_NOT_AVAILABLE, unavailable))

    def test_without_the_wheel(self) -> None:
        """Without the wheel no message waits, so none can be recalled."""
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.restart(timerWheelEnable="false")
        self.assertEqual(self.refusal(handle), (
            ResponseCode.SYSTEM_ERROR, "recall failed, execute error"))
        self.assertEqual(self.stored(queue_id=0), [])

    def test_full_disk(self) -> None:
        """The recall fails, and the client gets an error."""
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.disk.room_bytes = 0
        self.assertEqual(self.refusal(handle), (
            ResponseCode.SYSTEM_ERROR, "recall failed, execute error"))
        self.disk.room_bytes = None

    def test_failed_flush(self) -> None:
        """The producer gets the code that the recall may be lost."""
        self.restart(flushDiskType="SYNC_FLUSH")
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.disk.fail_sync_in = 1
        self.assertEqual(self.recall(handle).code, ResponseCode.FLUSH_DISK_TIMEOUT)
        self.disk.fail_sync_in = None
        self.flushLoggedErrors(OSError, StoreError)

    def test_sync_flush(self) -> None:
        """The response waits for the disk."""
        self.restart(flushDiskType="SYNC_FLUSH")
        handle = self.handle_of(TIMER_DELAY_MS="4500")
        self.assertEqual(self.recall(handle).code, ResponseCode.SUCCESS)
        log = self.box.kernel.store.commit_log
        self.assertEqual(log.flushed_offset, log.max_offset)
