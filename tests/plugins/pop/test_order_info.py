"""Groups with ordered consumption."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from tests.plugins.pop.case import PopTestCase, popped_of
from twistmq.broker.constants import ATTEMPT_ID_LENGTH_MAX
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.headers.pop import (
    NotificationRequestHeader,
    PopMessageResponseHeader,
)

FILE = "/store/config/consumerOrderInfo.json"


class OrderTests(PopTestCase):
    """A queue is locked until its popped messages are acknowledged."""

    def test_a_queue_in_order_is_closed_to_its_group_only(self) -> None:
        """The queue is locked for every member of the group, and not for other groups."""
        self.send_some(4, 1)
        popped = self.pop(order=True, count=2)
        self.assertEqual([each.body for each in popped], [b"0", b"1"])
        self.assertEqual(self.pop(order=True), [])
        self.assertEqual(len(self.pop(order=True, group="other")), 4)
        self.ack(popped[0])
        self.assertEqual(self.pop(order=True), [])
        self.ack(popped[1])
        self.assertEqual([each.body for each in self.pop(order=True)], [b"2", b"3"])

    def test_queues_apart(self) -> None:
        """Only one queue is locked."""
        self.send_some(4)
        self.pop(0, order=True)
        self.assertEqual([each.body for each in self.pop(order=True)], [b"1", b"3"])

    def test_after_the_time_all_that_is_open_comes_again(self) -> None:
        """After the time-out all open messages are delivered again in order, with their tries."""
        self.send_some(3, 1)
        popped = self.pop(order=True)
        self.ack(popped[0])
        for tries in (1, 2):
            self.box.now_ms += 6000
            reply = self.ask_pop(order=True)
            self.assertEqual(reply.header(PopMessageResponseHeader).order_count_info,
                             f"0 qo0%1 {tries};0 qo0%2 {tries};0 0 {tries}")
        self.assertEqual(self.retries(), [])

    def test_new_ones_with_old_ones(self) -> None:
        """New messages have no tries, so the queue has none."""
        self.send(b"0")
        self.pop(order=True)
        self.send(b"1")
        self.box.now_ms += 6000
        reply = self.ask_pop(order=True)
        self.assertEqual(reply.header(PopMessageResponseHeader).order_count_info, "0 qo0%0 1;0 0 0")

    def test_same_attempt(self) -> None:
        """A repeated pop with the same attempt id gets the same messages, without a new try."""
        self.send_some(2, 1)
        self.pop(order=True, attempt="a")
        self.assertEqual(self.pop(order=True, attempt="b"), [])
        reply = self.ask_pop(order=True, attempt="a")
        self.assertEqual(reply.header(PopMessageResponseHeader).order_count_info, "0 0 0")

    def test_no_time_hides_a_queue_for_ever(self) -> None:
        """A time that no message can wait for is refused, in a pop and in a change of one."""
        self.restart(timerMaxDelaySec="600")
        self.send(b"x")
        for invisible_ms in (2**62, 600_001, -1, -2**62):
            for order in (True, False):
                reply = self.ask_pop(order=order, invisible_ms=invisible_ms)
                self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)
                self.assertIn("timerMaxDelaySec", reply.remark or "")
        [popped] = self.pop(order=True, invisible_ms=600_000)
        for invisible_ms in (2**62, 600_001, -1):
            reply = self.box.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.change_header(
                popped, invisible_ms))
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("timerMaxDelaySec", reply.remark or "")
        self.box.now_ms += 600_000
        [popped] = self.pop(order=True)
        self.hide(popped, 600_000)
        self.box.now_ms += 600_000
        self.assertEqual([each.body for each in self.pop(order=True)], [b"x"])

    def test_a_saved_time_without_an_end_is_bounded_at_a_start(self) -> None:
        """A file that another broker wrote hides a queue no longer than a pop could now."""
        self.send_some(2, 1)
        popped = self.pop(order=True, invisible_ms=1000)
        self.hide(popped[1], 2000)
        self.box.stop()
        saved = self.disk.read_file(FILE).decode()
        self.assertIn('"i":1000', saved)
        hidden = f":{self.box.now_ms + 2000}"
        self.assertIn(hidden, saved)
        saved = saved.replace('"i":1000', f'"i":{2**62}').replace(hidden, f":{2**62}")
        self.disk.write_file_atomically(FILE, saved.encode())
        self.box = self.start(timerMaxDelaySec="600")
        self.assertEqual(self.pop(order=True), [])
        self.box.now_ms += 600_000
        self.assertEqual([each.body for each in self.pop(order=True)], [b"0", b"1"])

    def test_long_attempt(self) -> None:
        """A very long attempt id is refused, because it would be kept and saved."""
        self.send_some(2, 1)
        long = "a" * (ATTEMPT_ID_LENGTH_MAX + 1)
        self.assertEqual(self.ask_pop(order=True, attempt=long).code,
                         ResponseCode.INVALID_PARAMETER)
        notify = NotificationRequestHeader(
            consumer_group="g", topic="T", queue_id=-1, poll_time=0, order=True, attempt_id=long)
        self.assertEqual(self.box.ask(RequestCode.NOTIFICATION, notify).code,
                         ResponseCode.INVALID_PARAMETER)
        self.assertEqual(len(self.pop(order=True, attempt=long[1:])), 2)

    def test_saved_on_a_thread(self) -> None:
        """The reactor encodes the changed rows; a thread joins and saves them."""
        jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

        def in_thread(job: Callable[[], None]) -> Deferred[None]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        self.send_some(2, 1)
        self.pop(order=True)
        self.run_task("save topics and groups")
        self.patch(self.box.kernel.saves, "_in_thread", in_thread)
        self.run_task("save the pops of ordered groups")
        self.assertFalse(self.disk.exists(FILE))
        [(job, done)] = jobs
        job()
        self.assertIn(b'"T@g"', self.disk.read_file(FILE))
        done.callback(None)

    def test_the_order_info_survives_a_stop_and_a_kill(self) -> None:
        """The queue is locked after a stop, and after a kill if the lock was saved."""
        self.send_some(2, 1)
        popped = self.pop(order=True, count=1)
        self.restart()
        self.assertEqual(self.pop(order=True), [])
        [task] = [each for each in self.box.kernel.periodic_tasks
                  if each.name == "save the pops of ordered groups"]
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 10_000))
        self.run_task(task.name)
        self.after_kill()
        self.assertEqual(self.pop(order=True), [])
        self.ack(*popped)
        self.assertEqual([each.body for each in self.pop(order=True)], [b"1"])

    def test_the_order_file_has_the_form_of_5_3_3(self) -> None:
        """The file has the form of 5.3.3."""
        self.send_some(3, 1)
        now_ms = self.box.now_ms
        popped = self.pop(order=True, attempt="a")
        self.ack(popped[0])
        self.hide(popped[2], 1000)
        self.run_task("save the pops of ordered groups")
        self.assertEqual(self.disk.read_file(FILE).decode(), (
            '{\n\t"table":{\n\t\t"T@g":{0:{\n\t\t\t\t"a":"a",\n\t\t\t\t"cm":1,\n\t\t\t\t"i":5000,\n'
            f'\t\t\t\t"l":{now_ms},\n\t\t\t\t"o":[\n\t\t\t\t\t0,\n\t\t\t\t\t1,\n\t\t\t\t\t2\n'
            f'\t\t\t\t],\n\t\t\t\t"ot":{{2:{now_ms + 1000}\n\t\t\t\t}},\n'
            f'\t\t\t\t"popTime":{now_ms}\n\t\t\t}}\n\t\t}}\n\t}}\n}}'))

    def test_damaged_file(self) -> None:
        """A file that cannot be read stops the start."""
        self.send(b"x")
        self.pop(order=True)
        self.box.stop()
        self.disk.write_file_atomically(FILE, b"{", keep_backup=False)
        self.assertRaises(StoreDamaged, self.start)
        self.disk.remove(FILE)
        self.box = self.start()

    def test_topics_groups_and_queues_that_are_gone(self) -> None:
        """Rows of deleted topics, groups and queues are removed, and those unused for a day."""
        for number in range(3):
            self.send(b"x", queue_id=number)
        self.pop(order=True)
        self.pop(order=True, group="gone")
        self.box.kernel.subscription_group.delete("gone")
        self.box.kernel.topic_config.table["T"].read_queue_nums = 2
        self.restart()
        table = self.service.state.orders._table
        self.assertEqual({key: sorted(queues) for key, queues in table.items()}, {"T@g": [0, 1]})
        self.box.now_ms += 24 * 3_600_000 + 1
        self.pop(1, order=True)
        self.restart()
        self.assertEqual(sorted(self.service.state.orders._table["T@g"]), [1])

    def test_reset_opens(self) -> None:
        """An offset that an administrator sets opens the queue."""
        self.send_some(3, 1)
        self.pop(order=True)
        self.box.kernel.consumer_offset.reset("g", "T", 0, 2)
        self.assertEqual([each.body for each in self.pop(order=True)], [b"2"])

    def test_woken_when_visible(self) -> None:
        """A waiting pop gets messages that become visible, or that an acknowledgement unlocks."""
        self.send_some(2, 1)
        self.pop(order=True, count=1)
        peer = self.box.peer()
        self.wait_pop(peer, order=True, count=1, poll_ms=20_000)
        self.pass_time(4500)
        self.assertEqual(peer.written, [])
        self.pass_time(1000)
        [reply] = self.box.late_replies(peer)
        self.assertEqual(reply.header(PopMessageResponseHeader).msg_offset_info, "0 0 0")
        other = self.box.peer()
        self.wait_pop(other, order=True, count=1, poll_ms=20_000)
        self.ack(*popped_of(reply))
        [following] = self.box.late_replies(other)
        self.assertEqual(following.header(PopMessageResponseHeader).msg_offset_info, "0 0 1")
