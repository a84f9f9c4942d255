"""The common parts of tests of a whole pop member."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.pop_box import PopBox
from twistmq.client.core.consumer.assigned_queues import Batch

__all__ = ["PopCase"]


class PopCase(SynchronousTestCase):
    """Ten messages in two queues."""

    def start(self, count: int = 10, **options: Any) -> PopBox:
        """Start a member."""
        self.box = PopBox(**options)
        for number in range(count):
            self.box.broker.put(b"%d" % number, number % 2)
        self.box.start()
        return self.box

    def take(self, most: int = 100) -> Batch[bytes]:
        """Demand messages and take those of one queue."""
        self.box.demand()
        batch = self.box.member.take(most)
        assert batch is not None
        return batch
