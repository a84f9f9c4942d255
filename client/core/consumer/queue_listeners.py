"""The listeners of a program that learn which queues a member gets and loses."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twistmq.protocol.bodies import MessageQueue

__all__ = ["QueueListeners"]

log = logging.getLogger("twistmq.client")

#: A function that is called with queues, as they are named in the namespace.
_Listener = Callable[[list[MessageQueue]], object]


class QueueListeners:
    """The listeners of one member; an error of a listener is logged and stops nothing."""

    def __init__(self) -> None:
        #: Called with the queues that were assigned, and with the queues that were lost.
        self.on_assigned: list[_Listener] = []
        self.on_lost: list[_Listener] = []

    def call_assigned(self, queues: list[MessageQueue]) -> None:
        """Report queues that this member has got, if there are any."""
        _call(self.on_assigned, queues)

    def call_lost(self, queues: list[MessageQueue]) -> None:
        """Report queues that this member has lost, if there are any."""
        _call(self.on_lost, queues)


def _call(listeners: list[_Listener], queues: list[MessageQueue]) -> None:
    for listener in list(listeners) if queues else ():
        try:
            listener(queues)
        except Exception:
            log.exception("a listener for changed queues failed")
