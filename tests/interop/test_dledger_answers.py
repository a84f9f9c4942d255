"""Answers between our members and Apache's that a relay edits: each has its documented effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final, Self

from tests.interop.clients import JavaTestCase
from tests.interop.edits import Edit, EditingRelay, Push
from tests.interop.kept import kept
from tests.interop.ledger_group import IDS, LedgerGroup, OurMember
from tests.interop.ports import free_port
from tests.interop.replicas import bodies, end_of
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError

#: Longer than the 1,000 ms after which a push has failed.
_LATE_SECONDS: Final = 1.6
#: How long an effect may take, on a busy machine, seconds.
_PATIENCE_SECONDS: Final = 30.0
#: A line of a log that reports a fault.
_FAULT: Final = re.compile(r"^\S+ \[[^\]]*#(error|critical)\]|^Traceback", re.MULTILINE)
#: The difference between a foreign term and the term of the group.
_TERMS: Final = 50
#: What a leader does after an answer: it compares the logs, or pushes the entry again without a
#: comparison, or goes on.
COMPARES, REPEATS, GOES_ON = "compares", "repeats", "goes on"


def with_code(code: int) -> Edit:
    """Return the edit to another code; the entries were appended nevertheless."""
    return Edit(str(code), lambda answer: {**answer, "code": code})


#: Each edit, and its effect on our leader and on Apache's. Ours compares the logs whenever it
#: does not know what the follower has. Apache's repeats a push that no answer has confirmed after a
#: second, and files an answer under its term, so one of a foreign term has no effect.
EDITS: Final[tuple[tuple[Edit, str, str], ...]] = (
    (with_code(413), COMPARES, REPEATS),
    (with_code(421), COMPARES, REPEATS),
    (with_code(406), COMPARES, COMPARES),
    (with_code(302), COMPARES, REPEATS),
    (Edit("missing", copies=0), COMPARES, REPEATS),
    (Edit("late", delay_seconds=_LATE_SECONDS), COMPARES, REPEATS),
    (Edit("duplicated", copies=2), GOES_ON, GOES_ON),
    (Edit("of a foreign term", lambda answer: {**answer, "term": answer["term"] + _TERMS}),
     COMPARES, GOES_ON),
    (Edit("of a foreign leader", lambda answer: {**answer, "leaderId": "n9"}), GOES_ON, GOES_ON),
)


class EditedGroup(LedgerGroup):
    """Three brokers that reach each other through editing relays."""

    def __init__(self, folder: Path, version: str, ours: Collection[str]) -> None:
        super().__init__(folder, version, ours)
        self.relays = {
            (source, target): EditingRelay(free_port(), self.ports[target])
            for source in IDS for target in IDS if source != target}

    def __enter__(self) -> Self:
        for relay in self.relays.values():
            self._stack.enter_context(relay)
        return super().__enter__()

    def ports_for(self, member: str) -> Mapping[str, int]:
        return {other: port if other == member else self.relays[member, other].port
                for other, port in self.ports.items()}


def edited_group(folder: Path, stack: ExitStack) -> EditedGroup:
    """Start a group in which ``n2`` is Apache's."""
    group = stack.enter_context(EditedGroup(folder, AnswerTests.version, {"n0", "n1"}))
    group.start()
    return group


def effect_of(pushes: Iterable[Push]) -> str:
    """Return the effect that a push, whose answer was edited, and the pushes after it show."""
    last = -1
    repeats = False
    for kind, index in pushes:
        if kind == "COMPARE":
            return COMPARES
        if kind == "APPEND":
            repeats = repeats or index <= last
            last = max(last, index)
    return REPEATS if repeats else GOES_ON


