"""The state that a member keeps across restarts: its term, its vote, whether it has joined."""

from msgspec import Struct

__all__ = ["HardState"]


class HardState(Struct, frozen=True, gc=False):
    """The state that must be durable before the member sends a message that depends on it.

    ``voted_for`` is the id of the member that got the vote of ``term``, or the empty string.
    ``joined`` becomes True when a member that started without a hard state knows that it may vote
    (see ``admission.py``), and False when it finds that its log has lost committed entries.
    """

    term: int = 0
    voted_for: str = ""
    joined: bool = False
