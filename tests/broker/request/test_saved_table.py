"""Files put together of rows that are kept, and only written anew when they changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.request.saved_table import FileRows, with_rows
from twistmq.broker.wire.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from twistmq.broker.wire.json_writer import encode_pretty_row


class FileRowsTests(SynchronousTestCase):
    """FileRows."""

    def setUp(self) -> None:
        self.table: dict[str, bytes] = {}
        self.encoded: list[str] = []
        self.rows = FileRows(self.encode)

    def encode(self, key: str) -> bytes | None:
        self.encoded.append(key)
        return self.table.get(key)

    def put(self, key: str, row: bytes) -> None:
        self.table[key] = row
        self.rows.changed(key)

    def test_only_what_changed(self) -> None:
        """A row is written once, and again when it changed; one that is gone is forgotten."""
        for number in range(100):
            self.put(f"k{number}", b"1")
        self.assertGreater(len(list(self.rows.write())), 2)
        self.assertEqual(len(self.encoded), 100)
        self.encoded.clear()
        self.put("k7", b"2")
        del self.table["k8"]
        self.rows.changed("k8")
        for _ in self.rows.write():
            continue
        self.assertEqual(sorted(self.encoded), ["k7", "k8"])
        self.assertEqual(self.rows.in_order(self.table),
                         [self.table[f"k{number}"] for number in range(100) if number != 8])

    def test_changes_while_it_pauses(self) -> None:
        """They are written before the end."""
        for number in range(50):
            self.put(f"k{number}", b"1")
        writing = self.rows.write()
        next(writing)
        self.put("k49", b"2")
        self.put("new", b"3")
        for _ in writing:
            continue
        self.assertEqual(self.rows.in_order(["k49", "new"]), [b"2", b"3"])
        self.assertEqual(self.encoded.count("k49"), 2)

    def test_cost_of_many_rows(self) -> None:
        """Four times the rows take about four times as long, not sixteen times."""
        def prepare(count: int) -> Callable[[], object]:
            rows = FileRows(lambda key: b"1")
            for number in range(count):
                rows.changed(f"k{number}")
            return lambda: deque(rows.write(), 0)

        self.assertLess(growth(prepare, 15_000), GROWTH_MAX)

    def test_row_that_fails_is_still_to_be_written(self) -> None:
        """So the next save has it."""
        self.put("k", b"1")
        self.put("other", b"1")
        failing = FileRows(lambda key: self.table[key])
        failing.changed("gone")
        failing.changed("k")
        self.assertRaises(KeyError, list, failing.write())
        self.table["gone"] = b"2"
        for _ in failing.write():
            continue
        self.assertEqual(failing.in_order(["gone", "k"]), [b"2", b"1"])


class WithRowsTests(SynchronousTestCase):
    """with_rows."""

    def test_as_the_whole_is_written(self) -> None:
        """With rows and without, for one map and for two."""
        for count in (0, 1, 3):
            groups = {f"G{n}": SubscriptionGroupConfig(f"G{n}") for n in range(count)}
            forbidden = {"G0": {"T": 4}, "G1": {"U": 5, "V": 6}}
            whole = SubscriptionGroupWrapper(groups, forbidden_table=forbidden)
            frame = SubscriptionGroupWrapper({}, forbidden_table={}).encode_pretty()
            self.assertEqual(with_rows(frame, {
                "subscriptionGroupTable": [encode_pretty_row(*row) for row in groups.items()],
                "forbiddenTable": [encode_pretty_row(*row) for row in forbidden.items()],
            }), whole.encode_pretty(), msg=count)
