"""The checker of the fault harness compares every sink with the acknowledged messages.

A row is known by its body, which was sent once. Lost for good is only what the ledger says; a sink
that lacks such a message must have reported it, if the sink could know: it has read a message of
the same life of the queue that was sent before the loss. A message may be stored at an offset that
was read in the previous life, and expire before any message of its own life is read. Such a message
leaves no trace, because its queue then begins after the offset at which the sink continues.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.spark_bridge.faults.ledger import Ledger, Outcome, Place, Sent
from tests.spark_bridge.faults.queries import NO_NAME_SERVER, Batch, Generation, Row, Warned

__all__ = ["Checker"]

#: The mark of a copied row, and its body.
Copied = tuple[str, str]
#: How long after a loss it may still be the reason of a batch's error, seconds.
_AFTER_SECONDS = 30.0
#: Lost rows so near in a queue may change which row of a micro-batch has which mark.
_NEAR = 500


@dataclass
class Checker:
    """Compares the outputs; the problems are sentences.

    :param content: the messages that the queues have in the end: offset and body.
    :param warned: what the bridge told of losses.
    :param nameless: when the name server was away, Unix seconds.
    """

    ledger: Ledger
    content: Mapping[Place, list[tuple[int, str]]]
    warned: list[Warned]
    nameless: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check_brokers(self) -> None:
        """Check that the brokers have all acknowledged messages except the lost ones."""
        have = {body for rows in self.content.values() for _, body in rows}
        for sent in self.ledger.all():
            if sent.outcome is Outcome.ACKNOWLEDGED and not sent.lost and (
                    sent.place in self.content and sent.body not in have):
                self._problem("the broker has lost", sent.body, f"offset {sent.offset}")

    def check_warnings(self) -> None:
        """Check that each reported loss occurred, with the right count."""
        for warned in self.warned:
            if warned.count is not None and warned.count != warned.last - warned.first + 1:
                self._problem("a wrong count", warned.line)
            if not any(loss.place == warned.place and loss.time_s <= warned.time_s
                       for loss in self.ledger.losses):
                self._problem("a loss was told of that did not happen", warned.line)

    def check_loose(self, rows: list[Row]) -> None:
        """Check that the stream with failOnDataLoss=false has all messages but reported losses."""
        self._check_rows("loose", rows)
        have = Counter(row[4] for row in rows)
        self._need_content("loose", set(have), self.content)
        self._need_acknowledged("loose", set(have), set(self.content))
        for warned in self.warned:
            if warned.count is not None:
                self._check_skipped(warned, set(have))

    def check_copy(self, copied: list[Copied]) -> None:
        """The copy has each message of its topic, and equal marks only on equal rows."""
        bodies = {body for _, body in copied}
        places = {place for place in self.content if place[0] == "steady"}
        known = self.ledger.sent
        for body in bodies:
            if body not in known or known[body].place[0] != "steady":
                self._problem("copy has what was never sent", body)
        self._need_content("copy", bodies, {place: self.content[place] for place in places})
        self._need_acknowledged("copy", bodies, places)
        by_mark: dict[str, set[str]] = defaultdict(set)
        by_body: dict[str, set[str]] = defaultdict(set)
        for mark, body in copied:
            by_mark[mark].add(body)
            by_body[body].add(mark)
        self.counts["copied again, with the same mark"] += len(copied) - len(set(copied))
        for mark, found in by_mark.items():
            if len(found) > 1 and not self._is_shifted(found):
                self._problem("copy has a mark on different rows", mark, *sorted(found)[:4])
        for body, marks in by_body.items():
            if len(marks) > 1 and not self._is_shifted({body}):
                self._problem("copy has a row with different marks", body, *sorted(marks)[:4])

    def check_strict(self, generations: Iterable[Generation],
                     rows: Mapping[int, list[Row]]) -> None:
        """Check that each run with failOnDataLoss=true is complete and ends only for a loss."""
        for generation in generations:
            found = rows[generation.number]
            name = f"strict {generation.number}"
            self._check_rows(name, found)
            self._check_holes(name, found)
            if generation.error:
                self.counts["runs of strict that ended for a loss"] += 1
                if not any(generation.begin_s - _AFTER_SECONDS <= loss.time_s <= generation.end_s
                           for loss in self.ledger.losses
                           if loss.place[0] in generation.error):
                    self._problem(f"{name} ended without a loss", generation.error[-600:])
            else:
                self._need_content(name, {row[4] for row in found}, self.content)

    def check_batch(self, batch: Batch) -> None:
        """Check that a batch has the messages of its ranges, or reports their loss."""
        losses = [loss for loss in self.ledger.losses if loss.place in batch.ranges
                  and batch.begin_s - _AFTER_SECONDS <= loss.time_s <= batch.end_s]
        name = f"batch {batch.number}"
        if NO_NAME_SERVER in batch.error and any(
                begin <= batch.end_s and batch.begin_s <= end for begin, end in self.nameless):
            self.counts["batches that began without a name server"] += 1
            return
        if batch.rows is None:
            self.counts["batches that ended for a loss"] += 1
            if not losses or "serverWaitMs" in batch.error:
                self._problem(f"{name} failed", batch.error[-1500:])
            return
        self.counts["batches that were read"] += 1
        self.counts["rows of batches"] += len(batch.rows)
        self._check_rows(name, batch.rows)
        have = {row[4] for row in batch.rows}
        for topic, broker, queue_id, offset, body in batch.rows:
            first, after = batch.ranges[topic, broker, queue_id]
            if not first <= offset < after:
                self._problem(f"{name} has a row outside its range", body)
        for sent in self.ledger.all():
            bounds = batch.ranges.get(sent.place)
            if bounds is None or sent.outcome is not Outcome.ACKNOWLEDGED or not (
                    bounds[0] <= sent.offset < bounds[1]) or sent.body in have or (
                    sent.end_s > batch.begin_s) or (
                    sent.lost and sent.lost_s < batch.begin_s):
                continue
            if sent.lost and sent.lost_s <= batch.end_s:
                if sent.lost == "expired" and (batch.fails or not self._is_told(sent)):
                    self._problem(f"{name} does not say that it lacks", sent.body)
            else:
                self._problem(f"{name} lacks", sent.body, f"offset {sent.offset}")

    # --- parts

    def _problem(self, what: str, *parts: str) -> None:
        self.problems.append(": ".join((what, *parts)))

    def _check_rows(self, name: str, rows: list[Row]) -> None:
        """Check that all rows were sent to their queues, and none occurs twice."""
        for body, count in Counter(row[4] for row in rows).items():
            if count > 1:
                self._problem(f"{name} has {count} times", body)
        for topic, broker, queue_id, offset, body in rows:
            sent = self.ledger.sent.get(body)
            if sent is None or sent.place != (topic, broker, queue_id) or (
                    sent.offset >= 0 and sent.offset != offset):
                self._problem(f"{name} has a row that was not sent so",
                              f"{topic}, {broker}, {queue_id}, {offset}: {body}")

    def _need_content(self, name: str, have: set[str],
                      content: Mapping[Place, list[tuple[int, str]]]) -> None:
        for place, rows in content.items():
            for offset, body in rows:
                if body not in have:
                    self._problem(f"{name} lacks what the broker has", f"{place}, {offset}: {body}")

    def _need_acknowledged(self, name: str, have: set[str], places: set[Place]) -> None:
        """Check that a missing message is lost, and was reported if the reader could know it."""
        # The time at which the first message of each life that was read was sent.
        known: dict[tuple[Place, int], float] = {}
        for sent in self.ledger.all():
            if sent.body in have:
                life = sent.place, sent.life
                known[life] = min(sent.end_s, known.get(life, math.inf))
        for sent in self.ledger.all():
            if sent.place not in places or sent.body in have or (
                    sent.outcome is not Outcome.ACKNOWLEDGED):
                continue
            if not sent.lost:
                self._problem(f"{name} lacks", sent.body, f"offset {sent.offset}")
            elif self._is_told(sent):
                self.counts[f"{name}: lost and told"] += 1
            elif sent.lost == "tail" or (
                    known.get((sent.place, sent.life), math.inf) > sent.lost_s):
                # The tail of a queue leaves no trace if it was never read.
                self._check_tail(name, sent, have)
            else:
                self._problem(f"{name} does not say that it lacks", sent.body,
                              f"offset {sent.offset}, {sent.lost}")

    def _check_tail(self, name: str, sent: Sent, have: set[str]) -> None:
        """Check that the reader could not know a lost message: it read none of its queue."""
        if sent.lost == "tail" and any(
                other.body in have for other in self.ledger.all()
                if other.place == sent.place and other.lost == "tail"
                and other.lost_s == sent.lost_s):
            self._problem(f"{name} does not say that it lacks", sent.body,
                          f"offset {sent.offset}, {sent.lost}")
        else:
            self.counts[f"{name}: lost before it was known"] += 1

    def _is_told(self, sent: Sent) -> bool:
        """Whether a line tells that a lost message is skipped."""
        return any(warned.place == sent.place and warned.time_s >= sent.lost_s
                   and warned.first <= sent.offset <= warned.last for warned in self.warned)

    def _check_skipped(self, warned: Warned, have: set[str]) -> None:
        """Check that messages that were reported as skipped were not read."""
        for sent in self.ledger.all():
            if sent.place == warned.place and sent.lost and sent.lost_s <= warned.time_s and (
                    warned.first <= sent.offset <= warned.last) and sent.body in have and (
                    sent.lost == "expired"):
                self.counts["told to be skipped, and read by another query"] += 1

    def _check_holes(self, name: str, rows: list[Row]) -> None:
        """Check that no acknowledged message is missing between the first and the last row of a
        queue.
        """
        have = {row[4] for row in rows}
        read: dict[Place, list[Sent]] = defaultdict(list)
        for body in have:
            sent = self.ledger.sent.get(body)
            if sent is not None:
                read[sent.place].append(sent)
        offsets = {row[4]: row[3] for row in rows}
        for place, found in read.items():
            first = min((sent.life, offsets[sent.body]) for sent in found)
            last = max((sent.life, offsets[sent.body]) for sent in found)
            for sent in self.ledger.all():
                if sent.place == place and sent.outcome is Outcome.ACKNOWLEDGED and (
                        first < (sent.life, sent.offset) < last) and sent.body not in have and (
                        sent.lost != "tail"):
                    self._problem(f"{name} passed over", sent.body,
                                  f"offset {sent.offset} {sent.lost}")

    def _is_shifted(self, bodies: Iterable[str]) -> bool:
        """Whether rows near some were lost, so that a repeated micro-batch has other rows."""
        for body in bodies:
            sent = self.ledger.sent[body]
            for other in self.ledger.all():
                if other.place == sent.place and (
                        other.lost or other.outcome is Outcome.UNSAFE) and (
                        other.offset < 0 or sent.offset < 0
                        or abs(other.offset - sent.offset) <= _NEAR):
                    return True
        return False
