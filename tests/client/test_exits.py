"""Programs that end without a close: their messages are sent, or their loss is reported."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from twistmq.client import Client, Producer

#: The beginning of each program; ``WHERE`` is the name server.
BLOCKING = """
import sys
from twistmq.client import Consumer, Message, PopConsumer, Producer, PullConsumer
WHERE = sys.argv[1]
"""
LOOPS = """
import asyncio, sys
from twistmq.client import aio, tx
WHERE = sys.argv[1]
"""


class ExitCase(ShellCase):
    """Programs of their own processes against one broker."""

    def run_program(
        self, program: str, *arguments: str, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run([sys.executable, *options, "-c", program, self.where, *arguments],
                              capture_output=True, text=True, timeout=50, check=False)

    def stored(self, topic: str = "T") -> int:
        """Return the number of messages of a topic."""
        with Client(self.where) as client:
            return sum(client.max_offset(queue) for queue in client.read_queues(topic))

    def check(self, program: str, stored: int, *, status: int = 0, said: str = "") -> None:
        """Run a program, and compare the stored messages, its status and its output."""
        done = self.run_program(program)
        self.assertEqual((self.stored(), done.returncode), (stored, status), msg=done.stderr)
        if said:
            self.assertIn(said, done.stderr)
        else:
            self.assertEqual(done.stderr, "")


class BlockingExitTests(ExitCase):
    """The blocking style."""

    def test_messages_of_send_soon_are_stored(self) -> Deferred[Any]:
        """They wait for a route, are in batches, or belong to deleted producers."""
        def run() -> None:
            self.check(BLOCKING + """
def main():
    for number in range(3):
        producer = Producer(WHERE, group=f"p{number}", auto_batch=number == 1)
        for _ in range(300):
            producer.send_soon("T", b"x" * 2000)
main()
""", 900)

        return self.in_thread(run)

    def test_functions_of_atexit_that_run_last_may_send(self) -> Deferred[Any]:
        """They were registered before the client was imported, as those of ``logging`` are."""
        def run() -> None:
            self.check("""
import atexit, sys
producers = []

def send_last():
    for producer in producers:
        for _ in range(20):
            producer.send_soon("T", b"last")

atexit.register(send_last)
from twistmq.client import Producer
producers += [Producer(sys.argv[1], group=f"p{at}", auto_batch=bool(at)) for at in range(2)]
producers[0].send("T", b"first")
""", 41)

        return self.in_thread(run)

    def test_what_is_sent_too_late_is_refused(self) -> Deferred[Any]:
        """No thread runs any more when the interpreter deletes the last objects."""
        def run() -> None:
            for number, last in enumerate((
                    "send_soon('T', b'x')", "send('T', b'x')", "client.max_offset(queue)"), 1):
                self.check(BLOCKING + f"""
class Last:
    def __del__(self):
        producer.{last}

producer = Producer(WHERE)
queue = producer.send("T", b"first").queue
last = Last()
""", number, said="the program has ended, so the client can do nothing more")

        return self.in_thread(run)

    def test_no_client_is_made_too_late(self) -> Deferred[Any]:
        """The thread of the first client would never start."""
        def run() -> None:
            done = self.run_program(BLOCKING + """
class Last:
    def __del__(self):
        Producer(WHERE)

last = Last()
""")
            self.assertEqual(done.returncode, 0)
            self.assertIn("the program has ended, so no client can be made", done.stderr)

        return self.in_thread(run)

    def test_a_close_by_the_last_object_does_nothing(self) -> Deferred[Any]:
        """By a destructor, or by a generator that was left in a block; it used to wait forever."""
        def run() -> None:
            self.check(BLOCKING + """
class Last:
    def __init__(self, member):
        self.member = member

    def __del__(self):
        self.member.close()

def left():
    with Producer(WHERE) as producer:
        yield producer

generator = left()
producer = next(generator)
producer.send("T", b"x")
lasts = [Last(kind(WHERE, group=kind.__name__, topics="T"))
         for kind in (Consumer, PullConsumer, PopConsumer)]
lasts += [Last(producer), Last(producer.client)]
for _ in range(20):
    producer.send_soon("T", b"x")
""", 21)

        return self.in_thread(run)

    def test_an_end_that_is_interrupted_tells_what_is_lost(self) -> Deferred[Any]:
        """Ctrl-C, or a handler of SIGTERM, interrupts the end, which waits for a name server."""
        def run() -> None:
            for interrupt in ("raise KeyboardInterrupt", "sys.exit(3)"):
                done = self.run_program(BLOCKING + f"""
import atexit, signal, socket

def interrupt(*_):
    {interrupt}

