"""Where the queues of a stream end, and what became of those that its checkpoint has.

Each look at the cluster is judged by the rule of ``availability``: the driver waits while something
is away, and reports what is lost, each loss once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from twistmq.broker.errors import BrokerError, CopiedError
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.client.blocking import Client
from twistmq.spark_bridge.availability import (
    Deletions,
    Look,
    Patience,
    Standing,
    Verdict,
    is_passing,
)
from twistmq.spark_bridge.data_loss import report_loss
from twistmq.spark_bridge.offsets import queue_name
from twistmq.spark_bridge.queue_reader import ReadPlan
from twistmq.spark_bridge.subscription import Subscription

__all__ = ["Ends", "StreamEnds"]

T = TypeVar("T")

Offsets = dict[MessageQueue, int]


@dataclass(slots=True)
class Ends:
    """The answer to one question for the ends of queues."""

    #: The end of each queue that is there.
    ends: Offsets = field(default_factory=dict)
    #: Where queues go on whose content is not what it was, before their old offsets.
    moved: Offsets = field(default_factory=dict)


class _Waits(CopiedError):
    """Something is away, so that a look has no result."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class StreamEnds:
    """Asks for the ends of queues, and judges what is missing.

    :param client: makes the client, or gives the one that is there.
    """

    def __init__(self, subscription: Subscription, plan: ReadPlan,
                 client: Callable[[], Client]) -> None:
        self._subscription = subscription
        self._plan = plan
        self._client = client
        self._deletions = Deletions(plan.settings.deletion_check_s)
        #: Queues that were reported as gone.
        self._gone: set[MessageQueue] = set()
        #: Topics without a known queue that were reported as missing.
        self._missing: set[str] = set()
        #: The losses that were reported.
        self._told: set[str] = set()

    def find(self, known: Offsets | None, target: Offsets | None = None) -> Ends:
        """Find the ends of all queues.

        :param known: where the checkpoint says that queues go on; None: that is not known yet, and
            what is gone is reported later.
        :param target: ends that were found before, and hold.
        :raises StillAway: when something that is needed is away for too long.
        :raises DataLoss: when something is lost and failOnDataLoss is true.
        """
        return self.patiently(lambda: self._look(known, target))

    def patiently(self, work: Callable[[], T]) -> T:
        """Ask servers something, and again while one is away.

        :raises StillAway: when that takes too long.
        """
        patience = Patience(self._plan.settings.wait_s, self._plan.settings.retry_wait_s)
        while True:
            try:
                found = work()
            except _Waits as waits:
                verdict = waits.verdict
            except BrokerError as error:
                if not is_passing(error):
                    raise
                verdict = Verdict(Standing.AWAY, str(error))
            else:
                patience.over()
                return found
            patience.require(verdict.reason, is_checking=verdict.standing is Standing.CHECKING)

    def _look(self, known: Offsets | None, target: Offsets | None) -> Ends:
        """One look; :raises _Waits: when something is away."""
        client = self._client()
        look = Look(client, self._plan.group)
        found = Ends()
        if target is None:
            queues = self._subscription.present(client, look)
            found.ends = {queue: client.max_offset(queue) for queue in queues}
        else:
            found.ends = dict(target)
        self._judge_topics(look, known, found.ends)
        self._judge_queues(look, known or {}, found.ends)
        for queue, offset in (known or {}).items():
            if queue not in found.ends and queue not in self._gone:
                # It came between the first question and this one.
                found.ends[queue] = client.max_offset(queue)
            if queue in found.ends and (queue in self._gone or found.ends[queue] < offset):
                found.moved[queue] = self._new_place(look, queue, offset)
        if known is not None:
            self._gone.difference_update(found.ends)
        return found

    def _judge_topics(self, look: Look, known: Offsets | None, ends: Offsets) -> None:
        """See about topics that options name and of which no queue is known."""
        there = {queue.topic for queue in (*(known or {}), *ends)}
        for topic in self._subscription.topics:
            if topic in there or topic in self._missing:
                continue
            verdict = look.topic_standing(topic)
            if known is None and verdict.standing is Standing.GONE:
                continue
            verdict = self._judged(topic, verdict)
            if verdict.standing is Standing.GONE:
                self._lost(f"topic {topic}: {verdict.reason}", "the other topics are read")
                self._missing.add(topic)
        self._missing -= there

    def _judge_queues(self, look: Look, known: Offsets, ends: Offsets) -> None:
        """See about the queues of the checkpoint that are missing, and report those that are gone.

        :raises _Waits: when one may come back.
        """
        waits: _Waits | None = None
        gone: dict[MessageQueue, str] = {}
        for queue in known:
            if queue in ends or queue in self._gone:
                continue
            if not self._subscription.wants(queue):
                gone[queue] = "the options do not name it any more"
                continue
            try:
                verdict = self._judged(queue, look.standing(queue))
            except _Waits as error:
                # All are looked at, so that their second looks come at the same time.
                waits = waits or error
            else:
                if verdict.standing is Standing.GONE:
                    gone[queue] = verdict.reason
        if waits is not None:
            raise waits
        for queue, reason in gone.items():
            self._lost(f"{queue_name(queue)}: {reason}, offset {known[queue]} was next",
                       f"what it had from offset {known[queue]} on is skipped")
            self._gone.add(queue)

    def _judged(self, what: MessageQueue | str, seen: Verdict) -> Verdict:
        """The verdict on what is there or gone; :raises _Waits: when it is neither."""
        verdict = self._deletions.judge(what, seen)
        if verdict.standing in (Standing.AWAY, Standing.CHECKING):
            name = queue_name(what) if isinstance(what, MessageQueue) else f"topic {what}"
            raise _Waits(Verdict(verdict.standing, f"{name}: {verdict.reason}"))
        return verdict

    def _new_place(self, look: Look, queue: MessageQueue, offset: int) -> int:
        """Where a queue goes on that was made again, or ends before its offset."""
        bounds = look.bounds(queue)
        if bounds is None or (bounds.end >= offset and queue not in self._gone):
            raise _Waits(Verdict(Standing.AWAY, f"{queue_name(queue)}: a slave has not got offset "
                                 f"{offset} yet, and its master is away"))
        if queue in self._gone:
            return bounds.begin
        self._lost(f"{queue_name(queue)}: the queue ends at {bounds.end}, offset {offset} was next",
                   f"{offset - bounds.end} offsets that were read are gone, {bounds.end} to "
                   f"{offset - 1}, and it goes on at {bounds.end}")
        return bounds.end

    def _lost(self, text: str, skipped: str) -> None:
        """Report a loss, each only once."""
        if text not in self._told:
            self._told.add(text)
            report_loss(text, self._plan.fail_on_data_loss, skipped)
