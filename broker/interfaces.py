"""The interfaces of what can be replaced: providers that plugins supply, and the store's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zope.interface import Interface

if TYPE_CHECKING:
    from twistmq.broker.remoting import Request
    from twistmq.broker.wire.record import MessageRecord

__all__ = ["IAccessValidator", "IFilterLanguage", "ITransactionService"]

# --- supplied by plugins


class IAccessValidator(Interface):
    """Decides whether a request may be served. Source: AccessValidator @5.2.0."""

    def validate(request: Request[Any]) -> None:
        """Let the request pass by returning.

        :raises BrokerError: to refuse it; any other exception refuses it as well.
        """


class IFilterLanguage(Interface):
    """A language subscriptions can be written in. Source: FilterSpi @5.3.3."""

    def compile(expression: str) -> Callable[[Mapping[str, str]], bool]:
        """Make a function that says whether properties match.

        :raises ValueError: when the expression is not of the language; the text says where.
        """


class ITransactionService(Interface):
    """Takes half messages. Source: TransactionalMessageService @5.3.3."""

    def prepare(record: MessageRecord, properties: Mapping[str, str]) -> None:
        """Change a record so that it is stored as a half message no consumer sees.

        :param properties: the record's, parsed.
        """
