"""The tests of the spans, which are skipped where OpenTelemetry's SDK is not installed."""

from __future__ import annotations

from unittest import SkipTest

try:
    import opentelemetry.sdk  # noqa: F401
except ImportError:
    raise SkipTest("the extra test is not installed: opentelemetry-sdk is missing") from None
