"""The events of a member. Each is passed to ``Member.handle_event`` with the time and a draw."""

from msgspec import Struct

from twistmq.raft.messages import Request, Response

__all__ = [
    "Answered", "Appended", "Asked", "CallFailed", "Event", "Flushed", "HardStateSaved",
    "PeerRefused", "Propose", "Started", "StorageFailed", "StorageRepaired", "Tick", "Transfer",
]


class Started(Struct, frozen=True, gc=False):
    """The first event of a member. Others are not passed before it."""


class Tick(Struct, frozen=True, gc=False):
    """The time ``Member.next_tick`` has come. More ticks than necessary do no harm."""


class Asked(Struct, frozen=True, gc=False):
    """A request of a peer. The driver chooses ``question``, which is unique in a member's life.

    Exactly one ``Answer`` with that number follows, at once or later.
    """

    question: int
    request: Request


class Answered(Struct, frozen=True, gc=False):
    """The response to the ``Ask`` with that number."""

    call: int
    response: Response


class CallFailed(Struct, frozen=True, gc=False):
    """The ``Ask`` with that number gets no response: the connection is lost, or cannot be made.

    The member itself keeps the time limits, and it ignores an answer that comes too late.
    """

    call: int


class HardStateSaved(Struct, frozen=True, gc=False):
    """The state of the ``SaveHardState`` with that number and all earlier ones are durable."""

    number: int


class Flushed(Struct, frozen=True, gc=False):
    """The sync of the ``FlushLog`` with that number and all earlier syncs have succeeded."""

    number: int


class Propose(Struct, frozen=True, gc=False):
    """Append these bodies to the log if this member leads. ``tag`` is chosen by the driver.

    The next action with that tag is ``Proposed`` or ``Refused``, in the same turn.
    """

    tag: int
    bodies: tuple[bytes, ...]


class Appended(Struct, frozen=True, gc=False):
    """The driver has appended entries of ``Member.term`` to the log itself.

    It may do so only while ``Member.is_appendable`` is True, and passes the event in that turn.
    A store that encodes its records itself uses this event instead of ``Propose``.
    """


class Transfer(Struct, frozen=True, gc=False):
    """An operator wants ``transferee`` to lead. ``TransferEnded`` carries the result."""

    tag: int
    transferee: str


class PeerRefused(Struct, frozen=True, gc=False):
    """A peer's host has reset the connection or refuses one: the process of the peer is gone."""

    peer: str


class StorageFailed(Struct, frozen=True, gc=False):
    """A write or a sync of the log or of the hard state has failed, or takes too long."""

    reason: str


class StorageRepaired(Struct, frozen=True, gc=False):
    """The storage can be used again after ``StorageFailed``."""


Event = (Started | Tick | Asked | Answered | CallFailed | HardStateSaved | Flushed | Propose
         | Appended | Transfer | PeerRefused | StorageFailed | StorageRepaired)
