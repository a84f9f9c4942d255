"""The traces of producers and consumers, read from a running broker."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.client.roles.styles import Style, in_each_style
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Message, Producer, ReceivedMessage, Retry
from twistmq.client.base.interceptors import Interceptor
from twistmq.client.core.producer import tracer as tracing
from twistmq.protocol.record import records_of
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.protocol.trace_records import (
    ContextCode,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
)


class _Outcomes(Interceptor):
    """An interceptor that records the results of the first messages."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.told: list[tuple[bytes, str]] = []
        self._told: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    def after_consume(
        self, group: str, queue: Any, messages: Any, outcome: str
    ) -> None:
        """See ``Interceptor``."""
        self.told += [(message.body, outcome) for message in messages]
        self.has(outcome).set()
        if len(self.told) == self._count:
            self.has("all").set()

    def has(self, outcome: str) -> threading.Event:
        """An event that is set after the first result."""
        return self._told[outcome]

    def all_told(self, topic: str) -> threading.Event:
        """An event that is set after all results of a topic's messages."""
        return self.has("time-out" if topic == "Slow" else "all")


class TraceTests(TestCase):
    """A broker on its own thread."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker()
        self.broker = running.__enter__()
        self.where = self.broker.namesrv_address
        self.addCleanup(running.__exit__, None, None, None)

    def in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a blocking test beside the reactor."""
        return deferToThread(function)

    def traces(self) -> list[TraceRecord]:
        """Return all records of the trace topic."""
        found: list[TraceRecord] = []
        with Client(self.where) as client:
            for queue in client.read_queues(TRACE_TOPIC):
                for message in records_of(client.pull(queue, 0).body):
                    decoded = decode_records(message.body)
                    self.assertEqual(decoded.bad_count, 0)
                    found += decoded.records
        return found

    def test_sends_and_consumptions_are_traced(self) -> Deferred[Any]:
        """The close sends waiting records; ids connect the records of a message."""
        def run() -> None:
            with Producer(self.where, group="p", trace=True) as producer:
                sent = producer.send("T", b"12345", tags="a", keys=["k"])
                timed = producer.send("T", b"1", delay_s=60)
                batch = producer.send_batch([Message("T", b"2"), Message("T", b"3")])
            with Consumer(self.where, group="g", topics={"T": "a"}, start="first",
                          trace=True) as consumer:
                consumer.run(lambda message: consumer.stop(), workers=1)
            records = self.traces()
            pubs = {each.message_id: each for each in records if isinstance(each, Pub)}
            self.assertEqual(set(pubs), {sent.id, timed.id, batch.id})
            pub = pubs[sent.id]
            self.assertEqual((pub.group, pub.topic, pub.tags, pub.keys, pub.body_length,
                              pub.offset_message_id, pub.message_type, pub.success),
                             ("p", "T", "a", "k", 5, sent.offset_id, MessageType.NORMAL, True))
            self.assertEqual(pubs[timed.id].message_type, MessageType.DELAY)
            [before] = [each for each in records if isinstance(each, SubBefore)]
            [after] = [each for each in records if isinstance(each, SubAfter)]
            self.assertEqual((before.group, before.message_id, before.keys),
                             ("g", sent.id, "k"))
            self.assertEqual((after.request_id, after.message_id, after.context_code, after.group),
                             (before.request_id, sent.id, ContextCode.SUCCESS, "g"))

        return self.in_thread(run)

    def test_each_send_of_each_style_has_a_record(self) -> Deferred[Any]:
        """Each kind of send with a result has a record of time, place and result."""
        async def main(style: Style) -> None:
            topic, group, got = f"t-{style.name}", f"p-{style.name}", style.got
            begin_ms = int(time.time() * 1000)
            producer = style.module.Producer(self.where, group=group, trace=True, **style.more)
            async with style.opened(producer):
                results = [await got(producer.send(topic, b"12345", tags="a", keys=["k", "l"]))]
                results += await got(producer.send_many(
                    [Message(topic, b"12345", tags="a", keys=["k", "l"]) for _ in range(3)]))
                results.append(await style.result(await got(producer.send_soon(
                    topic, b"12345", tags="a", keys=["k", "l"]))))
                batch = await got(producer.send_batch([Message(topic, b"2"), Message(topic, b"3")]))
            found = await deferToThread(self.traces) if style.more else self.traces()
            pubs = {each.message_id: each for each in found
                    if isinstance(each, Pub) and each.group == group}
            self.assertEqual(set(pubs), {*(result.id for result in results), batch.id})
            for result in results:
                pub = pubs[result.id]
                self.assertEqual(
                    (pub.region, pub.topic, pub.tags, pub.keys, pub.body_length, pub.store_host,
                     pub.message_type, pub.offset_message_id, pub.success),
                    ("DefaultRegion", topic, "a", "k l", 5, self.broker.broker_address,
                     MessageType.NORMAL, result.offset_id, True))
                # Both clocks round to milliseconds.
                self.assertIn(pub.time_ms, range(begin_ms - 10, begin_ms + 60_000))
                self.assertIn(pub.cost_ms, range(60_000))

        return in_each_style(main)

    def test_each_outcome_of_a_handler_has_its_number(self) -> Deferred[Any]:
        """Success, time-out, exception, no result and retry have the numbers 0 to 4.

        The late result of the handler that took too long is neither told nor traced.
        """
        words = ("success", "time-out", "exception", "no result", "retry")
        seen = _Outcomes(len(words))

        def handler(messages: list[ReceivedMessage[Any]]) -> Any:
            body = messages[0].body.decode()
            if body == "time-out":
                seen.has("time-out").wait(30)
            elif body == "exception":
                raise ValueError("a fault")
            elif body == "retry":
                raise Retry
            return "all" if body == "no result" else 1

        def consume(client: Client, topic: str, **options: Any) -> None:
            with Consumer(client=client, group=topic, topics=topic, start="first", trace=True,
                          **options) as consumer:
                threading.Thread(target=lambda: (seen.all_told(topic).wait(30), consumer.stop()),
                                 daemon=True).start()
                consumer.run_batches(handler, size=1, workers=1)

        def run() -> None:
            with Producer(self.where, group="p") as producer:
                ids = {word: producer.send("Slow" if word == "time-out" else "Quick",
                                           word.encode()).id for word in words}
            with Client(self.where, interceptors=[seen]) as client:
                consume(client, "Slow", consume_timeout_s=0.3)
                consume(client, "Quick")
            self.assertEqual(seen.told[0], (b"time-out", "time-out"))
            self.assertEqual(sorted(seen.told), sorted((word.encode(), word) for word in words))
            afters = [each for each in self.traces() if isinstance(each, SubAfter)]
            self.assertEqual(
                sorted((int(each.context_code), each.message_id, each.success)
                       for each in afters if each.context_code is not None),
                [(number, ids[word], not number) for number, word in enumerate(words)])

        return self.in_thread(run)

    def test_records_that_wait_are_bounded(self) -> Deferred[Any]:
        """A record above the limit is dropped, and all of them are counted."""
        self.patch(tracing, "QUEUE_MAX", 30)
        self.patch(tracing, "BATCH", 1000)

        def run() -> None:
            with (self.assertLogs("twistmq.client", "WARNING") as logged,
                  Producer(self.where, group="p", trace=True) as producer):
                waiting = [producer.send_soon("T", b"1") for _ in range(50)]
                self.assertEqual(len([each.result() for each in waiting]), 50)
            self.assertEqual(len(self.traces()), 30)
            self.assertEqual([record.getMessage() for record in logged.records], [
                "traces of p are dropped, because 30 are already waiting",
                "20 traces of p were dropped in all"])

        return self.in_thread(run)

    def test_many_records_go_in_several_messages(self) -> Deferred[Any]:
        """Long keys need more messages; no record is lost."""
        def run() -> None:
            with Producer(self.where, group="p", trace=True) as producer:
                producer.send_many([Message("T", b"1", keys=["k" * 3000 + str(number)])
                                    for number in range(50)])
            self.assertEqual(len(self.traces()), 50)

        return self.in_thread(run)

    def test_a_producer_that_shares_a_client_sends_its_traces_when_it_closes(
            self) -> Deferred[Any]:
        """The client stays open."""
        def run() -> None:
            with Client(self.where) as client:
                with Producer(client=client, group="p", trace=True) as producer:
                    producer.send("T", b"1")
                self.assertEqual(len(self.traces()), 1)

        return self.in_thread(run)
