"""The interceptor that makes spans, and passes their context on in the properties of messages.

A send has a span of the kind PRODUCER. Its context goes into the properties of the message, by the
propagators that are configured: ``traceparent``, unless the program has chosen others. A call of a
handler has a span of the kind CONSUMER, whose parent is the send; it is the current span while the
handler runs. Messages that are passed to a loop, a caller or a handler also have a span of the kind
CLIENT, with a link to each send.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from twistmq.client import Interceptor, MessageQueue, ReceivedMessage, SendResult
from twistmq.integrations.opentelemetry.attributes import (
    ERROR_TYPE,
    SCHEMA_URL,
    consumer_attributes,
    result_attributes,
    send_attributes,
)
from twistmq.protocol.properties import UNIQ_KEY
from twistmq.protocol.topic_names import is_system_topic

__all__ = ["TracingInterceptor", "process_span"]

#: The largest number of spans of sends in flight. There are more only if the client did not report
#: the end of some sends, because their messages were never sent.
_SENDS_MAX: Final = 100_000


class TracingInterceptor(Interceptor):
    """Makes the spans of a client: ``Producer(..., interceptors=[TracingInterceptor()])``.

    :param provider: makes the spans; None: the provider of the process.
    :param receive_spans: whether messages that are received have their own span.
    """

    def __init__(
        self, provider: TracerProvider | None = None, *, receive_spans: bool = True
    ) -> None:
        self._tracer = trace.get_tracer(
            "twistmq", version("twistmq"), provider, schema_url=SCHEMA_URL)
        self._receive_spans = receive_spans
        self._lock = threading.Lock()
        #: The spans of the sends in flight, by the unique id of the message.
        self._sends: dict[str, Span] = {}

    # --- sends

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """Begin the span of a send, and write its context into the properties.

        Without a current span, the send continues the trace that its properties name, for example
        if the program passes on a message that it received.
        """
        if is_system_topic(topic):
            return
        parent = contexts.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = propagate.extract(properties, parent)
        span = self._tracer.start_span(
            f"send {topic}", parent, SpanKind.PRODUCER, send_attributes(topic, properties))
        propagate.inject(properties, trace.set_span_in_context(span, parent))
        with self._lock:
            self._sends[properties[UNIQ_KEY]] = span
            if len(self._sends) > _SENDS_MAX:
                self._sends.pop(next(iter(self._sends))).end()

    def after_send(
        self, topic: str, ids: str, duration_ms: float, result: SendResult | None,
        error: Exception | None,
    ) -> None:
        """End the span of a send, or the spans of a batch."""
        for unique in ids.split(","):
            with self._lock:
                span = self._sends.pop(unique, None)
            if span is None:
                continue
            if result is not None:
                span.set_attributes(result_attributes(result))
            if error is not None:
                _fail(span, error)
            span.end()

    # --- messages that arrive

    def before_consume(
        self, group: str, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]
    ) -> None:
        """Make the span of messages that are passed to a handler, a loop or a caller."""
        if not self._receive_spans or is_system_topic(queue.topic):
            return
        self._tracer.start_span(
            f"receive {messages[0].topic}", Context(), SpanKind.CLIENT,
            consumer_attributes("receive", "receive", group, messages), _links(messages)).end()

    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage[Any]]
    ) -> AbstractContextManager[object]:
        """Return the span of a call of a handler; it is the current one while the handler runs."""
        return self.process_span(messages, group)

    @contextmanager
    def process_span(
        self, messages: Sequence[ReceivedMessage[Any]], group: str = ""
    ) -> Iterator[Span]:
        """Make the span of the processing of messages, which is the current one in the block.

        The send of a single message is its parent. Several messages have links.

        :param group: the consumer group, or "" if it is not known.
        """
        parent = Context()
        links: Sequence[Link] = ()
        if len(messages) == 1:
            parent = propagate.extract(messages[0].properties, parent)
        else:
            links = _links(messages)
        span = self._tracer.start_span(
            f"process {messages[0].topic}", parent, SpanKind.CONSUMER,
            consumer_attributes("process", "process", group, messages), links)
        token = contexts.attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        except Exception as error:
            _fail(span, error)
            raise
        finally:
            contexts.detach(token)
            span.end()


def _links(messages: Sequence[ReceivedMessage[Any]]) -> list[Link]:
    """Return a link to the send of each message that names it."""
    sends = (trace.get_current_span(propagate.extract(each.properties, Context()))
             .get_span_context() for each in messages)
    return [Link(each) for each in sends if each.is_valid]


def _fail(span: Span, error: Exception) -> None:
    """Mark a span as failed."""
    span.set_attribute(ERROR_TYPE, type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def process_span(
    *messages: ReceivedMessage[Any], group: str = ""
) -> AbstractContextManager[Span]:
    """Make the span of the processing of messages in a loop, with the provider of the process.

        for message in consumer:
            with process_span(message):
                bill(message)

    :param group: the consumer group, which becomes an attribute.
    """
    return TracingInterceptor().process_span(messages, group)