silent = socket.create_server(("127.0.0.1", 0))
signal.signal(signal.SIGALRM, interrupt)
producer = Producer("127.0.0.1:%d" % silent.getsockname()[1], timeout_s=30)
for _ in range(5):
    producer.send_soon("T", b"x")
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.2)
""")
                self.assertIn("5 messages of send_soon have no answer", done.stderr)
                self.assertNotIn("Traceback", done.stderr)

        return self.in_thread(run)

    def test_a_name_server_with_a_name_is_reached(self) -> Deferred[Any]:
        """The interpreter starts no thread for the look-up any more."""
        def run() -> None:
            self.check(BLOCKING + """
producer = Producer(WHERE.replace("127.0.0.1", "localhost"))
for _ in range(100):
    producer.send_soon("T", b"x")
""", 100)

        return self.in_thread(run)

    def test_an_error_and_sys_exit_end_a_program_in_order(self) -> Deferred[Any]:
        """With messages under way and a message sent one-way."""
        def run() -> None:
            begin = """
producer = Producer(WHERE)
for _ in range(50):
    producer.send_soon("T", b"x")
"""
            self.check(BLOCKING + begin + "sys.exit(3)", 50, status=3)
            self.check(BLOCKING + begin + "raise ValueError('the end')", 100, status=1,
                       said="ValueError: the end")

        return self.in_thread(run)

    def test_a_one_way_message_goes_out_before_the_end(self) -> Deferred[Any]:
        """No connection to the broker is open when the program ends."""
        def run() -> None:
            done = self.run_program(BLOCKING + """
