"""Objects that see messages on their way: for metrics, traces, headers, audits.

An interceptor inherits :class:`Interceptor` and overrides the methods that it needs. It is called
on the client's thread or loop, so it must not block. One that raises is logged; it stops neither
a send nor a handler.

Source: SendMessageHook, ConsumeMessageHook, CheckForbiddenHook, RPCHook @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from twistmq.client.base.messages import MessageQueue, ReceivedMessage, SendResult

__all__ = ["Interceptor", "Interceptors"]

log = logging.getLogger("twistmq.client")


class Interceptor:
    """The base of interceptors: every method does nothing."""

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """A message is about to be sent; its properties may be changed."""

    def after_send(
        self, topic: str, ids: str, duration_ms: float, result: SendResult | None,
        error: Exception | None,
    ) -> None:
        """A send ended, with a result or an error."""

    def before_consume(
        self, group: str, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]
    ) -> None:
        """Messages of a queue go to a handler."""

    def after_consume(
        self, group: str, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]],
        outcome: str,
    ) -> None:
        """A handler ended, or a program said what becomes of a message that it received.

        The result of a handler is told when the handler ends, as Apache's hook tells it. The broker
        hears of it later. If it never does, because the program is killed for example, a message
        that was told as a success comes again. The result of a message of ``receive`` is told when
        the broker took it; an error of ``acknowledge``, ``retry`` or ``bury`` is not told.

        :param outcome: "success"; "retry", which it asked for; "exception"; "no result", when a
            handler of lists returned no number; "time-out", when it took longer than the option
            ``consume_timeout_s``, unless it raised. A result that comes after its message was sent
            back for that is not told.
        """

    def before_request(self, address: str, code: int, body: bytes) -> None:
        """A request is about to be sent to a server."""


class Interceptors:
    """The interceptors of a client, each isolated from the others."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._all: Final = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a method of all."""
        for interceptor in self._all:
            method: Callable[..., object] = getattr(interceptor, name)
            try:
                method(*arguments)
            except Exception:
                log.exception("the interceptor %s failed in %s", type(interceptor).__name__, name)
