"""Capture the frames that members of Apache's DLedger exchange, as golden/dledger-frames.

Three members of each version, without brokers, with a relay on each direction of each pair. They
elect a leader, append, hand the lead over, and lose and find a member again; once they push single
entries and once batches. Each first exchange of a kind is kept: ``VERSION/CODE-KIND-ANSWER``. The
files of ``VERSION/odd`` are constructed requests that a member refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.interop.gallery import Gallery
from tests.interop.ledger_members import LedgerMembers
from tests.interop.recorder import Exchange, PlainClient, Recorder

__all__ = ["capture_members"]

VERSIONS: Final = ("4.9.4", "5.5.0")
MEMBERS: Final = ("n0", "n1", "n2")
CODES: Final = (50000, 50001, 50002, 51001, 51002, 51004, 51005)
#: Requests that a member refuses: the name, the code, and the body.
ODD: Final[Mapping[str, tuple[int, bytes]]] = {
    "wrong-group": (51002, b'{"group":"G1","leaderId":"n1","localId":"n1","remoteId":"n0"}'),
    "wrong-receiver": (51002, b'{"group":"G0","leaderId":"n1","localId":"n1","remoteId":"n7"}'),
    "vote-wrong-group": (51001, b'{"group":"G1","leaderId":"n1","localId":"n1","remoteId":"n0"}'),
    "vote-stranger": (51001, b'{"group":"G0","leaderId":"n9","ledgerEndIndex":9,"ledgerEndTerm":9,'
                             b'"localId":"n9","remoteId":"n0","term":99}'),
    "heartbeat-stranger": (51002, b'{"group":"G0","leaderId":"n9","localId":"n9","remoteId":"n0",'
                                  b'"term":99}'),
    "heartbeat-old-term": (51002, b'{"group":"G0","leaderId":"n1","localId":"n1","remoteId":"n0",'
                                  b'"term":-1}'),
    "push-wrong-group": (51004, b'{"commitIndex":-1,"group":"G1","leaderId":"n1","localId":"n1",'
                                b'"remoteId":"n0","term":0,"type":"COMMIT"}'),
    "push-unknown-type": (51004, b'{"commitIndex":-1,"group":"G0","leaderId":"n1","localId":"n1",'
                                 b'"remoteId":"n0","term":0,"type":"INSTALL_SNAPSHOT"}'),
    "transfer-wrong-member": (51005, b'{"group":"G0","remoteId":"n0","transferId":"n8",'
                                     b'"transfereeId":"n9","term":0}'),
    "empty": (51001, b""),
    "null": (51004, b"null"),
    "not-json": (51002, b"\x00\x01\x02"),
    "unknown-code": (51099, b"{}"),
}

#: The words for batches of no entry, of one, and of more.
_BATCHES: Final = ("", "batch", "batches")


def _kind(exchange: Exchange) -> str:
    """Name an exchange by the fields that make it one of a kind."""
    request = json.loads(exchange.request.body)
    assert exchange.reply is not None
    reply: dict[str, Any] = json.loads(exchange.reply.body or b"{}")
    words = [str(request.get("type", "")), _BATCHES[min(len(request.get("batchEntry", [])), 2)],
             str(reply.get("code")), str(reply.get("voteResult", ""))]
    return "-".join(word.lower().replace("_", "-") for word in words if word)


def _act(members: LedgerMembers) -> None:
    """Let the members exchange requests of many kinds."""
    leader, last = members.append(20, 200)
    members.wait_for_equal_logs()
    follower = next(member for member in MEMBERS if member != leader)
    members.ask(f"send {follower}", "sent")
    members.ask(f"get {follower} {last}", "entry")
    members.stop_member(follower)
    members.append(10, 50)
    members.start_member(follower)
    members.wait_for_equal_logs()
    leader = members.wait_for_leader()
    transferee = next(member for member in MEMBERS if member not in (leader, follower))
    members.transfer(leader, transferee)
    members.append(5, 10)
    members.wait_for_equal_logs()


def capture_members(folder: Path, first_port: int) -> None:
    """Write tests/golden/dledger-frames; ``folder`` is for the members' data."""
    gallery = Gallery("dledger-frames", str(__doc__))
    for version in VERSIONS:
        kept: dict[str, Exchange] = {}
        odd: dict[str, Exchange] = {}
        for batches in (False, True):
            ports = {member: first_port + number for number, member in enumerate(MEMBERS)}
            with ExitStack() as stack:
                peers = {}
                recorders = []
                for i, member in enumerate(MEMBERS):
                    peers[member] = dict(ports)
                    for j, other in enumerate(MEMBERS):
                        if other != member:
                            port = first_port + 10 + 3 * i + j
                            recorders.append(stack.enter_context(Recorder(port, ports[other])))
                            peers[member][other] = port
                members = LedgerMembers(version, folder / f"{version}-{batches}", peers,
                                        batches=batches)
                stack.callback(members.close)
                _act(members)
                with PlainClient(ports["n0"]) as client:
                    odd = {name: client.call(code, None, body)
                           for name, (code, body) in ODD.items()}
                members.leave()
                for recorder in recorders:
                    for code in CODES:
                        for exchange in recorder.exchanges(code):
                            if exchange.reply is not None and exchange.reply.body:
                                kept.setdefault(f"{code}-{_kind(exchange)}", exchange)
            first_port += 30
        for path, exchanges in ((version, kept), (f"{version}/odd", odd)):
            for name, exchange in sorted(exchanges.items()):
                assert exchange.reply is not None
                gallery.add(f"{path}/{name}.request.bin", exchange.request.data, "a request",
                            version=version)
                gallery.add(f"{path}/{name}.reply.bin", exchange.reply.data, "its answer",
                            version=version)
    gallery.close()
