"""The spans of producers and consumers in all styles."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.integrations.opentelemetry.case import SpanCase
from tests.interop.servers import wait_until
from twistmq.client import (
    Client,
    ClientError,
    Consumer,
    Message,
    MessageQueue,
    PopConsumer,
    Producer,
    aio,
    tx,
)
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.integrations.opentelemetry import TwistmqInstrumentor, process_span


class SendTests(SpanCase):
    """Spans of sends, and the context in the properties of a message."""

    def producer(self, **options: Any) -> Producer:
        """Make a producer that is traced."""
        producer = Producer(self.server.namesrv_address, interceptors=[self.tracing], **options)
        self.addCleanup(producer.close)
        return producer

    def sent(self, index: int = 0) -> Any:
        """Return the message at an offset of the first queue that has messages."""
        with Client(self.server.namesrv_address) as client:
            for queue in client.read_queues(self.topic):
                if client.max_offset(queue) > index:
                    return messages_of(client.pull(queue, index), queue, damaged=[])[0]
        raise AssertionError("there is no message")

    def test_the_context_is_in_the_message_as_w3c_says(self) -> None:
        """Java's agent reads the same property; the span of the program is the parent."""
        with self.tracer.start_as_current_span("order") as order:
            result = self.producer().send(
                self.topic, b"paid", tags="eu", keys=["o-17", "o-18"], sharding_key="k")
        span = self.span("send")
        traceparent = self.sent().properties["traceparent"]
        self.assertRegex(traceparent, f"^00-{span.context.trace_id:032x}-"
                                      f"{span.context.span_id:016x}-0[13]$")
        self.assertIsInstance(order, ReadableSpan)
        self.assert_child(span, order)  # type: ignore[arg-type]
        self.assertEqual((span.kind, span.status.status_code),
                         (SpanKind.PRODUCER, StatusCode.UNSET))
        self.assertEqual(dict(span.attributes or {}), {
            "messaging.system": "rocketmq", "messaging.operation.name": "send",
            "messaging.operation.type": "send", "messaging.destination.name": self.topic,
            "messaging.destination.partition.id": str(result.queue.queue_id),
            "messaging.message.id": result.id, "messaging.rocketmq.message.tag": "eu",
            "messaging.rocketmq.message.keys": ("o-17", "o-18"),
            "messaging.rocketmq.message.group": "k", "messaging.rocketmq.message.type": "fifo"})

    def test_each_kind_of_send_ends_its_spans(self) -> None:
        """This includes the spans of a batch, of send_soon, and of a send without an answer."""
        producer = self.producer()
        producer.send_batch([Message(self.topic, b"1"), Message(self.topic, b"2")])
        producer.send_soon(self.topic, b"3").result()
        producer.send_oneway(self.topic, b"4")
        producer.send(self.topic, b"5", delay_s=60)
        wait_until("five spans", lambda: len(self.spans("send")) == 5)
        self.assertEqual([(span.attributes or {})["messaging.rocketmq.message.type"]
                          for span in self.spans("send")], ["normal"] * 4 + ["delay"])
        self.assertEqual(len({(span.attributes or {})["messaging.message.id"]
                              for span in self.spans("send")}), 5)
        self.assertEqual(self.tracing._sends, {})

    def test_a_failed_send_has_its_error(self) -> None:
        """The error has the name of its class."""
        queue = MessageQueue(self.topic, "no broker", 0)
        error = self.assertRaises(
            ClientError, self.producer(timeout_s=0.5).send, self.topic, b"x", queue=queue)
        span = self.span("send")
        self.assertEqual((span.status.status_code, span.status.description),
                         (StatusCode.ERROR, str(error)))
        self.assertEqual((span.attributes or {})["error.type"], type(error).__qualname__)
        self.assertEqual([event.name for event in span.events], ["exception"])

    def test_a_message_that_is_passed_on_continues_its_trace(self) -> None:
        """Without a current span, the properties determine the trace."""
        self.producer().send(self.topic, b"x", properties={
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
        span = self.span("send")
        assert span.parent is not None
        self.assertEqual(f"{span.context.trace_id:032x}", "0af7651916cd43dd8448eb211c80319c")
        self.assertEqual(f"{span.parent.span_id:016x}", "b7ad6b7169203331")
        self.assertIn(f"{span.context.span_id:016x}", self.sent().properties["traceparent"])


class HandlerTests(SpanCase):
    """Spans of handlers and receives."""

    def check(self, inner: int) -> None:
        """The trace is send > process > inner, and a span of a receive has a link to the send.

        :param inner: the id of the span that was the current one in the handler.
        """
        send, process, receive = self.span("send"), self.span("process"), self.span("receive")
        self.assert_child(process, send)
        self.assertEqual((process.kind, receive.kind), (SpanKind.CONSUMER, SpanKind.CLIENT))
        self.assertEqual(inner, process.context.span_id)
        self.assertIsNone(receive.parent)
        self.assertEqual([link.context.span_id for link in receive.links], [send.context.span_id])
        for span, name in ((process, "process"), (receive, "receive")):
            attributes = dict(span.attributes or {})
            self.assertEqual(
                [attributes[f"messaging.{key}"] for key in (
                    "system", "operation.name", "operation.type", "destination.name",
                    "consumer.group.name", "message.body.size")],
                ["rocketmq", name, name, self.topic, f"g{self.topic}", 4])

    def options(self) -> dict[str, Any]:
        """Return the options of a consumer that is traced."""
        return {"group": f"g{self.topic}", "topics": self.topic, "start": "first",
                "interceptors": [self.tracing]}

    def send(self) -> None:
        """Send a message that is traced."""
        with Producer(self.server.namesrv_address, interceptors=[self.tracing]) as producer:
            producer.send(self.topic, b"paid")

    def test_a_handler_on_a_thread(self) -> None:
        """The span is the current one in the handler."""
        self.send()
        inner: list[int] = []
        with Consumer(self.server.namesrv_address, **self.options()) as consumer:
            def handle(message: Any) -> None:
                inner.append(trace.get_current_span().get_span_context().span_id)
                consumer.stop()

            consumer.run(handle, workers=1)
        self.check(*inner)

    def test_handlers_of_asyncio(self) -> None:
        """The handler is a coroutine function, or a plain function, which runs on a thread."""
        async def main(is_plain: bool) -> None:
            async with aio.Consumer(self.server.namesrv_address, **self.options()) as consumer:
                def note(message: Any) -> None:
                    inner.append(trace.get_current_span().get_span_context().span_id)
                    consumer.stop()

                async def handle(message: Any) -> None:
                    await asyncio.sleep(0)
                    note(message)

                await consumer.run(note if is_plain else handle, workers=1)

        for is_plain in (False, True):
            inner: list[int] = []
            self.memory.clear()
            self.topic += "p" if is_plain else "c"
            self.send()
            asyncio.run(main(is_plain))
            self.check(*inner)

    async def test_a_handler_of_twisted(self) -> None:
        """The handler is a coroutine function that waits for a Deferred."""
        inner: list[int] = []
        async with tx.Producer(self.server.namesrv_address, reactor=reactor,
                               interceptors=[self.tracing]) as producer:
            await producer.send(self.topic, b"paid")
        consumer = tx.Consumer(self.server.namesrv_address, reactor=reactor, **self.options())

        async def handle(message: Any) -> None:
            waiting: Deferred[None] = Deferred()
            reactor.callLater(0, waiting.callback, None)  # type: ignore[attr-defined]
            await waiting
            inner.append(trace.get_current_span().get_span_context().span_id)
            consumer.stop()

        async with consumer:
            await consumer.run(handle, workers=1)
        self.check(*inner)
        self.assertFalse(trace.get_current_span().get_span_context().is_valid)

    def test_a_failed_handler_has_its_error(self) -> None:
        """This holds for a consumer that pops as well."""
        self.send()
        with PopConsumer(self.server.namesrv_address, **self.options()) as consumer:
            def handle(message: Any) -> None:
                consumer.stop()
                raise KeyError("o-17")

            consumer.run(handle, workers=1)
        span = self.span("process")
        self.assert_child(span, self.span("send"))
        self.assertEqual(span.status.status_code, StatusCode.ERROR)
        self.assertEqual((span.attributes or {})["error.type"], "KeyError")

    def test_a_list_of_messages_has_links(self) -> None:
        """A list of messages has no single parent."""
        with Producer(self.server.namesrv_address, interceptors=[self.tracing]) as producer:
            producer.send_batch([Message(self.topic, b"1"), Message(self.topic, b"2")])
        with Consumer(self.server.namesrv_address, **self.options()) as consumer:
            consumer.run_batches(lambda messages: consumer.stop(), workers=1)
        process = self.span("process")
        self.assertIsNone(process.parent)
        self.assertEqual([link.context.span_id for link in process.links],
                         [span.context.span_id for span in self.spans("send")])
        self.assertEqual((process.attributes or {})["messaging.batch.message_count"], 2)

    def test_a_loop_says_what_belongs_to_a_message(self) -> None:
        """A block names the message, and its span is the current one in the block."""
        self.send()
        with Consumer(self.server.namesrv_address, **self.options()) as consumer:
            for message in consumer:
                with self.tracing.process_span([message], f"g{self.topic}") as span:
                    inner = trace.get_current_span().get_span_context().span_id
                with process_span(message):
                    pass  # The provider of the process is not configured.
                break
        self.check(inner)
        self.assertTrue(span.get_span_context().is_valid)


class InstrumentorTests(SpanCase):
    """Clients that are traced without an option."""

    def test_clients_that_are_made_later_are_traced(self) -> None:
        """They are traced until the instrumentation is undone; each message has one span."""
        instrumentor = TwistmqInstrumentor()
        for _ in range(2):
            instrumentor.instrument(tracer_provider=self.provider, skip_dep_check=True)
        self.addCleanup(instrumentor.uninstrument)
        self.assertTrue(TwistmqInstrumentor().is_instrumented_by_opentelemetry)
        with Producer(self.server.namesrv_address) as producer:
            producer.send(self.topic, b"x")
            instrumentor.uninstrument()
            with Producer(self.server.namesrv_address) as other:
                other.send(self.topic, b"x")
        self.assertEqual(len(self.spans("send")), 1)

    def test_receives_are_left_out_by_the_variable_of_javas_agent(self) -> None:
        """The spans of sends and handlers stay."""
        instrumentor = TwistmqInstrumentor()
        with mock.patch.dict(os.environ, {
                "OTEL_INSTRUMENTATION_MESSAGING_EXPERIMENTAL_RECEIVE_TELEMETRY_ENABLED": "false"}):
            instrumentor.instrument(tracer_provider=self.provider)
        self.addCleanup(instrumentor.uninstrument)
        with Producer(self.server.namesrv_address) as producer:
            producer.send(self.topic, b"x")
        with Consumer(self.server.namesrv_address, group="g", topics=self.topic,
                      start="first") as consumer:
            consumer.run(lambda message: consumer.stop(), workers=1)
        self.span("process")
        self.assertEqual(self.spans("receive"), [])
