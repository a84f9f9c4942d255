"""The actions of a member. Its driver carries out the actions of one turn in order."""

import enum

from msgspec import Struct

from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import Request, Response, ResponseCode

__all__ = [
    "Action", "Answer", "Ask", "Committed", "Complained", "FlushLog", "LeadEstablished", "Proposed",
    "Refused", "Role", "RoleChanged", "SaveHardState", "TransferEnded",
]


class Role(enum.Enum):
    """The three states of a member."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


class SaveHardState(Struct, frozen=True, gc=False):
    """Make this state durable, then pass ``HardStateSaved`` with the number.

    The member holds back the messages that depend on the state until that event. Numbers rise by
    one. A driver may skip a state when a later one has been requested.
    """

    number: int
    state: HardState


class FlushLog(Struct, frozen=True, gc=False):
    """Sync the log as it is now, then pass ``Flushed`` with the number. Numbers rise by one."""

    number: int


class Ask(Struct, frozen=True, gc=False):
    """Send a request to a peer, and pass its response by ``Answered`` with the number ``call``.

    Numbers are unique in one life of a member. An answer to a call of an earlier life must not be
    passed: such answers end with the connection. ``bulk`` requests may be large, so a driver may
    send them over a second connection, where they do not delay votes and heartbeats.
    """

    call: int
    peer: str
    request: Request
    bulk: bool = False


class Answer(Struct, frozen=True, gc=False):
    """Send the response to the ``Asked`` with that number."""

    question: int
    response: Response


class RoleChanged(Struct, frozen=True, gc=False):
    """The role, the term or the leader has changed. ``leader`` is empty while it is not known.

    A driver whose member was the leader now answers all waiting clients, because it is not known
    whether their entries will be committed.
    """

    role: Role
    term: int
    leader: str


class LeadEstablished(Struct, frozen=True, gc=False):
    """The barrier of this leader is committed, at this index: its log has all committed entries.

    From now on, and until the next ``RoleChanged``, the driver may accept work for the group.
    """

    term: int
    index: int


class Committed(Struct, frozen=True, gc=False):
    """All entries up to this index are committed and never change. The index only rises."""

    index: int


class Proposed(Struct, frozen=True, gc=False):
    """The bodies of the ``Propose`` with that tag have become these entries of the log.

    They are committed when ``Committed`` reaches ``last`` while this member still leads ``term``.
    """

    tag: int
    term: int
    first: int
    last: int


class Refused(Struct, frozen=True, gc=False):
    """The ``Propose`` with that tag was refused, and nothing was appended."""

    tag: int
    code: ResponseCode


class TransferEnded(Struct, frozen=True, gc=False):
    """The ``Transfer`` with that tag has ended: with SUCCESS, or with the code of the failure."""

    tag: int
    code: ResponseCode


class Complained(Struct, frozen=True, gc=False):
    """A line for the log that an operator should read. ``peer`` may be empty."""

    peer: str
    text: str


Action = (SaveHardState | FlushLog | Ask | Answer | RoleChanged | LeadEstablished | Committed
          | Proposed | Refused | TransferEnded | Complained)
