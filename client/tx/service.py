"""A consumer as a service of a Twisted application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.turns import Turn

if TYPE_CHECKING:
    from twistmq.client.tx import Consumer

__all__ = ["ConsumerService"]


class ConsumerService(Service):
    """Runs a consumer while a Twisted application runs.

        service = ConsumerService(consumer, handler)
        service.setServiceParent(application)

    The consumer joins its group when the service starts. ``consumer`` is the consumer,
    and ``log`` is the logger of the class.

    :param consumer: a ``Consumer`` of this module.
    :param handler: a function of a message, see :meth:`Consumer.run`.
    :param workers: how many messages are handled at once.
    """

    log = Logger()

    def __init__(
        self, consumer: Consumer[Any], handler: Callable[[ReceivedMessage[Any]], Any], *,
        workers: int = 20,
    ) -> None:
        self.consumer = consumer
        self._handler = handler
        self._workers = workers
        self._running: Deferred[None] | None = None

    def startService(self) -> None:
        """Join the group and handle messages."""
        super().startService()  # type: ignore[no-untyped-call]
        self._running = self.consumer.run(self._handler, workers=self._workers)
        self._running.addErrback(
            lambda failure: self.log.failure("the consumer of group {group} ended", failure,
                                             group=self.consumer._member.options.group))

    def stopService(self) -> Deferred[None]:
        """Stop, wait for handlers, commit and leave; the Deferred fires when all is done.

        When a handler of the consumer calls it, it fires at once, and the remaining steps follow
        when the handlers end.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        # Inside a handler, waiting for the end of the run would wait for that handler itself.
        is_handling = bool(Turn.running(self.consumer._member))
        self.consumer.stop()
        await self.consumer.close()
        if self._running is not None and not is_handling:
            await self._running
