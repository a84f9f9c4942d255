"""The simulation is effective: with each of these mutations of the client, some seed fails."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.simulation import ClientSimulation, SimulationFailed
from twistmq.client.base.errors import Closed
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer import handover
from twistmq.client.core.consumer.committer import Committer
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.queue_locks import Locks
from twistmq.client.core.consumer.window import QueueWindow

#: Seeds in which each has to be found: several times those that it took.
SEED_COUNT = 300


class MutationTests(SynchronousTestCase):
    """One test for each mutation."""

    def assert_found(self, target: object, name: str, mutation: Any, *, text: str) -> None:
        """Check that some seed fails while a part of the client is replaced."""
        self.patch(target, name, mutation)
        with self.assertRaises(SimulationFailed) as caught:
            for seed in range(SEED_COUNT):
                ClientSimulation(seed).run()
        self.assertIn(text, str(caught.exception).partition("\n")[0])

    def test_an_unfinished_message_is_committed(self) -> None:
        """The offset behind everything that was read is committed."""
        def end(window: QueueWindow[Any]) -> int:
            if not window.is_dropped:
                window._committable = max(window._committable, window._last_offset + 1)
            return window._committable

        self.assert_found(QueueWindow, "committable", property(end), text="not finished")

    def test_a_lock_is_given_back_too_early(self) -> None:
        """The handler of a lost queue still runs."""
        self.assert_found(handover, "UNLOCK_WAIT_MS", 0, text="handle one of the same queue")

    def test_no_lock_is_needed(self) -> None:
        """Each member assumes that it has the locks."""
        async def lock(locks: Locks, queues: Any) -> set[Any]:
            return set(queues)

        self.assert_found(Locks, "lock", lock, text="handle one of the same queue")

    def test_messages_are_handed_out_after_the_queue_is_lost(self) -> None:
        """A lost queue keeps its waiting messages."""
        self.assert_found(QueueWindow, "stop_handing_out", lambda window: [], text="PromiseBroken")

    def test_the_notice_of_a_cancelled_wait_is_lost(self) -> None:
        """Another waiting worker is not woken for the messages."""
        async def careless(delivery: Delivery[Any]) -> None:
            while delivery._closing.is_set or not delivery.ready_queues:
                if delivery._closing.is_set:
                    raise Closed("the consumer is closed")
                waiter: Future[None] = Future()
                delivery._waiting.append(waiter)
                try:
                    await waiter
                finally:
                    if waiter in delivery._waiting:
                        delivery._waiting.remove(waiter)

        self.assert_found(Delivery, "ready", careless, text="its workers wait")

    def test_a_close_leaves_behind_what_a_rebalance_began(self) -> None:
        """The commits of queues that were being given up are not waited for."""
        async def finish(handover: Any) -> None:
            for task in handover._leaving:
                task.cancel()

        self.assert_found(handover.Handover, "finish", finish, text="comes again")

    def test_close_commits_nothing(self) -> None:
        """Messages that were finished since the last commit are delivered again."""
        commit = Committer.commit

        async def no_commit(committer: Committer[Any], queues: Any = None, **_: Any) -> None:
            if not committer._closing.is_set:
                await commit(committer, queues)

        self.assert_found(Committer, "commit", no_commit, text="comes again")

    def test_messages_of_an_order_overtake_each_other(self) -> None:
        """The next messages are handed out while some run."""
        def take(window: QueueWindow[Any], most: int, now_ms: int) -> list[Any]:
            return window.take(most, now_ms)

        def arrived(delivery: Delivery[Any], assigned: Any) -> None:
            if (not assigned.is_ready and assigned.window.waiting_count
                    and not assigned.window.is_dropped):
                assigned.is_ready = True
                delivery.ready_queues.append(assigned)
                delivery._notify()

        self.patch(Delivery, "arrived", arrived)
        self.assert_found(QueueWindow, "take_in_order", take, text="is handled before")
