"""The interfaces of the services that plugins provide to the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zope.interface import Interface

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Request
    from twistmq.broker.store.get_message import MessageFilter
    from twistmq.protocol.record import MessageRecord

__all__ = [
    "BroadcastClient",
    "IBroadcastOffsets",
    "IConsumerFilters",
    "IFilterLanguage",
    "IQueueLocks",
    "ITimedDelivery",
    "ITransactionService",
]


#: A client that pulls for a broadcast group: its client id, and whether a proxy asks for it.
BroadcastClient = tuple[str, bool]


class IBroadcastOffsets(Interface):
    """Keeps consumer offsets for broadcast groups, by client. Source: BroadcastOffsetManager."""

    def client_of(request: Request[Any]) -> BroadcastClient | None:
        """Return the client of a broadcast group that pulls, or None. Called at each pull."""

    def begin_offset(request: Request[Any], client: BroadcastClient) -> int | None:
        """Return the offset the client must pull from; None: the one it asks for."""

    def pulled(request: Request[Any], client: BroadcastClient, offset: int) -> None:
        """The client's pull from ``offset`` is answered, or it is sent there."""


class IFilterLanguage(Interface):
    """A language subscriptions can be written in. Source: FilterSpi @5.3.3."""

    def compile(expression: str) -> Callable[[Mapping[str, str]], bool]:
        """Make a function that says whether properties match.

        A function that takes longer than some microseconds has an attribute ``cost``: how many
        times longer. A pull then looks at that many times fewer messages in one turn. The mapping
        finds a property on demand; listing it, or asking for more than a few, parses all
        properties.

        :raises ValueError: when the expression is not of the language; the text says where.
        """


class IConsumerFilters(Interface):
    """Keeps what groups filter by, beside the subscriptions themselves, for all languages.

    Source: ConsumerFilterManager, ExpressionMessageFilter @5.3.3.
    """

    def own_filter(
        group: str, topic: str, expression_type: str, expression: str
    ) -> MessageFilter:
        """Make the filter of a pull that brings its own expression.

        :raises RequestRefused: when the expression is wrong, or no plugin supports its language.
        """

    def group_filter(group: str, topic: str, sub_version: int) -> MessageFilter:
        """Make the filter of the subscription in a group's heartbeats.

        :param sub_version: of the subscription the pull means.
        :raises RequestRefused: when the group's expression was not taken, or not that one yet.
        """

    def describe(group: str, topic: str) -> str:
        """Say what a group filters a topic by, as a text for people; "null": by nothing."""


class ITransactionService(Interface):
    """Takes half messages. Source: TransactionalMessageService @5.3.3."""

    def prepare(record: MessageRecord, properties: Mapping[str, str]) -> None:
        """Change a record so that it is stored as a half message no consumer sees.

        :param properties: what its sender gave and its unique key, parsed.
        """


class IQueueLocks(Interface):
    """A plugin that knows which groups consume in order; see ``Hooks.provider``."""

    def keeps_order(group: str) -> bool:
        """Whether a client of the group holds the lock of a queue."""


class ITimedDelivery(Interface):
    """A plugin that delivers messages at a time; see ``Hooks.provider``."""

    def delivered_ms() -> int | None:
        """The time before which all due messages were delivered, Unix ms; None if it is off."""
