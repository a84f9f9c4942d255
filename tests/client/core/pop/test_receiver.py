"""Messages that a program receives, and whose results it decides itself."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.pop_box import BROKER, PopBox
from twistmq.client.base.errors import Closed, OptionError, ReceiptExpired, RequestRefused
from twistmq.client.base.interceptors import Interceptor, Interceptors
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Cancelled
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.headers.pop import PopMessageResponseHeader


class Outcomes(Interceptor):
    """An interceptor that records the results of messages."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, str]] = []

    def after_consume(self, group: str, queue: Any, messages: Any, outcome: str) -> None:
        """See ``Interceptor``."""
        self.outcomes += [(int(message.body), outcome) for message in messages]


class ReceiveCase(SynchronousTestCase):
    """Ten messages in two queues."""

    def setUp(self) -> None:
        """Start a member."""
        self.box = PopBox(invisible_s=10)
        self.broker = self.box.broker
        self.receiving = self.box.pop.receiver
        for number in range(10):
            self.broker.put(b"%d" % number, number % 2)
        self.box.start()

    def receive(
        self, most: int = 100, wait_ms: float = 0, invisible_ms: float | None = None
    ) -> list[ReceivedMessage[bytes]]:
        """Receive messages."""
        batches = self.box.run(self.receiving.receive(most, invisible_ms, wait_ms))
        return [message for batch in batches for message in batch.messages]

    def bodies(self, *arguments: Any, **options: Any) -> list[int]:
        """Receive messages; :returns: their bodies as numbers."""
        return sorted(int(message.body) for message in self.receive(*arguments, **options))


class ReceiveTests(ReceiveCase):
    """The receive calls."""

    def test_a_receive_returns_at_most_what_was_asked_for(self) -> None:
        """The next call returns the rest of the pop without another one."""
        self.assertEqual(len(self.receive(3)), 3)
        self.assertEqual(len(self.receive(4)), 4)
        self.assertEqual(len(self.receive()), 3)
        self.assertEqual(len(self.broker.pops), 1)
        self.assertEqual(self.receive(), [])

    def test_a_receive_waits_for_its_time(self) -> None:
        """Without a time-out each source is asked once; the broker holds a pop no longer."""
        self.receive()
        begin_ms = self.box.clock.now_ms
        self.assertEqual(self.receive(), [])
        self.assertEqual(self.box.clock.now_ms, begin_ms)
        self.assertEqual(self.broker.pops[-1].poll_time, 0)
        self.broker.put(b"10")
        self.box.tasks_later(300, self.broker.put, b"11")
        self.assertEqual(self.bodies(wait_ms=2000), [10])
        count = len(self.broker.pops)
        waiting = self.box.engine.tasks.spawn(self.receiving.receive(1, None, 2000))
        self.box.settle()
        self.assertEqual(self.broker.pops[count].poll_time, 2000)
        self.box.advance(6000)
        self.assertEqual(waiting.result(), [])

    def test_a_broker_that_does_not_answer_does_not_hold_a_receive_up(self) -> None:
        """It ends soon after its time-out."""
        self.broker.silent = {RequestCode.POP_MESSAGE}
        begin_ms = self.box.clock.now_ms
        self.assertEqual(self.receive(wait_ms=1000), [])
        self.assertLessEqual(self.box.clock.now_ms - begin_ms, 1000 + 3000)

    def test_a_receive_whose_time_is_over_begins_no_other_pop(self) -> None:
        """It then ends with the open pop, however long that is held."""
        self.receive()
        self.broker.silent = {RequestCode.POP_MESSAGE}
        count = len(self.broker.pops)
        waiting = self.box.engine.tasks.spawn(self.receiving.receive(1, None, 1000))
        self.box.settle()
        while not waiting.is_done:
            self.box.advance(300)
            pops = [request for _, request in self.box.requests
                    if request.code == RequestCode.POP_MESSAGE]
            self.box.reply(BROKER, pops[-1], ResponseCode.POLLING_TIMEOUT,
                           PopMessageResponseHeader(0, 0, 0, 0))
            self.box.settle()
        self.assertEqual(waiting.result(), [])
        # They end after 300, 600, 900 and 1200 ms.
        self.assertEqual(len(self.broker.pops) - count, 4)

    def test_messages_are_hidden_for_as_long_as_is_asked_for(self) -> None:
        """Messages that waited here are included; without an argument the option counts."""
        self.receive(1)
        self.receive(1, invisible_ms=25_000)
        self.assertEqual([change.invisible_time for change in self.broker.changes], [25_000])
        self.box.advance(12_000)
        # The first is visible again, and eight that were not received.
        self.assertEqual(len(self.broker.open()), 9)
        self.receive(100, invisible_ms=40_000)
        self.assertEqual(self.broker.pops[-1].invisible_time, 40_000)

    def test_a_message_without_a_word_comes_again(self) -> None:
        """It is not hidden for longer, and makes room when its time is over."""
        first = self.receive(1)[0]
        self.box.advance(11_500)
        self.assertTrue(first.lost)
        self.assertEqual(self.box.member.delivery.running, 0)
        self.assertIn(int(first.body), self.broker.open())
        with self.assertRaises(ReceiptExpired):
            self.box.run(self.receiving.acknowledge([first]))
        again = [each for each in self.receive() if each.body == first.body]
        self.assertEqual([each.attempt for each in again], [2])

    def test_a_receive_that_is_cancelled_loses_nothing(self) -> None:
        """While it waits, and while it hides messages for longer."""
        self.assertEqual(len(self.receive(2)), 2)
        self.broker.silent = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        waiting = self.box.engine.tasks.spawn(self.receiving.receive(8, 30_000, 0))
        self.box.settle()
        waiting.cancel()
        self.box.settle()
        self.assertIsInstance(waiting.error, Cancelled)
        self.broker.silent = set()
        self.assertEqual(len(self.receive(8)), 8)
        waiting = self.box.engine.tasks.spawn(self.receiving.receive(8, None, 60_000))
        self.box.settle()
        waiting.cancel()
        self.box.settle()
        self.assertEqual(self.box.pop.popping._demands, [])

    def test_what_a_program_did_not_get_is_handed_out_again(self) -> None:
        """A shell reports it if its caller was cancelled at the last moment."""
        batches = self.box.run(self.receiving.receive(100, None, 0))
        self.receiving.unreceive(batches)
        self.assertEqual(self.bodies(), list(range(10)))

    def test_what_has_no_meaning_is_an_error(self) -> None:
        """The number is 0, or the time is negative or a month."""
        for arguments in ((0, None, 0), (1, None, -1), (1, 0, 0), (1, 3_000_000_000, 0)):
            with self.assertRaises(OptionError):
                self.box.run(self.receiving.receive(*arguments))
        [message] = self.receive(1)
        with self.assertRaises(OptionError):
            self.box.run(self.receiving.retry(message, -1))


