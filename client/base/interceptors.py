"""Objects that see each message as it is sent or consumed: for metrics, traces, headers, audits.

An interceptor inherits from :class:`Interceptor` and overrides the methods that it needs.
``before_send`` is called by the thread or task that sends, ``around_handler`` by the one that calls
a handler, and all other methods by the client's thread or loop, so they must not block and cannot
be coroutine functions. An interceptor stops neither a send nor a handler: an error that it raises
is logged, and so is a property that it sets and that cannot be sent.

Source: SendMessageHook, ConsumeMessageHook, CheckForbiddenHook, RPCHook @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Final

from twistmq.client.base.messages import MessageQueue, ReceivedMessage, SendResult

__all__ = ["Interceptor", "Interceptors", "install_interceptor", "installed_interceptors",
           "uninstall_interceptor"]

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
        :param properties: the properties of the message, with its unique id, ``UNIQ_KEY``, which
            ``after_send`` reports. The method adds, replaces or removes entries in this dict. Names
            and values are texts that are not empty and do not contain the characters U+0001 and
            U+0002. A change that cannot be sent is undone and logged, and the message is sent
            without it.
        """

    def after_send(
        self, topic: str, ids: str, duration_ms: float, result: SendResult | None,
        error: Exception | None,
    ) -> None:
        """A send has ended, with a result or an error.

        :param ids: the unique id of the message; for a batch, the ids of its messages, joined by
            commas.
        :param duration_ms: the duration of the send with all its attempts.
        :param result: where the message is stored; None after an error, and for a message that was
            sent without a response.
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

    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage[Any]]
    ) -> AbstractContextManager[object]:
        """A handler is about to be called; it runs inside the context manager that is returned.

        The thread or task of the handler enters and leaves it, so it may set context variables. An
        error of the handler reaches it and cannot be suppressed.

        :param group: the consumer group.
        :param messages: the messages that the handler gets.
        """
        return nullcontext()

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
        self._around: Final = tuple(
            each for each in self._all
            if getattr(type(each), "around_handler", Interceptor.around_handler)
            is not Interceptor.around_handler)

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

    def wrap_handler(
        self, group: str, handler: Callable[[Any], object]
    ) -> Callable[[Any], object]:
        """Return a handler that runs inside the context managers of the interceptors.

        :param handler: gets a message or a list of messages.
        """
        if not self._around:
            return handler

        def call(argument: Any) -> object:
            with self._entered(group, argument):
                return handler(argument)

        return call

    def wrap_awaited(
        self, group: str, handler: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[Any], Awaitable[Any]]:
        """Return the same for a handler whose result is awaited."""
        if not self._around:
            return handler

        async def call(argument: Any) -> Any:
            with self._entered(group, argument):
                return await handler(argument)

        return call

    @contextmanager
    def _entered(self, group: str, argument: Any) -> Iterator[None]:
        messages = argument if isinstance(argument, list) else [argument]
        with ExitStack() as stack:
            for interceptor in self._around:
                stack.enter_context(_Guarded(interceptor, group, messages))
            yield


class _Guarded:
    """The context manager of an interceptor; an error of it does not affect the handler."""

    def __init__(
        self, interceptor: Interceptor, group: str, messages: Sequence[ReceivedMessage[Any]]
    ) -> None:
        self._interceptor = interceptor
        self._arguments = (group, messages)
        self._inner: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            inner = self._interceptor.around_handler(*self._arguments)
            inner.__enter__()
            self._inner = inner
        except Exception:
            self._log_failure()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._inner is None:
            return
        try:
            self._inner.__exit__(kind, error, traceback)
        except Exception as own:
            if own is not error:
                self._log_failure()

    def _log_failure(self) -> None:
        log.exception("the interceptor %s failed in around_handler",
                      type(self._interceptor).__name__)


#: The interceptors of all clients of the process that are made from now on.
_installed: list[Interceptor] = []


def install_interceptor(interceptor: Interceptor) -> None:
    """Give an interceptor to all clients that this process makes from now on.

    It comes after those of the option ``interceptors``.
    """
    if interceptor not in _installed:
        _installed.append(interceptor)


def uninstall_interceptor(interceptor: Interceptor) -> None:
    """Undo :func:`install_interceptor`; clients that exist keep the interceptor."""
    if interceptor in _installed:
        _installed.remove(interceptor)


def installed_interceptors() -> tuple[Interceptor, ...]:
    """Return the interceptors that a new client gets in addition to its own."""
    return tuple(_installed)
