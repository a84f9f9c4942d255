"""The commands ``twistmq admin leadershipTransfer`` and ``dledgerStatus``.

They work with groups of this package's brokers, with Apache's, and with a mixture. Apache's brokers
do not report their terms and indexes, so these cells stay empty.

Source: LeadershipTransferCommand, DLedgerClient @dledger-0.2.6, DLedgerServer @0.3.2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api.admin_commands import (
    AdminError,
    RegisteredBroker,
    Row,
    Session,
    broker_settings,
    runtime_table,
)
from twistmq.broker.api.wire import MASTER_ID
from twistmq.plugins.dledger.peer_group import read_peers
from twistmq.protocol.bodies.dledger import (
    ANSWER_CODE,
    DLedgerBody,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
)
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import BrokerError
from twistmq.raft.messages import ResponseCode

__all__ = ["group_status", "transfer_lead"]

#: How long a member may take to answer a transfer, s: the leader waits 3 s for the other member.
_TRANSFER_SECONDS: Final = 6.0
#: How long the next leader may take to say that it leads, and the time between two questions, s.
_VERIFY_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
#: Why a leader has refused a transfer, or has given it up.
_REASONS: Final[Mapping[int, str]] = {
    ResponseCode.TIMEOUT: "{member} has not taken the lead in time",
    ResponseCode.NETWORK_ERROR: "{member} did not answer the leader",
    ResponseCode.UNKNOWN_GROUP: "{leader} is in another group than {group}",
    ResponseCode.UNKNOWN_MEMBER: "the address of {leader} is that of another member",
    ResponseCode.EXPIRED_TERM: "another term has begun meanwhile",
    ResponseCode.NOT_LEADER: "{leader} does not lead",
    ResponseCode.INCONSISTENT_TERM: "the leader is in another term",
    ResponseCode.INCONSISTENT_LEADER: "{member} follows another leader than {leader}",
    ResponseCode.UNEXPECTED_ARGUMENT: "{leader} does not know {member}",
    ResponseCode.FALL_BEHIND_TOO_MUCH: "{member} lacks too many entries, or has not answered the "
                                       "leader lately",
    ResponseCode.TAKE_LEADERSHIP_FAILED: "{member} did not get the missing entries in time, or may "
                                         "not lead",
    ResponseCode.LEADER_NOT_READY: "{leader} leads, but has not committed an entry yet; try again",
    ResponseCode.LEADER_TRANSFERRING: "another transfer is under way",
}


@dataclass(frozen=True, slots=True)
class _Group:
    """A group as a command sees it.

    :param addresses: "host:port" of the peer port by the id of each member.
    """

    name: str
    addresses: Mapping[str, str]

    def ask(self, session: Session, member: str, code: DLedgerRequestCode, body: DLedgerBody,
            timeout_s: float | None = None) -> bytes:
        """Send a request to a member, and return the body of the answer.

        :raises BrokerError: when the member does not answer.
        """
        body.group, body.remote_id = self.name, member
        return session.ask(self.addresses[member], code, None, body.encode(),
                           accepted_codes=(ANSWER_CODE,), timeout_s=timeout_s).body

    def find_leader(self, session: Session, member: str) -> str:
        """Return the leader that a member knows; an empty text if it knows none.

        :raises BrokerError: when the member does not answer, or is in another group.
        """
        answer = MetadataResponse.decode(
            self.ask(session, member, DLedgerRequestCode.METADATA, MetadataRequest()))
        if answer.code != ResponseCode.SUCCESS:
            raise AdminError(f"{member} at {self.addresses[member]} does not describe the group "
                             f"{self.name}: {_name(answer.code)}")
        return answer.leader_id if isinstance(answer.leader_id, str) else ""


def _name(code: int) -> str:
    """Return a code of the protocol with its name, if it has one."""
    try:
        return f"{code} {ResponseCode(code).name}"
    except ValueError:
        return str(code)


# --- transfer


def transfer_lead(
    session: Session, *, member: str, broker: str | None, peers: str | None, group: str,
    leader: str | None, term: int | None,
) -> Iterator[Row]:
    """Let another member lead; see the row of the command."""
    target = _given_group(group, peers) if peers is not None else _named_group(session, broker)
    if member not in target.addresses:
        raise AdminError(f"{member} is not a member of the group {target.name}, which has "
                         f"{', '.join(target.addresses)}")
    leader = leader or _current_leader(session, target)
    if leader not in target.addresses:
        raise AdminError(f"the leader {leader} is not a member of the group {target.name}, which "
                         f"has {', '.join(target.addresses)}")
    if leader == member:
        raise AdminError(f"{member} leads the group {target.name} already")
    yield target.name, leader, target.addresses[leader], "check", "it leads the group"
    _transfer(session, target, leader, member, term)
    yield (target.name, leader, target.addresses[leader], "transfer",
           f"it gives the lead to {member}")
    _verify(session, target, member)
    yield target.name, member, target.addresses[member], "verify", "it leads the group"


def _given_group(name: str, peers: str) -> _Group:
    """:raises AdminError: when the list of members is not valid."""
    try:
        addresses = read_peers(peers)
    except ValueError as error:
        raise AdminError(f"--peers {error}") from None
    if not addresses:
        raise AdminError("--peers is empty")
    return _Group(name, addresses)


def _named_group(session: Session, broker_name: str | None) -> _Group:
    """Return the group of the brokers of a name, according to the settings of one of them.

    :raises AdminError: when no broker of this name is a member of a group.
    :raises BrokerError: when none of them answers.
    """
    brokers = [each for each in session.all_brokers() if each.name == broker_name]
    if not brokers:
        names = ", ".join(sorted({each.name for each in session.all_brokers()})) or "none"
        raise AdminError(f"there is no broker {broker_name}; the name server knows {names}")
    failure: BrokerError | None = None
    for each in brokers:
        try:
            group = _group_of(broker_settings(session, each))
        except (BrokerError, ValueError) as error:
            failure = error if isinstance(error, BrokerError) else AdminError(
                f"the setting dLegerPeers of {each.address} {error}")
            continue
        if group is not None:
            return group
    raise failure or AdminError(f"{broker_name} is not a group: its brokers do not have "
                                "enableDLegerCommitLog=true")


def _group_of(settings: Mapping[str, str]) -> _Group | None:
    """Return the group of a broker; None if its log is not a ledger.

    :raises ValueError: when its list of members is not valid.
    """
    if settings.get("enableDLegerCommitLog") != "true":
        return None
    return _Group(settings.get("dLegerGroup", ""), read_peers(settings.get("dLegerPeers", "")))


def _current_leader(session: Session, group: _Group) -> str:
    """Return the leader that the first member knows that knows one.

    :raises AdminError: when no member answers, or none knows a leader.
    """
    failures = []
    for member in group.addresses:
        try:
            leader = group.find_leader(session, member)
        except BrokerError as error:
            failures.append(str(error))
            continue
        if leader:
            return leader
    if len(failures) == len(group.addresses):
        raise AdminError(
            f"no member of the group {group.name} answers at its port for members; dledger.peers "
            f"must allow this host, and dledger.tls=true needs --tls: {failures[-1]}")
    raise AdminError(f"the group {group.name} has no leader"
                     + (f", and some of it does not answer: {failures[-1]}" if failures else ""))


def _transfer(
    session: Session, group: _Group, leader: str, member: str, term: int | None
) -> None:
    """Ask the leader for the transfer, in the given term or in the one that it is found to be in.

    :raises AdminError: when the leader refuses, or the transfer fails.
    """
    answer = _ask_for_transfer(session, group, leader, member, term or 0)
    if term is None and answer.code == ResponseCode.INCONSISTENT_TERM:
        # A leader of ours answers with its term; Apache's repeats the term of the request.
        term = answer.term or _find_term(session, group, leader, member)
        answer = _ask_for_transfer(session, group, leader, member, term)
    if answer.code != ResponseCode.SUCCESS:
        reason = _REASONS.get(answer.code, "the leader answers with this code")
        raise AdminError("the lead is not transferred: " + reason.format(
            member=member, leader=leader, group=group.name) + f" ({_name(answer.code)})")


def _ask_for_transfer(
    session: Session, group: _Group, leader: str, member: str, term: int
) -> LeadershipTransferResponse:
    request = LeadershipTransferRequest(term=term, transfer_id=leader, transferee_id=member)
    return LeadershipTransferResponse.decode(group.ask(
        session, leader, DLedgerRequestCode.LEADERSHIP_TRANSFER, request,
        max(session.timeout_s, _TRANSFER_SECONDS)))


def _find_term(session: Session, group: _Group, leader: str, member: str) -> int:
    """Return the term of a leader of Apache's, which refuses a heartbeat of a lower term with it.

    :raises BrokerError: when the leader does not answer.
    """
    request = HeartBeatRequest(term=-1, leader_id=member, local_id=member)
    return HeartBeatResponse.decode(
        group.ask(session, leader, DLedgerRequestCode.HEART_BEAT, request)).term


def _verify(session: Session, group: _Group, member: str) -> None:
    """:raises AdminError: when the member does not say in time that it leads."""
    give_up = time.monotonic() + _VERIFY_SECONDS
    while (leader := group.find_leader(session, member)) != member:
        if time.monotonic() > give_up:
            raise AdminError(f"{member} was to lead, but "
                             + (f"{leader} leads" if leader else "no member leads"))
        time.sleep(_LOOK_SECONDS)


# --- status


@dataclass(frozen=True, slots=True)
class _Member:
    """What a registered broker of a group says."""

    broker: RegisteredBroker
    group: _Group
    member: str
    table: Mapping[str, str]

    def read_index(self, name: str) -> int | None:
        """Return the number in a row of the runtime table; None if the broker lacks the row."""
        text = self.table.get(name, "")
        return -1 if text == "-1" else whole_number(text)

    @property
    def role(self) -> str:
        """The role that the broker reports, or the one that its registration implies."""
        registered = "leader" if self.broker.broker_id == MASTER_ID else "follower"
        return self.table.get("dledgerRole", registered)


def group_status(session: Session, *, broker: str | None, cluster: str | None) -> Iterator[Row]:
    """Show the members of groups; see the row of the command."""
    brokers = [each for each in session.all_brokers(cluster) if broker in (None, each.name)]
    members: dict[str, list[_Member]] = {}
    for each, member in session.for_each(brokers, lambda each: _member_at(session, each)):
        if isinstance(member, _Member):
            members.setdefault(each.name, []).append(member)
    if not members:
        raise AdminError("no broker that is a member of a group answers"
                         + (f": {session.failures[-1]}" if session.failures else ""))
    for name in sorted(members):
        yield from _rows(name, members[name])


def _member_at(session: Session, broker: RegisteredBroker) -> _Member | None:
    """Ask a broker; :returns: None if it is not a member of a group.

    :raises BrokerError: when it does not answer.
    """
    settings = broker_settings(session, broker)
    try:
        group = _group_of(settings)
    except ValueError as error:
        raise AdminError(f"the setting dLegerPeers of {broker.address} {error}") from None
    if group is None:
        return None
    return _Member(broker, group, settings.get("dLegerSelfId", ""), runtime_table(session, broker))


def _rows(name: str, members: list[_Member]) -> Iterator[Row]:
    """The rows of one group: of the members that answer, and of those that only lists name."""
    leader = next((each for each in members if each.role == "leader"), None)
    by_id = {each.member: each for each in members}
    ids = sorted({member for each in members for member in each.group.addresses} | by_id.keys())
    for member in ids:
        answer = by_id.get(member)
        if answer is None:
            yield (name, member, None, None, None, None, None, None, None,
                   _lag(leader, member, None), _is_reachable(leader, member, None), None)
            continue
        table = answer.table
        may_vote = table.get("dledgerMayVote")
        yield (name, member, answer.broker.address, answer.role,
               table.get("dledgerLeader", "" if leader is None else leader.member),
               answer.read_index("dledgerTerm"), answer.read_index("dledgerBeginIndex"),
               answer.read_index("dledgerEndIndex"), answer.read_index("dledgerCommittedIndex"),
               _lag(leader, member, answer), _is_reachable(leader, member, answer),
               None if may_vote is None else may_vote == "true")


def _lag(leader: _Member | None, member: str, answer: _Member | None) -> int | None:
    """Return how many entries a member lacks: as the leader knows, or by the ends of both logs."""
    if leader is None:
        return None
    if leader.member == member:
        return 0
    known = leader.read_index(f"dledgerLag.{member}")
    if known is not None or answer is None:
        return known
    ends = leader.read_index("dledgerEndIndex"), answer.read_index("dledgerEndIndex")
    return None if ends[0] is None or ends[1] is None else max(0, ends[0] - ends[1])


def _is_reachable(leader: _Member | None, member: str, answer: _Member | None) -> bool:
    """Return whether the leader hears a member, or whether the broker answers this command."""
    text = "" if leader is None else leader.table.get(f"dledgerReachable.{member}", "")
    return text == "true" if text else answer is not None
