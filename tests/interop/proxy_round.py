"""A round of PyPI's `rocketmq-python-client`, Apache's 5.x client, through Apache's proxy.

    python proxy_round.py ENDPOINTS

Its parts run at the same time, each with a topic and a group of its own: a line "ok PART" or
"failed PART: ..." for each, then "ok N checks". It says nothing of twistmq and imports nothing of
it: the interpreter belongs to the client's environment. The client writes below $HOME/logs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketmq import (  # type: ignore[import-not-found, unused-ignore]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.v5.exception import (  # type: ignore[import-not-found, unused-ignore]
    InternalErrorException,
)

#: Longest wait for one condition, seconds.
WAIT_SECONDS: Final = float(os.environ.get("ROUND_WAIT_S", "75"))
#: How long a receive waits for messages, seconds.
AWAIT_SECONDS: Final = 1
#: How long received messages are hidden, seconds.
HIDDEN_SECONDS: Final = 30
REQUEST_SECONDS: Final = 20
COUNT: Final = 8
DELAY_MS: Final = 8000

#: What the package calls everything it has no types for.
Received = Any


class Checks:
    """Counts the assertions."""

    count = 0

    @classmethod
    def same(cls, expected: object, actual: object, what: str) -> None:
        """Compare two values; :raises AssertionError: if they differ."""
        cls.count += 1
        if expected != actual:
            raise AssertionError(f"{what}: expected {expected}, got {actual}")

    @classmethod
    def until(cls, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; :raises AssertionError: when it does not come true in time."""
        cls.count += 1
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {WAIT_SECONDS} s: {what}")
            time.sleep(0.02)


def configuration() -> Received:
    """The client's settings, of which the proxy's address is one."""
    return ClientConfiguration(sys.argv[1], Credentials(), request_timeout=REQUEST_SECONDS)


def message(topic: str, body: str, **fields: object) -> Received:
    """Return a message; ``fields`` are its attributes."""
    made = Message()
    made.topic = topic
    made.body = body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def producer(topic: str, checker: Received = None) -> Received:
    """Return a started producer."""
    made = Producer(configuration(), (topic,), checker)
    made.startup()
    return made


def simple(group: str, topic: str, filter_expression: Received = None) -> Received:
    """Return a simple consumer whose group has committed offsets.

    The client sends its settings to the proxy without waiting for them to arrive, and the proxy
    fails a receive that overtakes them.
    """
    made = SimpleConsumer(configuration(), group, {topic: filter_expression or FilterExpression()},
                          await_duration=AWAIT_SECONDS)
    made.startup()

    def is_known() -> bool:
        try:
            nothing(made, "of a new group")
        except InternalErrorException:
            return False
        return True

    Checks.until("the proxy knows the consumer", is_known)
    return made


def take(consumer: Received, count: int, hidden_seconds: int = HIDDEN_SECONDS) -> list[Received]:
    """Receive until there is a number of messages."""
    taken: list[Received] = []

    def some() -> bool:
        taken.extend(consumer.receive(32, hidden_seconds) or ())
        return len(taken) >= count

    Checks.until(f"{count} messages come", some)
    Checks.same(count, len(taken), "messages received")
    return taken


def consume(consumer: Received, count: int) -> list[str]:
    """The bodies of so many messages, sorted, which are acknowledged."""
    taken = take(consumer, count)
    for each in taken:
        consumer.ack(each)
    return sorted(each.body.decode() for each in taken)


def nothing(consumer: Received, when: str) -> None:
    """Check that a consumer is given nothing during one wait."""
    found = consumer.receive(32, HIDDEN_SECONDS) or []
    Checks.same([], [each.body for each in found], f"messages {when}")


