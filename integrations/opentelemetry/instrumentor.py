"""The instrumentor, which ``opentelemetry-instrument`` finds by its entry point."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final

from opentelemetry.trace import TracerProvider

from twistmq.client.base.interceptors import install_interceptor, uninstall_interceptor
from twistmq.integrations.opentelemetry.interceptor import TracingInterceptor

__all__ = ["TwistmqInstrumentor"]

#: The variable by which Java's agent turns spans of receives on and off.
_RECEIVE_SPANS: Final = "OTEL_INSTRUMENTATION_MESSAGING_EXPERIMENTAL_RECEIVE_TELEMETRY_ENABLED"


class TwistmqInstrumentor:
    """Gives a :class:`TracingInterceptor` to all clients that the process makes from now on.

    It has the methods that OpenTelemetry's launcher calls, and needs only the package of the API.
    """

    _tracing: ClassVar[TracingInterceptor | None] = None

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether new clients are traced."""
        return type(self)._tracing is not None

    def instrumentation_dependencies(self) -> tuple[str, ...]:
        """Return the packages that are instrumented besides this one: none."""
        return ()

    def instrument(
        self, *, tracer_provider: TracerProvider | None = None, receive_spans: bool | None = None,
        **_: Any,
    ) -> None:
        """Trace all clients that are made from now on; a second call does nothing.

        :param tracer_provider: makes the spans; None: the provider of the process.
        :param receive_spans: whether messages that are received have their own span; None:
            unless the environment variable of the Java agent is "false".
        """
        cls = type(self)
        if cls._tracing is None:
            if receive_spans is None:
                receive_spans = os.environ.get(_RECEIVE_SPANS, "").strip().lower() != "false"
            cls._tracing = TracingInterceptor(tracer_provider, receive_spans=receive_spans)
            install_interceptor(cls._tracing)

    def uninstrument(self, **_: Any) -> None:
        """Stop tracing clients that are made from now on."""
        cls = type(self)
        if cls._tracing is not None:
            uninstall_interceptor(cls._tracing)
            cls._tracing = None
