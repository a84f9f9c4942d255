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


#: A client that pulls for a broadcast group: its client id, and whether a proxy pulls for it.
BroadcastClient = tuple[str, bool]


class IBroadcastOffsets(Interface):
    """Keeps consumer offsets for broadcast groups, by client. Source: BroadcastOffsetManager."""

    def client_of(request: Request[Any]) -> BroadcastClient | None:
        """Return the pulling client of a broadcast group, or None. Called at each pull."""

    def begin_offset(request: Request[Any], client: BroadcastClient) -> int | None:
        """Return the offset from which the client must pull; None: the requested offset."""

    def pulled(request: Request[Any], client: BroadcastClient, offset: int) -> None:
        """The client's pull from ``offset`` is answered, or the client is redirected there."""


class IFilterLanguage(Interface):
    """A language for the expressions of subscriptions. Source: FilterSpi @5.3.3."""

    def compile(expression: str) -> Callable[[Mapping[str, str]], bool]:
        """Return a function that decides whether properties match.

        A function that takes longer than a few microseconds has an attribute ``cost``, which is the
        factor. A pull then examines fewer messages in one turn, by the same factor. The mapping
        finds a single property on demand; iterating over it, or reading more than a few properties,
        parses all of them.

        :raises ValueError: when the expression is not valid; the text gives the position.
        """


class IConsumerFilters(Interface):
    """Keeps the filters of groups, in addition to their subscriptions, for all languages.

    Source: ConsumerFilterManager, ExpressionMessageFilter @5.3.3.
    """

    def own_filter(
        group: str, topic: str, expression_type: str, expression: str
    ) -> MessageFilter:
        """Return the filter of a pull that contains its own expression.

        :raises RequestRefused: when the expression is not valid, or no plugin supports its
            language.
        """

    def group_filter(group: str, topic: str, sub_version: int) -> MessageFilter:
        """Return the filter of the subscription in a group's heartbeats.

        :param sub_version: the version of the subscription to which the pull refers.
        :raises RequestRefused: when the group's expression was refused, or that version has not
            arrived yet.
        """

    def describe(group: str, topic: str) -> str:
        """Describe a group's filter for a topic, as a text for people; "null": no filter."""


class ITransactionService(Interface):
    """Accepts half messages. Source: TransactionalMessageService @5.3.3."""

    def prepare(record: MessageRecord, properties: Mapping[str, str]) -> None:
        """Change a record so that it is stored as a half message that no consumer sees.

        :param properties: the parsed properties: those from the sender, and the unique key.
        """


class IQueueLocks(Interface):
    """A plugin that knows which groups consume in order; see ``Hooks.provider``."""

    def keeps_order(group: str) -> bool:
        """Return whether a client of the group holds the lock of a queue."""


class ITimedDelivery(Interface):
    """A plugin that delivers messages at a given time; see ``Hooks.provider``."""

    def delivered_ms() -> int | None:
        """Return the time before which all due messages were delivered, Unix ms; None if off."""
