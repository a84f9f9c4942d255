"""Popped messages that were handed out are hidden for longer, until their handlers end.

Half of the time before a message would be visible to other members again, it is hidden for the
whole time once more. A handler that takes longer than ``consume_timeout_ms`` has its message
delivered again. A message that the program received is hidden no longer than the program says.

While a handler has messages of an ordered queue, those behind them are hidden for longer too.

Source: none in Apache's client; its proxy renews receipts of its clients in the same way
(ReceiptHandleProcessor @5.3.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from twistmq.client.base.errors import ReceiptExpired, RequestRefused
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.held_queues import Held, PopOptions
from twistmq.client.core.pop.acknowledger import Acknowledging
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    from twistmq.client.core.consumer.member import Member

__all__ = ["Hiding"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class Hiding(Generic[T]):
    """Looks after the messages of one member.

    :param lose: is given messages whose receipts are worth nothing any more.
    """

    def __init__(
        self, member: Member[T], options: PopOptions, acks: Acknowledging,
        lose: Callable[[Held[T], Sequence[PoppedMessage[T]]], None],
    ) -> None:
        self._member = member
        self._options = options
        self._tasks = member.tasks
        self._acks = acks
        self._lose = lose

    async def watch_always(self) -> None:
        """Look after the messages that were handed out, again and again."""
        while True:
            await self._tasks.sleep(min(max(self._options.invisible_ms / 8, 50), 1000))
            for held in list(self._member.held.values()):
                running = held.window.running()
                for message in running:
                    self._watch(held, message)
                if self._options.in_order and (
                        running or held.in_order_until_ms > self._tasks.now_ms):
                    for message in held.window.waiting():
                        self._prolong(held, message)

    def _watch(self, held: Held[T], message: ReceivedMessage[T]) -> None:
        """Look after a message that was handed out."""
        if not isinstance(message, PoppedMessage) or message.lost:
            return
        if message.expires_ms <= self._tasks.now_ms:
            log.warning("%r is hidden no longer, and comes again", message)
            self._lose(held, [message])
        elif message.is_received:
            return
        elif self._is_late(held, message):
            log.warning("the handler of %r takes longer than %d ms, so it comes again", message,
                        self._options.consume_timeout_ms)
            self._lose(held, [message])
        else:
            self._prolong(held, message)

    def _is_late(self, held: Held[T], message: PoppedMessage[T]) -> bool:
        begin_ms = held.window.began_ms(message.offset)
        return begin_ms is not None and (
            self._tasks.now_ms - begin_ms > self._options.consume_timeout_ms)

    def _prolong(self, held: Held[T], message: ReceivedMessage[T]) -> None:
        """Hide a message for longer when half of its time is over."""
        if not isinstance(message, PoppedMessage) or message.changing is not None:
            return
        if message.expires_ms - self._tasks.now_ms < self._options.invisible_ms / 2:
            self._tasks.spawn(self._hide_longer(held, message), "hide a message for longer")

    async def _hide_longer(self, held: Held[T], message: PoppedMessage[T]) -> None:
        try:
            await self._acks.change(message, self._options.invisible_ms)
        except (RequestRefused, ReceiptExpired) as error:
            if not message.lost and not error.retriable:
                log.warning("%r comes again while it is handled: %s", message, error)
                self._lose(held, [message])
        except BrokerError as error:
            log.warning("%r is not hidden for longer now: %s", message, error)
