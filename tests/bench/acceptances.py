"""Sends that brokers have accepted, and the first of them that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

__all__ = ["Acceptance", "first_kept"]


class Acceptance(NamedTuple):
    """A send that a broker has accepted.

    :param moment: when its answer arrived, seconds of a steady clock.
    :param name: the name of the broker.
    :param message_id: the id in the answer, which contains the offset of the message in the log.
    :param body: the body of the message; no other message has the same one.
    """

    moment: float
    name: str
    message_id: str
    body: bytes

    @property
    def offset(self) -> int:
        """The offset of the message in the log."""
        return int(self.message_id[-16:], 16)


def first_kept(
    accepted: Iterable[Acceptance], is_kept: Callable[[Acceptance], bool]
) -> tuple[Acceptance | None, list[Acceptance]]:
    """Return the first accepted send whose message the group has kept, and those that it lost.

    :param is_kept: returns whether the final log of the group has the message.
    :returns: None in place of the first one when no message was kept.
    """
    first, lost = None, []
    for acceptance in sorted(accepted):
        if not is_kept(acceptance):
            lost.append(acceptance)
        elif first is None:
            first = acceptance
    return first, lost
