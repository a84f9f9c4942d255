"""Files that are joined from rows, which are encoded again only when they change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.request import consumer_offset, subscription_group, topic_config
from twistmq.broker.request.persisted_table import FileRows, with_rows
from twistmq.broker.testing.kernel import KernelBox
from twistmq.protocol.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.json_writer import encode_pretty_row


class _Offsets(Body):
    """A file with one map between other fields."""

    table: dict[str, dict[int, int]]
    another: str = "x"
    zero: int = 0


class FileRowsTests(SynchronousTestCase):
    """The class FileRows."""

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
        """A row is encoded once, and again when it changes; a deleted one is removed."""
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
        self.assertEqual(self.encoded, ["k7", "k8"])
        rows = [self.table[f"k{number}"] for number in range(100) if number != 8]
        self.assertEqual(self.rows.rows(), rows)
        self.assertEqual(self.rows.rows(but={"k0", "k7"}), rows[1:7] + rows[8:])

    def test_changes_while_it_pauses(self) -> None:
        """They are encoded before the end."""
        for number in range(50):
            self.put(f"k{number}", b"1")
        writing = self.rows.write()
        next(writing)
        self.put("k0", b"2")
        self.put("new", b"3")
        for _ in writing:
            continue
        self.assertEqual(self.rows.rows(), [b"2", *[b"1"] * 49, b"3"])
        self.assertEqual(self.encoded.count("k0"), 2)

    def test_cost_of_many_rows(self) -> None:
        """Four times the rows take about four times as long, and not sixteen times."""
        def prepare(count: int) -> Callable[[], object]:
            rows = FileRows(lambda key: b"1")
            for number in range(count):
                rows.changed(f"k{number}")
            return lambda: deque(rows.write(), 0)

        self.assertLess(growth(prepare, 15_000), GROWTH_MAX)

    def test_row_that_fails_is_still_to_be_written(self) -> None:
        """The next save encodes it."""
        self.put("k", b"1")
        self.put("other", b"1")
        failing = FileRows(lambda key: self.table[key])
        failing.changed("gone")
        failing.changed("k")
        self.assertRaises(KeyError, list, failing.write())
        self.table["gone"] = b"2"
        for _ in failing.write():
            continue
        self.assertEqual(sorted(failing.rows()), [b"1", b"2"])

    def test_rows_as_a_file_has_them_are_not_written_again(self) -> None:
        """Loaded rows are not encoded again until they change."""
        self.put("own", b"1")
        self.put("k0", b"old")
        table = {f"k{number}": {0: number} for number in range(3)}
        data = _Offsets(table).encode_pretty()
        self.rows.loaded(data, "table", table)
        for _ in self.rows.write():
            continue
        self.assertEqual(self.encoded, ["own"])
        self.assertEqual(sorted(self.rows.rows()),
                         sorted([b"1", *(encode_pretty_row(*row) for row in table.items())]))
        self.put("k1", b"new")
        for _ in self.rows.write():
            continue
        self.assertEqual(self.encoded, ["own", "k1"])

    def test_loaded_in_another_form(self) -> None:
        """All rows are encoded again."""
        self.rows.loaded(b'{"table":{"a":{0:1},"b":{}}}', "table", ("a", "b"))
        self.table.update(a=b"1", b=b"2")
        for _ in self.rows.write():
            continue
        self.assertEqual(self.rows.rows(), [b"1", b"2"])


class TableTests(SynchronousTestCase):
    """The tables of the kernel after a restart."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(lambda: self.box.stop())

    def test_rows_that_were_loaded_are_not_changed(self) -> None:
        """The first save after a restart writes the rows that changed since, in all tables."""
        def change(kernel: Kernel, number: int) -> None:
            kernel.consumer_offset.commit("", "g", f"T{number}", 0, number)
            kernel.topic_config.create_in_send_back(f"T{number}", 1, 6, 0)
            kernel.subscription_group.find(f"g{number}")

        for number in range(50):
            change(self.box.kernel, number)
        self.box.stop()
        before = self.files()
        self.box = KernelBox(disk=self.box.disk)
        encoded: list[str] = []
        for module in (consumer_offset, topic_config, subscription_group):
            self.patch(module, "encode_pretty_row", lambda key, row: encoded.append(key) or (
                encode_pretty_row(key, row)))
        self.box.kernel.persist()
        self.assertEqual((self.files(), encoded), (before, []))
        change(self.box.kernel, 7)
        change(self.box.kernel, 50)
        self.box.kernel.persist()
        self.assertEqual(sorted(encoded), ["T50", "T50@g", "T7@g", "g", "g50"])
        after = self.files()
        for data, table in zip(after, (ConsumerOffsetSerializeWrapper, TopicConfigSerializeWrapper,
                                       SubscriptionGroupWrapper), strict=True):
            self.assertEqual(data, table.decode_saved(data).encode_pretty())

    def files(self) -> list[bytes]:
        return [self.box.disk.read_file(f"/store/config/{name}.json")
                for name in ("consumerOffset", "topics", "subscriptionGroup")]


class WithRowsTests(SynchronousTestCase):
    """The function with_rows."""

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
