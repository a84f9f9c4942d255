"""Determines which queues a query reads, and from which offset to which.

The options name topics, patterns or single queues, and positions as words, offsets or times. The
result has to be exact numbers, because tasks on other machines must read the same messages when
they are run again. Therefore this module asks name servers and brokers once, on the driver, where
Spark plans a query, and never in a task. A name that an option gives must exist, since a mistyped
name would otherwise be read as an empty topic; a topic that only a pattern selects may disappear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from twistmq.client.base.errors import NoRoute
from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.availability import Look
from twistmq.integrations.tables.connection import offset_at
from twistmq.integrations.tables.data_loss import report_loss
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.offsets import (
    EARLIEST,
    LATEST,
    parse_assign,
    parse_offsets,
    parse_times,
    queue_name,
)
from twistmq.integrations.tables.options import BATCH_READ, OptionError, Options, time_text
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.topic_names import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
    topic_fault,
)

__all__ = ["NothingSince", "Subscription", "TopicMissing"]

_WAYS: Final = ("subscribe", "subscribePattern", "assign")


class TopicMissing(ShortError, ValueError):
    """A topic or queue that an option names does not exist.

    :param topic: the topic.
    :param queue: the queue; None when the topic itself is missing.
    :param named: the queues of the topic that options name, if the topic itself is missing.
    """

    def __init__(self, text: str, topic: str = "", queue: MessageQueue | None = None,
                 named: Iterable[MessageQueue] = ()) -> None:
        super().__init__(text)
        self.topic = topic
        self.queue = queue
        self.named = tuple(named)


class NothingSince(OptionError):
    """A queue has no message that was stored at the start time of the query or later."""


class Subscription:
    """The topics and offsets that options name.

    :raises OptionError: when the options name no topics or contradict each other.
    """

    def __init__(self, options: Options) -> None:
        given = [name for name in _WAYS if options.is_given(name)]
        if len(given) != 1:
            raise OptionError(
                "option subscribe: missing: one of subscribe, subscribePattern and assign must "
                "select the topics" if not given else
                f"option {given[1]}: only one of {' and '.join(given)} may be given")
        self._options = options
        self._way = given[0]
        self._assigned = parse_assign(options.text("assign")) if self._way == "assign" else []
        self._topics: list[str] = []
        if self._way == "subscribe":
            self._topics = _topics(options.text("subscribe"))
        self._pattern = _pattern(options) if self._way == "subscribePattern" else None
        self._starting = _positions(options, "starting")
        self._ending = _positions(options, "ending") if options.where == BATCH_READ else None
        self._time_strategy = options.text("startingOffsetsByTimestampStrategy").lower()
        uses_group = "committed" in (options.text("startingOffsets"),
                                     self._ending is not None and options.text("endingOffsets"))
        if uses_group and not options.is_given("group"):
            raise OptionError("option group: missing, but its committed offsets are requested")

    # --- queues

    def queues(self, client: Client, *, refresh: bool = False) -> list[MessageQueue]:
        """Return all current queues of the subscription, in order.

        :param refresh: whether name servers are asked even for known routes.
        :raises TopicMissing: when a topic or queue that an option names does not exist.
        """
        if self._pattern is not None:
            topics = self._matching(client, Look(client, ""))
            queues = []
            for topic in topics:
                try:
                    queues += client.read_queues(topic, again=refresh)
                except RequestRefused as error:
                    if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                        raise
                    # The topic was deleted after the list was fetched.
            return sorted(queues)
        queues = [queue for topic in self.topics
                  for queue in self._queues_of(client, topic, refresh)]
        if not self._assigned:
            return sorted(queues)
        for queue in self._assigned:
            if queue not in queues:
                raise TopicMissing(f"option assign: {queue_name(queue)}: there is no such queue",
                                   queue.topic, queue)
        return self._assigned

    @property
    def topics(self) -> list[str]:
        """The topics that options name; empty with a pattern."""
        return self._topics or sorted({queue.topic for queue in self._assigned})

    def selects(self, queue: MessageQueue) -> bool:
        """Whether the options select a queue."""
        if self._pattern is not None:
            return self._matches(queue.topic)
        return queue.topic in self._topics or queue in self._assigned

    def present(self, client: Client, look: Look) -> list[MessageQueue]:
        """Return the current queues that the options select, in order; some may be missing."""
        topics = self.topics if self._pattern is None else self._matching(client, look)
        return sorted(queue for topic in topics for queue in look.queues(topic)
                      if self.selects(queue))

    def _queues_of(self, client: Client, topic: str, refresh: bool) -> list[MessageQueue]:
        try:
            return client.read_queues(topic, again=refresh)
        except RequestRefused as error:
            if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise TopicMissing(f"option {self._way}: topic {topic}: there is no such topic "
                               f"({error})", topic, named=self._named(topic)) from None

    def _named(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that options name."""
        positions = [self._starting] if self._ending is None else [self._starting, self._ending]
        named = {*self._assigned, *(queue for _, by_queue, _ in positions
                                    for queue in by_queue or ())}
        return sorted(queue for queue in named if queue.topic == topic)

    def _matching(self, client: Client, look: Look) -> list[str]:
        """Return the topics that match the pattern.

        :raises NoRoute: when nothing matches and no broker is registered.
        """
        # The brokers are fetched before and after the list of topics, because the list lacks the
        # topics of a broker that registers in between.
        before = look.registered()
        topics = [topic for topic in client.topics() if self._matches(topic)]
        if not topics and not (before and Look(client, "").registered()):
            raise NoRoute("option subscribePattern: no broker is registered at a name server")
        return topics

    def _matches(self, topic: str) -> bool:
        assert self._pattern is not None
        text = self._pattern.pattern
        hidden = is_system_topic(topic) or topic.startswith(
            (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
        if hidden and text[:3] != topic[:3]:
            return False
        return self._pattern.fullmatch(topic) is not None

    # --- offsets

    @property
    def ending_option(self) -> str:
        """The name of the option that determines where a batch read ends."""
        assert self._ending is not None
        return self._ending[0]

    def start(self, client: Client, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        """Find the start offset of a new query in each queue."""
        return self._resolved(client, queues, self._starting, EARLIEST)

    def end(self, client: Client, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        """Find the end offset of a batch in each queue."""
        assert self._ending is not None
        return self._resolved(client, queues, self._ending, LATEST)

    def _resolved(
        self, client: Client, queues: list[MessageQueue], positions: _Positions,
        otherwise: int,
    ) -> dict[MessageQueue, int]:
        """Find the offset of each queue at a position.

        :param otherwise: the position of the queues that the option does not name.
        :raises TopicMissing: when the option names a queue that does not exist.
        :raises OptionError: when the option names a queue that the query does not read.
        """
        option, by_queue, common = positions
        if by_queue is not None:
            for queue in by_queue:
                if not self.selects(queue):
                    raise OptionError(f"option {option}: {queue_name(queue)}: the query does not "
                                      "read this queue")
                if queue not in queues:
                    raise TopicMissing(f"option {option}: {queue_name(queue)}: there is no such "
                                       "queue", queue.topic, queue)
        is_time = "Timestamp" in option
        offsets = {}
        for queue in queues:
            value = common if by_queue is None else by_queue.get(queue, otherwise)
            if value == EARLIEST:
                offsets[queue] = client.min_offset(queue)
            elif value == LATEST:
                offsets[queue] = client.max_offset(queue)
            elif is_time:
                offsets[queue] = self._at_time(client, queue, option, value)
            else:
                offsets[queue] = self._number(client, queue, option, value)
        return offsets

    def _at_time(self, client: Client, queue: MessageQueue, option: str, time_ms: int) -> int:
        """Find the offset of the first message that was stored at a time or later.

        :raises NothingSince: when a start has no such message and the option
            ``startingOffsetsByTimestampStrategy`` is "error".
        """
        offset = offset_at(client, queue, time_ms)
        if option.startswith("starting") and self._time_strategy == "error" and (
                offset >= client.max_offset(queue)):
            raise NothingSince(
                f"option {option}: {queue_name(queue)}: no message is stored at "
                f"{time_text(time_ms)} or later; with the option "
                "startingOffsetsByTimestampStrategy=latest the queue starts at its end")
        return offset

    def _number(self, client: Client, queue: MessageQueue, option: str, value: int) -> int:
        """Limit an offset from an option or a group to the offsets that the queue has.

        :raises DataLoss: when the queue does not have it and failOnDataLoss is true.
        """
        min_offset, max_offset = client.min_offset(queue), client.max_offset(queue)
        if value == _COMMITTED:
            committed = client.group_offset(self._options.text("group"), queue)
            if committed is None:
                return min_offset
            value = committed
        if not min_offset <= value <= max_offset:
            bounds = Look(client, "").bounds(queue)
            if bounds is None or bounds.begin <= value <= bounds.end:
                raise NoRoute(f"{queue_name(queue)}: a slave has only the offsets {min_offset} to "
                              f"{max_offset}, and its master is away")
            report_loss(f"option {option}: {queue_name(queue)}: offset {value} is not there, only "
                        f"{min_offset} to {max_offset}", self._options.flag("failOnDataLoss"),
                        f"{min_offset - value} offsets are skipped, {value} to {min_offset - 1}"
                        if value < min_offset else f"{max_offset} takes its place")
        return min(max(value, min_offset), max_offset)


#: The option that applies, its values for single queues, and its value for all queues.
_Positions = tuple[str, "Mapping[MessageQueue, int] | None", int]
_COMMITTED: Final = -3
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST, "committed": _COMMITTED}


def _positions(options: Options, side: str) -> _Positions:
    """Find the option that determines the start or the end of a query, and read its value.

    A time for all queues takes precedence over times for single queues, and these take precedence
    over offsets.

    :param side: "starting" or "ending".
    """
    by_time, time, offsets = (f"{side}OffsetsByTimestamp", f"{side}Timestamp", f"{side}Offsets")
    moment = options.time_ms_or_none(time)
    if moment is not None:
        return time, None, moment
    if options.is_given(by_time):
        return by_time, parse_times(by_time, options.text(by_time)), 0
    text = options.text(offsets)
    if not text:
        text = "earliest" if options.where == BATCH_READ else "latest"
    word = _WORDS.get(text.lower())
    forbidden = {("starting", LATEST): "a batch that starts at latest is empty",
                 ("ending", EARLIEST): "a batch that ends at earliest is empty"}
    if word is not None:
        reason = forbidden.get((side, word))
        if reason is not None and options.where == BATCH_READ:
            raise OptionError(f"option {offsets}: {text!r}: {reason}")
        return offsets, None, word
    if not text.startswith("{"):
        raise OptionError(f"option {offsets}: {text!r} is neither earliest, latest, committed "
                          "nor a JSON object")
    return offsets, parse_offsets(offsets, text), 0


def _topics(text: str) -> list[str]:
    topics = sorted({part.strip() for part in text.split(",") if part.strip()})
    for topic in topics:
        fault = topic_fault(topic)
        if fault:
            raise OptionError(f"option subscribe: topic {topic}: {fault}")
    if not topics:
        raise OptionError("option subscribe: it names no topic")
    return topics


def _pattern(options: Options) -> re.Pattern[str]:
    text = options.text("subscribePattern")
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern: {text!r} is not a regular expression: "
                          f"{error}") from None


