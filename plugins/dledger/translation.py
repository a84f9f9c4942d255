"""The messages of the core as the bodies that members exchange, and the reverse.

A body is read in two steps: ``protocol/bodies/dledger.py`` checks its form, and the functions here
check that it makes sense as a message of a group. The core checks what depends on its own state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, UnsetType

from twistmq.protocol.bodies import dledger as bodies
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.errors import WireError
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

__all__ = ["READERS", "OtherVersion", "read_request", "read_response", "write_entry",
           "write_refusal", "write_request", "write_response"]

_PUSH_TYPES: Final = {push_type.value: push_type for push_type in PushType}
_VOTE_RESULTS: Final = {result.value: result for result in VoteResult}
_CODES: Final = {code.value: code for code in ResponseCode}
#: An error shows this number of characters of a peer's text at most.
_SHOWN_MAX: Final = 40


class OtherVersion(WireError):
    """A request of DLedger 0.4, whose members cannot be in a group with older members."""


def _text(text: str | UnsetType) -> str:
    return "" if text is UNSET else text


def _given(text: str) -> str | UnsetType:
    """Leave out an empty text, as Apache's members leave out a null."""
    return text or UNSET


# --- Entries


def write_entry(entry: Entry) -> bodies.DLedgerEntry:
    """Return an entry in the form of a body."""
    return bodies.DLedgerEntry(
        body=entry.body, index=entry.index, magic=bodies.ENTRY_MAGIC, pos=entry.position,
        size=bodies.ENTRY_HEAD_SIZE + len(entry.body), term=entry.term)


def _read_entry(entry: bodies.DLedgerEntry) -> Entry:
    if entry.magic != bodies.ENTRY_MAGIC:
        raise OtherVersion(f"the entry {entry.index} has the magic {entry.magic}")
    size = bodies.ENTRY_HEAD_SIZE + len(entry.body)
    if entry.size != size:
        raise WireError(f"the entry {entry.index} has the size {entry.size}, but {size} bytes")
    if entry.index < 0 or entry.term < 0 or entry.pos < 0 or entry.channel:
        raise WireError(f"an entry has the index {entry.index}, the term {entry.term}, the "
                        f"position {entry.pos} and the channel {entry.channel}")
    return Entry(entry.index, entry.term, entry.body, entry.pos)


# --- Requests


def write_request(request: Request) -> tuple[DLedgerRequestCode, bytes]:
    """Return the remoting code and the body of a request, as a member of 5.5.0 writes it.

    :raises TypeError: when it is not a request of a group.
    """
    code, body = _request_body(request)
    body.group = request.group
    body.local_id = _given(request.sender)
    body.remote_id = request.receiver
    body.leader_id = _given(request.leader)
    body.term = request.term
    return code, body.encode()


def _request_body(request: Request) -> tuple[DLedgerRequestCode, bodies.DLedgerBody]:
    """Return the code, and a body with the fields that not all requests have."""
    match request:
        case VoteRequest(end_index=end_index, end_term=end_term):
            return DLedgerRequestCode.VOTE, bodies.VoteRequest(
                ledger_end_index=end_index, ledger_end_term=end_term)
        case HeartbeatRequest():
            return DLedgerRequestCode.HEART_BEAT, bodies.HeartBeatRequest()
        case PushRequest():
            return DLedgerRequestCode.PUSH, _push_body(request)
        case TransferRequest():
            return DLedgerRequestCode.LEADERSHIP_TRANSFER, bodies.LeadershipTransferRequest(
                take_leadership_ledger_index=request.take_index,
                transfer_id=_given(request.transferor), transferee_id=_given(request.transferee))
    raise TypeError(f"{type(request).__name__} is not a request of a group")


def _push_body(request: PushRequest) -> bodies.PushEntryRequest:
    entries = [write_entry(entry) for entry in request.entries]
    body = bodies.PushEntryRequest(type=request.type.value, commit_index=request.commit_index)
    if not entries:
        return body
    body.count = len(entries)
    body.first_entry_index = entries[0].index
    body.last_entry_index = entries[-1].index
    if len(entries) == 1:
        # DLedger 0.2.2 reads a batch only if it writes batches itself.
        body.entry = entries[0]
    else:
        body.batch, body.batch_entry = True, entries
        body.total_size = sum(entry.size for entry in entries)
    return body


def read_request(code: int, data: bytes) -> Request:
    """Read the body of a request with one of the codes in READERS.

    :raises OtherVersion: when it comes from DLedger 0.4.
    :raises WireError: when it is not a sound request.
    """
    return READERS[code](data)


def _read_vote(data: bytes) -> Request:
    body = bodies.VoteRequest.decode(data)
    if body.ledger_end_index < -1 or body.ledger_end_term < -1 or body.term < -1:
        raise WireError(f"a vote request has the term {body.term} and a log that ends at "
                        f"{body.ledger_end_index} in the term {body.ledger_end_term}")
    return VoteRequest(*_common(body), body.ledger_end_index, body.ledger_end_term)


def _read_heartbeat(data: bytes) -> Request:
    return HeartbeatRequest(*_common(bodies.HeartBeatRequest.decode(data)))


