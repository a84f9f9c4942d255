"""Writes families in Prometheus's text format, with Prometheus's client library.

The text is written in parts, because ten thousand topics take a while. A label with an empty value
is left out, which means the same to Prometheus.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from twistmq.broker.api import Histogram, MetricFamily

__all__ = ["Exposition", "GivenFamilies"]

#: The number of samples that are written at once, which takes about a millisecond.
_PART_SAMPLES: Final = 100


class GivenFamilies:
    """A collector of the library that returns the families it was given."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


class Exposition:
    """The text of one server's metrics.

    :param labels: the labels that are added to the samples.
    :param labelled: how the names of metrics with these labels begin; metrics of the process have
        no labels.
    """

    def __init__(self, labels: Mapping[str, str], labelled: str) -> None:
        self._labelled = labelled
        self._names = tuple(labels)
        self._values = tuple(labels.values())
        self._process = ProcessCollector(registry=None)

    def writing(self, family: MetricFamily) -> Generator[bytes, None, None]:
        """Yield the text of a family in parts; a family without samples yields nothing."""
        for begin in range(0, len(family.samples), _PART_SAMPLES):
            text: bytes = generate_latest(GivenFamilies([
                self._library_family(family, family.samples[begin:begin + _PART_SAMPLES])]))
            # The type of a family may be written only once.
            yield text if not begin else b"".join(
                line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))

    def of_process(self) -> bytes:
        """The library's own metrics of a process: memory, time, open files."""
        text: bytes = generate_latest(GivenFamilies(self._process.collect()))
        return text

    def _library_family(
        self, family: MetricFamily, samples: Iterable[tuple[tuple[str, ...], float | Histogram]]
    ) -> Any:
        names, values = self._names, self._values
        if not family.name.startswith(self._labelled):
            names, values = (), ()
        kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily,
                "histogram": HistogramMetricFamily}[family.kind]
        library_family = kind(family.name, family.help, labels=(*family.labels, *names))
        for labels, value in samples:
            if isinstance(value, Histogram):
                library_family.add_metric((*labels, *values), _buckets(value), value.total)
            else:
                library_family.add_metric((*labels, *values), value)
        for sample in library_family.samples:
            for name in [name for name, value in sample.labels.items() if not value]:
                del sample.labels[name]
        return library_family


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """The upper bounds of the buckets, each with the number of values that are not larger."""
    ends = [*(str(float(end)) for end in histogram.ends), "+Inf"]
    return list(zip(ends, accumulate(histogram.counts), strict=True))
