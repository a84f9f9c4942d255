"""The methods that the consumers of all kinds and styles share as members of a group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from twistmq.client.base.argument_checks import check_text
from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import MessageQueue, check_queue
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Expression, Topics, subscription
from twistmq.client.roles.waits import waits

__all__ = ["BaseMember", "check_queues"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class BaseMember(Generic[T]):
    """A consumer, which is a member of its group."""

    #: The core of the consumer, and of its client.
    _member: Member[T]
    _core: ClientCore
    _is_closed: bool

    # --- Each kind of consumer defines these.

    @abstractmethod
    def _build(
        self, core: ClientCore, group: str, topics: Topics | None, options: Mapping[str, Any]
    ) -> Member[T]:
        """Build the core of the consumer."""

    # --- what the style supplies

    @abstractmethod
    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a coroutine function of the core, after the consumer has joined its group.

        :raises Closed: when the consumer is closed.
        """

    @abstractmethod
    def _apply(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function of the core, which runs soon afterwards."""

    @abstractmethod
    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the core, without waiting for its end."""

    # --- the methods

    def __repr__(self) -> str:
        return f"<{self._member!r}{', closed' if self._is_closed else ''}>"

    def pause(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Stop pulling some queues, or all; messages that were already read are still delivered."""
        check_queues(queues)
        self._apply(self._member.set_paused, queues, True)

    def resume(self, queues: Sequence[MessageQueue] | None = None) -> None:
        """Undo :meth:`pause`."""
        check_queues(queues)
        self._apply(self._member.set_paused, queues, False)

    def assigned(self) -> list[MessageQueue]:
        """The queues that are currently assigned to this member.

        After an assignment by the program, new queues appear shortly after the request.
        """
        return self._apply(self._member.assigned)

    @property
    def damaged_count(self) -> int:
        """The number of damaged messages that were left out, see the option ``damaged``."""
        return self._member.damaged_count

    @waits
    async def commit(self) -> None:
        """Commit the offsets now; otherwise they are committed every five seconds."""
        await self._call(self._member.commit)

    def subscribe(self, topic: str, expression: Expression = None) -> None:
        """Read one more topic, or change its expression.

        :param expression: None for all messages, "eu || us" or a list for messages with one of
            these tags, or ``sql(...)``.
        :raises OptionError: when queues are assigned, or the expression is invalid.
        """
        check_text(topic, "topic")
        name = self._core.namespace.topic(topic)
        self._apply(self._member.subscribe, subscription(name, expression))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        check_text(topic, "topic")
        self._apply(self._member.unsubscribe, self._core.namespace.topic(topic))


def check_queues(queues: object) -> None:
    """:raises OptionError: when an argument is neither None nor a list of queues."""
    if queues is None:
        return
    if not isinstance(queues, Iterable):
        raise OptionError(f"queues are {queues!r}: give a list of queues")
    for queue in queues:
        check_queue(queue)