def _read_push(data: bytes) -> Request:
    body = bodies.PushEntryRequest.decode(data)
    if body.pre_log_index is not UNSET:
        raise OtherVersion("a push has the field preLogIndex")
    push_type = _PUSH_TYPES.get(_text(body.type))
    if push_type is None:
        raise WireError(f"a push has the type {_text(body.type)[:_SHOWN_MAX]!r}")
    if body.commit_index < -1:
        raise WireError(f"a push has the committed index {body.commit_index}")
    entries = body.batch_entry or ([] if body.entry is UNSET else [body.entry])
    if bool(entries) == (push_type is PushType.COMMIT) or (
            len(entries) > 1 and push_type is not PushType.APPEND):
        raise WireError(f"a push of the type {push_type.value} has {len(entries)} entries")
    return PushRequest(*_common(body), push_type, body.commit_index,
                       tuple(_read_entry(entry) for entry in entries))


def _read_transfer(data: bytes) -> Request:
    body = bodies.LeadershipTransferRequest.decode(data)
    return TransferRequest(*_common(body), _text(body.transfer_id), _text(body.transferee_id),
                           body.take_leadership_ledger_index)


def _common(body: bodies.DLedgerBody) -> tuple[str, str, str, int, str]:
    """Return the fields of every request in the order of ``Request``.

    Members of 4.9.4 do not write the sender of a vote request or a push, which is the candidate or
    the leader.
    """
    leader = _text(body.leader_id)
    return (_text(body.group), _text(body.local_id) or leader, _text(body.remote_id), body.term,
            leader)


#: How the bodies of the members' requests are read, by their remoting code.
READERS: Final[Mapping[int, Callable[[bytes], Request]]] = MappingProxyType({
    DLedgerRequestCode.VOTE: _read_vote,
    DLedgerRequestCode.HEART_BEAT: _read_heartbeat,
    DLedgerRequestCode.PUSH: _read_push,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: _read_transfer,
})


# --- Responses


def write_response(request: Request, response: Response) -> bytes:
    """Return the body of the response to a request.

    Like Apache's members, it repeats the group to a candidate and to a leader that pushes, and the
    members to a candidate only.

    :raises TypeError: when it is not a response of a group.
    """
    body = _response_body(response)
    body.code = response.code.value
    body.term = response.term
    if isinstance(response, VoteResponse | PushResponse):
        body.group = request.group
    if isinstance(response, VoteResponse):
        body.leader_id = _given(response.leader)
        body.local_id = _given(request.sender)
        body.remote_id = request.receiver
    return body.encode()


def write_refusal(request: Request, code: ResponseCode, leader: str) -> bytes:
    """Return the body by which a request for another group or member is refused.

    :param leader: the leader that this member knows, or an empty text.
    """
    body: bodies.DLedgerBody
    match request:
        case VoteRequest():
            body = bodies.VoteResponse()
        case PushRequest():
            body = bodies.PushEntryResponse(term=request.term)
        case HeartbeatRequest():
            body = bodies.HeartBeatResponse()
        case _:
            body = bodies.LeadershipTransferResponse()
    body.code = code.value
    body.group = _given(request.group)
    body.leader_id = _given(leader)
    body.local_id = _given(request.sender)
    body.remote_id = _given(request.receiver)
    return body.encode()


def _response_body(response: Response) -> bodies.DLedgerBody:
    """Return a body with the fields that not all responses have."""
    match response:
        case VoteResponse(result=result):
            return bodies.VoteResponse(vote_result=result.value)
        case HeartbeatResponse():
            return bodies.HeartBeatResponse()
        case PushResponse():
            return bodies.PushEntryResponse(
                begin_index=response.begin_index, count=response.count,
                end_index=response.end_index,
                index=UNSET if response.index < 0 else response.index)
        case TransferResponse():
            return bodies.LeadershipTransferResponse()
    raise TypeError(f"{type(response).__name__} is not a response of a group")


def read_response(request: Request, data: bytes) -> Response:
    """Read the body of the response to one of this member's requests.

    :raises WireError: when it is not a sound response.
    """
    match request:
        case VoteRequest():
            vote = bodies.VoteResponse.decode(data)
            # Apache's members treat a result that they do not know as an unknown one, too.
            result = _VOTE_RESULTS.get(_text(vote.vote_result), VoteResult.UNKNOWN)
            return VoteResponse(*_outcome(vote), result)
        case HeartbeatRequest():
            return HeartbeatResponse(*_outcome(bodies.HeartBeatResponse.decode(data)))
        case PushRequest():
            push = bodies.PushEntryResponse.decode(data)
            return PushResponse(*_outcome(push), -1 if push.index is UNSET else push.index,
                                push.count, push.begin_index, push.end_index)
        case TransferRequest():
            return TransferResponse(*_outcome(bodies.LeadershipTransferResponse.decode(data)))
    raise TypeError(f"{type(request).__name__} is not a request of a group")


def _outcome(body: bodies.DLedgerBody) -> tuple[ResponseCode, int, str]:
    """Return the fields of every response in the order of ``Response``."""
    return _CODES.get(body.code, ResponseCode.UNKNOWN), body.term, _text(body.leader_id)

