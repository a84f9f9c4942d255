"""A broker is killed in every state of a delayed or failed message, and the next one continues.

Each test brings a broker's process into a state, kills it with SIGKILL, starts another over its
store, and counts what comes. A message that is not yet written when the kill comes is in the
broker's memory only; the test of random moments meets that too.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers, wait_until
from tests.long.redelivery import (
    DELAYED,
    DELAYS_MS,
    DLQ,
    FAILING,
    RETRY,
    TRIES,
    delay_offsets,
    join,
    kill_often,
    prepare,
    read,
    send_back,
    settings,
)
from twistmq.broker.testing import RawClient
from twistmq.protocol.topic_names import SCHEDULE_TOPIC

COUNT = 40
NEVER_MS = 3_600_000
#: Levels of a broker that is killed before anything is due.
LATER_MS = (1000, 4000, 4000, 4000, 1000)
BODIES = [b"%d" % number for number in range(COUNT)]


class KillTests(SynchronousTestCase):
    """Each test kills the broker in another state."""

    def kill_in(self, state: Callable[[RawClient], object], save_ms: int = 100,
                down_ms: int = 0, delays_ms: Sequence[int] = DELAYS_MS) -> RawClient:
        """Bring a broker into a state, kill it, and start the next one.

        :param save_ms: how often the first one saves how far delivery has come.
        :param down_ms: how long there is none.
        :param delays_ms: of the levels.
        :returns: a connection to the next.
        """
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.delays_ms = delays_ms
        first = Servers(self.folder, *settings(save_ms, delays_ms))
        first.start()
        self.addCleanup(first.stop)
        with RawClient(f"127.0.0.1:{first.broker_port}") as client:
            prepare(client)
            state(client)
        first.stop(signal.SIGKILL)
        self.killed_ms = time.time() * 1000
        over_ms = self.killed_ms + down_ms
        wait_until("time has passed", lambda: time.time() * 1000 >= over_ms)
        after = Servers(self.folder, *settings(100, delays_ms))
        after.start()
        self.addCleanup(after.stop)
        client = RawClient(f"127.0.0.1:{after.broker_port}")
        self.addCleanup(client.close)
        join(client)
        return client

    def wait_for(self, client: RawClient, topic: str, count: int) -> None:
        """Wait until a queue has so many messages."""
        wait_until(f"{count} messages in {topic}", lambda: len(read(client, topic)) >= count)

    def assert_none_came_before(self, client: RawClient, topic: str) -> None:
        """Every message of the topic was stored after the first broker was killed."""
        self.assertEqual([each.body for each in read(client, topic)
                          if each.store_timestamp < self.killed_ms], [])

    def assert_come(self, client: RawClient, topic: str, times: int, level: int,
                    tries: int = 0) -> None:
        """Check that each message is delivered as often as expected, and none early."""
        self.wait_for(client, topic, COUNT * times)
        # What would come too often is due by then: the next message of the level comes after it.
        client.send(topic, b"last", properties={"DELAY": str(level)})
        self.wait_for(client, topic, COUNT * times + 1)
        found = read(client, topic)
        self.assertEqual(Counter(each.body for each in found),
                         Counter(dict.fromkeys(BODIES, times)) + Counter([b"last"]))
        self.assertEqual({each.reconsume_times for each in found if each.body != b"last"}, {tries})
        due_ms = {each.body: each.store_timestamp + self.delays_ms[level - 1]
                  for each in read(client, SCHEDULE_TOPIC, level - 1)}
        self.assertEqual([each.body for each in found if each.store_timestamp < due_ms[each.body]],
                         [])

    # --- delayed

    @staticmethod
    def send_delayed(client: RawClient) -> None:
        for body in BODIES:
            client.send(DELAYED, body, properties={"DELAY": "2"})

    def deliver(self, client: RawClient) -> None:
        self.send_delayed(client)
        self.wait_for(client, DELAYED, COUNT)

    def test_written_and_not_due(self) -> None:
        """Each is delivered once, when it is due."""
        client = self.kill_in(self.send_delayed, delays_ms=LATER_MS)
        self.assert_come(client, DELAYED, 1, 2)
        self.assert_none_came_before(client, DELAYED)

    def test_due_and_not_delivered(self) -> None:
        """It became due without a broker: each is delivered once."""
        client = self.kill_in(self.send_delayed, down_ms=LATER_MS[1], delays_ms=LATER_MS)
        self.assert_come(client, DELAYED, 1, 2)
        self.assert_none_came_before(client, DELAYED)

    def test_delivered_and_not_saved(self) -> None:
        """The next broker cannot know, so each is delivered twice, and no third time."""
        self.assert_come(self.kill_in(self.deliver, NEVER_MS), DELAYED, 2, 2)

    def test_delivered_and_saved(self) -> None:
        """None is delivered again."""
        def state(client: RawClient) -> None:
            self.deliver(client)
            wait_until("it is saved", lambda: delay_offsets(self.folder).get(2) == COUNT)

        self.assert_come(self.kill_in(state), DELAYED, 1, 2)

    # --- failed

    @staticmethod
    def fail(client: RawClient) -> None:
        """Consume, and send back."""
        for body in BODIES:
            client.send(FAILING, body)
        for message in read(client, FAILING):
            send_back(client, message)

    def fail_and_wait(self, client: RawClient, tries: int = 1) -> None:
        """Send back as often, until the last tries are on the retry topic."""
        self.fail(client)
        for number in range(1, tries):
            self.wait_for(client, RETRY, COUNT * number)
            for message in read(client, RETRY)[COUNT * (number - 1):]:
                send_back(client, message)
        self.wait_for(client, RETRY, COUNT * tries)

    def test_not_sent_back(self) -> None:
        """A consumed message that was not sent back stays in its place only."""
        def state(client: RawClient) -> None:
            self.fail(client)
            client.send(FAILING, b"consumed")
            assert read(client, FAILING)[-1].body == b"consumed"

        client = self.kill_in(state, delays_ms=LATER_MS)
        self.assertEqual([each.body for each in read(client, FAILING)], [*BODIES, b"consumed"])
        self.assert_come(client, RETRY, 1, 3, tries=1)

    def test_sent_back(self) -> None:
        """It waits at its level, and each is delivered once."""
        client = self.kill_in(self.fail, delays_ms=LATER_MS)
        self.assert_come(client, RETRY, 1, 3, tries=1)
        self.assert_none_came_before(client, RETRY)

    def test_sent_back_twice(self) -> None:
        """It waits at the next level, and the first retry is not delivered again."""
        def state(client: RawClient) -> None:
            self.fail_and_wait(client)
            wait_until("it is saved", lambda: delay_offsets(self.folder).get(3) == COUNT)
            for message in read(client, RETRY):
                send_back(client, message)

        client = self.kill_in(state, delays_ms=LATER_MS)
        self.wait_for(client, RETRY, 2 * COUNT)
        tries = Counter((each.body, each.reconsume_times) for each in read(client, RETRY))
        self.assertEqual(tries, Counter((body, n) for body in BODIES for n in (1, 2)))

    def test_on_the_retry_topic(self) -> None:
        """The retries are there; without a save they are delivered once more."""
        self.assert_come(self.kill_in(self.fail_and_wait, NEVER_MS), RETRY, 2, 3, tries=1)

    def test_dead_letters(self) -> None:
        """They exist once, and no other retry is delivered."""
        def state(client: RawClient) -> None:
            self.fail_and_wait(client, TRIES)
            last = read(client, RETRY)[-COUNT:]
            self.assertEqual({each.reconsume_times for each in last}, {TRIES})
            for message in last:
                send_back(client, message)
            level = 2 + TRIES
            wait_until("it is saved", lambda: delay_offsets(self.folder).get(level) == COUNT)

        client = self.kill_in(state)
        self.assertEqual([each.body for each in read(client, DLQ)], BODIES)
        self.assertEqual(len(read(client, RETRY)), TRIES * COUNT)

    # --- anywhere

    def test_random_moments(self) -> None:
        """This is the short form of `tests.long.redelivery`."""
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        check = kill_often(Path(folder.name), 4, 3)
        self.assertEqual(check.problems, [])
        self.assertGreater(len(check.waited), 100)
