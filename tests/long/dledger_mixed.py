"""The judgement of a group in which some brokers are Apache's, whose faults are not ours.

A broker of Apache's that leads, is killed, and comes back has entries in its queues for messages on
which the group did not agree: 5.5.0 enters the whole log when it starts after a kill. Its log then
follows the group, and its queues do not. If it leads again, it shows these entries to consumers,
and counts the offsets of new messages from them. So offsets of its leads may be left out or given
twice, in the log of all members.

A broker of ours keeps its queues as the log says, and the first message of an offset. So this
judgement demands of all members that their logs are equal and have everything that was
acknowledged; of ours, that their queues are what the log says, and that they show nothing else;
and of Apache's no more. What Apache's have wrong is counted, with the lines of their logs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.check import check_history
from tests.history.records import Entry, FinalLog, History, Outcome, Read
from tests.interop.ledger_group import ApacheMember
from tests.long.dledger_group import LoadedGroup, ProcessGroup, judge
from twistmq.broker.store.consume_queue import ENTRY, FILLER_SIZE

__all__ = ["Offset", "Places", "apache_log", "end_and_compare", "expected_queues", "finish_mixed",
           "judge_mixed", "leads", "log_notes", "queue_faults", "read_queues", "wrong_offsets"]

#: The places of the messages of each queue, by offset; None where an offset was left out.
Places = dict[str, list[int | None]]

#: The place of an offset whose file was removed.
REMOVED: Final = -1
#: What Apache's broker warns of when its queues do not fit its log.
_WARNINGS: Final = re.compile(
    r"(?:maybe try to build consume queue repeatedly|build\s+consume queue repeatedly|"
    r"\[BUG\]\s?logic queue order maybe wrong|offset not matched|\[BUG\][^,:]*)", re.IGNORECASE)
#: The rules of a history that a read can break.
_READ_RULES: Final = frozenset({"H4", "H7", "H8"})


class Offset(NamedTuple):
    """An offset that does not follow the one before in its queue.

    :param given: by the leader.
    :param due: the next one of the queue.
    """

    queue: str
    given: int
    due: int
    place: int


def expected_queues(entries: Iterable[Entry], queues: Places | None = None) -> Places:
    """Return the queues of a broker of ours with these messages in its log, in log order.

    :param queues: the queues of the log before these messages, which are added to them.
    """
    queues = {} if queues is None else queues
    for entry in entries:
        places = queues.setdefault(entry.queue, [])
        if entry.offset == 0:
            # The topic was made again.
            places.clear()
        if entry.offset >= len(places):
            places += [None] * (entry.offset - len(places))
            places.append(entry.place)
    return queues


def wrong_offsets(
    entries: Iterable[Entry], begins: Mapping[str, int] | None = None
) -> list[Offset]:
    """Return the offsets that were left out or given twice, in log order.

    :param begins: the first offsets of the queues that do not begin at 0.
    """
    due: Counter[str] = Counter(begins)
    wrong = []
    for entry in entries:
        if entry.offset != due[entry.queue]:
            wrong.append(Offset(entry.queue, entry.offset, due[entry.queue], entry.place))
        due[entry.queue] = max(due[entry.queue], entry.offset + 1)
    return wrong


def read_queues(store: Path, topic: str) -> Places:
    """Read the queues of a topic in the files of a store, ours or Apache's, which is closed.

    The offsets whose files retention has removed have the place ``REMOVED``.
    """
    queues: Places = {}
    for folder in sorted((store / "consumequeue" / topic).glob("[0-9]*")):
        places = queues.setdefault(f"{topic}-{folder.name}", [])
        for path in sorted(folder.glob("0*")):
            places += [REMOVED] * (int(path.name) // ENTRY.size - len(places))
            data = path.read_bytes()
            for place, size, _ in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
                if not size:
                    break
                places.append(None if size == FILLER_SIZE else place)
    return queues


def queue_faults(member: str, queues: Places, expected: Places) -> list[str]:
    """Return in which entries the queues of a member differ from those that they should be."""
    faults = []
    for queue in sorted({*queues, *expected}):
        have, due = queues.get(queue, []), expected.get(queue, [])
        wrong = [offset for offset, place in enumerate(have)
                 if offset >= len(due) or place not in (due[offset], REMOVED)]
        if wrong:
            faults.append(f"{queue} of {member} has {len(wrong)} entries of other messages, the "
                          f"first one at offset {wrong[0]}")
        if len(have) < len(due):
            faults.append(f"{queue} of {member} ends at {len(have)} and not at {len(due)}")
    return faults


def leads(history: History, terms: Mapping[int, int]) -> dict[int, set[str]]:
    """Return which brokers acknowledged messages in each term, by their addresses.

    :param terms: of the entries, by place.
    """
    brokers: dict[int, set[str]] = {}
    for send in history.sends:
        if send.outcome is Outcome.OK and send.place in terms:
            brokers.setdefault(terms[send.place], set()).add(send.node)
    return brokers


def judge_mixed(
    history: History, terms: Mapping[int, int], apaches: Mapping[str, str],
    begins: Mapping[str, int] | None = None,
) -> tuple[list[str], list[str]]:
    """Judge a history by what ours must keep.

    :param terms: of the entries, by place.
    :param apaches: the addresses of Apache's brokers, by member.
    :param begins: the first offsets of the queues that do not begin at 0.
    :returns: the faults, and notes about what Apache's brokers did.
    """
    entries = next(iter(history.logs.values()), FinalLog(())).entries
    by_term = leads(history, terms)
    faults = [f"{sorted(brokers)} have led in the term {term}"
              for term, brokers in by_term.items() if len(brokers) > 1]
    wrong = wrong_offsets(entries, begins)
    theirs = set(apaches.values())
    for offset in wrong:
        if not by_term.get(terms[offset.place], set()) & theirs:
            faults.append(f"{offset} was given by a leader of ours")
    unnumbered = {offset.queue for offset in wrong}
    shown = [read for read in history.reads if read.node not in apaches]
    numbered = [read for read in shown if read.queue not in unnumbered]
    faults += judge(_without_offsets(history, unnumbered, numbered), unnumbered, begins)
    faults += _shown_faults(shown, entries, unnumbered)
    notes = []
    if wrong:
        twice = sum(offset.given < offset.due for offset in wrong)
        notes.append(f"leaders of Apache's gave {twice} offsets twice and left offsets out "
                     f"{len(wrong) - twice} times, in {len(unnumbered)} queues")
    broken = Counter(
        anomaly.rule for anomaly in check_history(History(
            reads=[read for read in history.reads if read.node in apaches], logs=history.logs))
        if anomaly.rule in _READ_RULES)
    if broken:
        notes.append("brokers of Apache's showed what the log does not have, or with gaps: " +
                     ", ".join(f"{rule} {count} times" for rule, count in sorted(broken.items())))
    return faults, notes


def _without_offsets(
    history: History, queues: Collection[str], reads: Sequence[Read]
) -> History:
    """Return a history with other reads, whose messages of some queues have places as offsets."""
    return History(
        sends=[replace(send, offset=send.place) if send.queue in queues else send
               for send in history.sends], reads=list(reads),
        logs={node: FinalLog([replace(entry, offset=entry.place) if entry.queue in queues else entry
                              for entry in log.entries], log.begin)
              for node, log in history.logs.items()})


def _shown_faults(
    reads: Iterable[Read], entries: Iterable[Entry], queues: Collection[str]
) -> list[str]:
    """Return what our brokers showed of some queues that is not the first one of its offset."""
    first: dict[tuple[str, int], str] = {}
    for entry in entries:
        first.setdefault((entry.queue, entry.offset), entry.body)
    return [f"{read.node} showed {body} at {offset} of {read.queue}, and not "
            f"{first.get((read.queue, offset))}"
            for read in reads if read.queue in queues for offset, body in read.bodies
            if first.get((read.queue, offset)) != body]


def log_notes(member: str, text: str) -> list[str]:
    """Count the warnings about queues in the log of one of Apache's brokers.

    :returns: a line for each kind of warning, with its count and an example.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for line in text.splitlines():
        match = _WARNINGS.search(line)
        if match:
            kind = " ".join(match[0].lower().split())
            counts[kind] += 1
            examples.setdefault(kind, line)
    return [f"the log of {member} says {count} times: {examples[kind]}"
            for kind, count in counts.most_common()]


