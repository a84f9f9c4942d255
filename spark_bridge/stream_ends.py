"""Finds the ends of the queues of a stream, and judges queues that are missing or have changed.

Before each micro-batch, the driver compares the checkpoint of the stream with the cluster. A queue
may have disappeared since the last micro-batch, or its offsets may now belong to other messages,
because the topic was deleted and created again or the queue lost its last messages in a failover.
Offsets alone do not show this, so the checkpoint also stores a mark of the last message that was
read from each queue. If the queue has another message at that place, the stream continues with the
first message that was stored after the marked one. In a topic that was created again, that is the
first message; in a queue that lost its tail, it is the first new message.

The rule of ``availability`` decides each case: the driver waits while something is away, and it
reports each loss once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from twistmq.client.base.messages import PullStatus
from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.availability import (
    Availability,
    Deletions,
    Look,
    Patience,
    Verdict,
    is_passing,
)
from twistmq.integrations.tables.connection import offset_at
from twistmq.integrations.tables.data_loss import report_loss
from twistmq.integrations.tables.offsets import Mark, queue_name
from twistmq.integrations.tables.queue_reader import ReadPlan
from twistmq.integrations.tables.subscription import Subscription
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import (
    BrokerError,
    CopiedError,
    RemotingError,
    RequestRefused,
    StoreDamaged,
)
from twistmq.protocol.record import decode_record

__all__ = ["Ends", "StreamEnds"]

T = TypeVar("T")

Offsets = dict[MessageQueue, int]
Marks = dict[MessageQueue, Mark]


@dataclass(slots=True)
class Ends:
    """The result of one search for the ends of queues."""

    #: The end of each queue that exists.
    ends: Offsets = field(default_factory=dict)
    #: The new positions, before the old offsets, of the queues whose content was replaced.
    moved: Offsets = field(default_factory=dict)


class _Waits(CopiedError):
    """Something is away, so the look at the cluster has no result."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def _changed(queue: MessageQueue, what: str) -> Verdict:
    return Verdict(Availability.AWAY, f"{queue_name(queue)} changed while the read was planned: "
                                      f"{what}")


