"""Encodes families in OpenTelemetry's protocol, with the library of its messages.

Names and labels are the same as on the page for Prometheus. A counter is a monotonic, cumulative
sum since the start of the broker, so an export that fails loses no count. A label with an empty
value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Histogram as HistogramData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from twistmq.broker.api import Histogram, MetricFamily

if TYPE_CHECKING:
    from twistmq.plugins.metrics.collection import Making

__all__ = ["OtlpEncoder"]

#: The number of samples that are encoded at once, which takes about a millisecond.
_PART_SAMPLES: Final = 100
_MS_NS: Final = 1_000_000


class OtlpEncoder:
    """The metrics of one server as bodies of requests to a collector.

    :param resource: the attributes of the server.
    :param labels: the labels that are added to the samples.
    :param labelled: how the names of metrics with these labels begin.
    :param started_ms: when the server started, Unix ms.
    """

    def __init__(
        self, resource: Mapping[str, str], labels: Mapping[str, str], labelled: str,
        started_ms: int,
    ) -> None:
        self._resource = Resource(attributes=_attributes(resource.items()))
        self._labels = _attributes(labels.items())
        self._labelled = labelled
        self._started_ns = started_ms * _MS_NS

    def encoding(self, families: Iterable[MetricFamily], now_ms: int) -> Making[bytes]:
        """Make the body of a request, with a pause after each part of it.

        :param now_ms: the time of the samples, Unix ms.
        """
        parts: list[bytes] = []
        for family in families:
            for begin in range(0, len(family.samples), _PART_SAMPLES):
                metric = self._metric(family, begin, now_ms * _MS_NS)
                # Two encoded messages, one after the other, are the message with both contents.
                parts.append(ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(
                    resource=self._resource, scope_metrics=[ScopeMetrics(metrics=[metric])],
                )]).SerializeToString())
                yield
        return b"".join(parts)

    def _metric(self, family: MetricFamily, begin: int, now_ns: int) -> Metric:
        """Return a part of a family.

        :param begin: the index of the first sample.
        """
        common = self._labels if family.name.startswith(self._labelled) else []
        metric = Metric(name=family.name, description=family.help)
        points: list[NumberDataPoint] = []
        buckets: list[HistogramDataPoint] = []
        for labels, value in family.samples[begin:begin + _PART_SAMPLES]:
            attributes = [*_attributes(zip(family.labels, labels, strict=True)), *common]
            if isinstance(value, Histogram):
                buckets.append(HistogramDataPoint(
                    attributes=attributes, start_time_unix_nano=self._started_ns,
                    time_unix_nano=now_ns, count=sum(value.counts), sum=value.total,
                    bucket_counts=value.counts, explicit_bounds=value.ends))
            else:
                points.append(NumberDataPoint(
                    attributes=attributes, time_unix_nano=now_ns, as_double=value,
                    start_time_unix_nano=self._started_ns if family.kind == "counter" else 0))
        if family.kind == "histogram":
            metric.histogram.CopyFrom(HistogramData(
                data_points=buckets, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE))
        elif family.kind == "counter":
            metric.sum.CopyFrom(Sum(
                data_points=points, is_monotonic=True,
                aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE))
        else:
            metric.gauge.CopyFrom(Gauge(data_points=points))
        return metric


def _attributes(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value))
            for name, value in pairs if value]