def finish_mixed(loaded: LoadedGroup, topics: Iterable[str]) -> tuple[list[str], list[str]]:
    """End the load and the brokers, and judge all; :returns: the faults, and the notes."""
    group = loaded.group
    apaches = {member: group.members[member].address for member in group.apaches}
    faults = loaded.read_logs()
    found, notes = judge_mixed(loaded.history, loaded.terms, apaches)
    notes += [f"Apache's: {reader.node} answered {reader.damaged} pulls with damaged records"
              for reader in loaded.readers if reader.damaged and reader.node in apaches]
    expected = expected_queues(loaded.history.logs[group.ids[0]].entries)
    differences, more = end_and_compare(group, topics, expected)
    return faults + differences + found, notes + more


def end_and_compare(
    group: ProcessGroup, topics: Iterable[str], expected: Places
) -> tuple[list[str], list[str]]:
    """End the brokers, and compare their queues; :returns: the faults, and the notes."""
    faults, notes = [], []
    for member in group.ids:
        group.end(member)
        queues: Places = {}
        for topic in topics:
            queues |= read_queues(group.store_folder(member), topic)
        differences = queue_faults(member, queues, expected)
        if member in group.apaches:
            notes += [f"Apache's: {text}" for text in differences]
            notes += log_notes(member, apache_log(group, member))
        else:
            faults += differences
    return faults, notes


def apache_log(group: ProcessGroup, member: str) -> str:
    """Return the warnings of a broker of Apache's."""
    replica = group.members[member]
    assert isinstance(replica, ApacheMember)
    path = replica.peer.home / "broker.log"
    return path.read_text(errors="replace") if path.exists() else ""
