"""Our members beside Apache's in one group, at our broker and Apache's.

``tests/long/client_groups.py`` does the same for longer.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

from twisted.trial.unittest import SkipTest

from tests.interop.clients import JavaTestCase, java_missing
from tests.interop.mixed_group import MixedGroup, both_brokers, change_often, faults_of


class MixedGroupTests(JavaTestCase):
    """Two members of Apache's client 5.3.3, one of 4.9.4, and two of ours."""

    def test_members_of_each_client_share_the_queues(self) -> None:
        """They join, leave and are killed twenty times under load.

        Each queue has one member soon. Nothing is missing, out of order, or needlessly repeated.
        """
        reason = java_missing("4.9.4")
        if reason:
            raise SkipTest(reason)
        stack = ExitStack()
        self.addCleanup(stack.close)
        group = MixedGroup(*both_brokers(self.folder, stack))
        stack.callback(group.close)
        change_often(group, random.Random(23), 20)
        group.finish()
        self.assertEqual(faults_of(group), [])