class AnswerTests(JavaTestCase):
    """The leader and the other follower are a majority all the time."""

    version = "5.5.0"

    def lead(self, leader: str, follower: str) -> None:
        """Let a member lead, whose follower's answers are edited."""
        self.group = kept(self, edited_group)
        self.leader, self.follower = leader, follower
        self.relay = self.group.relays[leader, follower]
        self.numbers = count()
        self.sent: set[bytes] = set()
        self.group.wait_for_leader()
        self.group.give_lead(leader)
        wait_until("the leader takes messages", self.is_sent, _PATIENCE_SECONDS)
        self.wait_for_follower("the first message")

    def is_sent(self) -> bool:
        """Send a message to the leader; :returns: whether it was acknowledged."""
        leader = self.group.leader()
        if not leader:
            return False
        body = b"<%d/0/%d>" % (IDS.index(self.leader), next(self.numbers))
        try:
            with RawClient(self.group.members[leader].address, 10) as client:
                client.send("T", body)
        except BrokerError:
            return False
        self.sent.add(body)
        return True

    def find_effect(self, edit: Edit) -> str:
        """Edit the answer to a push; :returns: the effect, once the follower has all."""
        def shows_effect() -> bool:
            pushes = self.relay.pushes_since_edit()
            # A leader without entries to push commits once a second, and a push is repeated after
            # that time.
            return effect_of(pushes) != GOES_ON or pushes.count(("COMMIT", -1)) > 1

        self.relay.begin(edit)
        # A leader of Apache's would learn of this push from the answer to a later one, too.
        self.assertTrue(self.is_sent(), edit.name)
        wait_until(f"{edit.name}: the answer is edited", lambda: self.relay.is_done,
                   _PATIENCE_SECONDS)
        wait_until(f"{edit.name}: an effect", shows_effect, _PATIENCE_SECONDS)
        self.assertTrue(self.is_sent(), edit.name)
        self.wait_for_follower(edit.name)
        return effect_of(self.relay.pushes_since_edit())

    def wait_for_follower(self, what: str) -> None:
        """Wait until the follower has the leader's log."""
        end = end_of(self.group.members[self.leader].address)
        wait_until(f"{what}: the follower has all", lambda: end_of(
            self.group.members[self.follower].address) >= end > 0, _PATIENCE_SECONDS)

    def edit_heartbeat(self, name: str, code: int, term: int) -> None:
        """Edit an answer to a heartbeat; messages are taken after it."""
        self.relay.begin(Edit(name, lambda answer: {"code": code, "term": term},
                              of_heartbeat=True))
        wait_until(f"{name}: the answer is edited", lambda: self.relay.is_done, _PATIENCE_SECONDS)
        wait_until(f"{name}: a message is taken", self.is_sent, _PATIENCE_SECONDS)

    def is_followed(self) -> bool:
        """Whether the leader has sent a heartbeat since the edit."""
        return self.relay.heartbeats_since_edit() > 0

    def check_logs(self) -> None:
        """Check that all members have all messages once, and that ours report no fault."""
        self.group.wait_for_equal_logs()
        for name, member in self.group.members.items():
            counts = bodies(member.log_folder)
            self.assertEqual(self.sent - counts.keys(), set(), name)
            self.assertEqual(max(counts.values()), 1, name)
            if isinstance(member, OurMember):
                self.assertNotRegex(member.log(), _FAULT, name)

    def test_answers_to_apaches_leader(self) -> None:
        """The follower is ours; higher terms do not matter to a leader with a majority."""
        self.lead("n2", "n1")
        effects = {edit.name: self.find_effect(edit) for edit, *_ in EDITS}
        self.assertEqual(effects, {edit.name: effect for edit, _, effect in EDITS})
        term = int(self.group.term_of("n2"))
        for name, code, answered in (("a foreign leader", 409, -1),
                                     ("a higher term", 403, term + _TERMS)):
            self.edit_heartbeat(name, code, answered)
            wait_until(f"{name}: the leader goes on", self.is_followed, _PATIENCE_SECONDS)
            self.assertEqual((self.group.leader(), int(self.group.term_of("n2"))), ("n2", term))
        self.check_logs()

    def test_answers_to_our_leader(self) -> None:
        """The follower is Apache's; a higher term ends the lead."""
        self.lead("n0", "n2")
        effects = {edit.name: self.find_effect(edit) for edit, *_ in EDITS}
        self.assertEqual(effects, {edit.name: effect for edit, effect, _ in EDITS})
        term = int(self.group.term_of("n0"))
        self.edit_heartbeat("a foreign leader", 409, -1)
        wait_until("the leader goes on", self.is_followed, _PATIENCE_SECONDS)
        self.assertEqual((self.group.leader(), int(self.group.term_of("n0"))), ("n0", term))
        self.edit_heartbeat("a higher term", 403, term + _TERMS)
        wait_until("a higher term begins", lambda: all(
            int(self.group.term_of(member)) >= term + _TERMS for member in IDS), _PATIENCE_SECONDS)
        wait_until("messages are taken", self.is_sent, _PATIENCE_SECONDS)
        self.check_logs()
