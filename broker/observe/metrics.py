"""The metric families and samples of a scrape, for all parts of the broker.

A family is a Prometheus metric with its samples. The kernel and the plugins create families on
request (``collect_metrics``), from figures that they count anyway; the exporter decides how to
write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Histogram", "MetricFamily", "MetricKind", "single"]

MetricKind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """Counts measured values by classes of size.

    :param ends: the upper ends of the classes, inclusive and ascending; a class without an end
        follows.
    """

    __slots__ = ("counts", "ends", "total")

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends: tuple[float, ...] = ends
        #: The number of values in each class; the counts are not cumulative.
        self.counts: list[int] = [0] * (len(ends) + 1)
        #: The sum of all values.
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        at = 0
        for end in self.ends:
            if value <= end:
                break
            at += 1
        self.counts[at] += 1
        self.total += value


@dataclass(slots=True)
class MetricFamily:
    """One metric with its samples.

    :param name: the Prometheus name, with the unit at its end; the name of a counter has no
        ``_total``.
    :param kind: "counter", "gauge" or "histogram".
    :param help: one sentence.
    :param labels: the names of the labels that distinguish its samples; an empty label is left out.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    #: The values of the labels, and the value of the sample; a Histogram for that kind.
    samples: list[tuple[tuple[str, ...], float | Histogram]] = field(default_factory=list)

    def add(self, value: float | Histogram, *labels: str) -> None:
        """Add a sample; the labels are in the order of their names."""
        assert len(labels) == len(self.labels), self.name
        assert isinstance(value, Histogram) == (self.kind == "histogram"), self.name
        self.samples.append((labels, value))


def single(
    name: str, text: str, value: float | Histogram, kind: MetricKind = "gauge",
    labels: Mapping[str, str] | None = None,
) -> MetricFamily:
    """Return a family with a single sample.

    :param labels: the values of the labels by name; None for no labels.
    """
    labels = labels or {}
    family = MetricFamily(name, kind, text, tuple(labels))
    family.add(value, *labels.values())
    return family
