"""The features that plugins provide through interfaces; the kernel asks the hooks for them once.

Expression languages are added before the store loads, all other providers once it has loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.broker.request.filters import FilterLanguages
from twistmq.protocol.topic_names import SEND_FORBIDDEN_TOPICS

if TYPE_CHECKING:
    from twistmq.broker.plugin.hooks import Hooks
    from twistmq.broker.plugin.interfaces import IBroadcastOffsets, ITransactionService
    from twistmq.broker.remoting.interfaces import IFlowControl

__all__ = ["Providers"]


class Providers:
    """The providers in use."""

    def __init__(self) -> None:
        #: The expression languages; the language of tags is always available.
        self.filters = FilterLanguages()
        #: Handles half messages; None if no plugin provides transactions.
        self.transaction_service: ITransactionService | None = None
        #: Keeps the offsets of broadcast consumers; None if no plugin provides them.
        self.broadcast_offsets: IBroadcastOffsets | None = None
        #: Rejects requests under overload; None if no plugin provides flow control.
        self.flow_control: IFlowControl | None = None
        #: Message properties whose features plugins provide.
        self.claimed_properties: frozenset[str] = frozenset()
        #: Topics to which no client may send; a plugin adds the topics that it uses internally.
        self.send_forbidden_topics = set(SEND_FORBIDDEN_TOPICS)

    def add_languages(self, hooks: Hooks) -> None:
        """Ask plugins for expression languages; called before the store loads."""
        self.filters.add_languages(hooks.collect_filter_languages())
        self.filters.consumer_filters = hooks.consumer_filters()

    def resolve(self, hooks: Hooks) -> None:
        """Ask plugins for all other providers; called once the store has loaded."""
        self.transaction_service = hooks.transaction_service()
        self.flow_control = hooks.flow_control()
        self.broadcast_offsets = hooks.broadcast_offsets()
        self.claimed_properties = hooks.claimed_properties()
