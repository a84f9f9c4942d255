"""Record what three members of Apache's DLedger say to each other, as golden/dledger-transcripts.

The members of a version run without brokers, with a relay on each direction of each pair. They
elect a leader, append, hand the lead over, lose a follower and a leader, and find both again.
``VERSION.jsonl.xz`` has a row for each exchange, and for each start and end of a member, in the
order of time:

    {"ms": 12, "from": "n0", "to": "n1", "code": 51001, "request": {...},
     "answered_ms": 14, "answer": {...}}
    {"ms": 400, "member": "n1", "runs": false}

``ms`` counts from the first row. An exchange without an answer has neither ``answered_ms`` nor
``answer``.
"""

from __future__ import annotations

import json
import lzma
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.interop.gallery import Gallery
from tests.interop.ledger_members import LedgerMembers
from tests.interop.recorder import Recorder

__all__ = ["capture_transcripts"]

VERSIONS: Final = ("4.9.4", "5.5.0")
MEMBERS: Final = ("n0", "n1", "n2")
#: The requests between members.
CODES: Final = (51001, 51002, 51004, 51005)
#: The bytes of each body that is appended.
_SIZE: Final = 8

Row = dict[str, Any]


class _Lives:
    """Stops and starts members, and notes when.

    A row lies outside the life: the last answers of a member that ends are still before it.
    """

    def __init__(self, members: LedgerMembers) -> None:
        self.members = members
        self.rows: list[tuple[float, Row]] = []

    def stop(self, member: str) -> None:
        """Stop a member."""
        self.members.stop_member(member)
        self.rows.append((time.monotonic(), {"member": member, "runs": False}))

    def start(self, member: str) -> None:
        """Start it again."""
        self.rows.append((time.monotonic(), {"member": member, "runs": True}))
        self.members.start_member(member)


def _act(members: LedgerMembers, lives: _Lives) -> None:
    """Let the members exchange requests of all kinds."""
    leader, _ = members.append(6, _SIZE)
    members.wait_for_equal_logs()
    follower, other = (member for member in MEMBERS if member != leader)
    lives.stop(follower)
    members.append(4, _SIZE)
    lives.start(follower)
    members.wait_for_equal_logs()
    members.transfer(members.wait_for_leader(), other)
    leader, _ = members.append(3, _SIZE)
    members.wait_for_equal_logs()
    lives.stop(leader)
    members.append(3, _SIZE)
    lives.start(leader)
    members.wait_for_equal_logs()
    members.append(2, _SIZE)
    members.wait_for_equal_logs()


def _exchanges(source: str, target: str, recorder: Recorder) -> list[tuple[float, Row]]:
    """Return the exchanges of a direction with their times."""
    found: list[tuple[float, Row]] = []
    for code in CODES:
        for exchange in recorder.exchanges(code):
            row: Row = {"from": source, "to": target, "code": code,
                        "request": json.loads(exchange.request.body)}
            if exchange.reply is not None and exchange.reply.body:
                row |= {"answered_ms": exchange.reply.seconds,
                        "answer": json.loads(exchange.reply.body)}
            found.append((exchange.request.seconds, row))
    return found


def capture_transcripts(folder: Path, first_port: int) -> None:
    """Write tests/golden/dledger-transcripts; ``folder`` is for the members' data."""
    gallery = Gallery("dledger-transcripts", str(__doc__))
    for version in VERSIONS:
        ports = {member: first_port + number for number, member in enumerate(MEMBERS)}
        with ExitStack() as stack:
            recorders = {}
            for i, source in enumerate(MEMBERS):
                for j, target in enumerate(MEMBERS):
                    if source != target:
                        recorders[source, target] = stack.enter_context(
                            Recorder(first_port + 10 + 3 * i + j, ports[target]))
            peers = {member: {other: recorders[member, other].port if other != member
                              else ports[member] for other in MEMBERS} for member in MEMBERS}
            members = LedgerMembers(version, folder / version, peers)
            stack.callback(members.close)
            lives = _Lives(members)
            _act(members, lives)
            members.leave()
            timed = [*lives.rows, *(row for (source, target), recorder in recorders.items()
                                    for row in _exchanges(source, target, recorder))]
        timed.sort(key=lambda each: each[0])
        begin = timed[0][0]

        def since(seconds: float, begin: float = begin) -> float:
            return round(1000 * (seconds - begin), 1)

        lines = []
        for seconds, row in timed:
            if "answered_ms" in row:
                row["answered_ms"] = since(row["answered_ms"])
            lines.append(json.dumps({"ms": since(seconds), **row}, separators=(",", ":")) + "\n")
        gallery.add(f"{version}.jsonl.xz", lzma.compress("".join(lines).encode(), preset=9),
                    f"{len(lines)} rows", version=version)
        first_port += 30
    gallery.close()
