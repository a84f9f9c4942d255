"""A round of PyPI's `rocketmq==0.4.4`, a C++ client of 2019, in its own environment.

    python python_round.py NAMESRV (expands_batches | keeps_batches) [ACCESS_KEY SECRET_KEY]

Prints "ok N checks" at the end; a failure raises. It says nothing of twistmq and imports nothing
of it: it runs with the interpreter of the client. The client writes below $HOME/logs and
sends an older dialect: code 10, integers in extFields, "0" and "1" for booleans, and a newline
after the header.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from rocketmq.client import (  # type: ignore[import-not-found, unused-ignore]
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)

#: Longest wait for one condition, seconds: the client looks for its queues every 10 s only.
WAIT_SECONDS: Final = float(os.environ.get("ROUND_WAIT_S", "120"))
SYNC_COUNT: Final = 6
ORDERLY_COUNT: Final = 10
PROPERTY: Final = "имя свойства"

#: What the 0.4.4 package calls everything it has no types for.
Received = Any


class Checks:
    """Counts the assertions."""

    count = 0

    @classmethod
    def that(cls, holds: bool, what: str) -> None:
        """Check a condition; :raises AssertionError: with ``what`` if it is false."""
        cls.count += 1
        if not holds:
            raise AssertionError(what)

    @classmethod
    def until(cls, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; :raises AssertionError: when it does not come true in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {WAIT_SECONDS} s: {what}")
            time.sleep(0.02)
        cls.count += 1


class Round:
    """One topic that is filled in every way of the client, and read in both ways.

    ``sent`` maps each body to the tag it was sent with.
    """

    def __init__(self, namesrv: str, expands_batches: bool, keys: list[str]) -> None:
        self.namesrv = namesrv
        self.keys = keys
        self.expands_batches = expands_batches
        self.name = f"{time.time_ns() // 1_000_000:x}"
        self.topic = f"PyRound-{self.name}"
        self.sent: dict[str, str] = {}

    def prepare(self, client: Received) -> None:
        """Tell a client where the name server is, and the keys it signs with, if any."""
        client.set_namesrv_addr(self.namesrv)
        if self.keys:
            client.set_session_credentials(*self.keys, "ALIYUN")

    def message(self, body: str, tag: str) -> Received:
        """A message with text outside ASCII in body, keys and a property."""
        message = Message(self.topic)
        message.set_keys(f"ключ-{body}")
        message.set_tags(tag)
        message.set_property(PROPERTY, f"значение ☃ {body}")
        message.set_body(body)
        self.sent[body] = tag
        return message

    def send(self) -> None:
        """Send in every way there is."""
        producer = Producer("PyRoundP", timeout=15_000)
        self.prepare(producer)
        producer.start()
        for index in range(SYNC_COUNT):
            result = producer.send_sync(self.message(f"синхронно-{index}", "TagA"))
            Checks.that(result.status == 0, f"status {result.status!r}")
            Checks.that(len(result.msg_id) >= 32, f"message id {result.msg_id!r}")
        for index in range(4):
            producer.send_oneway(self.message(f"oneway-{index}", "TagB"))
        self.send_batch(producer)
        self.send_async(producer)
        self.send_orderly(producer)
        producer.shutdown()

    def send_batch(self, producer: Received) -> None:
        """Send five in one request: five messages to our broker, one to Apache's.

        The client says so with code 10 and ``"batch":"1"``. For Java only "true" is true, so
        Apache's broker stores the body as it is; it begins with a zero byte, where the client
        ends a text. It has the properties of the batch, without a tag or keys. Our broker takes
        "1" for what the client means by it.
        """
        result = producer.send_batch(
            [self.message(f"batch-{index}", "TagC") for index in range(5)])
        Checks.that(result.status == 0, f"status {result.status!r} of a batch")
        if not self.expands_batches:
            for index in range(5):
                del self.sent[f"batch-{index}"]
            self.sent[""] = ""

    def send_async(self, producer: Received) -> None:
        """Send without waiting, then wait for all answers."""
        answers: list[object] = []
        for index in range(4):
            producer.send_async(self.message(f"async-{index}", "TagB"),
                                answers.append, answers.append)
        Checks.until("answers to async sends", lambda: len(answers) == 4)
        for answer in answers:
            Checks.that(getattr(answer, "status", None) == 0, f"answer {answer!r}")

    def send_orderly(self, producer: Received) -> None:
        """Send to one queue, chosen by a number; its offsets are consecutive."""
        offsets = []
        for index in range(ORDERLY_COUNT):
            result = producer.send_orderly(self.message(f"orderly-{index}", "TagD"), 3)
            Checks.that(result.status == 0, f"status {result.status!r} of an orderly send")
            offsets.append(result.offset)
        wanted = list(range(offsets[0], offsets[0] + ORDERLY_COUNT))
        Checks.that(offsets == wanted, f"offsets {offsets} of one queue")

    def compare(self, got: list[tuple[str, str, str, str]], wanted: set[str]) -> None:
        """Check that each expected message was delivered once and unchanged."""
        bodies = [body for body, *_ in got]
        Checks.that(sorted(bodies) == sorted(wanted), f"got {bodies}")
        for body, tag, keys, value in got:
            if not body:  # The batch.
                Checks.that((tag, keys, value) == ("", "", ""), f"batch: {tag} {keys} {value}")
                continue
            Checks.that(tag == self.sent[body], f"{body}: tag {tag!r}")
            Checks.that(keys == f"ключ-{body}", f"{body}: keys {keys!r}")
            Checks.that(value == f"значение ☃ {body}", f"{body}: property {value!r}")

    def pull(self) -> None:
        """Pull the whole topic; asked again, there is nothing new."""
        consumer = PullConsumer("PyPullG")
        self.prepare(consumer)
        consumer.start()
        got: list[tuple[str, str, str, str]] = []

        def complete() -> bool:
            got.extend(parts(message) for message in consumer.pull(self.topic))
            return len(got) >= len(self.sent)

        Checks.until("everything is pulled", complete)
        self.compare(got, set(self.sent))
        Checks.that(not list(consumer.pull(self.topic)), "nothing is pulled twice")
        consumer.shutdown()

    def push(self) -> None:
        """Run two groups of push consumers, one with a tag expression."""
        every: list[tuple[str, str, str, str]] = []
        tagged: list[tuple[str, str, str, str]] = []
        lock = threading.Lock()

        def into(kept: list[tuple[str, str, str, str]]) -> Callable[[Received], None]:
            def keep(message: Received) -> None:
                with lock:
                    kept.append(parts(message))
            return keep

        consumers = [self.subscribe("PyEveryG", "*", into(every)),
                     self.subscribe("PyTagG", "TagA || TagD", into(tagged))]
        wanted = {body for body, tag in self.sent.items() if tag in ("TagA", "TagD")}
        Checks.until("everything arrives", lambda: len(every) >= len(self.sent))
        Checks.until("TagA and TagD arrive", lambda: len(tagged) >= len(wanted))
        self.compare(every, set(self.sent))
        self.compare(tagged, wanted)
        for consumer in consumers:
            consumer.shutdown()

    def subscribe(
        self, group: str, expression: str, listener: Callable[[Received], None]
    ) -> Received:
        """Return a started push consumer."""
        consumer = PushConsumer(group)
        self.prepare(consumer)
        consumer.set_instance_name(f"{group}-{self.name}")
        consumer.subscribe(self.topic, listener, expression)
        consumer.start()
        return consumer


def parts(message: Received) -> tuple[str, str, str, str]:
    """Return body, tag, keys and property of a message, before the client frees it."""
    return (message.body.decode(), message.tags.decode(), message.keys.decode(),
            (message.get_property(PROPERTY) or b"").decode())


def main() -> None:
    """Run the whole round."""
    start = time.monotonic()
    the_round = Round(sys.argv[1], sys.argv[2] == "expands_batches", sys.argv[3:5])
    for part in (the_round.send, the_round.pull, the_round.push):
        part()
        print(f"{part.__name__:5} done after {time.monotonic() - start:.1f} s", flush=True)
    print(f"ok {Checks.count} checks", flush=True)
    # The library's threads and destructors may not survive the interpreter's own end.
    os._exit(0)


if __name__ == "__main__":
    main()