def sends() -> None:
    """Messages sent in both ways arrive as they were sent."""
    topic = "ProxyPySends"
    consumer, sender = simple(topic, topic), producer(topic)
    ids: dict[str, str] = {}
    for index in range(COUNT):
        made = message(topic, f"синхронно-{index}", tag=f"Tag{index}", keys=f"key-{index}")
        made.add_property("имя", f"значение ☃ {index}")
        ids[sender.send(made).message_id] = f"синхронно-{index}"
    pending = {f"async-{index}": sender.send_async(message(topic, f"async-{index}"))
               for index in range(COUNT)}
    ids.update((answer.result().message_id, body) for body, answer in pending.items())
    received = take(consumer, 2 * COUNT)
    Checks.same(ids, {each.message_id: each.body.decode() for each in received}, "ids and bodies")
    for each in received:
        kind, _, number = each.body.decode().partition("-")
        wanted = ((f"Tag{number}", {f"key-{number}"}, f"значение ☃ {number}")
                  if kind != "async" else (None, set(), None))
        Checks.same(wanted, (each.tag or None, set(each.keys), each.properties.get("имя")),
                    f"tag, keys and property of {each.body.decode()}")
        consumer.ack(each)
    nothing(consumer, "after all are acknowledged")
    consumer.shutdown()
    sender.shutdown()


def invisible() -> None:
    """A message is delivered again after its invisible time, and after a change of that time."""
    topic = "ProxyPyInvisible"
    consumer, sender = simple(topic, topic), producer(topic)
    sender.send(message(topic, "again"))
    first = take(consumer, 1, 2)[0]
    second = take(consumer, 1)[0]
    consumer.change_invisible_duration(second, 1)
    third = take(consumer, 1)[0]
    Checks.same([1, 2, 3], [each.delivery_attempt for each in (first, second, third)], "attempts")
    Checks.same({first.message_id}, {second.message_id, third.message_id}, "one message")
    consumer.ack(third)
    nothing(consumer, "after it is acknowledged")
    consumer.shutdown()
    sender.shutdown()


class Listener(MessageListener):  # type: ignore[misc, unused-ignore]
    """Accepts messages; those whose body ends with ``failing`` fail the first time."""

    def __init__(self, failing: str) -> None:
        self._failing = failing
        self._lock = threading.Lock()
        self.failed: set[str] = set()
        #: Bodies by message group; "" is the one of messages without.
        self.taken: dict[str, list[str]] = {}

    def consume(self, message: Received) -> Received:
        """Handle one message."""
        body = message.body.decode()
        with self._lock:
            if body.endswith(self._failing) and body not in self.failed:
                self.failed.add(body)
                return ConsumeResult.FAILURE
            self.taken.setdefault(message.message_group or "", []).append(body)
        return ConsumeResult.SUCCESS

    def count(self) -> int:
        """Return the number of handled messages."""
        with self._lock:
            return sum(map(len, self.taken.values()))


def pushed(topic: str, listener: Listener, messages: list[Received]) -> None:
    """Send messages to a push consumer, and wait for them."""
    simple(topic, topic).shutdown()
    consumer = PushConsumer(configuration(), topic, listener, {topic: FilterExpression()})
    consumer.startup()
    sender = producer(topic)
    for each in messages:
        sender.send(each)
    Checks.until("all are consumed", lambda: listener.count() >= len(messages))
    consumer.shutdown()
    sender.shutdown()


def push() -> None:
    """A push consumer is given all messages, and one that failed again."""
    topic, listener = "ProxyPyPush", Listener("-5")
    bodies = [f"push-{index}" for index in range(COUNT)]
    pushed(topic, listener, [message(topic, body) for body in bodies])
    Checks.same(bodies, sorted(listener.taken[""]), "bodies")
    Checks.same({"push-5"}, listener.failed, "failed once")


def fifo() -> None:
    """A push consumer is given each message group in order, failures included."""
    topic, listener = "ProxyPyFifo", Listener("-3")
    bodies = {group: [f"{group}-{index}" for index in range(COUNT)] for group in ("red", "blue")}
    pushed(topic, listener, [message(topic, bodies[group][index], message_group=group)
                             for index in range(COUNT) for group in bodies])
    Checks.same(bodies, listener.taken, "order of each message group")
    Checks.same({"red-3", "blue-3"}, listener.failed, "failed once")


