"""Long polling: pulls that wait for a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.request.test_filters import Equals
from tests.cost import growth
from twistmq.broker import hookimpl
from twistmq.broker.constants import HELD_PULLS_FREE, HELD_PULLS_MAX, HOLD_MS_MAX
from twistmq.broker.request import waiting_by_tag
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.log_rate import LINES_A_MINUTE
from twistmq.protocol.properties import java_string_hash


class PullHoldTestCase(SynchronousTestCase):
    """A kernel with one message in queue 0 of T."""

    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        plugins = [("plugin", self)]
        self.box = KernelBox(plugins, {"enablePropertyFilter": "true", **self.settings})
        self.addCleanup(self.box.stop)
        self.hold = self.box.kernel.pull_hold
        self.send(b"0")

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, Any]:
        return {"EQUALS": Equals()}

    def send(self, body: bytes, topic: str = "T", **fields: Any) -> None:
        reply = self.box.ask(
            RequestCode.SEND_MESSAGE_V2, send_header(topic, self.box.now_ms, **fields), body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def pull(self, offset: int = 1, hold_ms: int = 15_000, **fields: Any) -> Peer:
        """Begin a pull that waits; :returns: its connection."""
        peer = self.box.peer()
        reply = self.box.send(peer, RequestCode.PULL_MESSAGE, pull_header(
            "T", offset, hold_ms=hold_ms, **fields))
        self.assertIsNone(reply)
        return peer

    def advance(self, milliseconds: int) -> None:
        """Let time pass; the kernel looks at the pulls that wait each second."""
        self.box.now_ms += milliseconds
        [task] = [each for each in self.box.kernel.periodic_tasks
                  if each.name == "check waiting pulls"]
        self.assertEqual(task.period_ms, 1000)
        task.run(self.box.now_ms)

    def replies(self, peer: Peer) -> list[tuple[int, list[bytes]]]:
        """(code, bodies of messages) of the replies that came."""
        return [(reply.code, [message.body for message in records_of(reply.body)])
                for reply in self.box.late_replies(peer)]


class Keeper:
    """Creates filters for pulls that record the messages for which they are called."""

    def __init__(self, asked: list[Any]) -> None:
        self.asked = asked
        #: What they answer; None: they raise.
        self.wanted: bool | None = False

    def own_filter(self, *arguments: str) -> Keeper:
        return self

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        self.asked.append((tags_code, store_time, bitmap))
        return True

    def match_record(self, record: bytes | memoryview) -> bool:
        return self.match_properties("")

    def match_properties(self, properties: str) -> bool:
        self.asked.append(properties)
        if self.wanted is None:
            raise ZeroDivisionError
        return self.wanted


class WakeTests(PullHoldTestCase):
    """The end of a wait."""

    def test_a_message_ends_the_wait_and_is_in_the_reply(self) -> None:
        """A message of the queue ends it immediately, and is in the response."""
        peer = self.pull()
        self.send(b"other queue", queue_id=1)
        self.send(b"other topic", topic="U")
        self.assertEqual(self.replies(peer), [])
        self.send(b"1")
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"1"])])
        self.assertEqual(self.hold.count, 0)
        self.assertEqual(peer.held_bytes, 0)
        self.send(b"2")
        self.assertEqual(len(self.replies(peer)), 1)

    def test_the_first_message_of_a_queue(self) -> None:
        """A pull can wait at a queue without messages."""
        peer = self.pull(0, queue_id=3)
        self.send(b"first", queue_id=3)
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"first"])])

    def test_everybody_who_waits(self) -> None:
        """One message wakes all pulls of its queue."""
        peers = [self.pull() for _ in range(50)]
        self.assertEqual(self.hold.count, 50)
        self.send(b"1")
        self.assertEqual([self.replies(peer) for peer in peers],
                         [[(ResponseCode.SUCCESS, [b"1"])]] * 50)

    def test_each_pull_waits_as_long_as_it_asked(self) -> None:
        """Each pull waits for its own time-out."""
        short, long = self.pull(hold_ms=5000), self.pull(hold_ms=15_000)
        self.advance(4999)
        self.assertEqual(self.replies(short), [])
        self.advance(1)
        self.assertEqual(self.replies(short), [(ResponseCode.PULL_NOT_FOUND, [])])
        self.assertEqual(self.replies(long), [])
        self.advance(10_000)
        self.assertEqual(self.replies(long), [(ResponseCode.PULL_NOT_FOUND, [])])

    def test_no_pull_waits_longer_than_the_bound(self) -> None:
        """A client with an endless time-out gets a response, and asks again."""
        peer = self.pull(hold_ms=2**62)
        self.advance(HOLD_MS_MAX - 1)
        self.assertEqual(self.replies(peer), [])
        self.advance(1)
        self.assertEqual(self.replies(peer), [(ResponseCode.PULL_NOT_FOUND, [])])

    def test_a_message_of_another_tag_does_not_wake_a_pull(self) -> None:
        """A message with another tag does not wake a pull; it is skipped at the end."""
        peer = self.pull(expression="a || b")
        self.send(b"1", tag="c")
        self.assertEqual(self.replies(peer), [])
        self.send(b"2", tag="b")
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"2"])])
        late = self.pull(3, expression="a")
        self.send(b"3", tag="c")
        self.advance(15_000)
        self.assertEqual(self.replies(late), [(ResponseCode.PULL_RETRY_IMMEDIATELY, [])])

    def test_cost_of_other_tags(self) -> None:
        """The cost of a message that no pull wants does not depend on the number of pulls."""
        # With this salt, the two tags have different places.
        self.patch(waiting_by_tag, "_SALT", 0x9E3779B97F4A7C15)
        self.box.kernel.topic_config.table["T"].read_queue_nums = 16
        self.box.kernel.topic_config.table["T"].write_queue_nums = 16
        queue_ids = count(1)

        def prepare(pulls: int) -> Callable[[], object]:
            queue_id = next(queue_ids)
            for _ in range(pulls):
                self.pull(0, queue_id=queue_id, expression="never")
            return lambda: [self.send(b"x", queue_id=queue_id, tag="a") for _ in range(100)]

        self.assertLess(growth(prepare, 1000, most=2), 2)
        peer = self.pull(100, queue_id=1, expression="never")
        waiting = self.hold.count
        self.send(b"y", queue_id=1, tag="never")
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"y"])])
        self.assertEqual(self.hold.count, waiting - 501)

    def test_memory_of_tags(self) -> None:
        """The tags of a filter count as held memory, at most as twice the text of
        the expression.
        """
        expression = " || ".join(f"t{number}" for number in range(5000))
        peer = self.pull(expression=expression)
        held = peer.held_bytes
        few = self.pull(expression="a" * len(expression))
        self.assertGreaterEqual(held - few.held_bytes, 4 * 5000 - 400)
        self.assertLess(held, 3 * len(expression) + 4096)
        self.send(b"1", tag="t5000")
        self.assertEqual(self.replies(peer), [])
        self.send(b"2", tag="t4999")
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"2"])])
        self.assertEqual(peer.held_bytes, 0)

    def test_a_pull_that_looks_at_properties_gets_a_message_that_matches(self) -> None:
        """A pull with a filter on properties gets only a message that matches."""
        peer = self.pull(expression="colour=red", expression_type="EQUALS")
        self.send(b"1", properties={"colour": "red"})
        self.assertEqual(self.replies(peer), [(ResponseCode.SUCCESS, [b"1"])])
        peer = self.pull(2, expression="colour=red", expression_type="EQUALS")
        self.send(b"2", properties={"colour": "blue"})
        self.assertEqual(self.replies(peer), [])
        self.advance(15_000)
        self.assertEqual(self.replies(peer), [(ResponseCode.PULL_RETRY_IMMEDIATELY, [])])

    def test_store_time(self) -> None:
        """The filter of a waiting pull gets the store time of the message."""
        asked: list[Any] = []
        keeper = Keeper(asked)
        self.box.kernel.filters.consumer_filters = keeper
        peer = self.pull(expression="x", expression_type="EQUALS")
        del asked[:]
        self.send(b"1", properties={"colour": "blue"}, tag="t")
        self.assertEqual(asked[0], (java_string_hash("t"), self.box.now_ms, None))
        self.assertIn("colour\x01blue", asked[1])
        self.assertEqual(self.replies(peer), [])
        keeper.wanted = True
        self.send(b"2")
        self.assertEqual(self.replies(peer)[0][0], ResponseCode.SUCCESS)

    def test_language_that_raises(self) -> None:
        """A filter that raises at a message fails only the pull of its own consumer."""
        keeper = Keeper([])
        self.box.kernel.filters.consumer_filters = keeper
        peer = self.pull(expression="x", expression_type="EQUALS")
        keeper.wanted = None
        self.send(b"1")
        self.assertEqual(self.replies(peer), [(ResponseCode.SYSTEM_ERROR, [])])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_lost_connection(self) -> None:
        """A pull whose connection is lost is removed, and nothing is written to it."""
        peer = self.pull()
        peer.active = False
        self.advance(1000)
        self.assertEqual((self.hold.count, peer.held_bytes, peer.written), (0, 0, []))
        other = self.pull()
        other.active = False
        self.send(b"1")
        self.assertEqual((self.hold.count, other.held_bytes, other.written), (0, 0, []))

    def test_a_broker_that_stops_answers_all_of_them(self) -> None:
        """A broker that stops answers all waiting pulls."""
        peer = self.pull()
        self.hold.release_all()
        self.assertEqual(self.replies(peer), [(ResponseCode.PULL_NOT_FOUND, [])])

    def test_pull_that_is_refused_when_woken(self) -> None:
        """A topic may have lost the permission to read in the meantime."""
        peer = self.pull()
        self.box.kernel.topic_config.table["T"].perm = 2
        self.send(b"1")
        self.assertEqual(self.replies(peer), [(ResponseCode.NO_PERMISSION, [])])

    def test_deleted_topic(self) -> None:
        """The wait ends without an error in the log."""
        peer = self.pull()
        del self.box.kernel.topic_config.table["T"]
        self.box.kernel.store.delete_topic("T")
        self.advance(15_000)
        self.assertEqual(self.replies(peer), [(ResponseCode.TOPIC_NOT_EXIST, [])])

    def test_a_topic_that_is_deleted_ends_its_waits(self) -> None:
        """The topic may be created again with other messages before the time is up."""
        pulls = [self.pull(), self.pull()]
        self.send(b"1", "U")
        other = self.box.peer()
        self.assertIsNone(self.box.send(other, RequestCode.PULL_MESSAGE, pull_header(
            "U", 1, hold_ms=15_000)))
        self.box.kernel.tables.delete_topic("T")
        self.send(b"1")
        for peer in pulls:
            self.assertEqual(self.replies(peer), [(ResponseCode.TOPIC_NOT_EXIST, [])])
        self.assertEqual(self.replies(other), [])

    def test_a_cut_of_the_log_ends_waits_beyond_it(self) -> None:
        """Such a consumer would miss the messages that get the offsets before its own."""
        store = self.box.kernel.store
        self.send(b"1")
        beyond, other = self.pull(2), self.pull(0, queue_id=1)
        cut = store.log_cut.truncate(records_of(store.raw.read(0, 10_000))[1].physical_offset)
        self.successResultOf(cut)
        [reply] = self.box.late_replies(beyond)
        self.assertEqual(reply.code, ResponseCode.PULL_OFFSET_MOVED)
        self.assertEqual(reply.header(PullMessageResponseHeader).next_begin_offset, 1)
        self.assertEqual(self.replies(other), [])

    def test_messages_that_came_unnoticed(self) -> None:
        """The periodic check wakes a pull whose message was not announced."""
        peers = [self.pull(), self.pull(0, queue_id=1), self.pull(0, queue_id=2)]
        wanting = self.pull(expression="a")
        self.box.kernel.store.dispatch.on_arrival.clear()
        self.send(b"1", tag="b")
        self.send(b"2", queue_id=2)
        self.assertEqual([self.replies(peer) for peer in peers], [[], [], []])
        [task] = [each for each in self.box.kernel.periodic_tasks
                  if each.name == "check waiting pulls"]
        self.assertEqual((task.first_ms, task.period_ms), (1000, 1000))
        task.run(self.box.now_ms)
        self.assertEqual([self.replies(peer) for peer in peers], [
            [(ResponseCode.SUCCESS, [b"1"])], [], [(ResponseCode.SUCCESS, [b"2"])]])
        # A pull that wants one tag waits on, since nothing that it wants is known to be there.
        self.assertEqual(self.replies(wanting), [])

    def test_beyond_the_limit_each_connection_may_still_have_some_pulls_held(self) -> None:
        """When too many pulls wait, each connection may still have a few; others are answered, and
        few log lines are written.
        """
        self.hold.count = HELD_PULLS_MAX
        first, second = self.box.peer(), self.box.peer()
        header = pull_header("T", 1, hold_ms=15_000)

        def ask(peer: Peer) -> Any:
            return self.box.send(peer, RequestCode.PULL_MESSAGE, header)

        with capturedLogs() as events:
            for peer in (first, second):
                self.assertEqual([ask(peer) for _ in range(HELD_PULLS_FREE)],
                                 [None] * HELD_PULLS_FREE)
            self.assertEqual([ask(first).code for _ in range(1000)],
                             [ResponseCode.PULL_NOT_FOUND] * 1000)
        self.assertEqual(len([each for each in events if "pulls are held" in str(each)]),
                         LINES_A_MINUTE)
        self.send(b"1")
        self.assertEqual(self.replies(first), [(ResponseCode.SUCCESS, [b"1"])] * HELD_PULLS_FREE)
        self.assertEqual((self.hold.count, self.hold._extra), (HELD_PULLS_MAX, {}))
        header = pull_header("T", 2, hold_ms=15_000)
        self.assertIsNone(ask(first))

    def test_not_suspended(self) -> None:
        """A pull that does not ask to wait is answered immediately."""
        reply = self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", 1))
        self.assertEqual(reply.code, ResponseCode.PULL_NOT_FOUND)
        self.assertEqual(self.hold.count, 0)

    def test_a_broken_pull_among_others(self) -> None:
        """A pull that raises an error is answered with it; the others get their message."""
        good, bad, last = self.pull(), self.pull(group="bad"), self.pull()
        groups = self.box.kernel.subscription_group
        found = groups.find
        self.patch(groups, "find", lambda group: 1 // 0 if group == "bad" else found(group))
        self.send(b"1")
        self.assertEqual([self.replies(peer)[0][0] for peer in (good, bad, last)],
                         [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class TurnTests(PullHoldTestCase):
    """Thousands of pulls are woken in turns."""

    def setUp(self) -> None:
        super().setUp()
        self.turns: list[Callable[[], None]] = []
        self.box.host.run_soon = self.turns.append

    def pulls(self, count: int, **fields: Any) -> list[Peer]:
        return [self.pull(**fields) for _ in range(count)]

    def clock(self, ticks: int) -> None:
        """Let a millisecond pass each time the kernel's clock was read so many times."""
        reads = 0

        def now() -> int:
            nonlocal reads
            reads += 1
            self.box.now_ms += reads % ticks == 0
            return self.box.now_ms

        self.box.clock = now

    def turn(self) -> None:
        turn, = self.turns
        self.turns.clear()
        turn()

    def answered(self, peers: list[Peer]) -> list[bool]:
        return [bool(peer.written) for peer in peers]

    def test_a_turn_wakes_some_of_them(self) -> None:
        """A turn wakes some of them, in the order of their arrival, with the same responses."""
        peers = self.pulls(100)
        self.clock(4)
        self.send(b"1")
        woken = sum(self.answered(peers))
        self.assertTrue(0 < woken < 50, woken)
        self.assertEqual(self.answered(peers), [True] * woken + [False] * (100 - woken))
        self.turn()
        self.assertGreater(sum(self.answered(peers)), woken)
        while self.turns:
            self.turn()
        self.assertEqual([self.replies(peer) for peer in peers],
                         [[(ResponseCode.SUCCESS, [b"1"])]] * 100)
        self.assertEqual((self.hold.count, self.hold._held, self.hold._rounds), (0, {}, {}))

    def test_message_meanwhile(self) -> None:
        """A message between two turns wakes the pulls that want it and were already examined."""
        others, wanting = self.pulls(100, expression="x"), self.pulls(1, expression="a")
        many = self.pulls(100, expression="b")
        self.clock(4)
        self.send(b"1", tag="b")
        self.assertEqual(len(self.turns), 1)
        self.send(b"2", tag="a")
        new = self.pull(3, expression="b")
        while self.turns:
            self.turn()
        self.assertEqual(self.replies(wanting[0]), [(ResponseCode.SUCCESS, [b"2"])])
        self.assertEqual(self.answered(many), [True] * 100)
        self.assertEqual(self.answered([*others, new]), [False] * 101)
        self.assertEqual(self.hold.count, 101)

    def test_many_reasons(self) -> None:
        """If too many messages arrive to be distinguished, all pulls are examined."""
        peers = self.pulls(50) + self.pulls(1, expression="x")
        self.clock(2)
        for number in range(110):
            self.send(b"%d" % number, tag="a")
        self.assertEqual(self.answered(peers[-1:]), [False])
        while self.turns:
            self.turn()
        self.assertEqual(self.answered(peers), [True] * 51)
        self.assertEqual(self.hold.count, 0)

    def test_a_broker_that_stops_wakes_them_all(self) -> None:
        """A broker that stops wakes them all, turn or no turn."""
        peers = self.pulls(100)
        self.clock(4)
        self.send(b"1")
        self.hold.release_all()
        self.assertEqual(self.answered(peers), [True] * 100)
        self.assertEqual(self.hold.count, 0)
        self.turn()
        self.assertEqual(self.turns, [])


class ShortPollingTests(PullHoldTestCase):
    """The setting longPollingEnable=false."""

    settings = {"longPollingEnable": "false", "shortPollingTimeMills": "1000"}  # noqa: RUF012

    def test_a_pull_waits_as_long_as_the_broker_says(self) -> None:
        """A pull waits for the time of the setting, whatever it asks for."""
        peer = self.pull(hold_ms=15_000)
        self.advance(1000)
        self.assertEqual(self.replies(peer), [(ResponseCode.PULL_NOT_FOUND, [])])
