"""Isolates a plugin's flow control: if it raises, all requests pass, and the error is logged."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.errors import FAULTS
from twistmq.broker.remoting.interfaces import IFlowControl, WaitingRequests
from twistmq.protocol.frame import Frame

__all__ = ["IsolatedFlowControl"]

Sorted = tuple[Sequence[Frame], Sequence[bytes]]


@implementer(IFlowControl)
class IsolatedFlowControl:
    """Calls a plugin's flow control and catches its exceptions.

    :param own: the plugin's flow control.
    """

    log = Logger()

    def __init__(self, own: IFlowControl) -> None:
        self._own = own
        self.fault_count = 0

    @property
    def rejects(self) -> bool:
        return self._own.rejects

    def begin_round(self, waiting: WaitingRequests) -> None:
        try:
            self._own.begin_round(waiting)
        except FAULTS:
            self._failed("begin_round")

    def arrived(self, frames: Sequence[Frame], own_count: int, waiting: WaitingRequests) -> Sorted:
        try:
            return self._own.arrived(frames, own_count, waiting)
        except FAULTS:
            return self._failed("arrived", frames)

    def due(self, frames: Sequence[Frame], waited_ms: int, waiting: WaitingRequests) -> Sorted:
        try:
            return self._own.due(frames, waited_ms, waiting)
        except FAULTS:
            return self._failed("due", frames)

    def reject(self, frames: Sequence[Frame]) -> Sorted:
        try:
            return self._own.reject(frames)
        except FAULTS:
            return self._failed("reject", frames)

    def _failed(self, what: str, frames: Sequence[Frame] = ()) -> Sorted:
        """Log at each power of two: the plugin may raise a hundred times a second."""
        self.fault_count += 1
        if self.fault_count & (self.fault_count - 1) == 0:
            self.log.failure("flow control failed in {what}, failure number {count}", what=what,
                             count=self.fault_count)
        return frames, ()
