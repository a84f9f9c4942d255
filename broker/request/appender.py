"""The one way into the store, for the kernel's handlers and for plugins.

Source: DefaultMessageStore.putMessage with PutMessageHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.request.acknowledgement import Acknowledgement
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.errors import BrokerError, StoreError
from twistmq.protocol.record import MessageRecord

__all__ = ["Appender", "Escape"]

#: Stores records on other brokers; fires with the refusals by index, as Appender.append returns.
Escape = Callable[[Sequence[MessageRecord]], Deferred[dict[int, BrokerError]]]


class Appender:
    """Appends records to the store of one broker, after the ``before_append`` hooks.

    :param acknowledgement: waits until records are as safe as the settings demand.
    """

    def __init__(
        self, store: MessageStore, hooks: Hooks, acknowledgement: Acknowledgement
    ) -> None:
        self.store = store
        self.acknowledgement = acknowledgement
        self._hooks = hooks

    def append(
        self, records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records to the store.

        ``before_append`` hooks run first. The store fills in the records' places. Use
        ``acknowledgement.wait`` to wait until they are as safe as the settings demand.

        :param owners: a number for each record; records of one number are stored all or none.
            None when each record is its own.
        :returns: the refusals by index into ``records``; empty when all were appended.
        """
        refusals: dict[int, BrokerError] = {}
        left = records
        if self._hooks.before_append:
            refusals = _of_whole_owners(self._hooks.refuse_append(records), owners)
            if refusals:
                left = [r for index, r in enumerate(records) if index not in refusals]
        if not left:
            return refusals
        try:
            self.store.append(left)
        except StoreError as error:
            indexes = [index for index in range(len(records)) if index not in refusals]
            refusals |= self._append_apart(records, indexes, owners, error)
        return refusals

    def _append_apart(
        self, records: Sequence[MessageRecord], indexes: Sequence[int],
        owners: Sequence[int] | None, error: StoreError,
    ) -> dict[int, BrokerError]:
        """Append the records of each owner by themselves, after the store refused all of them.

        One bad record must not have the records of other senders refused.
        """
        groups: dict[int, list[int]] = {}
        for index in indexes:
            groups.setdefault(index if owners is None else owners[index], []).append(index)
        if len(groups) == 1 or error.retriable:
            return dict.fromkeys(indexes, error)
        refusals: dict[int, BrokerError] = {}
        for group in groups.values():
            try:
                self.store.append([records[index] for index in group])
            except StoreError as group_error:
                refusals |= dict.fromkeys(group, group_error)
        return refusals


def _of_whole_owners(
    refusals: dict[int, BrokerError], owners: Sequence[int] | None
) -> dict[int, BrokerError]:
    """Refuse, with a record, all other records of its owner."""
    if not refusals or owners is None:
        return refusals
    errors = {owners[index]: error for index, error in refusals.items()}
    return {index: errors[owner] for index, owner in enumerate(owners) if owner in errors}
