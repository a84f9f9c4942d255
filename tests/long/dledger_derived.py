"""Messages that brokers derive from others, sent to and consumed from a group that is disturbed.

A kind of message each, and what must come of it:

    delayed     appears in the topic Later, not before its delay level
    timed       appears in Later, not before its time
    committed   the half message of a transaction that its producer commits: appears in Paid
    checked     the producer leaves the transaction open, and commits when the broker asks
    rolled      the producer rolls the transaction back: never appears in Paid
    retried     fails at its first handling, is sent back, and is handled again
    popped      is popped, is not acknowledged, and is popped again

A message that was acknowledged must appear and be handled. It may appear or be handled once more
for each time that its producer sent it again without an answer, and for each kill of a leader that
came at most 15 s after the time before, as with Apache's brokers, whose progress is copied to the
followers after it was made.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tests.history.records import Entry
from tests.long.dledger_load import body_id
from twistmq.client import (
    COMMIT,
    ROLLBACK,
    ClientError,
    Consumer,
    Decision,
    Interceptor,
    PopConsumer,
    Producer,
    ReceivedMessage,
    Retry,
)

__all__ = ["AGAIN", "FORGOTTEN_MS", "GROUPS", "MESSAGE_KINDS", "DerivedConsumers", "DerivedSenders",
           "Message", "appearances", "derivation_faults", "handling_faults", "kind_of",
           "unhandled_messages"]

LATER: Final = "Later"
PAID: Final = "Paid"
AGAIN: Final = "Again"
POPPED: Final = "Popped"
MESSAGE_KINDS: Final = (
    "delayed", "timed", "committed", "checked", "rolled", "retried", "popped")
#: The topic in which the messages of each kind appear.
TOPICS: Final = dict(zip(
    MESSAGE_KINDS, (LATER, LATER, PAID, PAID, PAID, AGAIN, POPPED), strict=True))
#: The consumer group that handles each topic.
GROUPS: Final = {LATER: "later", PAID: "later", AGAIN: "again", POPPED: "popped"}
#: The kinds that a broker derives and appends to the topic in which they appear.
DERIVED: Final = MESSAGE_KINDS[:4]
#: Progress that was made in this time before a kill may be made again.
FORGOTTEN_MS: Final = 15_000
#: The numbers of the writers in the bodies begin with it.
_FIRST_NUMBER: Final = 900
#: The delays of the first levels, ms, and the longest delay of a timed message, s.
_LEVELS_MS: Final = (1000, 5000, 10_000)
_TIMED_MAX_SECONDS: Final = 12
#: A timer of Apache's delivers at most a fifth of its precision of 1 s early.
_EARLY_MS: Final = 200
#: How long a send may take, which waits for the next leader, and how long a popped message is
#: invisible, s.
_SEND_SECONDS: Final = 15.0
_INVISIBLE_SECONDS: Final = 10.0


class Message(NamedTuple):
    """A message that was acknowledged.

    :param due: the earliest time at which it may appear, Unix ms.
    :param attempts: how often its producer sent it.
    """

    kind: str
    body: str
    due: float
    attempts: int = 1


def kind_of(body: str) -> str:
    """Return the kind of a message by its body; empty for a message of other writers."""
    number = int(body[1:].partition("/")[0]) - _FIRST_NUMBER
    return MESSAGE_KINDS[number] if 0 <= number < len(MESSAGE_KINDS) else ""


class _Attempts(Interceptor):
    """Counts how often each body is sent."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before_request(self, address: str, code: int, body: bytes) -> None:
        self.counts[body_id(bytes(body))] += 1


