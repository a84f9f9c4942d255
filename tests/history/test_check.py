"""The check of histories: bad ones are found by their rules, and unusual good ones pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.history.check import CALM_MS, check_history
from tests.history.records import (
    Commit,
    Derivation,
    Entry,
    Failover,
    FinalLog,
    History,
    Outcome,
    Read,
    Send,
)

#: The queue of each body of the good history: its log is "abcdef" from place 0 on.
_QUEUES: Final = {"a": "q", "b": "r", "c": "q", "d": "q", "e": "r", "f": "q"}
_OFFSETS: Final = {"a": 0, "b": 0, "c": 1, "d": 2, "e": 1, "f": 3}
#: Each send takes 5 ms and begins 10 ms after the last one.
_STEP_MS: Final = 10


def entry(body: str, place: int, **changes: object) -> Entry:
    """Return an entry of a final log."""
    return replace(Entry(place, _QUEUES.get(body, "q"), _OFFSETS.get(body, place), body,
                         place * _STEP_MS), **changes)  # type: ignore[arg-type]


def send(body: str, **changes: object) -> Send:
    """Return an acknowledged send of the good history."""
    place = "abcdef".find(body)
    return replace(Send("p", "n0", _QUEUES.get(body, "q"), body, place * _STEP_MS,
                        place * _STEP_MS + 5, Outcome.OK, place, _OFFSETS.get(body, place)),
                   **changes)  # type: ignore[arg-type]


def read(bodies: str, first: int = 0, **changes: object) -> Read:
    """Return a read of queue "q" after all sends."""
    run = tuple((first + index, body) for index, body in enumerate(bodies))
    return replace(Read("c", "n0", "q", 100, 101, first, run, 0, 4),
                   **changes)  # type: ignore[arg-type]


def logs(bodies: str = "abcdef") -> dict[str, FinalLog]:
    """Return the logs of three nodes."""
    log = FinalLog(tuple(entry(body, place) for place, body in enumerate(bodies)))
    return {"n0": log, "n1": log, "n2": log}


def good() -> History:
    """Return a history without an anomaly."""
    return History([send(body) for body in "abcdef"], [read("acdf")], logs=logs())


Change = Callable[[History], object]


def _sent_twice(history: History, first: Outcome) -> None:
    """The body "x" is twice in each log; the second of its sends is acknowledged."""
    history.sends += [send("x", begin=70, end=75, outcome=first, place=-1, offset=-1),
                      send("x", begin=80, end=85, place=7, offset=5)]
    history.logs = {node: FinalLog((*log.entries, entry("x", 6, offset=4), entry("x", 7, offset=5)))
                    for node, log in logs().items()}


def _unknown(history: History, body: str) -> None:
    index = "abcdef".index(body)
    history.sends[index] = replace(history.sends[index], outcome=Outcome.UNKNOWN, place=-1,
                                   offset=-1)


def _refused(history: History, body: str) -> None:
    index = "abcdef".index(body)
    history.sends[index] = replace(history.sends[index], outcome=Outcome.REFUSED, place=-1,
                                   offset=-1)


def _one_log(history: History, node: str, bodies: str) -> None:
    history.logs = {**logs(), node: logs(bodies)["n0"]}


def _with_copies(history: History, due: float, *stored: float, changes: tuple[Failover, ...] = ()
                 ) -> None:
    """A derived message "x", made at the given times."""
    history.derivations.append(Derivation("x", due))
    history.failovers += changes
    copies = tuple(entry("x", 6 + index, offset=4 + index, stored=time)
                   for index, time in enumerate(stored))
    history.logs = {node: FinalLog((*log.entries, *copies)) for node, log in logs().items()}


def _calm(history: History, ok_at: float) -> None:
    """A time without a fault from 1000 on, in which clients send without an end."""
    history.calm.append((1000, 998 + 2 * CALM_MS))
    history.sends += [send("x", begin=1100, end=1000 + 2 * CALM_MS, outcome=Outcome.REFUSED,
                           place=-1, offset=-1),
                      send("y", begin=ok_at, end=ok_at, place=6, offset=4)]
    history.logs = {node: FinalLog((*log.entries, entry("y", 6, offset=4)))
                    for node, log in logs().items()}


def _empty_last(history: History) -> None:
    """A node whose log lacks its last entry."""
    _one_log(history, "n1", "abcde")


#: Bad histories: the change that makes each of the good one, and the rules that find it.
BAD: Final[dict[str, tuple[Change, set[str]]]] = {
    "an acknowledged send is on two of three nodes": (_empty_last, {"H1", "H4"}),
    "an acknowledged send is on no node": (
        lambda h: (h.reads.clear(), setattr(h, "logs", logs("abcde"))), {"H1"}),
    "an acknowledged send is at another offset": (
        lambda h: h.sends.__setitem__(5, send("f", offset=4)), {"H1"}),
    "two sends were acknowledged at one place": (
        lambda h: h.sends.append(send("x", begin=30, end=200, place=3, offset=9)), {"H1", "H2"}),
    "two sends were acknowledged at one offset": (
        lambda h: h.sends.append(send("x", begin=30, end=200, place=9, offset=2)), {"H1", "H2"}),
    "an acknowledged send behind what retention removed is lost": (
        lambda h: (h.reads.clear(), setattr(h, "logs", {
            node: FinalLog(log.entries[3:], begin=2) for node, log in logs().items()})), {"H1"}),
    "two reads show two bodies at one offset": (
        lambda h: h.reads.append(read("acxf")), {"H2", "H4"}),
    "two logs differ at one place": (
        lambda h: (h.reads.clear(), _unknown(h, "f"), _one_log(h, "n2", "abcdex")), {"H2", "H3"}),
    "a send is stored twice": (
        lambda h: setattr(h, "logs", {node: FinalLog((*log.entries, entry("f", 6, offset=4)))
                                      for node, log in logs().items()}), {"H3"}),
    "a refused send that was sent again is stored twice": (
        lambda h: _sent_twice(h, Outcome.REFUSED), {"H3"}),
    "a read shows a send that was lost": (
        lambda h: (_unknown(h, "f"), setattr(h, "logs", logs("abcde"))), {"H4"}),
    "a refused send is in the logs": (
        lambda h: (h.reads.clear(), _refused(h, "f")), {"H5"}),
    "a read shows a refused send": (
        lambda h: (_refused(h, "f"), setattr(h, "logs", logs("abcde"))), {"H4", "H5"}),
    "a send is before one that was acknowledged earlier": (
        lambda h: h.sends.__setitem__(0, send("a", begin=90, end=95)), {"H6"}),
    "a send of unknown outcome is before one that was acknowledged earlier": (
        lambda h: h.sends.__setitem__(
            0, send("a", begin=90, end=95, outcome=Outcome.UNKNOWN, place=-1, offset=-1)), {"H6"}),
    "the offsets of a queue are not in the order of the sends": (
        lambda h: (h.reads.clear(),
                   h.sends.append(send("x", queue="q", begin=80, end=85, place=6, offset=5)),
                   h.sends.append(send("y", queue="q", begin=90, end=95, place=7, offset=4)),
                   setattr(h, "logs", {node: FinalLog((
                       *log.entries, entry("x", 6, offset=5), entry("y", 7, offset=4)))
                       for node, log in logs().items()})), {"H6"}),
    "a read has a gap": (
        lambda h: h.reads.append(replace(read(""), bodies=((0, "a"), (2, "d")))), {"H7"}),
    "a read begins above the offset that was asked for": (
        lambda h: h.reads.append(read("df", 2, start=1)), {"H7"}),
    "a read skips a message that retention has kept": (
        lambda h: (setattr(h, "logs", {node: FinalLog(log.entries[2:], begin=2)
                                       for node, log in logs().items()}),
                   h.reads.append(read("df", 2, start=0))), {"H7"}),
    "a read shows a message above the end of the queue": (
        lambda h: h.reads.append(read("acdf", client="other", begin=90, end=102, high=3)), {"H7"}),
    "a newer leader tells a lower end": (
        lambda h: h.reads.append(read("acd", client="other", node="n1", begin=110, end=111, high=3,
                                      term=1)), {"H7"}),
    "a node goes back in the eyes of a client": (
        lambda h: (h.reads.clear(),
                   h.reads.append(read("acdf", leads=False)),
                   h.reads.append(read("acd", leads=False, begin=110, end=111, high=3))), {"H8"}),
    "a leader is behind what a client saw at a follower of its term": (
        lambda h: (h.reads.clear(),
                   h.reads.append(read("acdf", node="n1", leads=False)),
                   h.reads.append(read("acd", begin=110, end=111, high=3))), {"H8"}),
    "a delayed message never comes": (lambda h: _with_copies(h, 50), {"H9"}),
    "a delayed message comes too early": (lambda h: _with_copies(h, 50, 49), {"H9"}),
    "a delayed message comes twice under one leader": (
        lambda h: _with_copies(h, 50, 51, 90), {"H9"}),
    "a delayed message that was settled comes again": (
        lambda h: _with_copies(h, 50, 51, 90, changes=(Failover(70, 60),)), {"H9"}),
    "a committed offset is above the queue": (
        lambda h: h.commits.append(Commit("g", "q", 5, 4)), {"H10"}),
    "a group never handles a message": (
        lambda h: setattr(h, "handled", {"g": tuple("abcde")}), {"H10"}),
    "no send succeeds without a fault": (lambda h: _calm(h, 1000 + CALM_MS), {"H11"}),
}

#: Good histories that look bad.
ODD: Final[dict[str, Change]] = {
    "nothing is odd": lambda h: None,
    "a send of unknown outcome was stored": lambda h: _unknown(h, "c"),
    "a send of unknown outcome was not stored": lambda h: h.sends.append(
        send("x", begin=80, end=85, outcome=Outcome.UNKNOWN, place=-1, offset=-1)),
    "a retry after an unknown outcome made a duplicate": (
        lambda h: _sent_twice(h, Outcome.UNKNOWN)),
    "a refused send was sent again": lambda h: (
        h.sends.insert(5, send("f", begin=44, end=45, outcome=Outcome.REFUSED, place=-1,
                               offset=-1))),
    "sends at the same time are stored in the other order": lambda h: (
        h.sends.__setitem__(0, send("a", begin=0, end=30)),
        h.sends.__setitem__(2, send("c", begin=0, end=12)),
        h.sends.__setitem__(1, send("b", begin=12, end=25))),
    "a follower that the client did not read before is behind": lambda h: h.reads.append(
        read("ac", node="n1", leads=False, begin=110, end=111, high=2)),
    "a follower is behind after its restart": lambda h: h.reads.extend((
        read("acd", node="n1", leads=False, begin=110, end=111, high=3),
        read("ac", node="n1", leads=False, begin=120, end=121, high=2, life=1))),
    "a deposed leader shows an old state": lambda h: (
        h.reads.clear(),
        h.reads.append(read("acdf", node="n1", term=3)),
        h.reads.append(read("acd", begin=110, end=111, high=3, term=2))),
    "the answer of an earlier read comes later": lambda h: h.reads.append(
        read("acd", client="other", begin=90, end=120, high=3)),
    "retention removed the beginning": lambda h: setattr(h, "logs", {
        node: FinalLog(log.entries[2:], begin=2) for node, log in logs().items()}),
    "a read begins where retention left the queue": lambda h: h.reads.append(
        read("df", 2, start=0, low=2)),
    "a read skips what retention has removed before the node tells it": lambda h: (
        setattr(h, "logs", {node: FinalLog(log.entries[3:], begin=3)
                            for node, log in logs().items()}),
        h.reads.append(read("df", 2, start=0))),
    "a delayed message comes twice by a change of the leader": lambda h: _with_copies(
        h, 50, 51, 90, changes=(Failover(70, 40),)),
    "both sends of a body have an unknown outcome, and the first was stored": lambda h: (
        _unknown(h, "a"),
        h.sends.append(send("a", begin=80, end=85, outcome=Outcome.UNKNOWN, place=-1, offset=-1))),
    "a read begins in the middle": lambda h: h.reads.append(read("df", 2)),
    "a send begins late in a time without a fault": lambda h: (
        h.calm.append((1000, 1000 + CALM_MS)),
        h.sends.append(send("x", begin=CALM_MS, end=1000 + CALM_MS, outcome=Outcome.UNKNOWN,
                            place=-1, offset=-1))),
    "a send succeeds late but in time": lambda h: _calm(h, 1000 + CALM_MS - 1),
    "no client sends in a long time without a fault": lambda h: h.calm.append((1000, 1e6)),
}


class HistoryTests(SynchronousTestCase):
    """``check_history``."""

    def test_each_bad_history_is_found_by_its_rules(self) -> None:
        """It has the anomalies of these rules, and of no other rule."""
        for name, (change, rules) in BAD.items():
            history = good()
            change(history)
            found = check_history(history)
            self.assertEqual({each.rule for each in found}, rules, msg=f"{name}: {found}")

    def test_each_odd_history_is_accepted(self) -> None:
        """Unknown outcomes, retries and stale reads are possible."""
        for name, change in ODD.items():
            history = good()
            change(history)
            self.assertEqual(check_history(history), [], msg=name)

    def test_every_rule_has_a_bad_history(self) -> None:
        """A rule that no history breaks would not be tested."""
        self.assertEqual({rule for _, rules in BAD.values() for rule in rules},
                         {f"H{number}" for number in range(1, 12)})
