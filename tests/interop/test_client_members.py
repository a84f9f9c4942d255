"""Our members restart, join and are killed under load, at our broker and Apache's.

``tests/long/client_members.py`` does the same for longer.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

from tests.interop.clients import JavaTestCase
from tests.interop.member_rounds import (
    ended_copies,
    handover_faults,
    join_often,
    kill_faults,
    kill_often,
    missing,
    restart_often,
)
from tests.interop.mixed_group import OURS, MixedGroup, both_brokers


class MemberTests(JavaTestCase):
    """Five hundred messages a second, and handlers that take 20 ms."""

    def setUp(self) -> None:
        """Start the brokers and the load."""
        super().setUp()
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.group = MixedGroup(*both_brokers(self.folder, stack), rate=500, work_ms=20)
        stack.callback(self.group.close)

    def finish(self) -> None:
        """Let the members handle all that was sent."""
        self.group.finish(200)
        self.assertEqual(missing(self.group), set())

    def test_a_restart_repeats_nothing(self) -> None:
        """Three members leave and return, one at a time; each message is handled once."""
        restart_often(self.group, OURS, 2)
        self.finish()
        self.assertEqual(ended_copies(self.group), [])

    def test_a_member_that_joins_repeats_what_runs_at_most(self) -> None:
        """A third member joins and leaves; no finished message is delivered again."""
        join_often(self.group, OURS, 3)
        self.finish()
        self.assertEqual(handover_faults(self.group), [])

    def test_a_kill_repeats_what_was_not_committed_at_most(self) -> None:
        """Two of four are killed; each message is handled, and only uncommitted ones twice."""
        kill_often(self.group, OURS, 2, random.Random(1))
        self.finish()
        self.assertEqual(kill_faults(self.group), [])
