"""The actions of the current turn, and the messages that wait until the hard state is durable."""

from twistmq.raft.actions import Action, Answer, Ask, SaveHardState
from twistmq.raft.hard_state import HardState

__all__ = ["Outbox"]


class Outbox:
    """Collects actions in their order.

    A message (``Ask`` or ``Answer``) that is added while a hard state is being saved is kept until
    the state is durable. The message may contain the new term or the new vote, which must survive a
    crash before any peer learns of it.
    """

    def __init__(self) -> None:
        """Begin without actions, and with a durable hard state."""
        self._actions: list[Action] = []
        #: (number of the hard state that it waits for, message), in order.
        self._held: list[tuple[int, Ask | Answer]] = []
        self._requested = 0
        self._saved = 0

    def add(self, action: Action) -> None:
        """Add an action that is not a message."""
        self._actions.append(action)

    def add_message(self, message: Ask | Answer) -> None:
        """Add a message, or hold it back until it may be sent."""
        if self._saved < self._requested:
            self._held.append((self._requested, message))
        else:
            self._actions.append(message)

    def save_hard_state(self, state: HardState) -> int:
        """Request that a state is made durable, and return the number of the request."""
        self._requested += 1
        self._actions.append(SaveHardState(self._requested, state))
        return self._requested

    def hard_state_saved(self, number: int) -> None:
        """Release the messages that have waited for this state or an older one."""
        assert number <= self._requested, "a hard state is saved that was never requested"
        self._saved = max(self._saved, number)
        free = [message for waits_for, message in self._held if waits_for <= self._saved]
        self._held = [held for held in self._held if held[0] > self._saved]
        self._actions.extend(free)

    def is_saved(self, number: int) -> bool:
        """Return whether the hard state of this request is durable."""
        return number <= self._saved

    def take_actions(self) -> list[Action]:
        """Return the actions of this turn and forget them."""
        actions, self._actions = self._actions, []
        return actions
