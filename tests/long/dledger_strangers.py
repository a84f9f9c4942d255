"""Send bad input to the ports for members of a group of three brokers under load.

    python -m tests.long.dledger_strangers [--seconds 3600] [--idle 10000] [--pause 0.05]
        [--rate 50] [--program twistmq]

The kinds of input come in random order, each over a new connection to a random broker: random
bytes, frames that end too early, frames of 16 MiB, values in 3,000 lists, huge and negative
numbers, unknown types and codes, other groups and members, votes, heartbeats, pushes and transfers
of strangers, pushes of a true leader that make no sense, and changed requests of Apache's members.
From time to time, --idle connections are made that send nothing. None of the input may come from a
member by its form and in a possible term at the same time, because such a request is obeyed.

Ends with status 1 when a log has a line above the level warn, when a term or the leader has
changed, when the memory of a broker (RssAnon) has grown by more than 128 MiB, when no message was
taken for five seconds, or when the history of the load (see ``dledger_kills``) has a fault.
"""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tests.interop.ledger_group import GROUP, IDS
from tests.interop.servers import rss_anon_kib
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_laggards import MemoryWatch
from tests.long.dledger_load import now_ms
from tests.plugins.dledger.mutations import mutate
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import FrameDecoder, encode_frame

__all__ = ["KINDS", "Outlook", "log_faults", "main", "outlook_faults"]

#: By how much the memory of a broker may grow, KiB.
GROWTH_MAX_KIB: Final = 128 * 1024
#: The longest time without an acknowledgement, ms.
SILENCE_MAX_MS: Final = 5_000
#: How long an attack waits for answers, s.
_ANSWER_SECONDS: Final = 0.05
#: The time between two looks at the leader, and the time for which all idle connections stay, s.
_LOOK_SECONDS: Final = 2.0
_CROWD_SECONDS: Final = 60.0
#: The idle connections that are made with each attack.
_ARRIVALS: Final = 20
#: How often a member that does not tell its leader is asked in one look.
_LOOKS_MAX: Final = 3
#: One of so many attacks is a large one.
_LARGE_EACH: Final = 100
_DEPTH: Final = 3_000
_FRAME_SIZE_MAX: Final = 16 * 1024**2
_LEVEL: Final = re.compile(r"^\S+ \[[^\]]*#(error|critical)\]|^Traceback", re.MULTILINE)
#: Numbers that no member sends.
_NUMBERS: Final = (-1, -2, -(2**31), -(2**63), 2**62, 2**63 - 1, 2**63, 2**64, 10**400, 1e308)
#: Numbers that cannot be a term of this group.
_TERMS: Final = (*_NUMBERS[1:], 0)


class Outlook(NamedTuple):
    """What is seen of a group from outside.

    :param leaders: the leader that each member follows.
    """

    term: int
    leaders: tuple[str, ...]


def outlook_faults(first: Outlook, later: Outlook) -> list[str]:
    """Return how the term or the leader has changed."""
    faults = []
    if later.term != first.term:
        faults.append(f"the term was {first.term} and is {later.term}")
    for member, before, leader in zip(IDS, first.leaders, later.leaders, strict=True):
        if leader != before:
            faults.append(f"{member} followed {before!r} and follows {leader!r}")
    return faults


def log_faults(member: str, text: str) -> list[str]:
    """Return the lines of a log that are above the level warn."""
    return [f"the log of {member} has the line {text[match.start():].splitlines()[0]!r}"
            for match in _LEVEL.finditer(text)]


