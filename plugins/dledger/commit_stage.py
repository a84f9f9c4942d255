"""Sends that wait until a majority of the group has their messages.

Messages with WAIT=false wait as well, as with Apache's ledger: an answer means that the group has
agreed. A send is answered with an error if the group does not agree in time, or if its leader steps
down. Its message may still become readable, because the outcome is unknown at that moment.

Source: DLedgerCommitLog.asyncPutMessage @5.3.3, DLedgerEntryPusher.QuorumAckChecker
@dledger-0.3.1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, fail

from twistmq.broker.api import BrokerError, MessageRecord, RequestRefused, ResponseCode
from twistmq.broker.api.requests import Stage
from twistmq.plugins.replica.offset_waits import OffsetWaits

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["CommitStage"]

#: How long a send waits for a majority, ms. Source: DLedgerConfig.maxWaitAckTimeMs.
_WAIT_MS: Final = 2500
#: The stage's own time limit is longer, so that the client gets the remark.
_STAGE_MS: Final = 2 * _WAIT_MS
_LATE: Final = "in-sync replicas not enough"
_LOST: Final = "this broker no longer leads its group, and the message may be stored or not"
_BUSY: Final = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"


class CommitStage:
    """The waiting sends of one broker.

    :param is_appendable: returns whether entries may be appended now.
    :param on_append: called when messages were appended, in the same turn or in the next one.
    """

    def __init__(
        self, broker: Broker, is_appendable: Callable[[], bool], on_append: Callable[[], None],
    ) -> None:
        self._host = broker.host
        self._steady_ms = broker.steady.now_ms
        self._log, self._dispatch = broker.store.commit_log, broker.store.dispatch
        self._is_appendable = is_appendable
        self._on_append = on_append
        self._waits = OffsetWaits()
        self._is_open = self._will_notify = False
        #: The end of the log when an append was last reported.
        self._end = 0
        #: The number of sends that waited, and the number that waited too long.
        self.waits = self.timeouts = 0
        broker.acknowledgement.stages.insert(0, Stage(
            self.begin, ResponseCode.SYSTEM_ERROR, lambda: _STAGE_MS, is_mandatory=True))

    @property
    def count(self) -> int:
        """The number of sends that wait."""
        return len(self._waits)

    def open(self) -> None:
        """Let sends wait from now on: this broker leads its group."""
        self._is_open = True
        self._end = self._log.max_offset

    def release(self) -> None:
        """Answer the sends that wait, because another broker may lead now."""
        self._is_open = False
        self._waits.fail_all(RequestRefused(ResponseCode.SYSTEM_ERROR, _LOST))

    def begin(self, offset: int) -> Deferred[None] | None:
        """Wait until the group has agreed on the log up to ``offset``."""
        self._notify()
        if offset <= self._dispatch.confirm_offset:
            return None
        if not self._is_open:
            return fail(RequestRefused(ResponseCode.SYSTEM_ERROR, _LOST))
        self.waits += 1
        return self._waits.wait(offset, self._steady_ms() + _WAIT_MS)

    def confirm_up_to(self, offset: int) -> None:
        """Acknowledge the sends up to an offset of the log."""
        self._waits.end_up_to(offset)

    def rest_ms(self) -> int | None:
        """Return how long :meth:`expire` has nothing to do, ms; None while no send waits."""
        has_work = len(self._waits) > 0 or self._will_notify or (
            self._is_open and self._log.max_offset != self._end)
        return 0 if has_work else None

    def expire(self, _: int = 0) -> None:
        """Answer the sends that have waited too long; periodic."""
        self._notify()
        self.timeouts += self._waits.fail_late(
            self._steady_ms(), RequestRefused(ResponseCode.SYSTEM_ERROR, _LATE))

    def before_append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError] | None:
        """Refuse messages while too many wait, or while the lead is being transferred."""
        if not self._is_open:
            # The store refuses them with the answer of a slave.
            return None
        if not self._is_appendable():
            return {index: RequestRefused(ResponseCode.SYSTEM_BUSY, _BUSY)
                    for index in range(len(records))}
        if not self._will_notify:
            # Work of the broker itself does not always wait for an acknowledgement.
            self._will_notify = True
            self._host.run_soon(self._notify)
        return None

    def _notify(self) -> None:
        """Report messages that were appended since the last report."""
        self._will_notify = False
        end = self._log.max_offset
        if self._is_open and end != self._end:
            self._end = end
            self._on_append()
