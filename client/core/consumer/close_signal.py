"""The signal by which the parts of a member learn that the member closes."""

from __future__ import annotations

from twistmq.client.core.connection.tasks import Future, Scheduler

__all__ = ["CloseSignal"]


class CloseSignal:
    """Whether a member closes; it is set once."""

    __slots__ = ("_sleeping", "_tasks", "is_set")

    def __init__(self, tasks: Scheduler) -> None:
        self._tasks = tasks
        #: Whether the member closes or is closed.
        self.is_set = False
        #: The waits that a close ends.
        self._sleeping: set[Future[None]] = set()

    def set(self) -> None:
        """Begin the close, and end all :meth:`sleep` calls."""
        self.is_set = True
        for sleep in list(self._sleeping):
            sleep.set_result(None)

    async def sleep(self, delay_ms: float) -> None:
        """Wait for some milliseconds, or until the member closes."""
        if self.is_set:
            return
        sleep: Future[None] = Future()
        self._sleeping.add(sleep)
        timer = self._tasks.call_later(delay_ms, sleep.set_result, None)
        try:
            await sleep
        finally:
            timer.cancel()
            self._sleeping.discard(sleep)