class Attacker:
    """Makes bad input for one member.

    :param leader: the member that leads, in this term.
    """

    def __init__(self, chance: random.Random, leader: str, term: int) -> None:
        self._chance, self._leader, self._term = chance, leader, term
        self.member = ""

    def _body(self, **fields: object) -> bytes:
        """Return the body of a request of another member in the term -1."""
        sender = self._chance.choice([each for each in IDS if each != self.member])
        whole = {"group": GROUP, "remoteId": self.member, "localId": sender, "leaderId": sender,
                 "term": -1, **fields}
        return json.dumps(whole).encode()

    def _request(self, code: int, body: bytes) -> bytes:
        return encode_request(code, self._chance.randrange(1, 1 << 31), None, body)

    def _any_code(self) -> int:
        return int(self._chance.choice(list(DLedgerRequestCode)))

    def random_bytes(self) -> bytes:
        """Return anything."""
        return self._chance.randbytes(self._chance.randrange(1, 5000))

    def half_frame(self) -> bytes:
        """Return a frame that ends too early."""
        frame = self._request(DLedgerRequestCode.PUSH, self._body(type="APPEND"))
        return frame[: self._chance.randrange(1, len(frame))]

    def large_frame(self) -> bytes:
        """Return the largest frame, or most of it."""
        size = _FRAME_SIZE_MAX - 2000
        frame = self._request(self._any_code(), self._chance.choice((b"[", b"\0", b"1")) * size)
        return frame[: self._chance.choice((len(frame), len(frame) - 1))]

    def deep_value(self) -> bytes:
        """Return a request with a value in many lists, in its header or its body."""
        begin, end = self._chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
        value = begin * _DEPTH + b"1" + self._chance.choice((end * _DEPTH, b""))
        if self._chance.random() < 0.5:
            return encode_frame(0, b'{"code":51001,"opaque":1,"extFields":' + value + b"}", b"")
        return self._request(self._any_code(), self._body()[:-1] + b',"x":' + value + b"}")

    def wrong_numbers(self) -> bytes:
        """Return a request with numbers that no member sends."""
        draw = self._chance.choice
        entry = {"index": draw(_NUMBERS), "term": draw(_TERMS), "pos": draw(_NUMBERS),
                 "magic": draw((1, *_NUMBERS)), "size": draw(_NUMBERS), "body": "AAAA"}
        return self._request(self._any_code(), self._body(
            term=draw(_TERMS), ledgerEndIndex=draw(_NUMBERS), ledgerEndTerm=draw(_NUMBERS),
            commitIndex=draw(_NUMBERS), type=draw(("APPEND", "COMMIT", "COMPARE", "TRUNCATE")),
            entry=entry, takeLeadershipLedgerIndex=draw(_NUMBERS)))

    def wrong_push_of_the_leader(self) -> bytes:
        """Return a push of the present leader whose entry has a negative index or position."""
        draw = self._chance.choice
        body = self._body(
            term=self._term, localId=self._leader, leaderId=self._leader, commitIndex=-1,
            type=draw(("APPEND", "COMPARE", "TRUNCATE")),
            entry={"index": draw((-1, -5, -(2**63))), "term": self._term, "pos": -7, "magic": 1,
                   "size": 51, "body": "AAAA"})
        return self._request(DLedgerRequestCode.PUSH, body)

    def unknown_type(self) -> bytes:
        """Return a request with a code, a type or a result that does not exist."""
        draw = self._chance.choice
        return self._request(draw((51006, 50003, 0, -1, 10, 2**31 - 1, self._any_code())),
                             self._body(type=draw(("SNAPSHOT", 17, None, [], -1)),
                                        voteResult="PERHAPS"))

    def wrong_address(self) -> bytes:
        """Return a request for another group or another member."""
        term = self._chance.choice((self._term, self._term + 1, self._term + 1000))
        if self._chance.random() < 0.5:
            return self._request(self._any_code(), self._body(group="G9", term=term))
        return self._request(self._any_code(), self._body(remoteId="n9", term=term))

    def stranger(self) -> bytes:
        """Return a request of a program that is not a member, in a possible term."""
        code = self._chance.choice((DLedgerRequestCode.VOTE, DLedgerRequestCode.HEART_BEAT,
                                    DLedgerRequestCode.PUSH))
        return self._request(code, self._body(
            term=self._term + 1, localId="n7", leaderId="n7", type="COMMIT", commitIndex=2**40,
            ledgerEndIndex=2**40, ledgerEndTerm=2**40))

    def transfer(self) -> bytes:
        """Return a request to transfer the lead to an unknown member, or in a wrong term."""
        draw = self._chance.choice
        to, term = draw((("n9", self._term), ("n1", self._term + 5), ("", self._term), ("n2", 0)))
        return self._request(DLedgerRequestCode.LEADERSHIP_TRANSFER, self._body(
            term=term, localId=None, leaderId=None, transferId=self._leader, transfereeId=to))

    def changed_request(self) -> bytes:
        """Return a changed request of Apache's members, for another group."""
        mutation = mutate(self._chance.randrange(1 << 30))
        return self._request(mutation.code, mutation.data.replace(GROUP.encode(), b"G9"))


#: The kinds of input.
KINDS: Final[tuple[Callable[[Attacker], bytes], ...]] = (
    Attacker.random_bytes, Attacker.half_frame, Attacker.deep_value, Attacker.wrong_numbers,
    Attacker.wrong_push_of_the_leader, Attacker.unknown_type, Attacker.wrong_address,
    Attacker.stranger, Attacker.transfer, Attacker.changed_request)


