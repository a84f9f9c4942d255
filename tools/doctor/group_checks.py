"""Checks of a broker that is a member of a group, which elects its master (DLedger).

The other members are asked at their ports for members, if they run already. The name servers are
asked for the brokers of the same name, whose settings must fit.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies.dledger import ANSWER_CODE, MetadataRequest, MetadataResponse
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.findings import Finding, broken, fine, warning
from twistmq.tools.doctor.server_queries import (
    broker_settings_at,
    registered_addresses,
    runtime_table_at,
)
from twistmq.tools.doctor.tls_checks import encrypting_context

__all__ = ["group_findings"]

_TIMEOUT_SECONDS: Final = 3.0
_CHECK: Final = "group"
_ENABLE: Final = "enableDLegerCommitLog"
_PEERS: Final = "dLegerPeers"
_SELF: Final = "dLegerSelfId"
_FILE_SIZE: Final = "mappedFileSizeCommitLog"
_FLUSH: Final = "flushDiskType"
_SYNC: Final = "SYNC_FLUSH"
#: A group of this many members survives no loss.
_TOO_SMALL: Final = 2
#: A member that lacks more entries cannot be given the lead.
_LAG_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a member says at its port for members.

    :param leader: the leader that it knows; empty if it knows none.
    :param addresses: "host:port" by the id of each member in its list.
    """

    leader: str
    addresses: Mapping[str, str]


def group_findings(settings: Settings, *, running: bool) -> Iterator[Finding]:
    """Check a member of a group; a broker that is in no group has no findings.

    :param running: whether the broker is expected to run, so that its own port must answer.
    """
    if not settings.has(_ENABLE) or not settings.flag(_ENABLE):
        return
    members = _members(settings.text(_PEERS))
    own = settings.text(_SELF).strip()
    yield from _size(len(members))
    yield from _promise(settings)
    answers: dict[str, _Answer] = {}
    asked = [member for member in members if running or member != own]
    try:
        context = encrypting_context(settings) if settings.flag("dledger.tls") else None
    except (SettingsError, OSError) as error:
        yield broken(_CHECK, f"dledger.tls=true: {error}", "correct the settings tls.client.*")
        return
    for member in asked:
        yield from _of_member(settings, members, member, context, answers)
    yield from _of_majority(settings, members, asked, answers, running=running)
    yield from _of_brokers(settings, own)


def _members(text: str) -> dict[str, str]:
    """Return "host:port" by the id of each member; invalid parts are left out."""
    parts = [each.strip().partition("-") for each in text.split(";")]
    return {member: address for member, dash, address in parts if dash and ":" in address}


def _size(count: int) -> Iterator[Finding]:
    lost = (count - 1) // 2
    if count <= _TOO_SMALL:
        yield warning(_CHECK, f"the group has {count} members: it accepts no message once one of "
                              "them is lost", "a group of three survives the loss of one")
    elif count % 2 == 0:
        yield warning(_CHECK, f"the group has {count} members: it survives the loss of {lost}, as "
                              f"one of {count - 1} does", "use an odd number of members")
    else:
        yield fine(_CHECK, f"{count} members: the group survives the loss of {lost}")


def _promise(settings: Settings) -> Iterator[Finding]:
    if settings.text(_FLUSH) != _SYNC:
        yield warning(_CHECK, "flushDiskType=ASYNC_FLUSH: acknowledged messages of the last moment "
                              "may be lost if a majority of the hosts loses its power at once",
                      "keep it if the hosts have separate power, else set "
                      f"{_FLUSH}={_SYNC} at all members")
    if settings.text("brokerRole") == "SYNC_MASTER":
        yield warning(_CHECK, "brokerRole=SYNC_MASTER is not used: the group elects its master",
                      "leave it out")


def _of_member(
    settings: Settings, members: Mapping[str, str], member: str, context: ssl.SSLContext | None,
    answers: dict[str, _Answer],
) -> Iterator[Finding]:
    """Ask one member, and compare its list of members."""
    address = members[member]
    try:
        reply = _ask_member(settings.text("dLegerGroup").strip(), member, address, context)
    except (BrokerError, ValueError, OSError) as error:
        yield warning(_CHECK, f"the member {member} does not answer at {address}: {error}",
                      "start it, or correct its address; its dledger.peers must allow this host, "
                      "and dledger.tls must be the same at all members")
        return
    if reply.code != ANSWER_CODE:
        yield broken(_CHECK, f"the server at {address} is not the member {member} of the group "
                             f"{settings.text('dLegerGroup')}: it answers {reply.code}",
                     f"correct {_PEERS} and dLegerGroup, which are the same at all members, or "
                     f"the {_SELF} of that broker")
        return
    theirs = reply.peers if isinstance(reply.peers, dict) else {}
    leader = reply.leader_id if isinstance(reply.leader_id, str) else ""
    answers[member] = _Answer(leader, theirs)
    if theirs.keys() != members.keys():
        yield broken(_CHECK, f"the member {member} has other members in {_PEERS}: "
                             f"{', '.join(sorted(theirs))}", "use the same list at all members")
    elif theirs != members:
        differing = [each for each in members if theirs[each] != members[each]]
        yield warning(_CHECK, f"the member {member} has other addresses in {_PEERS}: "
                      + ", ".join(f"{each}-{theirs[each]}" for each in differing),
                      "use the same list at all members, unless their networks differ")


