"""The periodic tasks of an idle broker with all stock plugins, on a virtual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from importlib.metadata import entry_points

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.edge.waiting_clock import WaitingClock
from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.edge.reactor_watch import ReactorWatch
from twistmq.broker.net.factory import StallWatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import PopMessageRequestHeader

#: The wall clock at the start, Unix ms. It is no whole second, unlike the time of the reactor.
BEGIN_MS = 1_700_000_000_537
#: The method that finds the watch over a reactor, before a test replaces it.
FIND = ReactorWatch.find
#: How much later something may happen than without rests, ms.
LATE_MS = 52


def stock_plugins() -> list[tuple[str, object]]:
    return [(point.name, point.load()) for point in entry_points(group="twistmq")
            if point.value.startswith("twistmq.")]


class Broker:
    """A kernel whose periodic tasks run on a reactor.

    :param rests: whether its tasks may rest.
    """

    def __init__(self, case: SynchronousTestCase, rests: bool = True) -> None:
        self.clock = WaitingClock()
        self.box = KernelBox(stock_plugins(), {"timerPrecisionMs": "1000"}, clock=self.now_ms)
        #: The runs by the name of the task.
        self.runs: Counter[str] = Counter()
        watch = FIND(self.clock, self.clock.seconds) if rests else None
        case.patch(ReactorWatch, "find", lambda *_: watch)
        self.service = PeriodicService(
            self.clock, self.now_ms, self.clock.seconds,
            [self.counted(task) for task in self.box.kernel.periodic_tasks], StallWatch())
        self.service.startService()
        #: What has happened, and when: ms since the start.
        self.events: dict[str, int] = {}

    def now_ms(self) -> int:
        return BEGIN_MS + round(self.clock.seconds() * 1000)

    def counted(self, task: PeriodicTask) -> PeriodicTask:
        def run(now_ms: int) -> object:
            self.runs[task.name] += 1
            return task.run(now_ms)

        return replace(task, run=run)  # type: ignore[arg-type]

    def run_until(self, seconds: float) -> None:
        """Let time pass until so many seconds after the start."""
        self.clock.run_for(seconds - self.clock.seconds())

    def happen(self, work: Callable[[], object]) -> None:
        self.box.now_ms = self.now_ms()
        self.clock.happen(work)

    def note(self, event: str) -> None:
        self.events.setdefault(event, self.now_ms() - BEGIN_MS)

    def send(self, body: bytes, topic: str = "T", **properties: str) -> None:
        """Send a message; the time at which it can be read is an event."""
        def send() -> None:
            reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
                topic, self.box.now_ms, queue_id=0, properties=properties), body)
            assert reply.code == ResponseCode.SUCCESS, reply.remark

        self.happen(send)

    def pop(self, topic: str, poll_ms: int, invisible_ms: int, event: str) -> Peer:
        """Pop from a topic; the reply is an event."""
        peer = self.box.peer()
        write = peer.write

        def written(data: bytes) -> None:
            self.note(event)
            write(data)

        peer.write = written  # type: ignore[method-assign]
        header = PopMessageRequestHeader(
            consumer_group="g", topic=topic, queue_id=-1, max_msg_nums=32,
            invisible_time=invisible_ms, poll_time=poll_ms, born_time=self.now_ms(), init_mode=0,
            exp_type="TAG", exp="*", order=False)

        def pop() -> None:
            self.box.now_ms = self.now_ms()
            self.box.send(peer, RequestCode.POP_MESSAGE, header)

        self.happen(pop)
        return peer

    def stop(self) -> None:
        self.service.stopService()
        self.box.stop()


class IdleBrokerTests(SynchronousTestCase):
    """A broker without clients."""

    def start(self, rests: bool = True) -> Broker:
        broker = Broker(self, rests)
        self.addCleanup(broker.stop)
        return broker

    def test_it_sleeps(self) -> None:
        """It wakes up a few times a second, and no task runs more often than that."""
        broker = self.start()
        broker.run_until(20)
        waits = broker.clock.waits
        broker.runs.clear()
        broker.run_until(40)
        self.assertLessEqual((broker.clock.waits - waits) / 20, 7)
        often = {name: count for name, count in broker.runs.items() if count > 45}
        self.assertEqual(often, {})
        self.assertLessEqual(broker.runs.total() / 20, 25)

    def test_nothing_comes_later_than_without_rests(self) -> None:
        """This holds for flushes, delayed and timed messages, pops, retries, and long work."""
        resting, steady = (self.live(self.start(rests)) for rests in (True, False))
        self.assertEqual(resting.events.keys(), steady.events.keys())
        late = {event: (time_ms, steady.events[event])
                for event, time_ms in resting.events.items()
                if time_ms > steady.events[event] + LATE_MS}
        self.assertEqual(late, {})
        self.assertLess(resting.runs.total(), steady.runs.total() / 3)

    def live(self, broker: Broker) -> Broker:
        """Let a broker do a little of everything, with pauses in between."""
        store = broker.box.kernel.store
        synced = store.commit_log.synced

        def note_synced(offset: int) -> None:
            broker.note(f"flushed up to {offset}")
            synced(offset)

        self.patch(store.commit_log, "synced", note_synced)
        store.dispatch.on_dispatch.append(lambda records: [
            broker.note(f"{record.topic} {bytes(record.body[:5])!r}") for record in records][:0])
        broker.run_until(15.137)
        broker.send(b"plain")
        broker.run_until(20.011)
        broker.send(b"level", DELAY="1")
        broker.run_until(20.4)
        broker.send(b"more", DELAY="2")
        broker.run_until(27.3)
        broker.send(b"timed", TIMER_DELAY_MS="2500")
        broker.run_until(31.07)
        broker.send(b"first", "W")
        broker.pop("W", 0, 60_000, "the first pop")
        waiting = broker.pop("W", 3000, 60_000, "the pop waits for nothing")
        broker.run_until(40.2)
        self.assertTrue(waiting.written)
        broker.send(b"again", "R")
        broker.pop("R", 0, 3000, "the pop of a retry")
        broker.run_until(60.02)
        broker.happen(lambda: broker.box.kernel.slices.run(
            self.work(broker), at_once=False).addCallback(lambda _: broker.note("long work")))
        broker.run_until(62)
        return broker

    @staticmethod
    def work(broker: Broker) -> Generator[None, None, None]:
        for number in range(3):
            broker.note(f"work {number}")
            broker.clock.rightNow += 0.005
            yield
