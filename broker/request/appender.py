"""The only way to append records to the store, both for the kernel's handlers and for plugins.

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

#: Stores records on other brokers. Fires with the refusals by index, like Appender.append.
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

        The ``before_append`` hooks run first, and the store fills in the positions of the records.
        Use ``acknowledgement.wait`` to wait until they are as safe as the settings demand.

        :param owners: a number for each record. Either all records with the same number are stored
            or none of them. If it is None, each record is stored independently.
        :returns: the refusals by index into ``records``, or an empty dictionary if all records were
            appended.
        """
        refusals: dict[int, BrokerError] = {}
        accepted = records
        if self._hooks.before_append:
            refusals = _of_whole_owners(self._hooks.refuse_append(records), owners)
            if refusals:
                accepted = [r for index, r in enumerate(records) if index not in refusals]
        if not accepted:
            return refusals
        try:
            self.store.append(accepted)
        except StoreError as error:
            indexes = [index for index in range(len(records)) if index not in refusals]
            refusals |= self._append_apart(records, indexes, owners, error)
        return refusals

    def _append_apart(
        self, records: Sequence[MessageRecord], indexes: Sequence[int],
        owners: Sequence[int] | None, error: StoreError,
    ) -> dict[int, BrokerError]:
        """Append the records of each owner separately, after the store refused all of them.

        One bad record must not cause the records of other senders to be refused.
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
    """Extend each refusal of a record to all other records of the same owner."""
    if not refusals or owners is None:
        return refusals
    errors = {owners[index]: error for index, error in refusals.items()}
    return {index: errors[owner] for index, owner in enumerate(owners) if owner in errors}
