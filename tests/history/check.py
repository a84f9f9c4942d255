"""Checks a history of an append-only log against eleven rules.

Each acknowledged send has witnessed its place, so that the order of the log is known and no search
for a possible order is needed: the check sorts a few lists. A register, which most such checkers
model, would not see damage in a queue.

Reads are prefix-consistent, not linearizable: a leader that was deposed and does not know it yet
may show an older state, which is not an anomaly. A follower may also be behind.

| rule | anomaly | demand |
| --- | --- | --- |
| H1 | lost write | an acknowledged body is at its place and offset in every final log |
| H2 | two values at one place | a place, or an offset of a queue, never has two bodies |
| H3 | duplicate | a body is twice in a log only if it was sent again after an unknown outcome |
| H4 | dirty read | a body that a read showed is in every final log |
| H5 | refused but stored | a body of which all sends were refused is nowhere |
| H6 | real time | a send that began after another was acknowledged has a later place and offset |
| H7 | prefix | a read is a run of the queue without a gap; the end that leaders show never falls |
| H8 | session | the end that one client sees does not fall at one node, or at a newer leader |
| H9 | derivation | a derived message appears, not before its time, and twice only by a fail-over |
| H10 | consumption | committed offsets are in the queue; a group handles each acknowledged body |
| H11 | availability | in 15 s without a fault one of the sends succeeds |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from tests.history.records import FinalLog, History, Outcome, Send

__all__ = ["CALM_MS", "Anomaly", "check_history", "first_offsets"]

#: In so many milliseconds without a fault, one of the sends succeeds.
CALM_MS: Final = 15_000


class Anomaly(NamedTuple):
    """A rule that a history breaks, and how."""

    rule: str
    text: str


def check_history(history: History) -> list[Anomaly]:
    """Return all anomalies of a history, by rule; a possible history has none."""
    found: list[Anomaly] = []
    for rule in (_lost_writes, _two_values, _copies, _dirty_reads, _real_time, _runs, _leader_ends,
                 _sessions, _derivations, _consumption, _availability):
        found += rule(history)
    return found


def _attempts(history: History) -> dict[str, list[Send]]:
    by_body: defaultdict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        by_body[send.body].append(send)
    return by_body


def _lost_writes(history: History) -> Iterator[Anomaly]:
    for node, log in history.logs.items():
        entries = {entry.place: entry for entry in log.entries}
        for send in history.sends:
            if send.outcome is not Outcome.OK or send.place < log.begin:
                continue
            entry = entries.get(send.place)
            if entry is None or (entry.body, entry.queue, entry.offset) != (
                    send.body, send.queue, send.offset):
                yield Anomaly("H1", f"{send} was acknowledged, and {node} has {entry} there")


def _two_values(history: History) -> Iterator[Anomaly]:
    values: dict[object, str] = {}

    def differs(key: object, body: str) -> bool:
        return values.setdefault(key, body) != body

    for send in history.sends:
        if send.outcome is Outcome.OK and (
                differs(send.place, send.body) or differs((send.queue, send.offset), send.body)):
            yield Anomaly("H2", f"{send} has the place or the offset of another body")
    for node, log in history.logs.items():
        for entry in log.entries:
            if differs(entry.place, entry.body) or differs((entry.queue, entry.offset), entry.body):
                yield Anomaly("H2", f"{entry} of {node} has the place or offset of another body")
    for read in history.reads:
        for offset, body in read.bodies:
            if differs((read.queue, offset), body):
                yield Anomaly("H2", f"{read} shows another body at {offset}")


def _copies(history: History) -> Iterator[Anomaly]:
    """Check the rules H3 and H5."""
    attempts = _attempts(history)
    derived = {each.body for each in history.derivations}
    shown = {body for read in history.reads for _, body in read.bodies}
    for body, sends in attempts.items():
        if all(send.outcome is Outcome.REFUSED for send in sends) and body in shown:
            yield Anomaly("H5", f"{body} was refused, and a read shows it")
    for node, log in history.logs.items():
        counts: defaultdict[str, int] = defaultdict(int)
        for entry in log.entries:
            counts[entry.body] += 1
        for body, count in counts.items():
            if body in derived:
                continue
            sends = attempts.get(body, [])
            possible = sum(send.outcome is not Outcome.REFUSED for send in sends)
            if sends and not possible:
                yield Anomaly("H5", f"{body} was refused, and it is in the log of {node}")
            elif count > possible:
                yield Anomaly("H3", f"{body} is {count} times in the log of {node}, and was sent "
                                    f"{possible} times")


def first_offsets(log: FinalLog) -> dict[str, int]:
    """Return the first offset in the log of each queue."""
    return {entry.queue: entry.offset for entry in reversed(log.entries)}


def _dirty_reads(history: History) -> Iterator[Anomaly]:
    for node, log in history.logs.items():
        bodies = {entry.body for entry in log.entries}
        first = first_offsets(log)
        for read in history.reads:
            for offset, body in read.bodies:
                kept = log.begin == 0 or offset >= first.get(read.queue, 0)
                if kept and body not in bodies:
                    yield Anomaly("H4", f"{read} showed {body}, and {node} does not have it")


def _stored(history: History) -> list[tuple[Send, int, int]]:
    """Return the sends whose place is known from an answer or a final log, with offset."""
    attempts = _attempts(history)
    log = max(history.logs.values(), key=lambda log: len(log.entries), default=FinalLog(()))
    copies: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for entry in log.entries:
        copies[entry.body].append((entry.place, entry.offset))
    stored = []
    for send in history.sends:
        if send.outcome is Outcome.OK:
            stored.append((send, send.place, send.offset))
        elif (send.outcome is Outcome.UNKNOWN and len(attempts[send.body]) == 1
              and len(copies[send.body]) == 1):
            stored.append((send, *copies[send.body][0]))
    return stored


def _real_time(history: History) -> Iterator[Anomaly]:
    stored = sorted(_stored(history), key=lambda each: each[0].begin)
    ended = sorted((each for each in stored if each[0].outcome is Outcome.OK),
                   key=lambda each: each[0].end)
    next_ended = 0
    last_place: tuple[int, Send] | None = None
    last_offsets: dict[str, tuple[int, Send]] = {}
    for send, place, offset in stored:
        while next_ended < len(ended) and ended[next_ended][0].end < send.begin:
            earlier, its_place, its_offset = ended[next_ended]
            next_ended += 1
            if last_place is None or its_place > last_place[0]:
                last_place = its_place, earlier
            if its_offset > last_offsets.get(earlier.queue, (-1, earlier))[0]:
                last_offsets[earlier.queue] = its_offset, earlier
        if last_place is not None and last_place[0] > place:
            yield Anomaly("H6", f"{send} began after {last_place[1]} ended, and is at {place}")
        elif send.queue in last_offsets and last_offsets[send.queue][0] > offset:
            yield Anomaly("H6", f"{send} began after {last_offsets[send.queue][1]} ended, and has "
                                f"the offset {offset}")


def _runs(history: History) -> Iterator[Anomaly]:
    kept = {node: first_offsets(log) if log.begin else {} for node, log in history.logs.items()}
    for read in history.reads:
        offsets = [offset for offset, _ in read.bodies]
        if not offsets:
            continue
        start = max(read.start, read.low)
        if offsets[0] > start and offsets[0] == kept.get(read.node, {}).get(read.queue):
            # Retention has removed the earlier messages. The node reports the new beginning of the
            # queue some seconds later, so the read may skip these messages.
            start = offsets[0]
        if offsets != list(range(start, start + len(offsets))):
            yield Anomaly("H7", f"{read} has a gap")
        elif offsets[-1] >= read.high:
            yield Anomaly("H7", f"{read} shows a message above the end that it tells")


def _leader_ends(history: History) -> Iterator[Anomaly]:
    """Check the second half of rule H7."""
    reads = sorted((read for read in history.reads if read.leads), key=lambda read: read.begin)
    ended = sorted(reads, key=lambda read: read.end)
    next_ended = 0
    ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for read in reads:
        while next_ended < len(ended) and ended[next_ended].end < read.begin:
            earlier = ended[next_ended]
            next_ended += 1
            by_term = ends[earlier.queue]
            by_term[earlier.term] = max(by_term.get(earlier.term, 0), earlier.high)
        known = max((high for term, high in ends[read.queue].items() if term <= read.term),
                    default=0)
        if read.high < known:
            yield Anomaly("H7", f"{read} tells a lower end than {known}, which a leader told")


def _sessions(history: History) -> Iterator[Anomaly]:
    nodes: dict[tuple[str, str, str, int], int] = {}
    highest: dict[tuple[str, str], tuple[int, int]] = {}
    for read in sorted(history.reads, key=lambda read: read.end):
        at_node = read.client, read.queue, read.node, read.life
        session = read.client, read.queue
        high, term = highest.get(session, (0, -1))
        if read.high < nodes.get(at_node, 0):
            yield Anomaly("H8", f"{read} goes back at a node from {nodes[at_node]}")
        elif read.leads and read.term >= term and read.high < high:
            yield Anomaly("H8", f"{read} goes back at a leader from {high}")
        nodes[at_node] = max(nodes.get(at_node, 0), read.high)
        if read.high >= high:
            highest[session] = read.high, max(read.term, term)


def _derivations(history: History) -> Iterator[Anomaly]:
    for node, log in history.logs.items():
        copies: defaultdict[str, list[float]] = defaultdict(list)
        for entry in log.entries:
            copies[entry.body].append(entry.stored)
        for each in history.derivations:
            times = copies[each.body]
            if not times:
                yield Anomaly("H9", f"{each} is not in the log of {node}")
            elif min(times) < each.due:
                yield Anomaly("H9", f"{each} was made at {min(times)} on {node}")
            for first, second in pairwise(times):
                # A derivation that was made late counts from then on.
                made = max(each.due, first)
                if not any(first <= change.time <= second and made > change.settled
                           for change in history.failovers):
                    yield Anomaly("H9", f"{each} was made at {first} and again at {second}")


def _consumption(history: History) -> Iterator[Anomaly]:
    for commit in history.commits:
        if not 0 <= commit.offset <= commit.high:
            yield Anomaly("H10", f"{commit} is not in the queue")
    for group, bodies in history.handled.items():
        handled = set(bodies)
        for send in history.sends:
            if send.outcome is Outcome.OK and send.body not in handled:
                yield Anomaly("H10", f"{group} never handled {send}")


def _availability(history: History) -> Iterator[Anomaly]:
    for begin, end in history.calm:
        ok = sorted(send.end for send in history.sends
                    if send.outcome is Outcome.OK and begin <= send.end <= end)
        for first, second in zip([begin, *ok], [*ok, end], strict=True):
            if second - first >= CALM_MS and any(first <= send.begin <= second - CALM_MS / 2
                                                 for send in history.sends):
                yield Anomaly("H11", f"no send succeeded from {first} to {second}")
