"""OpenTelemetry for the client: spans of sends, receives and handlers, in one trace.

    opentelemetry-instrument python shop.py

or, in a program that configures OpenTelemetry itself:

    TwistmqInstrumentor().instrument()
"""

from __future__ import annotations

from twistmq.integrations.opentelemetry.instrumentor import TwistmqInstrumentor
from twistmq.integrations.opentelemetry.interceptor import TracingInterceptor, process_span

__all__ = ["TracingInterceptor", "TwistmqInstrumentor", "process_span"]