class StreamEnds:
    """Asks for the ends of queues, and judges the queues that are missing.

    :param client: a function that returns the client, and makes it when it is first called.
    """

    def __init__(self, subscription: Subscription, plan: ReadPlan,
                 client: Callable[[], Client]) -> None:
        self._subscription = subscription
        self._plan = plan
        self._client = client
        self._deletions = Deletions(plan.settings.deletion_check_s)
        #: The queues that were reported as gone.
        self._gone: set[MessageQueue] = set()
        #: The topics without a known queue that were reported as missing.
        self._missing: set[str] = set()
        #: The topics of the last look.
        self._topics: set[str] = set()
        #: The losses that were reported.
        self._reported_losses: set[str] = set()

    def find(self, positions: Offsets | None, target: Offsets | None = None,
             marks: Marks | None = None) -> Ends:
        """Find the ends of all queues.

        :param positions: the offsets of the checkpoint; None if they are not known yet, so that
            losses are reported later.
        :param target: ends that were found before and remain in force.
        :param marks: the marks in the checkpoint, each of the last message before an offset.
        :raises StillAway: when something that is needed is away for too long.
        :raises DataLoss: when something is lost and failOnDataLoss is true.
        """
        return self.wait_for_servers(lambda: self._look(positions, target, marks or {}))

    def marks(self, offsets: Offsets) -> Marks:
        """Find the mark of the last message before each offset, if that message still exists.

        A message that has expired has no mark. But if a queue became shorter after its end was
        asked for, or its topic is gone, then the end belongs to other messages than the queue has
        now: without a mark, the stream would not notice this later. The caller has to ask again for
        the ends, and must therefore call this method by :meth:`wait_for_servers` with them.

        :raises RemotingError, NoRoute: when a broker is away.
        """
        client, retries = self._client(), self._plan.settings.retries
        remaining = {queue: offset for queue, offset in offsets.items() if offset > 0}
        marks: Marks = {}
        attempt = 0
        while remaining:
            pulls = {queue: client.pull_soon(queue, offset - 1, group=self._plan.group,
                                             max_count=1, max_bytes=1, attempt=attempt)
                     for queue, offset in remaining.items()}
            failed: Offsets = {}
            for queue, pending in pulls.items():
                try:
                    result = pending.result()
                    if result.status is PullStatus.FOUND and result.next_offset == offsets[queue]:
                        record = decode_record(result.body, 0, False)
                        marks[queue] = (record.physical_offset, record.store_timestamp)
                    elif result.max_offset < offsets[queue]:
                        raise _Waits(_changed(queue, f"it ends at {result.max_offset} now, and not "
                                                     f"at {offsets[queue]}"))
                except RemotingError:
                    # The next try asks a slave, if there is one.
                    if attempt >= retries:
                        raise
                    failed[queue] = remaining[queue]
                except (RequestRefused, StoreDamaged) as error:
                    if is_passing(error):
                        raise
                    if isinstance(error, RequestRefused) and (
                            error.response_code == ResponseCode.TOPIC_NOT_EXIST):
                        raise _Waits(_changed(queue, "its topic is gone")) from None
                    # A message that cannot be fetched has no mark. Its read reports the fault.
            remaining, attempt = failed, attempt + 1
        return marks

    def judge_new(self, positions: Offsets, new: Offsets) -> None:
        """Report the queues that are new to the query and have lost their first messages.

        If the query knew the topic on this broker before, a new queue of it began at offset 0.

        :param new: the offset at which each of the new queues begins.
        :raises DataLoss: when such a queue begins later and failOnDataLoss is true.
        """
        brokers = {(queue.topic, queue.broker_name) for queue in positions}
        for queue, begin in new.items():
            if begin and (queue.topic, queue.broker_name) in brokers:
                self._lost_beginning(queue, begin, "the queue is new to the query")

    def wait_for_servers(self, work: Callable[[], T]) -> T:
        """Repeat a piece of work until all servers that it needs respond.

        :raises StillAway: when that takes too long.
        """
        patience = Patience(self._plan.settings.wait_s, self._plan.settings.retry_wait_s)
        while True:
            try:
                result = work()
            except _Waits as waits:
                verdict = waits.verdict
            except BrokerError as error:
                if not is_passing(error):
                    raise
                verdict = Verdict(Availability.AWAY, str(error))
            else:
                patience.end()
                return result
            patience.require(verdict.reason, is_checking=verdict.standing is Availability.CHECKING,
                             broker=verdict.broker)
            # Another broker may serve the topics now: a master that has returned, or a slave.
            for topic in self._topics:
                with suppress(BrokerError):
                    self._client().route(topic, again=True)

    def _look(self, positions: Offsets | None, target: Offsets | None, marks: Marks) -> Ends:
        """One look; :raises _Waits: when something is away."""
        client = self._client()
        look = Look(client, self._plan.group, self._plan.removed)
        self._topics = {queue.topic for queue in (*(positions or {}), *(target or {}))}
        latest = Ends()
        if target is None:
            queues = self._subscription.present(client, look)
            latest.ends = {queue: client.max_offset(queue) for queue in queues}
        else:
            latest.ends = dict(target)
        self._judge_topics(look, positions, latest.ends)
        self._judge_queues(look, positions or {}, latest.ends)
        for queue, offset in (positions or {}).items():
            if queue not in latest.ends and queue not in self._gone:
                # The queue appeared after the list of queues was fetched.
                latest.ends[queue] = client.max_offset(queue)
            if target is not None and latest.ends.get(queue, offset) < offset:
                # The end may have come from a slave that had fewer messages.
                latest.ends[queue] = client.max_offset(queue)
            if queue in latest.ends and (queue in self._gone or latest.ends[queue] < offset):
                latest.moved[queue] = self._new_position(look, queue, offset, marks.get(queue))
        latest.moved.update(self._replaced(look, positions or {}, latest, marks))
        if positions is not None:
            self._gone.difference_update(latest.ends)
        return latest

    def _judge_topics(self, look: Look, positions: Offsets | None, ends: Offsets) -> None:
        """Report the topics that the options name, but that have no known queue and are gone."""
        present_topics = {queue.topic for queue in (*(positions or {}), *ends)}
        for topic in self._subscription.topics:
            if topic in present_topics or topic in self._missing:
                continue
            verdict = look.topic_standing(topic)
            if positions is None and verdict.standing is Availability.GONE:
                continue
            verdict = self._judged(topic, verdict)
            if verdict.standing is Availability.GONE:
                self._lost(f"topic {topic}: {verdict.reason}", "the other topics are read")
                self._missing.add(topic)
        self._missing -= present_topics

    def _judge_queues(self, look: Look, positions: Offsets, ends: Offsets) -> None:
        """Find the missing queues of the checkpoint, and report the ones that are gone.

        :raises _Waits: when one of them may come back.
        """
        waits: _Waits | None = None
        gone_queues: dict[MessageQueue, str] = {}
        for queue in positions:
            if queue in ends or queue in self._gone:
                continue
            if not self._subscription.selects(queue):
                gone_queues[queue] = "the options no longer name it"
                continue
            try:
                verdict = self._judged(queue, look.standing(queue))
            except _Waits as error:
                # All queues are looked at, so that their second looks come at the same time.
                waits = waits or error
            else:
                if verdict.standing is Availability.GONE:
                    gone_queues[queue] = verdict.reason
        if waits is not None:
            raise waits
        for queue, reason in gone_queues.items():
            self._lost(f"{queue_name(queue)}: {reason}, offset {positions[queue]} was next",
                       f"its messages from offset {positions[queue]} on are skipped")
            self._gone.add(queue)

    def _judged(self, what: MessageQueue | str, seen: Verdict) -> Verdict:
        """Return the verdict on a topic or queue; :raises _Waits: unless it is there or gone."""
        verdict = self._deletions.judge(what, seen)
        if verdict.standing in (Availability.AWAY, Availability.CHECKING):
            name = queue_name(what) if isinstance(what, MessageQueue) else f"topic {what}"
            raise _Waits(replace(verdict, reason=f"{name}: {verdict.reason}"))
        return verdict

    def _replaced(self, look: Look, positions: Offsets, latest: Ends, marks: Marks) -> Offsets:
        """Find the new positions of the queues in which another message took the marked offset.

        Only queues with unread messages are checked.
        """
        looked_at = {queue: offset for queue, offset in positions.items() if queue in marks
                     and queue not in latest.moved and latest.ends.get(queue, 0) > offset}
        moved: Offsets = {}
        for queue, mark in self.marks(looked_at).items():
            if mark == marks[queue]:
                continue
            position = self._after(queue, marks[queue])
            self._lost(f"{queue_name(queue)}: the message before offset {positions[queue]} is not "
                       "the one that was read: the topic was created again or lost its end",
                       f"it continues at {position}, with the first message stored after that one")
            bounds = look.bounds(queue)
            if bounds is not None:
                self._judge_beginning(queue, bounds.begin, position)
            moved[queue] = position
        return moved

    def _judge_beginning(self, queue: MessageQueue, begin: int, position: int) -> None:
        """Report the first new messages of a replaced queue if they have expired already.

        The offsets of a topic that was created again begin at 0. A query that continues with the
        first remaining message, at a higher offset, has missed the messages before it.

        :param begin: the offset of the first message that the queue has.
        :param position: the offset at which the query continues.
        """
        if position == begin > 0:
            self._lost_beginning(queue, begin, "the queue has other messages now")

    def _lost_beginning(self, queue: MessageQueue, begin: int, reason: str) -> None:
        """Report that a queue whose first message had offset 0 now begins later."""
        self._lost(f"{queue_name(queue)}: {reason} and begins at {begin}",
                   f"{begin} offsets are skipped, 0 to {begin - 1}")

    def _after(self, queue: MessageQueue, mark: Mark) -> int:
        """Find the offset of the first message that was stored after the marked one."""
        return offset_at(self._client(), queue, mark[1] + 1)

    def _new_position(self, look: Look, queue: MessageQueue, offset: int, mark: Mark | None) -> int:
        """Find the new position in a queue that was created again or ends before its offset."""
        bounds = look.bounds(queue)
        if bounds is None or (bounds.end >= offset and queue not in self._gone):
            raise _Waits(Verdict(Availability.AWAY, f"{queue_name(queue)}: a slave does not "
                                 f"have offset {offset} yet, and its master is away"))
        if mark is not None:
            position = min(max(self._after(queue, mark), bounds.begin), bounds.end)
        else:
            position = bounds.begin if queue in self._gone else bounds.end
        if queue not in self._gone:
            self._lost(f"{queue_name(queue)}: the queue ends at {bounds.end}, offset {offset} was "
                       "next", f"{offset - bounds.end} offsets that were read are gone, "
                       f"{bounds.end} to {offset - 1}, and it continues at {position}")
        if position < bounds.end:
            self._judge_beginning(queue, bounds.begin, position)
        return position

    def _lost(self, text: str, skipped: str) -> None:
        """Report a loss unless it has been reported before."""
        if text not in self._reported_losses:
            self._reported_losses.add(text)
            report_loss(text, self._plan.fail_on_data_loss, skipped)
