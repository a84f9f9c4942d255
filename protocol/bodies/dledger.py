"""The bodies that the members of a DLedger group exchange, under Apache's names.

Each request and each response is a plain JSON object in the body of a remoting command whose header
has no extFields. Apache's members write the keys in alphabetical order and leave out nulls, as
``encode`` does. A field of a text type that is UNSET was not sent.

    request                     code   response
    MetadataRequest             50000  MetadataResponse
    AppendEntryRequest          50001  AppendEntryResponse
    GetEntriesRequest           50002  GetEntriesResponse
    VoteRequest                 51001  VoteResponse
    HeartBeatRequest            51002  HeartBeatResponse
    PushEntryRequest            51004  PushEntryResponse
    LeadershipTransferRequest   51005  LeadershipTransferResponse

A response always has the remoting code 200, and the outcome is the ``code`` of its body. Apache's
members do not answer PullEntriesRequest (51003), so it has no body here.

Source: io.openmessaging.storage.dledger.protocol and DLedgerEntry @0.2.6 and @0.3.2, as brokers of
4.9.4 and 5.5.0 use them; captured, see tests/golden/dledger-frames.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from twistmq.protocol.errors import WireError
from twistmq.protocol.header import Int32, Int64

__all__ = [
    "ANSWER_CODE", "ENTRY_HEAD_SIZE", "ENTRY_MAGIC", "PUSH_TYPES", "VOTE_RESULTS",
    "AppendEntryRequest", "AppendEntryResponse", "DLedgerBody", "DLedgerEntry", "GetEntriesRequest",
    "GetEntriesResponse", "HeartBeatRequest", "HeartBeatResponse", "LeadershipTransferRequest",
    "LeadershipTransferResponse", "MetadataRequest", "MetadataResponse", "PushEntryRequest",
    "PushEntryResponse", "VoteRequest", "VoteResponse",
]

#: The remoting code of every response, whatever the code of its body is.
ANSWER_CODE: Final = 200
#: The bytes before the body of an entry in a data file, which ``DLedgerEntry.size`` includes.
ENTRY_HEAD_SIZE: Final = 48
#: The only magic of entries before DLedger 0.4.
ENTRY_MAGIC: Final = 1
#: The names of PushEntryRequest.Type and of VoteResponse.RESULT in the order of their ordinals,
#: which Apache's members accept in place of the names.
PUSH_TYPES: Final = ("APPEND", "COMMIT", "COMPARE", "TRUNCATE")
VOTE_RESULTS: Final = (
    "UNKNOWN", "ACCEPT", "REJECT_UNKNOWN_LEADER", "REJECT_UNEXPECTED_LEADER",
    "REJECT_EXPIRED_VOTE_TERM", "REJECT_ALREADY_VOTED", "REJECT_ALREADY_HAS_LEADER",
    "REJECT_TERM_NOT_READY", "REJECT_TERM_SMALL_THAN_LEDGER", "REJECT_EXPIRED_LEDGER_TERM",
    "REJECT_SMALL_LEDGER_END_INDEX", "REJECT_TAKING_LEADERSHIP")
_ENUMS: Final = {"type": PUSH_TYPES, "voteResult": VOTE_RESULTS}
#: The largest body in an unusual form that is read, bytes. Members write none of these forms, and
#: reading one blocks the reactor for up to 20 ms for 256 KiB.
_UNUSUAL_SIZE_MAX: Final = 256 * 1024

_encoder: Final = msgspec.json.Encoder(order="sorted")


class DLedgerBody(msgspec.Struct, rename="camel", gc=False):
    """The fields of every request and response, and the way in which all bodies are read.

    ``local_id`` is the sender and ``remote_id`` the receiver of a request.
    """

    code: Int32 = 200
    group: str | UnsetType = UNSET
    leader_id: str | UnsetType = UNSET
    local_id: str | UnsetType = UNSET
    remote_id: str | UnsetType = UNSET
    term: Int64 = -1

    def encode(self) -> bytes:
        """Write the body as Apache's members do."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a body as leniently as Apache's members do.

        A null stands for a value that was not sent, a number may be a text, a boolean or a
        fraction, an enum may be an ordinal, and the bytes of an entry may be a list of numbers.
        Unknown keys are ignored. Unlike fastjson 1, and like fastjson 2, it accepts neither base64
        in the alphabet for URLs nor integers of more than 64 bits.

        :raises WireError: when the bytes are not a JSON object, or a value does not fit its field.
        """
        try:
            body: Self = _decoder(cls).decode(data)
            return body
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = error
        if len(data) > _UNUSUAL_SIZE_MAX:
            raise WireError(f"{cls.__name__} of {len(data)} bytes: {reason}")
        try:
            value = _usual(msgspec.json.decode(data))
            return msgspec.convert(value, cls, strict=False)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError,
                OverflowError) as error:
            raise WireError(f"{cls.__name__}: {error}") from None


@cache
def _decoder(body_type: type[DLedgerBody]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body_type, strict=False)


def _usual(value: Any, name: str = "") -> Any:
    """Bring a value into the form that members write.

    :param name: the key of the value.
    :raises ValueError: when a list of numbers does not consist of bytes; TypeError and
        OverflowError likewise.
    """
    if name in _ENUMS:
        is_ordinal = isinstance(value, int) and 0 <= value < len(_ENUMS[name])
        # A name that does not exist stays, so that an error can show it.
        return _ENUMS[name][value] if is_ordinal else str(value)
    if isinstance(value, dict):
        members = {key: _usual(member, key) for key, member in value.items()}
        return {key: member for key, member in members.items() if member is not None}
    if name == "body" and isinstance(value, list):
        # Java's bytes are signed.
        return bytes(int(number) & 0xFF for number in value)
    if isinstance(value, list):
        return [_usual(member) for member in value if member is not None]
    if isinstance(value, bool | float):
        return int(value)
    return value


class DLedgerEntry(msgspec.Struct, rename="camel", gc=False):
    """One entry of the log.

    The JSON object has the fields of the entry in a data file, where all numbers are big-endian:

        offset  bytes  field
        0       4      magic: 1
        4       4      size: 48 + the bytes of the body
        8       8      index
        16      8      term
        24      8      pos: the offset of the entry in the log
        32      4      channel: 0
        36      4      chainCrc: 0
        40      4      bodyCrc: 0
        44      4      the bytes of the body; JSON does not have this number
        48      n      body, in base64
    """

    body: bytes = b""
    body_crc: Int32 = 0
    chain_crc: Int32 = 0
    channel: Int32 = 0
    index: Int64 = 0
    magic: Int32 = 0
    pos: Int64 = 0
    size: Int32 = 0
    term: Int64 = 0


class VoteRequest(DLedgerBody):
    """A candidate, ``leader_id``, asks for a vote and sends the end of its log; -1: empty."""

    ledger_end_index: Int64 = -1
    ledger_end_term: Int64 = -1


class VoteResponse(DLedgerBody):
    """The answer of a voter. ``vote_result`` is one of VOTE_RESULTS."""

    vote_result: str | UnsetType = "UNKNOWN"


class HeartBeatRequest(DLedgerBody):
    """A leader announces that it leads its term."""


class HeartBeatResponse(DLedgerBody):
    """The answer to a heartbeat. A success has no other fields than ``code`` and ``term``, -1."""


class PushEntryRequest(DLedgerBody):
    """A leader changes or compares the log of a follower. ``type`` is one of PUSH_TYPES.

    The entries are in ``batch_entry``, or a single one is in ``entry``; a commit has none. The
    fields from ``batch`` on repeat facts about the entries. Apache's members write them, and
    compute them again when they read a request.
    """

    commit_index: Int64 = -1
    batch_entry: list[DLedgerEntry] = []
    entry: DLedgerEntry | UnsetType = UNSET
    type: str | UnsetType = "APPEND"
    batch: bool = False
    count: Int32 = 0
    first_entry_index: Int64 = -1
    last_entry_index: Int64 = -1
    total_size: Int64 = 0
    #: A field that only DLedger 0.4 sends, whose members cannot be in one group with older ones.
    pre_log_index: Int64 | UnsetType = UNSET


class PushEntryResponse(DLedgerBody):
    """The answer of a follower, whose log has the indexes ``begin_index`` to ``end_index``.

    ``index`` and ``count`` are the first index and the number of the entries of the request. A
    ``count`` of 0 means that ``index`` is the last one, as members before 0.2.6 answer. The term
    repeats the term of the request.
    """

    begin_index: Int64 = 0
    count: Int32 = 0
    end_index: Int64 = 0
    index: Int64 | UnsetType = UNSET


class LeadershipTransferRequest(DLedgerBody):
    """Asks the leader ``transfer_id`` to hand the lead to ``transferee_id``, or asks the latter.

    The leader sends the end of its log, which the transferee must reach first.
    """

    take_leadership_ledger_index: Int64 = 0
    transfer_id: str | UnsetType = UNSET
    transferee_id: str | UnsetType = UNSET


class LeadershipTransferResponse(DLedgerBody):
    """The outcome of a transfer."""


class MetadataRequest(DLedgerBody):
    """A client asks who leads the group."""


class MetadataResponse(DLedgerBody):
    """The leader, and "host:port" of each member by its id."""

    peers: dict[str, str] | UnsetType = UNSET


class GetEntriesRequest(DLedgerBody):
    """A client asks the leader for the entry at ``begin_index``; Apache ignores ``max_size``."""

    begin_index: Int64 | UnsetType = UNSET
    max_size: Int32 = 0


class GetEntriesResponse(DLedgerBody):
    """One entry, or none."""

    entries: list[DLedgerEntry] = []


class AppendEntryRequest(DLedgerBody):
    """A client asks the leader to append a body that is not a message."""

    body: bytes = b""


class AppendEntryResponse(DLedgerBody):
    """The place of the entry that was appended."""

    index: Int64 = -1
    pos: Int64 = -1
