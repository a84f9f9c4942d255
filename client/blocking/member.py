"""The methods that all kinds of blocking consumers share as members of a group."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import MessageQueue
from twistmq.client.blocking.client import Client, closing_on_error
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Sql, subscription
from twistmq.client.shell.roles import Parts

__all__ = ["BlockingMember"]

T = TypeVar("T")


class BlockingMember(Generic[T]):
    """A consumer, which is a member of its group from its construction on."""

    member: Member[T]

    def _join(
        self, parts: Parts[Client], group: str, topics: Any,
        build: Callable[..., Member[T]],
    ) -> None:
        """Join the group.

        :param topics: the topics to read, in the form that ``build`` takes.
        :param build: makes the core of this kind of consumer.
        """
        self.client = parts.client
        self._owns_client = parts.is_own
        self._is_closed = False
        with closing_on_error(parts):
            self.member = build(self.client.core, group, topics, parts.options)
            self.client.run(self.member.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.member!r}{', closed' if self._is_closed else ''}>"

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Stop pulling some queues, or all; messages that were already read are still delivered."""
        self.client.loop.run_there(lambda: self.member.set_paused(queues, True))

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        self.client.loop.run_there(lambda: self.member.set_paused(queues, False))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are currently assigned to this member."""
        return self.client.loop.run_there(self.member.assigned)

    @property
    def damaged_count(self) -> int:
        """The number of damaged messages that were left out, see the option ``damaged``."""
        return self.member.damaged_count

    def commit(self) -> None:
        """Commit the offsets now; otherwise they are committed every five seconds."""
        self.client.run(self.member.commit)

    def subscribe(self, topic: str, expression: str | Sql | None = None) -> None:
        """Read one more topic, or change its expression.

        :raises OptionError: when queues are assigned.
        """
        new_subscription = subscription(self.client.core.namespace.topic(topic), expression)
        self.client.loop.run_there(lambda: self.member.subscribe(new_subscription))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        name = self.client.core.namespace.topic(topic)
        self.client.loop.run_there(lambda: self.member.unsubscribe(name))

    def close(self) -> None:
        """Leave the group; a second call does nothing.

        :raises RuntimeError: when it is called on the client's own thread.
        """
        self._leave(lambda: self.member.close(0))

    def _check_thread(self) -> None:
        """:raises RuntimeError: on the client's own thread, which cannot wait for itself."""
        if not self.client.core.is_closed:
            self.client.loop.check_thread()

    def _leave(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave the group by a coroutine of the core, and close the client if it is not shared.

        A second call waits for the work that an interrupted call began, and then completes it.
        """
        self._check_thread()
        self._is_closed = True
        try:
            if not (self.client.core.is_closed or self.member.has_left):
                # Another thread may close the client first.
                with suppress(Closed):
                    self.client.run(make)
        finally:
            if self._owns_client:
                self.client.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")
