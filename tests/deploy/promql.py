"""The metrics and labels that a PromQL expression names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import promql_parser

__all__ = ["Reading", "read_expression"]


@dataclass
class Reading:
    """What an expression reads.

    :param labels: the labels that it names, by the metric that must have them.
    :param output: the labels that its result certainly can have; None: all of its metrics.
    """

    labels: dict[str, set[str]] = field(default_factory=dict)
    output: set[str] | None = None

    def add(self, other: Reading) -> None:
        for name, labels in other.labels.items():
            self.labels.setdefault(name, set()).update(labels)

    def require(self, labels: set[str]) -> None:
        for each in self.labels.values():
            each |= labels


def read_expression(text: str) -> Reading:
    """Read an expression; :raises ValueError: when it is not PromQL."""
    return _read(promql_parser.parse(text))


def _read(node: Any) -> Reading:
    kind = type(node).__name__
    if kind == "VectorSelector":
        assert node.name, "each selector names its metric"
        return Reading({node.name: {matcher.name for matcher in node.matchers.matchers}})
    if kind == "MatrixSelector":
        return _read(node.vector_selector)
    if kind in ("NumberLiteral", "StringLiteral"):
        return Reading()
    if kind in ("ParenExpr", "UnaryExpr"):
        return _read(node.expr)
    if kind == "Call":
        reading = Reading()
        for each in node.args:
            part = _read(each)
            reading.add(part)
            reading.output = part.output if part.labels else reading.output
        return reading
    if kind == "AggregateExpr":
        reading = _read(node.expr)
        keeps_labels = str(node.op) in ("topk", "bottomk")
        labels = set(node.modifier.labels) if node.modifier is not None else set()
        reading.require(labels)
        if not keeps_labels:
            reading.output = labels
        return reading
    assert kind == "BinaryExpr", kind
    reading, right = _read(node.lhs), _read(node.rhs)
    output = reading.output if reading.labels else right.output
    reading.add(right)
    matching = node.modifier.matching if node.modifier is not None else None
    if matching is not None:
        reading.require(set(matching.labels))
    reading.output = output
    return reading
