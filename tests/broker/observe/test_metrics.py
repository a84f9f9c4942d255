"""Families and histograms."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.observe.metrics import Histogram, MetricFamily, single


class HistogramTests(SynchronousTestCase):
    """The classes of a histogram."""

    def test_an_upper_end_belongs_to_its_class(self) -> None:
        """A value at the upper end belongs to the class; larger values belong to the last one."""
        histogram = Histogram((1, 10))
        for value in (0, 1, 1.5, 10, 10.5, 1000):
            histogram.add(value)
        self.assertEqual(histogram.counts, [2, 2, 2])
        self.assertEqual(histogram.total, 1023)


class FamilyTests(SynchronousTestCase):
    """The samples that may be added."""

    def test_labels_and_kinds(self) -> None:
        """A value for each label, histograms to histograms only."""
        family = MetricFamily("f", "gauge", "F.", ("a", "b"))
        family.add(1, "x", "y")
        self.assertEqual(family.samples, [(("x", "y"), 1)])
        self.assertRaises(AssertionError, family.add, 1, "x")
        self.assertRaises(AssertionError, family.add, Histogram((1,)), "x", "y")
        self.assertRaises(AssertionError, MetricFamily("h", "histogram", "H.").add, 1)

    def test_a_single_sample_has_its_labels(self) -> None:
        """A single sample has the labels that are given."""
        self.assertEqual(single("f", "F.", 2).samples, [((), 2)])
        family = single("f", "F.", 3, "counter", {"a": "x", "b": "y"})
        self.assertEqual((family.name, family.help, family.kind), ("f", "F.", "counter"))
        self.assertEqual((family.labels, family.samples), (("a", "b"), [(("x", "y"), 3)]))
