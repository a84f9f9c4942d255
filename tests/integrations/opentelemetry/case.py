"""Spans in memory, and a broker that the tests of a module share."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from twisted.trial.unittest import TestCase

from tests.interop.kept import kept
from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.broker.testing.in_process_broker import RunningBroker
from twistmq.integrations.opentelemetry import TracingInterceptor

__all__ = ["SpanCase"]


def start_server(folder: Path, stack: ExitStack) -> RunningBroker:
    """Start a name server and a broker for the tests of a module."""
    return stack.enter_context(running_broker())


class SpanCase(TestCase):
    """Each test has its own topic and its own spans."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker, unless another test of the module has started it."""
        self.server = kept(self, start_server)
        self.topic = f"t{uuid.uuid4().hex[:12]}"
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("test")
        self.tracing = TracingInterceptor(self.provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of an operation on the test's topic, in order of their ends."""
        return [span for span in self.memory.get_finished_spans()
                if span.name == f"{name} {self.topic}"]

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of an operation, once it has ended."""
        wait_until(name, lambda: self.spans(name))
        span, = self.spans(name)
        return span

    def assert_child(self, child: ReadableSpan, parent: ReadableSpan) -> None:
        """Check that a span is the child of another one, in the same trace."""
        assert child.parent is not None
        self.assertEqual(
            (child.parent.span_id, child.context.trace_id),
            (parent.context.span_id, parent.context.trace_id))