class DecisionTests(ReceiveCase):
    """Received messages that are acknowledged, extended, given back or expire."""

    def test_acknowledged_messages_do_not_come_again(self) -> None:
        """Several messages of one check point need one request."""
        self.box.run(self.receiving.acknowledge(self.receive()))
        self.assertEqual((sorted(self.broker.acks), self.broker.batches), (list(range(10)), 1))
        self.box.advance(60_000)
        self.assertEqual(self.broker.open(), [])
        self.assertEqual([assigned.window.count
                          for assigned in self.box.member.assigned_queues.values()
                          if assigned.window.count], [])

    def test_a_batch_that_the_broker_refuses_is_told_to_the_program(self) -> None:
        """None of its messages is finished, so they are delivered again."""
        self.broker.refusals = {RequestCode.BATCH_ACK_MESSAGE: ResponseCode.SYSTEM_ERROR}
        with self.assertRaises(RequestRefused):
            self.box.run(self.receiving.acknowledge(self.receive()))
        self.assertEqual((self.broker.acks, self.broker.batches), ([], 0))
        self.box.advance(10_000)
        self.assertEqual(self.broker.open(), list(range(10)))

    def test_a_batch_that_nobody_answers_is_told_to_the_program(self) -> None:
        """It is sent again as often as the options permit."""
        self.broker.silent = {RequestCode.BATCH_ACK_MESSAGE}
        messages = self.receive(invisible_ms=600_000)
        with self.assertRaises(RemotingError):
            self.box.run(self.receiving.acknowledge(messages))
        self.assertEqual(self.broker.batches, 1 + self.box.core.options.retries)

    def test_a_batch_that_the_broker_is_too_busy_for_is_sent_again(self) -> None:
        """The call ends when the broker has accepted it, and not earlier."""
        self.broker.refusals = {RequestCode.BATCH_ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        messages = self.receive()
        acknowledging = self.box.engine.tasks.spawn(self.receiving.acknowledge(messages))
        self.box.settle()
        self.assertFalse(acknowledging.is_done)
        self.broker.refusals = {}
        self.box.advance(self.box.core.options.retry_wait_ms)
        self.assertTrue(acknowledging.is_done)
        self.assertIsNone(acknowledging.error)
        self.assertEqual((sorted(self.broker.acks), self.broker.batches), (list(range(10)), 1))

    def test_a_second_result_of_a_message_is_an_error(self) -> None:
        """The other messages of the call are acknowledged."""
        first, second = self.receive(2)
        self.box.run(self.receiving.acknowledge([first]))
        for decide in (lambda: self.receiving.extend(first, 1000),
                       lambda: self.receiving.retry(first, None),
                       lambda: self.receiving.bury(first),
                       lambda: self.receiving.acknowledge([first, second])):
            with self.assertRaises(ReceiptExpired):
                self.box.run(decide())
        self.assertEqual(self.broker.acks, [int(first.body), int(second.body)])

    def test_a_message_is_hidden_for_longer(self) -> None:
        """Its new receipt acknowledges it."""
        [message] = self.receive(1)
        for _ in range(5):
            self.box.run(self.receiving.extend(message, 20_000))
            self.box.advance(19_000)
        self.box.run(self.receiving.acknowledge([message]))
        self.assertEqual(self.broker.acks, [int(message.body)])

    def test_a_message_is_given_back_for_a_later_time(self) -> None:
        """It is delivered at once, after a delay, or by its attempts."""
        for delay_ms, expected in ((0, 0), (700, 700), (None, 10_000)):
            [message] = self.receive(1)
            self.box.run(self.receiving.retry(message, delay_ms))
            self.assertEqual(self.broker.changes[-1].invisible_time, expected)

    def test_a_message_that_was_tried_too_often_is_dead(self) -> None:
        """The program may also ask for it."""
        box = PopBox(max_attempts=1)
        box.broker.put(b"1")
        box.broker.put(b"2")
        box.start()
        receiving = box.pop.receiver
        for first, second in (box.run(receiving.receive(2, None, 0))[0].messages,):
            box.run(receiving.retry(first, 0))
            box.run(receiving.bury(second))
        [again] = box.run(receiving.receive(2, None, 0))[0].messages
        box.run(receiving.retry(again, None))
        self.assertEqual([each.offset for each in box.broker.sent_back], [1, 0])
        self.assertEqual(box.broker.acks, [2, 1])

    def test_the_errors_of_a_broker_reach_the_program(self) -> None:
        """The broker refuses, or is down."""
        [message] = self.receive(1)
        self.broker.refusals = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
                                ResponseCode.MESSAGE_ILLEGAL}
        with self.assertRaises(RequestRefused):
            self.box.run(self.receiving.extend(message, 1000))
        del self.box.servers[BROKER]
        self.box.cut(BROKER)
        with self.assertRaises(RemotingError):
            self.box.run(self.receiving.acknowledge([message]))

    def test_a_message_of_another_consumer_is_an_error(self) -> None:
        """The message was not popped."""
        [popped] = self.receive(1)
        message = ReceivedMessage[bytes](popped.record, popped.queue, 0, "T")
        with self.assertRaises(OptionError):
            self.box.run(self.receiving.acknowledge([message]))

    def test_interceptors_see_the_results(self) -> None:
        """An interceptor sees the same results as with handlers."""
        seen = Outcomes()
        self.box.core.interceptors = Interceptors((seen,))
        first, second, third = self.receive(3)
        self.box.run(self.receiving.acknowledge([first]))
        self.box.run(self.receiving.retry(second, 0))
        self.box.advance(11_000)
        self.assertEqual(seen.outcomes, [(int(first.body), "success"), (int(second.body), "retry"),
                                         (int(third.body), "time-out")])

    def test_an_acknowledgement_counts_when_the_broker_took_it(self) -> None:
        """Interceptors get the result then; after an error the call may be repeated."""
        seen = Outcomes()
        self.box.core.interceptors = Interceptors((seen,))
        [message] = self.receive(1)
        self.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.MESSAGE_ILLEGAL}
        with self.assertRaises(RequestRefused):
            self.box.run(self.receiving.acknowledge([message]))
        del self.box.servers[BROKER]
        self.box.cut(BROKER)
        with self.assertRaises(RemotingError):
            self.box.run(self.receiving.acknowledge([message]))
        self.assertEqual((seen.outcomes, self.broker.acks), ([], []))
        self.box.servers[BROKER] = self.broker
        self.broker.refusals = {}
        with self.assertRaises(ReceiptExpired):
            # The same one twice.
            self.box.run(self.receiving.acknowledge([message, message]))
        self.assertEqual(seen.outcomes, [(int(message.body), "success")])
        self.assertEqual(len(self.broker.acks), 1)
        with self.assertRaises(ReceiptExpired):
            self.box.run(self.receiving.acknowledge([message]))

    def test_a_close_during_an_acknowledgement(self) -> None:
        """The message is not made visible again, and the result is reported."""
        seen = Outcomes()
        self.box.core.interceptors = Interceptors((seen,))
        first, _ = self.receive(2)
        acknowledging = self.box.engine.tasks.spawn(self.receiving.acknowledge([first]))
        self.box.run(self.box.member.close(10_000))
        self.assertTrue(acknowledging.is_done and acknowledging.error is None)
        self.assertEqual(seen.outcomes, [(int(first.body), "success")])
        self.assertEqual((len(self.broker.acks), len(self.broker.open())), (1, 9))

    def test_a_close_gives_back_what_has_no_result(self) -> None:
        """The close does not wait for results."""
        first = self.receive(3)[0]
        self.box.run(self.receiving.acknowledge([first]))
        begin_ms = self.box.clock.now_ms
        self.box.run(self.box.member.close(10_000))
        self.assertLess(self.box.clock.now_ms - begin_ms, 1000)
        self.assertEqual(len(self.broker.open()), 9)
        with self.assertRaises(Closed):
            self.receive()
        with self.assertRaises(ReceiptExpired):
            self.box.run(self.receiving.acknowledge([first]))
