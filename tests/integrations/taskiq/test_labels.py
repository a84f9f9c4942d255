"""The labels of a task as parts of its message."""

from __future__ import annotations

import time

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.taskiq.labels import SendLabels, send_labels


class LabelTests(SynchronousTestCase):
    """Labels as Taskiq passes them to a broker, which are texts."""

    def test_a_task_without_labels(self) -> None:
        """The id of the task is the only key, if it can be a key."""
        self.assertEqual(send_labels("t1", {"other": "x"}), SendLabels(keys=("t1",)))
        self.assertEqual(send_labels("no key", {}), SendLabels())

    def test_all_labels(self) -> None:
        """A delay of 0 counts as no delay."""
        begin = time.time()
        labels = send_labels("t1", {
            "queue_name": "q", "delay": "2.5", "priority": "3", "message_keys": " a  b ",
            "message_tag": "eu"})
        self.assertGreaterEqual(labels.due or 0, begin + 2.5)
        self.assertEqual((labels.queue, labels.priority, labels.keys, labels.tag),
                         ("q", 3, ("t1", "a", "b"), "eu"))
        self.assertIsNone(send_labels("t1", {"delay": "0"}).due)

    def test_wrong_numbers_are_named(self) -> None:
        """Each error contains the label and its value."""
        wrong: tuple[dict[str, object], ...] = (
            {"delay": "soon"}, {"delay": "-1"}, {"delay": "inf"}, {"delay": "nan"},
            {"priority": "1.5"}, {"priority": "-2"}, {"priority": float("inf")},
            {"priority": "9" * 400}, {"delay": 10**400})
        for labels in wrong:
            (name, value), = labels.items()
            error = self.assertRaises(ValueError, send_labels, "t1", labels)
            self.assertEqual(str(error), f"label {name} is {value!r}: give a number of at least 0")
