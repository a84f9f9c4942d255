"""Context managers for transactions.

    with producer.transaction("orders", b"paid") as transaction:
        database.commit()

The half message is stored safely before the block runs. The end of the block commits it, unless
:meth:`Transaction.rollback` was called. An error in the block leaves the message undecided,
because the database may have committed: the broker asks later, and the producer's ``on_check``
decides. In a child of ``fork``, the end of a block that the parent began does nothing: the end in
the parent counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from twistmq.client.base.errors import ClientError, ForkedError, OptionError
from twistmq.client.base.handlers import Decision
from twistmq.client.base.messages import MessageQueue, SendResult
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.sender import Sender
from twistmq.client.core.producer.transactions import end_half, send_half

__all__ = ["AsyncTransaction", "BlockingTransaction", "Transaction"]


#: The end of a transaction in words.
_STATES: Final = {
    Decision.COMMIT: "committed", Decision.ROLLBACK: "rolled back",
    Decision.UNKNOWN: "left to on_check",
}


class Transaction:
    """A transaction.

    :param sender: the producer's core.
    :param message: the half message.
    :param queue: the queue of the message; with None, the producer chooses it.
    """

    def __init__(
        self, sender: Sender, message: OutgoingMessage, queue: MessageQueue | None
    ) -> None:
        self._sender = sender
        self._message = message
        self._queue = queue
        self._result: SendResult | None = None
        self._is_rolled_back = False
        #: How far the transaction is, in words.
        self._state = "not begun"

    def __repr__(self) -> str:
        return f"<transaction of message {self.id}, {self._state}>"

    @property
    def id(self) -> str:
        """The unique id of the message."""
        return self._message.ids

    @property
    def result(self) -> SendResult:
        """Where the half message was stored; :raises ClientError: when it is not stored yet."""
        if self._result is None:
            raise ClientError("the half message is not stored: use the transaction with `with`")
        return self._result

    def rollback(self) -> None:
        """Roll the message back at the end of the block, so that it is never delivered."""
        self._is_rolled_back = True

    async def _begin(self) -> None:
        if self._result is not None:
            raise ClientError("a transaction can be used only once")
        self._result = await send_half(self._sender, self._message, self._queue)
        self._state = "open"

    def _end(self, failed: bool) -> None:
        if self._is_rolled_back:
            decision = Decision.ROLLBACK
        else:
            decision = Decision.UNKNOWN if failed else Decision.COMMIT
        self._state = _STATES[decision]
        end_half(self._sender, self.result, decision)


class BlockingTransaction(Transaction):
    """A transaction for ``with``.

    :param run: runs a coroutine of the core and waits for it.
    """

    def __init__(
        self, sender: Sender, message: OutgoingMessage, queue: MessageQueue | None,
        run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        super().__init__(sender, message, queue)
        self._run = run

    def __enter__(self) -> Self:
        """Store the half message.

        :raises NotSafe: when the broker did not wait for a flush or a slave; the message is
            rolled back.
        :raises SendFailed, RequestRefused: as for a send.
        """
        self._run(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async def end() -> None:
            self._end(failed=kind is not None)

        with suppress(ForkedError):
            self._run(end)


class AsyncTransaction(Transaction):
    """A transaction for ``async with``.

    :param run: runs a coroutine of the core and awaits it.
    """

    def __init__(
        self, sender: Sender, message: OutgoingMessage, queue: MessageQueue | None,
        run: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
    ) -> None:
        super().__init__(sender, message, queue)
        self._run = run

    def __enter__(self) -> NoReturn:
        """:raises OptionError: always."""
        raise OptionError("use `async with` for the block of a transaction, in place of `with`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The block cannot begin, so it never ends."""

    def __await__(self) -> NoReturn:
        """:raises OptionError: always."""
        raise OptionError("a transaction is not awaited: its block begins with "
                          "`async with producer.transaction(...)`")

    async def __aenter__(self) -> Self:
        """Store the half message; :raises: like :meth:`BlockingTransaction.__enter__`."""
        await self._run(self._begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async def end() -> None:
            self._end(failed=kind is not None)

        with suppress(ForkedError):
            await self._run(end())
