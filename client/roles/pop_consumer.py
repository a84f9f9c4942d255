"""The methods of the consumer that reads messages by pop requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from twistmq.client.base.argument_checks import check_whole
from twistmq.client.base.messages import ReceivedMessage, check_message
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.pop.receiver import Receiver
from twistmq.client.roles.consumer import BaseConsumer, as_list
from twistmq.client.roles.parts import build_pop_consumer
from twistmq.client.roles.waits import waits
from twistmq.client.shell.options import milliseconds

__all__ = ["BasePopConsumer"]

T = TypeVar("T")


class BasePopConsumer(BaseConsumer[T]):
    """A member of a consumer group that pops.

    A popped message is invisible to the other members for ``invisible_s``. Handlers and iterations
    extend this time as needed, and acknowledge the message. A message that :meth:`receive` returned
    is delivered again unless the program acknowledges it in time.
    """

    #: The part of the core that receives messages for the program.
    _receiver: Receiver[T]

    def _build(
        self, core: ClientCore, group: str, topics: Topics | None, options: Mapping[str, Any]
    ) -> Member[T]:
        pop = build_pop_consumer(core, group, topics or (), options)
        self._receiver = pop.receiver
        return pop.member

    @waits
    async def receive(
        self, max_count: int = 32, *, invisible_s: float | None = None, wait_s: float = 15.0
    ) -> list[ReceivedMessage[T]]:
        """Wait for messages; the program has to acknowledge each of them.

        A call that is cancelled or interrupted loses nothing: the next call returns the messages
        that it took.

        :param invisible_s: how long they are invisible to other members; None: the value of the
            option.
        :returns: at most ``max_count`` messages; an empty list when the time is over.
        :raises Closed: when the consumer is closed.
        """
        check_whole(max_count, "max_count", 1)
        receiver = self._receiver
        invisible_ms = None if invisible_s is None else milliseconds(invisible_s, "invisible_s")
        wait_ms = milliseconds(wait_s, "wait_s")
        received: list[Batch[T]] = []
        is_over = False

        async def receive() -> None:
            batches = await receiver.receive(max_count, invisible_ms, wait_ms)
            if is_over:
                receiver.unreceive(batches)
            else:
                received.extend(batches)

        try:
            await self._call(receive)
        except BaseException:
            # The wait ended early, perhaps just after messages were received.
            is_over = True
            self._post(receiver.unreceive, received)
            raise
        return [message for batch in received for message in batch.messages]

    @waits
    async def acknowledge(
        self, messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
    ) -> None:
        """Acknowledge messages: messages that were received, or messages of an iteration.

        See :meth:`twistmq.client.roles.consumer.BaseConsumer.acknowledge` for the latter.

        :raises ReceiptExpired: when some messages are no longer invisible, or already have their
            result. The other messages are acknowledged.
        :raises RequestRefused, RemotingError: when a broker does not take the request.
        """
        self._check_open()
        self._finish()

        async def acknowledge() -> None:
            await self._receiver.acknowledge(
                self._handling.succeed_taken(as_list(messages)))

        await self._call(acknowledge)

    @waits
    async def extend(self, message: ReceivedMessage[T], invisible_s: float) -> None:
        """Make a received message invisible for a given time from now on.

        :raises: as :meth:`acknowledge`.
        """
        check_message(message)
        await self._call(self._receiver.extend, message,
                         milliseconds(invisible_s, "invisible_s"))

    @waits
    async def retry(self, message: ReceivedMessage[T], delay_s: float | None = None) -> None:
        """Return a message that the program received; it is delivered again.

        :param delay_s: the delay until then; None: the delay depends on the number of attempts, and
            after the last attempt the message is sent to the dead letter queue.
        :raises: as :meth:`acknowledge`.
        """
        check_message(message)
        await self._call(self._receiver.retry, message,
                         None if delay_s is None else milliseconds(delay_s, "delay_s"))

    @waits
    async def bury(self, message: ReceivedMessage[T]) -> None:
        """Send a message that the program received to the dead letter queue of the group.

        :raises: as :meth:`acknowledge`.
        """
        check_message(message)
        await self._call(self._receiver.bury, message)
