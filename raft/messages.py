"""The requests and responses that the members of a group exchange, and the entries of their logs.

They carry the fields of DLedger's peer protocol under this project's names, because a group may
mix twistmq's members with Apache's. A codec defines their bytes on the wire.

A response does not repeat its request's group and members: the driver of a member matches it to
the request by the number of the call (see ``actions.Ask``).
"""

import enum

from msgspec import Struct

__all__ = [
    "Entry", "HeartbeatRequest", "HeartbeatResponse", "PushRequest", "PushResponse", "PushType",
    "Request", "Response", "ResponseCode", "TransferRequest", "TransferResponse", "VoteRequest",
    "VoteResponse", "VoteResult",
]


class ResponseCode(enum.IntEnum):
    """The codes in the body of a response, with DLedger's numbers.

    A codec maps every number that is not listed here to ``UNKNOWN``.
    """

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    NETWORK_ERROR = 302
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    LEADER_PENDING_FULL = 503
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


class VoteResult(enum.Enum):
    """The answer of a voter to a candidate. The value is the name on DLedger's wire."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


class PushType(enum.Enum):
    """The kinds of pushes to a follower. The value is the name on DLedger's wire."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


class Entry(Struct, frozen=True, gc=False):
    """One entry of a log.

    ``index`` counts from 0 without gaps. ``term`` is the term of the leader that made the entry.
    ``position`` is the offset of the entry in its log file, in bytes, if the files must be equal at
    all members; other logs leave it 0. Only the log reads ``position`` and ``body``.
    """

    index: int
    term: int
    body: bytes = b""
    position: int = 0


class Request(Struct, frozen=True, gc=False):
    """The fields of every request.

    ``sender`` and ``receiver`` are ids of members. ``term`` is the sender's term, and ``leader``
    the leader of that term, or the candidate in a vote request.
    """

    group: str
    sender: str
    receiver: str
    term: int
    leader: str


class VoteRequest(Request, frozen=True, gc=False):
    """A candidate asks for a vote in ``term``. It sends the end of its log; -1: empty."""

    end_index: int = -1
    end_term: int = -1


class HeartbeatRequest(Request, frozen=True, gc=False):
    """A leader announces that it leads ``term``."""


class PushRequest(Request, frozen=True, gc=False):
    """A leader changes or compares a follower's log, and sends its committed index.

    APPEND has one or more entries with consecutive indexes, COMPARE and TRUNCATE have exactly one.
    COMMIT has no entry.
    """

    type: PushType = PushType.COMMIT
    commit_index: int = -1
    entries: tuple[Entry, ...] = ()


class TransferRequest(Request, frozen=True, gc=False):
    """Asks a leader to give the lead to a member, or asks that member to take it.

    ``transferor`` is the current leader and ``transferee`` the next one. ``take_index`` is the end
    of the leader's log, which the transferee must reach first.
    """

    transferor: str = ""
    transferee: str = ""
    take_index: int = -1


class Response(Struct, frozen=True, gc=False):
    """The fields of every response. ``term`` is -1 where DLedger does not fill it."""

    code: ResponseCode = ResponseCode.SUCCESS
    term: int = -1
    leader: str = ""


class VoteResponse(Response, frozen=True, gc=False):
    """The answer of a voter, with the voter's own term."""

    result: VoteResult = VoteResult.UNKNOWN


class HeartbeatResponse(Response, frozen=True, gc=False):
    """The answer to a heartbeat: SUCCESS, or the reason not to follow this leader."""


class PushResponse(Response, frozen=True, gc=False):
    """The answer to a push. ``term`` repeats the term of the request.

    ``index`` and ``count`` are the first index and the number of the entries of the request.
    ``begin_index`` and ``end_index`` are the first and the last index in the follower's log; -1: it
    is empty.
    """

    index: int = -1
    count: int = 0
    begin_index: int = -1
    end_index: int = -1


class TransferResponse(Response, frozen=True, gc=False):
    """The answer to a request for transfer: SUCCESS when the transferee leads."""
