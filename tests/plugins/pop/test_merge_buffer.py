"""Check points that wait in memory."""

from __future__ import annotations

from tests.plugins.pop.case import PopTestCase
from twistmq.protocol.topic_names import TIMER_TOPIC


class BufferTests(PopTestCase):
    """The setting enablePopBufferMerge."""

    settings = {"enablePopBufferMerge": "true"}  # noqa: RUF012

    def tags(self) -> list[str]:
        """Return the tags of the stored records."""
        return [message.properties_map()["TAGS"] for message in self.stored(TIMER_TOPIC)]

    def test_never_written(self) -> None:
        """A check point whose messages are acknowledged soon is never stored; the
        offset advances.
        """
        self.send_some(3, 1)
        self.ack(*self.pop(invisible_ms=60_000))
        self.turn()
        self.assertEqual((self.offset(), self.tags()), (3, []))
        self.pass_time(70_000)
        self.assertEqual((self.tags(), self.retries()), ([], []))

    def test_in_a_batch(self) -> None:
        """One request acknowledges several messages."""
        self.send_some(3, 1)
        self.ask_batch_ack(*self.pop(invisible_ms=60_000))
        self.assertEqual(len(self.service.state.buffer), 0)

    def test_offset_in_order(self) -> None:
        """The offset does not pass a message without an acknowledgement."""
        self.send_some(2, 1)
        first, second = (self.pop(invisible_ms=60_000, count=1) for _ in range(2))
        self.ack(*second)
        self.turn()
        self.assertEqual(self.offset(), 0)
        self.ack(*first)
        self.turn()
        self.assertEqual(self.offset(), 2)

    def test_stays_too_long(self) -> None:
        """The check point is stored with its acknowledgements; later ones are stored separately."""
        self.send_some(3, 1)
        popped = self.pop(invisible_ms=60_000)
        self.ack(popped[0])
        self.pass_time(9500)
        self.assertEqual((self.tags(), self.offset()), ([], 0))
        self.pass_time(1500)
        self.assertEqual((self.tags(), self.offset()), (["ck", "ack"], 3))
        self.ack(popped[1])
        self.assertEqual(self.tags(), ["ck", "ack", "ack"])
        self.pass_time(55_000)
        self.assertEqual(self.retries(), [b"2"])

    def test_as_a_batch(self) -> None:
        """Under enablePopBatchAck the acknowledgements are one message."""
        self.restart(enablePopBatchAck="true")
        self.send_some(3, 1)
        self.ack(*self.pop(invisible_ms=60_000)[:2])
        self.pass_time(11_000)
        self.assertEqual(self.tags(), ["ck", "bAck"])
        self.pass_time(60_000)
        self.assertEqual(self.retries(), [b"2"])

    def test_visible_soon(self) -> None:
        """It is stored three seconds before its messages become visible."""
        self.send(b"x")
        self.pop(invisible_ms=6000)
        self.pass_time(2500)
        self.assertEqual(self.tags(), [])
        self.pass_time(1000)
        self.assertEqual(self.tags(), ["ck"])

    def test_no_time(self) -> None:
        """A check point whose messages become visible too soon is stored immediately."""
        self.send(b"x")
        self.pop(invisible_ms=4499)
        self.assertEqual(self.tags(), ["ck"])

    def test_check_points_without_room_are_written_at_once(self) -> None:
        """Check points without room in memory are stored immediately."""
        self.restart(popCkMaxBufferSize="0")
        self.send_some(2, 1)
        for tags in ([], ["ck"]):
            self.pop(count=1, invisible_ms=60_000)
            self.assertEqual(self.tags(), tags)
        self.restart(popCkOffsetMaxQueueSize="0")
        self.send(b"x")
        self.pop(count=1, invisible_ms=60_000)
        self.assertEqual(len(self.service.state.buffer), 0)

    def test_a_killed_broker_gives_open_messages_out_again(self) -> None:
        """After a kill, messages without an acknowledgement are delivered again."""
        self.send_some(4, 1)
        self.ack(*self.pop(count=1, invisible_ms=60_000))
        self.turn()
        self.box.kernel.persist()
        self.pop(count=1, invisible_ms=60_000)
        self.ack(*self.pop(count=1, invisible_ms=60_000))
        self.after_kill()
        self.assertEqual([each.body for each in self.pop()], [b"1", b"2", b"3"])

    def test_a_stopped_broker_writes_its_buffer(self) -> None:
        """A broker that stops stores its buffer, and no message is delivered twice."""
        self.send_some(3, 1)
        popped = self.pop(invisible_ms=60_000)
        self.ack(popped[0])
        self.restart()
        self.assertEqual((self.tags(), self.offset()), (["ck", "ack"], 3))
        self.ack(popped[1])
        self.pass_time(65_000)
        self.assertEqual(self.retries(), [b"2"])

    def test_hidden_for_another_time(self) -> None:
        """The offset passes a message only when its new check point is durable."""
        self.send(b"x")
        [popped] = self.pop(invisible_ms=60_000)
        self.hide(popped, 5000)
        self.assertEqual((self.tags(), len(self.service.state.buffer)), (["ck"], 0))
        self.service.state.offsets.settle()
        self.assertEqual(self.offset(), 0)
        self.pass_time(9000)
        self.assertEqual((self.offset(), self.retries()), (1, [b"x"]))

    def test_full_disk(self) -> None:
        """A check point that cannot be stored stays in memory and is stored later."""
        self.send(b"x")
        self.pop(invisible_ms=60_000)
        store = self.box.kernel.store
        store.log_retention.disk_full = True
        self.pass_time(12_000)
        self.assertEqual((self.tags(), len(self.service.state.buffer)), ([], 1))
        store.log_retention.disk_full = False
        self.pass_time(500)
        self.assertEqual((self.tags(), len(self.service.state.buffer)), (["ck"], 0))
