"""Signal handlers that use a client: they run in the middle of any step of the main thread.

See ``tests/REPORTS.md``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_exits import BLOCKING, ExitCase

#: A producer whose handler sends and flushes, as soon after its last call as a timer can be.
SENDING = BLOCKING + """
import faulthandler, signal, time
faulthandler.dump_traceback_later(20, exit=True)
producer = Producer(WHERE, auto_batch=len(sys.argv) > 2)
sent = refused = calls = 0

def handle(*_):
    global sent, refused, calls
    calls += 1
    producer.send_soon("T", b"from the handler")
    sent += 1
    if calls % 20 == 0:
        producer.send("T", b"from the handler")
        sent += 1
    if calls % 20 == 10:
        try:
            producer.flush(10)
        except RuntimeError:
            refused += 1
    if not is_over:
        signal.setitimer(signal.ITIMER_REAL, 0.0002)

is_over = False
producer.send("T", b"the first")
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0002)
count, end = 1, time.monotonic() + 0.8
while time.monotonic() < end:
    producer.send_soon("T", b"x" * 100)
    count += 1
is_over = True
signal.setitimer(signal.ITIMER_REAL, 0)
producer.flush(10)
producer.close()
assert calls > 20, calls
assert refused == 0 or len(sys.argv) > 2, refused
print(count + sent)
"""
#: A program that waits for futures in every way; its handlers send, receive, poll and flush.
WAITING = BLOCKING + """
import faulthandler, signal, time
from concurrent.futures import as_completed, wait
from twistmq.client import PullConsumer
faulthandler.dump_traceback_later(30, exit=True)
producer = Producer(WHERE, auto_batch=len(sys.argv) > 2)
consumer = PullConsumer(WHERE, group=f"g{len(sys.argv)}", topics="T", start="first")
sent = calls = called = 0

def handle(*_):
    global sent, calls
    calls += 1
    future = producer.send_soon("T", b"from the handler")
    sent += 1
    if calls % 2:
        try:
            future.result(10)
        except TimeoutError:
            # The call that was interrupted fills the batch.
            assert len(sys.argv) > 2
    else:
        consumer.poll(1, 0)
    if not is_over:
        signal.setitimer(signal.ITIMER_REAL, 0.002)

def call_back(future):
    global called
    called += 1

is_over = False
producer.send("T", b"the first")
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.002)
count, end = 1, time.monotonic() + 0.8
while time.monotonic() < end:
    futures = [producer.send_soon("T", b"x" * 100) for _ in range(4)]
    count += 4
    for each in futures:
        each.add_done_callback(call_back)
    futures[0].result(10)
    assert len(list(as_completed(futures[:2], 10))) == 2
    assert not wait(futures, 10).not_done
is_over = True
signal.setitimer(signal.ITIMER_REAL, 0)
producer.flush(10)
consumer.close()
producer.close()
assert calls > 20, calls
assert called == count - 1, (called, count)
print(count + sent)
"""
#: A consumer whose handler closes it while it waits for messages.
CLOSING = BLOCKING + """
import faulthandler, signal
faulthandler.dump_traceback_later(20, exit=True)
consumer = Consumer(WHERE, group="g", topics="T", start="first")
signal.signal(signal.SIGALRM, lambda *_: consumer.close())
for message in consumer:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
print("ended")
"""


class SignalTests(ExitCase):
    """dpkp/kafka-python#2086: a close in a signal handler waits for a lock for ever."""

    def test_a_handler_sends_and_flushes_in_the_middle_of_a_send(self) -> Deferred[Any]:
        """The main thread had the producer's lock, and each side waited for the other."""
        def run() -> None:
            before = 0
            for arguments in ((), ("batches",)):
                done = self.run_program(SENDING, *arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""), msg=done.stderr)
                stored = self.stored()
                self.assertEqual(stored - before, int(done.stdout))
                before = stored

        return self.in_thread(run)

    def test_a_handler_sends_and_polls_in_the_middle_of_a_wait(self) -> Deferred[Any]:
        """The main thread waits for futures, which must end in the meantime."""
        def run() -> None:
            before = 0
            for arguments in ((), ("batches",)):
                done = self.run_program(WAITING, *arguments)
                # The consumer may say that it waits for the topic.
                self.assertEqual(done.returncode, 0, msg=done.stderr)
                stored = self.stored()
                self.assertEqual(stored - before, int(done.stdout))
                before = stored

        return self.in_thread(run)

    def test_a_handler_closes_the_consumer_that_waits(self) -> Deferred[Any]:
        """The loop ends, and then the program."""
        def run() -> None:
            done = self.run_program(BLOCKING + 'Producer(WHERE).send("T", b"x")')
            self.assertEqual(done.returncode, 0, msg=done.stderr)
            done = self.run_program(CLOSING)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ended\n", ""))

        return self.in_thread(run)
