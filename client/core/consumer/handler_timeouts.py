"""Time-outs of handlers: a message whose handler takes too long is sent back.

Source: ConsumeMessageConcurrentlyService.cleanExpireMsg @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueues, MemberOptions
from twistmq.client.core.consumer.outcome_reports import OutcomeReports
from twistmq.client.core.consumer.retries import Retries

__all__ = ["HandlerTimeouts"]

log = logging.getLogger("twistmq.client")

#: The longest interval at which messages that run for too long are searched, in ms.
_INTERVAL_MS: Final = 60_000
#: The delay level of a message whose handler takes too long. Source: cleanExpiredMsg.
_TIMEOUT_LEVEL: Final = 3


class HandlerTimeouts:
    """Searches the messages of one member whose handlers take too long.

    :param group: the group's name at brokers.
    """

    def __init__(
        self, tasks: Scheduler, group: str, options: MemberOptions, queues: AssignedQueues[Any],
        retries: Retries, reports: OutcomeReports,
    ) -> None:
        self._tasks = tasks
        self._group = group
        self._timeout_ms = options.consume_timeout_ms
        self._queues = queues
        self._retries = retries
        self._reports = reports

    async def search_always(self) -> None:
        """Send back messages whose handlers take too long; their late results do not count."""
        loop = Loop(f"the time-out of the handlers of group {self._group}", None)
        while True:
            await self._tasks.sleep(min(self._timeout_ms, _INTERVAL_MS))
            await loop.turn(self._search())

    async def _search(self) -> None:
        timeout_ms = int(self._timeout_ms)
        for assigned in list(self._queues.values()):
            for message in assigned.window.expired(int(self._tasks.now_ms), timeout_ms):
                log.warning("the handler of %r takes longer than %d ms, so it is sent back",
                            message, timeout_ms)
                if await self._retries.send_back(message, _TIMEOUT_LEVEL):
                    # A result that came in the meantime was reported already.
                    self._reports.report(assigned, [message], "time-out")
                    assigned.window.done(message.offset)
