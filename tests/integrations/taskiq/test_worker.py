"""Workers of Taskiq on the broker: the tasks that they run, and their ends."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

from taskiq import Context, SimpleRetryMiddleware, SmartRetryMiddleware, TaskiqDepends
from taskiq.acks import AcknowledgeType
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.exceptions import NoResultError
from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.taskiq.case import TaskiqCase, until
from twistmq.broker.testing import running_broker
from twistmq.client import RemotingTimeout
from twistmq.integrations.taskiq import TwistmqBroker
from twistmq.integrations.taskiq.sender import Sender
from twistmq.integrations.taskiq.testing import running_worker


class TaskTests(TaskiqCase):
    """The tasks that workers run."""

    def setUp(self) -> None:
        """Ignore the tracebacks that the receiver logs for failed tasks."""
        super().setUp()
        logging.getLogger("taskiq").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("taskiq").setLevel, logging.NOTSET)

    def test_tasks_run_once_in_their_order_and_have_results(self) -> None:
        """The results come from the result backends of Taskiq."""
        async def main() -> None:
            broker = self.broker().with_result_backend(InmemoryResultBackend())
            note = self.noting(broker)
            tasks = [await note.kiq(number) for number in range(50)]
            async with running_worker(broker, max_async_tasks=1):
                await broker.wait_all(60)
                result = await tasks[7].wait_result(timeout=10)
            self.assertEqual(result.return_value, 7)

        self.run_async(main())
        self.assertEqual(self.calls, list(range(50)))
        self.assertEqual(self.dead_letter_count(), 0)

    def test_each_time_of_acknowledgement(self) -> None:
        """Each of them finishes the message, and a task may finish its message itself."""
        async def main() -> None:
            for kind in AcknowledgeType:
                broker = self.broker()

                async def work(name: str, context: Annotated[Context, TaskiqDepends()]) -> None:
                    if name == "manual":
                        await context.ack()
                    self.calls.append((name, context.is_acked))

                task = broker.register_task(work, task_name="work")
                await task.kiq(kind.value)
                await self.run_worker(broker, ack_type=kind)

        self.run_async(main())
        self.assertEqual(self.calls, [("when_received", True), ("when_executed", False),
                                      ("when_saved", False), ("manual", True)])

    def test_a_message_whose_task_ends_without_acknowledgement_comes_again(self) -> None:
        """The message is delivered again after its invisible time."""
        async def main() -> None:
            broker = self.broker()

            async def work(context: Annotated[Context, TaskiqDepends()]) -> None:
                self.calls.append("called")
                if len(self.calls) == 2:
                    await context.ack()

            await broker.register_task(work, task_name="work").kiq()
            async with running_worker(broker, ack_type=AcknowledgeType.MANUAL):
                await until("the second call", lambda: len(self.calls) == 2)
                await broker.wait_all(60)

        self.run_async(main())
        self.assertEqual(len(self.calls), 2)

    def failing(self, broker: TwistmqBroker, **labels: Any) -> Any:
        """Make a task that always fails."""
        async def fail() -> None:
            self.calls.append(time.time())
            raise RuntimeError("always")

        return broker.register_task(fail, task_name="fail", **labels)

    def test_a_failed_task_is_a_dead_letter(self) -> None:
        """The exceptions are the option against this, and a retry in place of the task."""
        async def main() -> None:
            for bury, retries, dead in ((True, 0, 1), (True, 3, 2), (False, 0, 2)):
                broker = self.broker(bury_failed=bury)
                broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=retries))
                await self.failing(broker, retry_on_error=retries > 0).kiq()
                await self.run_worker(broker)
                self.assertEqual(self.dead_letter_count(), dead)

        self.run_async(main())
        self.assertEqual(len(self.calls), 1 + 3 + 1)

    def test_a_retry_waits_at_the_broker(self) -> None:
        """Taskiq's middleware determines the delay."""
        async def main() -> None:
            broker = self.broker()
            broker.add_middlewares(SmartRetryMiddleware(
                default_retry_count=2, default_delay=0.6, default_retry_label=True))
            await self.failing(broker).kiq()
            await self.run_worker(broker)

        self.run_async(main())
        first, second = self.calls
        self.assertGreaterEqual(second - first, 0.6)
        self.assertEqual(self.dead_letter_count(), 1)

    def test_a_task_whose_retry_cannot_be_sent_comes_again(self) -> None:
        """Taskiq neither finishes the message nor sends another one."""
        async def main() -> None:
            broker = self.broker()
            broker.add_middlewares(SimpleRetryMiddleware(default_retry_label=True))

            async def flaky() -> None:
                self.calls.append("called")
                if len(self.calls) == 1:
                    raise RuntimeError("not yet")

            await broker.register_task(flaky, task_name="flaky").kiq()
            async with running_worker(broker):
                with mock.patch.object(Sender, "send", side_effect=RemotingTimeout("away")) as away:
                    await until("the retry", lambda: away.called)
                await until("the second call", lambda: len(self.calls) == 2)
                await broker.wait_all(60)

        asyncio.run(main())
        self.assertEqual((len(self.calls), self.dead_letter_count()), (2, 0))

    def test_a_task_may_requeue_or_reject_its_message(self) -> None:
        """A rejected message becomes a dead letter."""
        async def main() -> None:
            broker = self.broker()

            async def work(context: Annotated[Context, TaskiqDepends()]) -> None:
                self.calls.append("called")
                if len(self.calls) == 1:
                    await context.requeue()
                context.reject()

            await broker.register_task(work, task_name="work").kiq()
            await self.run_worker(broker)

        self.run_async(main())
        self.assertEqual((len(self.calls), self.dead_letter_count()), (2, 1))

    def test_a_task_without_a_result_has_not_failed(self) -> None:
        """The task raises Taskiq's error for this purpose."""
        async def main() -> None:
            broker = self.broker()

            async def work() -> None:
                raise NoResultError

            await broker.register_task(work, task_name="work").kiq()
            await self.run_worker(broker)

        self.run_async(main())
        self.assertEqual(self.dead_letter_count(), 0)

    def test_a_task_that_blocks_the_event_loop_longer_than_the_invisible_time_runs_once(
        self
    ) -> None:
        """Threads extend the invisible time of its message."""
        async def main() -> None:
            broker = self.broker(invisible_s=1)

            async def block() -> None:
                self.calls.append("begin")
                time.sleep(3)
                self.calls.append("end")

            await broker.register_task(block, task_name="block").kiq()
            await self.run_worker(broker)

        self.run_async(main())
        self.assertEqual(self.calls, ["begin", "end"])

    def test_a_worker_that_stops_gives_back_what_it_has_not_begun(self) -> None:
        """The running tasks are finished, and another worker receives the other ones at once."""
        async def main() -> None:
            broker = self.broker(invisible_s=600)
            may_end = asyncio.Event()

            async def work(number: int) -> None:
                self.calls.append(number)
                await may_end.wait()

            task = broker.register_task(work, task_name="work")
            for number in range(3):
                await task.kiq(number)
            async with running_worker(broker, max_async_tasks=1):
                await until("the first task", lambda: self.calls == [0])
                asyncio.get_running_loop().call_later(0.2, may_end.set)
            first = list(self.calls)
            other = self.broker()
            other.register_task(work, task_name="work")
            async with running_worker(other):
                await until("the rest", lambda: len(self.calls) == 3)
            # The receiver also finishes the messages that it had already requested.
            self.assertLess(len(first), 3)

        self.run_async(main())
        self.assertEqual(sorted(self.calls), [0, 1, 2])


class RestartTests(SynchronousTestCase):
    """A broker that ends and starts again."""

    def test_a_worker_waits_for_a_broker_that_restarts(self) -> None:
        """The worker receives delayed messages, and messages from after the restart."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        calls: list[str] = []

        async def main() -> None:
            server = running_broker(data=folder)
            first = await asyncio.to_thread(server.__enter__)
            ports = {"namesrv.port": str(first.service.namesrv.port),
                     "listenPort": str(first.service.broker.port)}
            broker = TwistmqBroker(first.namesrv_address, timeout_s=1)

            async def note(text: str) -> None:
                calls.append(text)

            task = broker.register_task(note, task_name="note")
            await task.kicker().with_labels(delay=3).kiq("delayed")
            async with running_worker(broker):
                await task.kiq("before")
                await until("the first", lambda: calls == ["before"])
                await asyncio.to_thread(server.__exit__, None, None, None)
                second = running_broker(ports, data=folder)
                await asyncio.to_thread(second.__enter__)
                await task.kiq("after")
                await broker.wait_all(60)
            await asyncio.to_thread(second.__exit__, None, None, None)

        asyncio.run(main())
        self.assertEqual(sorted(calls), ["after", "before", "delayed"])