class Attack:
    """The input of one run, and its answers.

    :param idle: the connections of a crowd.
    """

    def __init__(self, group: ProcessGroup, seed: int, idle: int, first: Outlook) -> None:
        self._group, self._idle = group, idle
        self._chance = random.Random(seed)
        self._attacker = Attacker(self._chance, first.leaders[0], first.term)
        self._crowd: list[socket.socket] = []
        self._crowd_port = 0
        self._crowd_end = 0.0
        self.sent: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()

    def attack(self) -> None:
        """Send one piece of input."""
        self._grow_crowd()
        member = self._attacker.member = self._chance.choice(IDS)
        kind = (Attacker.large_frame if not self._chance.randrange(_LARGE_EACH)
                else self._chance.choice(KINDS))
        data = kind(self._attacker)
        self.sent[kind.__name__] += 1
        with suppress(OSError), socket.create_connection(
                ("127.0.0.1", self._group.ports[member]), 10) as link:
            link.sendall(data)
            link.settimeout(_ANSWER_SECONDS)
            decoder = FrameDecoder()
            while received := link.recv(1 << 16):
                for frame in decoder.feed(received):
                    with suppress(HeaderError):
                        self.answers[decode_command(frame).code] += 1
                        return

    def _grow_crowd(self) -> None:
        """Make some more idle connections to one member, or close all of them after a while."""
        now = time.monotonic()
        if len(self._crowd) >= self._idle:
            self._crowd_end = self._crowd_end or now + _CROWD_SECONDS
            if now < self._crowd_end:
                return
            self.end()
        if not self._crowd:
            self._crowd_end, self._crowd_port = 0.0, self._group.ports[self._chance.choice(IDS)]
        for _ in range(min(_ARRIVALS, self._idle - len(self._crowd))):
            with suppress(OSError):
                self._crowd.append(socket.create_connection(("127.0.0.1", self._crowd_port), 1))
                self.sent["idle"] += 1

    def end(self) -> None:
        """Close the idle connections."""
        for link in self._crowd:
            link.close()
        self._crowd.clear()


def look(group: ProcessGroup) -> Outlook:
    """Look at the group from outside.

    A member may close the connection of a look as a stranger's, so it is asked more than once.
    """
    leaders = [next(filter(None, (group.leader_of(member) for _ in range(_LOOKS_MAX))), "")
               for member in IDS]
    return Outlook(group.term(), tuple(leaders))


def run(group: LoggedGroup, seconds: float, seed: int, idle: int, pause: float, rate: float
        ) -> int:
    """Attack the group; :returns: the exit status."""
    faults: list[str] = []
    with LoadedGroup(group, rate=rate, body_max=1024) as loaded:
        loaded.recover()
        first = look(group)
        pids = [group.members[member].pid for member in IDS]
        before = [rss_anon_kib(pid) for pid in pids]
        watches = [MemoryWatch(lambda pid=pid: rss_anon_kib(pid)) for pid in pids]
        attack = Attack(group, seed, idle, first)
        begin = now_ms()
        end, look_due = time.monotonic() + seconds, 0.0
        while time.monotonic() < end and not faults:
            attack.attack()
            if time.monotonic() >= look_due:
                look_due = time.monotonic() + _LOOK_SECONDS
                faults += outlook_faults(first, look(group))
            # The attack has a given pace.
            time.sleep(pause)
        attack.end()
        ended = now_ms()
        grown = [watch.end() - kib for watch, kib in zip(watches, before, strict=True)]
        faults += outlook_faults(first, look(group))
        faults += loaded.finish()
        for member in IDS:
            faults += log_faults(member, group.log_of(member))
    silence = silences(loaded.history, begin, ended)[0]
    faults += bound_faults(grown, silence, attack.sent, attack.answers)
    return report(
        "strangers", f"{(ended - begin) / 1000:.0f} s in term {first.term}; sent "
        f"{_counts(attack.sent)}; answered {_counts(attack.answers)}; memory grew by at most "
        f"{max(grown)} KiB; the longest time without an acknowledgement {silence / 1000:.1f} s; "
        f"{describe(loaded.history)}", faults)


def bound_faults(
    grown_kib: Sequence[int], silence_ms: float, sent: Counter[str], answers: Counter[int]
) -> list[str]:
    """Return which bounds a run has broken; a run without attacks or answers is a fault too."""
    faults = [f"the memory of {member} grew by {kib} KiB"
              for member, kib in zip(IDS, grown_kib, strict=True) if kib > GROWTH_MAX_KIB]
    if silence_ms > SILENCE_MAX_MS:
        faults.append(f"no message was taken for {silence_ms / 1000:.1f} s")
    if not sent or not answers:
        faults.append(f"{sum(sent.values())} attacks, and {sum(answers.values())} answers")
    return faults


def _counts(counter: Counter[str] | Counter[int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(
        counter.items(), key=lambda item: str(item[0])))


class LoggedGroup(ProcessGroup):
    """A group whose logs are read in the end."""

    def log_of(self, member: str) -> str:
        """Return the text of the log of a member."""
        return "".join(path.read_text() for path in (self.folder / member / "logs").glob("*.log*"))


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="of the attack (3600)")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections (10000)")
    parser.add_argument("--pause", type=float, default=0.05, help="between two attacks, s (0.05)")
    parser.add_argument("--rate", type=float, default=50, help="messages a second (50)")
    args = parser.parse_args()
    with run_folder(args.keep, "strangers") as folder:
        return run(LoggedGroup(folder, args.program, {"dledger.quick_failover": "true"}),
                   args.seconds, args.seed, args.idle, args.pause, args.rate)


if __name__ == "__main__":
    sys.exit(main())