def _ask_member(
    group: str, member: str, address: str, context: ssl.SSLContext | None
) -> MetadataResponse:
    """:raises BrokerError, ValueError, OSError: when the member does not answer as one."""
    with Connection(address, _TIMEOUT_SECONDS, tls=context) as connection:
        reply = connection.request(DLedgerRequestCode.METADATA, None, MetadataRequest(
            group=group, remote_id=member).encode())
    if reply.code != ANSWER_CODE:
        raise BrokerError(f"it is not the port of a member: {reply.remark or reply.code}")
    return MetadataResponse.decode(reply.body)


def _of_majority(
    settings: Settings, members: Mapping[str, str], asked: list[str],
    answers: Mapping[str, _Answer], *, running: bool,
) -> Iterator[Finding]:
    """Judge whether the group works, from the answers of its members."""
    if not answers and not running:
        return
    quorum = len(members) // 2 + 1
    count = len(answers) + (not running)  # This broker is the one that is to start.
    leaders = sorted({answer.leader for answer in answers.values() if answer.leader})
    if count < quorum:
        yield broken(_CHECK, f"{count} of {len(members)} members can be reached, and a leader "
                             f"needs {quorum}", "start the other members")
    elif len(leaders) > 1:
        yield warning(_CHECK, f"the members follow different leaders: {', '.join(leaders)}",
                      "wait for the end of the election, then check again")
    elif not leaders:
        yield warning(_CHECK, f"{len(answers)} of {len(asked)} members answer, and none knows a "
                              "leader", "wait for the end of the election, then check again; at "
                              "the first start, all members must be running")
    else:
        yield fine(_CHECK, f"{leaders[0]} leads; {len(answers)} of {len(asked)} members answer")
    own = settings.text(_SELF).strip()
    if leaders and not running and not _has_ledger(settings, own):
        yield warning(_CHECK, f"the ledger of {own} is empty, but the group has a leader: this "
                              "member votes only after it has caught up",
                      "keep the other members running until twistmq admin dledgerStatus shows "
                      "that it may vote")


def _has_ledger(settings: Settings, own: str) -> bool:
    """Return whether the folder of the ledger has the term and the vote of this member."""
    parent = settings.text("storePathDLedgerCommitLog").strip() or settings.text("storePathRootDir")
    return os.path.exists(os.path.join(parent, f"dledger-{own}", "currterm"))


# --- the brokers of the same name


def _of_brokers(settings: Settings, own: str) -> Iterator[Finding]:
    """Compare the settings of the brokers of this name that name servers know."""
    try:
        addresses = next(registered_addresses(settings), {}).values()
    except (BrokerError, SettingsError, OSError):
        return  # The check of the name servers reports it.
    same = 0
    for address in addresses:
        try:
            theirs = broker_settings_at(address, settings)
            table = runtime_table_at(address, settings) or {}
        except (BrokerError, SettingsError, ValueError, OSError) as error:
            yield warning(_CHECK, f"the broker at {address}, of the same name, cannot be asked: "
                                  f"{error}", "start it, or wait until name servers forget it")
            continue
        member = theirs.get(_SELF, "")
        is_this = member == own and address.endswith(f":{settings.int('listenPort')}")
        if is_this:
            continue
        faults = list(_differences(settings, address, member, own, theirs))
        yield from faults
        same += not faults
        yield from _progress(member, table)
    if same:
        yield fine(_CHECK, f"{same} other brokers of the name {settings.text('brokerName')} have "
                           "settings that fit")


def _differences(
    settings: Settings, address: str, member: str, own: str, theirs: Mapping[str, str]
) -> Iterator[Finding]:
    """Compare the settings of a broker with those of this one."""
    if theirs.get(_ENABLE) != "true":
        yield broken(_CHECK, f"the broker at {address} has the same name, but is not a member of "
                             "the group", "give it another brokerName, or make it a member")
        return
    if member == own:
        yield broken(_CHECK, f"the broker at {address} is the member {own} as well",
                     f"give each broker of the group a {_SELF} of its own")
    group = settings.text("dLegerGroup").strip()
    if theirs.get("dLegerGroup", group) != group:
        yield broken(_CHECK, f"{member} at {address} has dLegerGroup={theirs['dLegerGroup']}",
                     "use the same dLegerGroup at all members")
    size = str(settings.int(_FILE_SIZE))
    if theirs.get(_FILE_SIZE, size) != size:
        yield broken(_CHECK, f"{_FILE_SIZE} is {size} here and {theirs[_FILE_SIZE]} at {member}, "
                             f"{address}: their entries would have other positions",
                     f"start this broker with {_FILE_SIZE}={theirs[_FILE_SIZE]} and an empty "
                     "ledger")
    flush = settings.text(_FLUSH)
    if theirs.get(_FLUSH, flush) != flush:
        yield warning(_CHECK, f"{_FLUSH} is {flush} here and {theirs[_FLUSH]} at {member}: a loss "
                              "of power may lose messages if a majority does not have "
                              f"{_SYNC}", f"use the same {_FLUSH} at all members")


def _progress(member: str, table: Mapping[str, str]) -> Iterator[Finding]:
    """Report what a running member says about its own progress, or a leader about the others."""
    if table.get("dledgerMayVote") == "false":
        yield warning(_CHECK, f"{member} may not vote, because its ledger is new or incomplete",
                      "keep the other members running until it has caught up")
    for name, text in sorted(table.items()):
        kind, _, other = name.partition(".")
        lag = whole_number(text) if kind == "dledgerLag" else None
        if lag is not None and lag > _LAG_MAX:
            yield warning(_CHECK, f"{other} lacks {lag:,} entries of the leader {member}",
                          "wait, or find out why it is slow; until then the group survives fewer "
                          "losses")
