"""The families and samples of a scrape, from whichever part of the broker.

A family is a name of Prometheus's with its samples. The kernel and plugins make them when they are
asked (``collect_metrics``), from what they count anyway; how they are written is the exporter's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Histogram", "MetricFamily", "MetricKind", "single"]

MetricKind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """How many of what was measured were how large.

    :param ends: upper ends of the classes, inclusive, ascending; one without an end follows.
    """

    __slots__ = ("counts", "ends", "total")

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends: tuple[float, ...] = ends
        #: By class, those of the classes before not counted again.
        self.counts: list[int] = [0] * (len(ends) + 1)
        #: The sum of all.
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one."""
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

    :param name: as Prometheus has it, the unit last; a counter's without ``_total``.
    :param kind: "counter", "gauge" or "histogram".
    :param help: one sentence.
    :param labels: names of the labels that tell its samples apart; an empty label is left out.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    #: Values of the labels, and the value; a Histogram where that is the kind.
    samples: list[tuple[tuple[str, ...], float | Histogram]] = field(default_factory=list)

    def add(self, value: float | Histogram, *labels: str) -> None:
        """Add a sample; the labels in the order of their names."""
        assert len(labels) == len(self.labels), self.name
        assert isinstance(value, Histogram) == (self.kind == "histogram"), self.name
        self.samples.append((labels, value))


def single(
    name: str, text: str, value: float | Histogram, kind: MetricKind = "gauge",
    labels: Mapping[str, str] | None = None,
) -> MetricFamily:
    """A family of one sample.

    :param labels: values by name; None for no labels.
    """
    labels = labels or {}
    family = MetricFamily(name, kind, text, tuple(labels))
    family.add(value, *labels.values())
    return family