class DerivedSenders:
    """A thread for each kind, which sends until ``close``.

    :param rate: the messages of a kind in a second.
    """

    def __init__(self, namesrv: str, rate: float) -> None:
        self.failures: list[str] = []
        self._attempts = _Attempts()
        self._acknowledged: list[tuple[str, str, float]] = []
        self._over = threading.Event()
        self._producer: Producer = Producer(
            namesrv, group="derived", timeout_s=_SEND_SECONDS, retries=0, await_master=True,
            on_check=_decide, interceptors=[self._attempts])
        self._threads = [threading.Thread(target=self._run, args=(kind, 1 / rate), daemon=True)
                         for kind in MESSAGE_KINDS]
        for thread in self._threads:
            thread.start()

    def _run(self, kind: str, pause: float) -> None:
        chance, number = random.Random(kind), 0
        try:
            while not self._over.wait(pause):
                body = b"<%d/0/%d>" % (_FIRST_NUMBER + MESSAGE_KINDS.index(kind), number)
                number += 1
                begin = time.time_ns() // 1_000_000
                try:
                    delay_ms = self._send(kind, body, chance)
                except ClientError:
                    # The outcome is not known, and the message is not sent again.
                    continue
                self._acknowledged.append((kind, body.decode(), begin + delay_ms))
        except Exception as error:
            self.failures.append(f"the sender of {kind} messages failed: {error!r}")

    def _send(self, kind: str, body: bytes, chance: random.Random) -> float:
        """Send a message; :returns: its delay in ms."""
        topic, delay_ms = TOPICS[kind], 0
        if kind == "delayed":
            level = chance.randrange(len(_LEVELS_MS))
            delay_ms = _LEVELS_MS[level]
            self._producer.send(topic, body, delay_level=level + 1)
        elif kind == "timed":
            seconds = chance.randint(1, _TIMED_MAX_SECONDS)
            delay_ms = 1000 * seconds - _EARLY_MS
            self._producer.send(topic, body, delay_s=seconds)
        elif kind in ("committed", "checked", "rolled"):
            self._send_half(kind, topic, body)
        else:
            self._producer.send(topic, body)
        return delay_ms

    def _send_half(self, kind: str, topic: str, body: bytes) -> None:
        is_stored = False
        try:
            with self._producer.transaction(topic, body) as transaction:
                is_stored = True
                if kind == "checked":
                    raise _OpenError
                if kind == "rolled":
                    transaction.rollback()
        except _OpenError:
            assert is_stored

    def messages(self) -> list[Message]:
        """Return the messages that were acknowledged."""
        return [Message(kind, body, due, self._attempts.counts[body])
                for kind, body, due in list(self._acknowledged)]

    def stop(self) -> None:
        """Send no more; the producer still answers for its transactions."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * _SEND_SECONDS)

    def close(self) -> None:
        """Leave the group."""
        self.stop()
        self._producer.close()


class _OpenError(Exception):
    """Ends the block of a transaction that stays open."""


def _decide(message: ReceivedMessage[Any]) -> Decision:
    """Answer a broker that asks for the end of a transaction."""
    return ROLLBACK if kind_of(body_id(message.body)) == "rolled" else COMMIT


class DerivedConsumers:
    """The members of the groups that handle the messages."""

    def __init__(self, namesrv: str) -> None:
        #: By body, when it was handled with success, Unix ms.
        self.handled: defaultdict[str, list[float]] = defaultdict(list)
        self.failures: list[str] = []
        self._seen: set[str] = set()
        self._over = threading.Event()
        self._later: Consumer[Any] = Consumer(
            namesrv, group=GROUPS[LATER], topics={LATER: "*", PAID: "*"}, start="first")
        self._again: Consumer[Any] = Consumer(
            namesrv, group=GROUPS[AGAIN], topics=AGAIN, start="first")
        self._popped: PopConsumer[Any] = PopConsumer(
            namesrv, group=GROUPS[POPPED], topics=POPPED, start="first",
            invisible_s=_INVISIBLE_SECONDS)
        works: tuple[Callable[[], object], ...] = (
            lambda: self._later.run(self._note, workers=1),
            lambda: self._again.run(self._fail_once, workers=1), self._pop)
        self._threads = [threading.Thread(target=self._keep, args=(work,), daemon=True)
                         for work in works]
        for thread in self._threads:
            thread.start()

    def _keep(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(f"a consumer failed: {error!r}")

    def _note(self, message: ReceivedMessage[Any]) -> None:
        self.handled[body_id(message.body)].append(time.time() * 1000)

    def _is_first(self, message: ReceivedMessage[Any]) -> bool:
        """Return whether a message of these, of which every other one fails, is new."""
        body = body_id(message.body)
        is_new = body not in self._seen
        self._seen.add(body)
        return is_new and int(body[:-1].rpartition("/")[2]) % 2 == 1

    def _fail_once(self, message: ReceivedMessage[Any]) -> None:
        if self._is_first(message):
            raise Retry(level=1)
        self._note(message)

    def _pop(self) -> None:
        while not self._over.is_set():
            for message in self._popped.receive(32, wait_s=1):
                if self._is_first(message):
                    continue
                self._note(message)
                # If the leader is dead, the message returns, and is handled again.
                with suppress(ClientError):
                    self._popped.acknowledge(message)

    def close(self) -> None:
        """Leave the groups."""
        self._over.set()
        self._threads[-1].join(60)
        for consumer in (self._later, self._again, self._popped):
            try:
                consumer.close()
            except ClientError as error:
                self.failures.append(f"a member does not leave: {error!r}")
        for thread in self._threads:
            thread.join(60)


def _repetitions(
    message: Message, times: Sequence[float], kills: Sequence[float], what: str
) -> list[str]:
    """Return whether something was done more often than a message and the kills explain."""
    times = sorted(times)
    possible = message.attempts + sum(
        times[0] - FORGOTTEN_MS <= kill <= times[-1] for kill in kills)
    if len(times) <= possible:
        return []
    return [f"{message} {what} {len(times)} times, at {times}, and {possible} are possible"]


def appearances(entries: Iterable[Entry]) -> dict[str, list[float]]:
    """Return when each message appeared in its topic, Unix ms, by body.

    :param entries: of the final log.
    """
    appeared: defaultdict[str, list[float]] = defaultdict(list)
    for entry in entries:
        kind = kind_of(entry.body)
        if kind and entry.queue.rpartition("-")[0] == TOPICS[kind]:
            appeared[entry.body].append(entry.stored)
    return dict(appeared)


def derivation_faults(
    messages: Iterable[Message], appeared: Mapping[str, Sequence[float]], kills: Sequence[float]
) -> list[str]:
    """Return which messages did not appear in their topics as they should.

    :param appeared: see ``appearances``.
    :param kills: when a leader was killed, Unix ms.
    """
    faults = [f"{body} was rolled back, and appeared" for body in appeared
              if kind_of(body) == "rolled"]
    for message in messages:
        times = appeared.get(message.body, ())
        if message.kind in DERIVED:
            if not times:
                faults.append(f"{message} never appeared")
            elif min(times) < message.due:
                faults.append(f"{message} appeared at {min(times)}")
            else:
                faults += _repetitions(message, times, kills, "appeared")
    return faults


def unhandled_messages(
    messages: Iterable[Message], handled: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return the messages that were never handled."""
    return [f"{message} was never handled" for message in messages
            if message.kind != "rolled" and not handled.get(message.body)]


def handling_faults(
    messages: Iterable[Message], handled: Mapping[str, Sequence[float]], kills: Sequence[float]
) -> list[str]:
    """Return which messages were not handled, handled too often, or handled wrongly."""
    messages = list(messages)
    faults = unhandled_messages(messages, handled)
    faults += [f"{body} was rolled back and handled" for body in handled
               if kind_of(body) == "rolled"]
    for message in messages:
        if handled.get(message.body):
            faults += _repetitions(message, handled[message.body], kills, "was handled")
    return faults