producer = Producer(WHERE)
producer.send_oneway("T", b"x" * 1000)
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.wait_stored(1)

        return self.in_thread(run)

    def test_the_end_of_a_transaction_goes_out(self) -> Deferred[Any]:
        """The broker need not ask, and the message is delivered at once."""
        def run() -> None:
            done = self.run_program(BLOCKING + """
producer = Producer(WHERE, on_check=lambda message: None)
with producer.transaction("T", b"paid"):
    pass
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.wait_stored(1)

        return self.in_thread(run)

    def wait_stored(self, count: int) -> None:
        """Wait for messages without an answer."""
        deadline = time.monotonic() + 10
        while self.stored() < count and time.monotonic() < deadline:
            pass
        self.assertEqual(self.stored(), count)

    def test_children_finish_their_own_messages_and_not_their_parents(self) -> Deferred[Any]:
        """A fork and ``multiprocessing`` are tested; the latter calls no ``atexit``."""
        def run() -> None:
            self.check(BLOCKING + """
import multiprocessing, os

def child(count):
    producer = Producer(WHERE, group="child")
    for _ in range(count):
        producer.send_soon("T", b"child")

producer = Producer(WHERE, group="parent")
for _ in range(7):
    producer.send_soon("T", b"parent")
if os.fork() == 0:
    child(20)
    sys.exit(0)
assert os.wait()[1] == 0
for count in (300, 1):
    process = multiprocessing.get_context("fork").Process(target=child, args=(count,))
    process.start()
    process.join()
    assert process.exitcode == 0
""", 328)

        return self.in_thread(run)

    def test_results_of_consumers_are_committed(self) -> Deferred[Any]:
        """A program that ends commits what its consumer iterated over, polled or acknowledged."""
        def run() -> None:
            with Producer(self.where) as producer:
                for _ in range(8):
                    producer.send("T", b"x")
            done = self.run_program(BLOCKING + """
iterating = Consumer(WHERE, group="iterating", topics="T", start="first")
found = iter(iterating)
for _ in range(8):
    next(found)
polling = PullConsumer(WHERE, group="polling", topics="T", start="first")
count = 0
while count < 8:
    count += len(polling.poll())
polling.poll(timeout_s=0)
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with Client(self.where) as client:
                queues = client.read_queues("T")
                for group, count in (("iterating", 7), ("polling", 8)):
                    offsets = [client.group_offset(group, queue) or 0 for queue in queues]
                    self.assertEqual(sum(offsets), count, msg=group)

        return self.in_thread(run)

    def test_what_could_not_be_sent_is_said(self) -> Deferred[Any]:
        """A line is printed at the end of the program within its time, and at a close."""
        def run() -> None:
            begin = time.monotonic()
            done = self.run_program(BLOCKING + """
producer = Producer("127.0.0.1:1", group="lost", timeout_s=1)
for _ in range(10):
    producer.send_soon("T", b"x")
""")
            self.assertLess(time.monotonic() - begin, 15)
            self.assertIn("producer group lost: 10 messages of send_soon failed",
                          done.stderr)
            done = self.run_program(BLOCKING + """
for look in (0, 1):
    with Producer("127.0.0.1:1", group=f"closed{look}", timeout_s=1, auto_batch=True) as producer:
        waiting = [producer.send_soon("T", b"x") for _ in range(5)]
    if look:
        waiting[0].exception()
""")
            self.assertIn("producer group closed0: 5 messages", done.stderr)

        return self.in_thread(run)

    def test_errors_that_the_program_looked_at_are_not_said_again(self) -> Deferred[Any]:
        """The program asked for the result, or gave a function that gets it."""
        def run() -> None:
            done = self.run_program(BLOCKING + """
for batched in (False, True):
    producer = Producer("127.0.0.1:1", group="known", timeout_s=0.3, auto_batch=batched)
    asked = producer.send_soon("T", b"x")
    asked.exception()
    told = producer.send_soon("T", b"x")
    told.add_done_callback(lambda future: None)
""")
            self.assertEqual(done.stderr, "")

        return self.in_thread(run)


class LoopExitTests(ExitCase):
    """The shells of asyncio and Twisted."""

    def test_a_loop_of_asyncio_waits_for_its_messages(self) -> Deferred[Any]:
        """Without a connection, with batches, and with sends that were only begun."""
        def run() -> None:
            self.check(LOOPS + """
async def main():
    for number in range(3):
        producer = aio.Producer(WHERE, group=f"p{number}", auto_batch=number == 1)
        for _ in range(100):
            await producer.send_soon("T", b"x" * 2000)
    task = asyncio.create_task(producer.send("T", b"begun"))
    await asyncio.sleep(0)
asyncio.run(main())
""", 301)

        return self.in_thread(run)

    def test_an_error_ends_a_loop_of_asyncio_in_order(self) -> Deferred[Any]:
        """While connections are being made, which ``asyncio.run`` cancels."""
        def run() -> None:
            self.check(LOOPS + """
async def main():
    producer = aio.Producer(WHERE)
    for _ in range(100):
        await producer.send_soon("T", b"x")
    await asyncio.sleep(0)
    sys.exit(3)
asyncio.run(main())
""", 100, status=3)

        return self.in_thread(run)

    def test_a_loop_that_is_only_left_has_it_said(self) -> Deferred[Any]:
        """It closed no generators, so nothing could be sent."""
        def run() -> None:
            done = self.run_program(LOOPS + """
async def main():
    producer = aio.Producer(WHERE, group="left")
    for _ in range(100):
        await producer.send_soon("T", b"x")
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
""")
            self.assertIn("producer group left: 100 messages of send_soon have no answer",
                          done.stderr)

        return self.in_thread(run)

    def test_a_loop_on_a_thread_finishes_its_messages(self) -> Deferred[Any]:
        """The loop still runs when the main thread ends."""
        def run() -> None:
            self.check(LOOPS + """
import threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def main():
    producer = aio.Producer(WHERE)
    for _ in range(100):
        await producer.send_soon("T", b"x")
asyncio.run_coroutine_threadsafe(main(), loop).result()
""", 100)

        return self.in_thread(run)

    def test_a_reactor_waits_for_its_messages(self) -> Deferred[Any]:
        """``react`` runs the reactor, or the program stops it."""
        def run() -> None:
            self.check(LOOPS + """
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react

async def main(reactor):
    producer = tx.Producer(WHERE, reactor=reactor, auto_batch=True)
    for _ in range(100):
        await producer.send_soon("T", b"x")
react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
""", 100)
            self.check(LOOPS + """
from twisted.internet import reactor
from twisted.internet.defer import ensureDeferred

async def main():
    producer = tx.Producer(WHERE, reactor=reactor)
    for _ in range(100):
        await producer.send_soon("T", b"x")
    reactor.stop()
reactor.callWhenRunning(lambda: ensureDeferred(main()))
reactor.run()
""", 200)

        return self.in_thread(run)

    def test_results_of_a_consumer_are_committed(self) -> Deferred[Any]:
        """The loop ends while the consumer is open."""
        def run() -> None:
            with Producer(self.where) as producer:
                for _ in range(4):
                    producer.send("T", b"x")
            done = self.run_program(LOOPS + """
async def main():
    consumer = aio.Consumer(WHERE, group="left", topics="T", start="first")
    found = aiter(consumer)
    for _ in range(4):
        await anext(found)
asyncio.run(main())
""")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with Client(self.where) as client:
                self.assertEqual(sum(client.group_offset("left", queue) or 0
                                     for queue in client.read_queues("T")), 3)

        return self.in_thread(run)
