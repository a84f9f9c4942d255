"""Refuses sends on a master with acting masters in its group if too few brokers would have them.

Nothing of a refused send is stored. A broker counts if name servers know it and if its lag is not
above ``haMaxGapNotInSync``. With ``enableAutoInSyncReplicas`` sends wait for the brokers that
are available, and at least for ``minInSyncReplicas``.

Source: CommitLog.asyncPutMessage, calcNeedAckNums, DefaultHAService.inSyncReplicasNums @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.api import BrokerError, RequestRefused, ResponseCode, hookimpl
from twistmq.broker.api.wire import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twistmq.broker.api import Broker, MessageRecord
    from twistmq.plugins.ha.slaves import Slaves

__all__ = ["InSyncRule"]

#: The name under which the hook that refuses sends is registered.
_HOOK: Final = "ha_in_sync"
_WAITS_NOT: Final = f"{WAIT}\x01false"
_REMARK: Final = "in-sync replicas not enough"


class InSyncRule:
    """Counts the brokers of one master's group.

    :param alive: returns how many brokers of the group name servers know.
    """

    def __init__(self, broker: Broker, slaves: Slaves, alive: Callable[[], int]) -> None:
        self._broker = broker
        self._slaves = slaves
        self._alive = alive
        self._is_set = False

    def role_changed(self) -> None:
        """Start or stop refusing sends, since sends wait for slaves only on a SYNC_MASTER."""
        is_set = self._broker.role == "SYNC_MASTER"
        if is_set and not self._is_set:
            self._slaves.waits.required_count = self.required_count
            self._broker.hooks.add(_HOOK, self)
        elif self._is_set and not is_set:
            self._broker.hooks.remove(_HOOK)
        self._is_set = is_set

    def _in_sync(self) -> int:
        """Return the number of brokers that are available and up to date, including this one."""
        gap = self._broker.settings.int("haMaxGapNotInSync")
        near = sum(link.sender.behind_bytes() < gap for link in self._slaves.links)
        return min(self._alive(), 1 + near)

    def _needed(self, in_sync: int) -> int:
        settings = self._broker.settings
        needed = settings.int("inSyncReplicas")
        if settings.flag("enableAutoInSyncReplicas"):
            needed = max(settings.int("minInSyncReplicas"), min(needed, in_sync))
        return needed

    def required_count(self) -> int:
        """Return how many brokers, including this one, must have a message that is sent now."""
        return self._needed(self._in_sync())

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError] | None:
        """Refuse sends that wait for more brokers than are available."""
        in_sync = self._in_sync()
        if self._needed(in_sync) <= in_sync:
            return None
        return {index: RequestRefused(ResponseCode.SYSTEM_ERROR, _REMARK)
                for index, record in enumerate(records) if _WAITS_NOT not in record.properties}
