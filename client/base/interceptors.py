"""Objects that see each message as it is sent or consumed: for metrics, traces, headers, audits.

An interceptor inherits from :class:`Interceptor` and overrides the methods that it needs.
``before_send`` is called by the thread or task that sends, and all other methods by the client's
thread or loop, so they must not block and cannot be coroutine functions. An interceptor stops
neither a send nor a handler: an error that it raises is logged, and so is a property that it sets
and that cannot be sent.

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
    """The base class of interceptors: every method does nothing.

    Override the methods that you need, as plain functions, and give an object of the class:
    ``Producer(..., interceptors=[Counter()])``. They must not block. An interceptor stops neither a
    send nor a handler: an error that it raises is logged, and so is a property that it sets and
    that cannot be sent.
    """

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """A message is about to be sent; the interceptor may change its properties.

        :param topic: the topic of the message, with its name in the namespace.
        :param properties: the properties of the message, except for its unique id. The method adds,
            replaces or removes entries in this dict. Names and values are texts that are not empty
            and do not contain the characters U+0001 and U+0002. A change that cannot be sent is
            undone and logged, and the message is sent without it.
        """

    def after_send(
        self, topic: str, ids: str, duration_ms: float, result: SendResult | None,
        error: Exception | None,
    ) -> None:
        """A send has ended, with a result or an error.

        :param ids: the unique id of the message; for a batch, the ids of its messages, joined by
            commas.
        :param duration_ms: the duration of the send with all its attempts.
        :param result: where the message is stored; None after an error.
        :param error: the error that the send raises; None after a success.
        """

    def before_consume(
        self, group: str, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]
    ) -> None:
        """Messages of a queue are about to be passed to a handler, a loop or a caller.

        :param group: the consumer group.
        """

    def after_consume(
        self, group: str, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]],
        outcome: str,
    ) -> None:
        """A handler has ended, or a program has decided how to handle a received message.

        The result of a handler is reported when the handler ends, as it is to Apache's hook. The
        broker learns the result later. If it never does, for example because the program is
        killed, a message that was reported as a success is delivered again. For a message of
        ``receive``, the result is reported when the broker has accepted it; an error of
        ``acknowledge``, ``retry`` or ``bury`` is not reported.

        :param outcome: "success"; "retry", when the handler asked for it; "exception"; "no
            result", when a handler of lists did not return a number; "time-out", when the handler
            took longer than the option ``consume_timeout_s`` and did not raise. After a time-out
            the message is sent back, and a later result of its handler is not reported.
        """

    def before_request(self, address: str, code: int, body: bytes) -> None:
        """A request is about to be sent to a server.

        :param address: the "host:port" of the server.
        :param code: the request code, such as 310 for a send.
        :param body: the body of the request.
        """


class Interceptors:
    """The interceptors of a client; an error of one does not affect another."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._all: Final = tuple(interceptors)

    def __str__(self) -> str:
        return " or ".join(type(each).__name__ for each in self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a method of all interceptors."""
        for interceptor in self._all:
            method: Callable[..., object] = getattr(interceptor, name)
            try:
                method(*arguments)
            except Exception:
                log.exception("the interceptor %s failed in %s", type(interceptor).__name__, name)