def delay() -> None:
    """A message with a time is delivered then; one that is recalled is not."""
    topic = "ProxyPyDelay"
    consumer, sender = simple(topic, topic), producer(topic)
    at_ms = time.time_ns() // 1_000_000 + DELAY_MS
    # This client has whole seconds.
    kept = sender.send(message(topic, "kept", delivery_timestamp=at_ms // 1000))
    recalled = sender.send(message(topic, "recalled", delivery_timestamp=at_ms // 1000))
    Checks.same(recalled.message_id, sender.recall_message(topic, recalled.recall_handle), "id")
    received = take(consumer, 1)[0]
    early = at_ms // 1000 - time.time()
    Checks.same((True, kept.message_id, "kept"),
                (early <= 1, received.message_id, received.body.decode()), f"{early:.1f} s early")
    consumer.ack(received)
    nothing(consumer, "after the time of the recalled one")
    consumer.shutdown()
    sender.shutdown()


class Checker(TransactionChecker):  # type: ignore[misc, unused-ignore]
    """A checker that commits one message; it may be asked about others with a late end."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, message: Received) -> Received:
        """Check one message."""
        body = message.body.decode()
        self.asked.append(body)
        return (TransactionResolution.COMMIT if body == "checked"
                else TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)


def transactions() -> None:
    """Half messages are delivered when the producer or its checker has committed them."""
    topic, checker = "ProxyPyTransactions", Checker()
    consumer, sender = simple(topic, topic), producer(topic, checker)
    opened = {}
    for body in ("committed", "rolled-back", "checked"):
        opened[body] = sender.begin_transaction()
        sender.send(message(topic, body), opened[body])
        if body == "rolled-back":
            opened[body].rollback()
        elif body == "committed":
            opened[body].commit()
    # A check whose answer is late is made again: a message may be committed twice.
    bodies: set[str] = set()

    def receive() -> bool:
        for each in consumer.receive(32, HIDDEN_SECONDS) or ():
            consumer.ack(each)
            bodies.add(each.body.decode())
        return len(bodies) >= 2

    Checks.until("both come", receive)
    receive()
    Checks.same({"checked", "committed"}, bodies, "committed")
    Checks.same(True, "checked" in checker.asked, "the checker is asked")
    consumer.shutdown()
    sender.shutdown()


def tags() -> None:
    """A subscription to one of two tags is tested."""
    topic = "ProxyPyTags"
    consumer, sender = simple(topic, topic, FilterExpression("TagA")), producer(topic)
    for index in range(COUNT):
        sender.send(message(topic, str(index), tag="TagA" if index % 2 else "TagB"))
    wanted = [str(index) for index in range(COUNT) if index % 2]
    Checks.same(wanted, consume(consumer, len(wanted)), "bodies of one tag")
    nothing(consumer, "of the other tag")
    consumer.shutdown()
    sender.shutdown()


PARTS: Final = (sends, invisible, push, fifo, delay, transactions, tags)


def tell(part: Callable[[], None]) -> None:
    """Run a part, and print how it ended."""
    begin = time.monotonic()
    said = f"ok {part.__name__}"
    try:
        part()
    except Exception:
        said = f"failed {part.__name__}: {traceback.format_exc()}"
    # One write: rounds end at the same time on several threads.
    sys.stdout.write(f"{said} ({time.monotonic() - begin:.1f} s)\n")
    sys.stdout.flush()


def main() -> None:
    """Run the whole round."""
    with ThreadPoolExecutor(len(PARTS)) as threads:
        list(threads.map(tell, PARTS))
    print(f"ok {Checks.count} checks", flush=True)
    # The client's threads may outlast its shutdown.
    os._exit(0)


if __name__ == "__main__":
    main()
