"""Polls: the messages that they return, and those that they acknowledge."""

from __future__ import annotations

import contextlib

from tests.client.core.consumer.part_case import queue
from tests.client.core.consumer.pull_case import PullCase, bodies
from twistmq.client.base.errors import Closed
from twistmq.client.core.connection.tasks import Cancelled


class PollTests(PullCase):
    """Polls with a subscription."""

    def test_only_what_a_later_poll_acknowledged_is_committed(self) -> None:
        """Both a commit and the close are tested."""
        self.assertEqual(self.poll(3), [0, 2, 4])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed().get(0, 0), 0)
        self.assertEqual(sorted(self.poll(4)), [1, 3, 5, 7])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed(), {0: 3, 1: 0})
        self.assertEqual(sorted(self.poll()), [6, 8, 9])
        self.box.run(self.pull.leave())
        self.assertEqual(self.committed(), {0: 3, 1: 4})
        self.assertEqual(self.broker.members["g"], set())
        with self.assertRaises(Closed):
            self.poll()

    def test_a_poll_waits_for_messages_at_most_for_its_time(self) -> None:
        """The messages of a cancelled poll are returned by the next one."""
        self.poll()
        begin_ms = self.box.clock.now_ms
        self.assertEqual(self.poll(timeout_ms=700), [])
        self.assertEqual(self.box.clock.now_ms - begin_ms, 700)
        self.member.set_paused(None, True)
        self.box.run(self.positions.seek(queue(0), 3))
        with self.poller.polls.begin() as poll:
            waiting = self.box.core.tasks.spawn(self.poller.poll(poll, 10, 60_000))
            self.box.settle()
            waiting.cancel()
            self.box.settle()
        self.assertIsInstance(waiting.error, Cancelled)
        self.member.set_paused(None, False)
        self.assertEqual(self.poll(timeout_ms=5000), [6, 8])

    def test_messages_whose_poll_did_not_reach_the_program_come_again(self) -> None:
        """A shell may be cancelled at the last moment, after the core has answered."""
        with contextlib.suppress(Cancelled), self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, 100, 0))
            raise Cancelled
        self.assertEqual(sorted(self.poll()), sorted(bodies(poll)))

    def test_a_poll_that_has_not_returned_keeps_its_messages(self) -> None:
        """A poll of a second task or a signal handler gets other messages."""
        with self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, 3, 0))
            others = self.poll()
        self.assertEqual(sorted(bodies(poll) + others), list(range(10)))
        self.box.run(self.member.commit())
        self.assertEqual(set(self.committed().values()) - {0}, set())
        self.assertEqual(self.poll(), [])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed(), {0: 5, 1: 5})
