"""The positions of a member in queues that it lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.client.core.consumer.part_case import PartCase, queue
from twistmq.client.base.errors import NoRoute
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.stop_positions import STOPPED_MS, StopPositions


class StopPositionTests(PartCase):
    """The module client/core/consumer/stop_positions.py."""

    def setUp(self) -> None:
        """Make the part, with a client that has a connection to the broker."""
        super().setUp()
        self.connection: object | None = object()
        self.client = cast(ClientCore, SimpleNamespace(
            tasks=self.tasks, engine=SimpleNamespace(connection=lambda address: self.connection),
            routes=SimpleNamespace(broker_of=lambda queue: "a", reader=self.reader)))
        self.part = StopPositions(self.client)

    def reader(self, name: str) -> str:
        """Return the address of the broker."""
        if self.connection is None:
            raise NoRoute("no broker")
        return "10.0.0.2:10911"

    def lose(self) -> None:
        """Lose a queue whose first five messages are finished, of which three were committed."""
        assigned = self.assign(8)
        assigned.floor = 3
        assigned.window.done_all(assigned.window.take(5, 0))
        self.part.note_lost(assigned)
        assigned.window.drop()
        self.part.keep_positions([assigned])

    def valid(self, stored: int | None = 4) -> bool:
        """Whether the queue would continue at the position, with this offset at the broker."""
        stop = self.part.position(queue(0))
        assert stop is not None
        return self.part.is_valid(queue(0), stop, stored)

    def test_an_offset_between_counts_as_a_set_back(self) -> None:
        """A smaller one is a tool's, and one that is as large needs no help."""
        self.lose()
        stop = self.part.position(queue(0))
        assert stop is not None
        self.assertEqual((stop.offset, stop.floor), (5, 3))
        self.assertEqual([self.valid(stored) for stored in (None, 2, 3, 4, 5, 6)],
                         [True, False, True, True, False, False])

    def test_it_counts_for_ten_seconds(self) -> None:
        """Later the members that had the queue have committed."""
        self.lose()
        self.advance(STOPPED_MS)
        self.assertTrue(self.valid())
        self.advance(1)
        self.assertFalse(self.valid())

    def test_it_counts_on_the_same_connection_only(self) -> None:
        """Another broker may have other messages; without a route nothing is known."""
        self.lose()
        for connection in (object(), None):
            self.connection = connection
            self.assertFalse(self.valid())

    def test_a_deleted_queue_begins_anew(self) -> None:
        """All its messages are new."""
        self.lose()
        self.part.deleted.add(queue(0))
        self.assertFalse(self.valid())

    def test_a_queue_that_was_lost_without_a_connection_is_not_noted(self) -> None:
        """A queue that was given up for another reason is not noted either."""
        self.connection = None
        self.lose()
        self.assertIsNone(self.part.position(queue(0)))
        self.part.keep_positions([self.assign(1)])
        self.assertIsNone(self.part.position(queue(0)))

    def test_a_tool_that_moves_offsets_takes_precedence(self) -> None:
        """This is so even while the queue is being given up."""
        self.lose()
        self.part.forget([queue(0)])
        self.assertIsNone(self.part.position(queue(0)))
        assigned: Any = self.assign(1)
        self.part.note_lost(assigned)
        self.part.forget([queue(0)])
        self.part.keep_positions([assigned])
        self.assertIsNone(self.part.position(queue(0)))
