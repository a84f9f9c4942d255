"""The requests of mqadmin about the whole broker."""

from __future__ import annotations

import os
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_put
from twistmq.broker import hookimpl
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.plugins.admin.runtime import readable_size
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode

#: Rows `mqadmin clusterList` reads; it fails on a missing one or on text where a number belongs.
CLUSTER_LIST_NUMBERS = (
    "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
    "commitLogDiskRatio", "timerReadBehind", "timerOffsetBehind", "timerCongestNum",
    "timerEnqueueTps", "timerDequeueTps", "msgPutTotalTodayNow", "msgPutTotalTodayMorning",
    "msgPutTotalYesterdayMorning", "msgGetTotalTodayNow", "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
)


class ReadableSizeTests(SynchronousTestCase):
    """Sizes in a readable form."""

    def test_sizes_have_one_decimal_of_the_largest_unit(self) -> None:
        """A size has one decimal of the largest unit that fits, as Apache writes it."""
        cases = ((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
                 (1024**2 - 1, "1024.0 KiB"), (1024**2, "1.0 MiB"), (5 * 1024**3, "5.0 GiB"),
                 (3 * 1024**4, "3.0 TiB"), (2**63 - 1, "8.0 EiB"))
        for size, text in cases:
            self.assertEqual(readable_size(size), text, msg=str(size))


class RuntimeTableTests(SynchronousTestCase):
    """The request 28."""

    def table(self, box: KernelBox) -> dict[str, str]:
        return KVTable.decode(box.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    def box(self, *plugins: tuple[str, object]) -> KernelBox:
        box = KernelBox([("admin", admin.Plugin), *plugins])
        self.addCleanup(box.stop)
        return box

    def test_what_tools_read(self) -> None:
        """The rows of clusterList are there and are numbers, on an empty store as well."""
        box = self.box()
        for _ in range(2):
            table = self.table(box)
            for name in CLUSTER_LIST_NUMBERS:
                float(table[name])
            self.assertEqual(table["brokerActive"], "true")
            self.assertEqual(table["brokerVersionDesc"], "V5_3_3")
            self.assertEqual(table["brokerVersion"], "479")
            box.kernel.append([message()])

    def test_the_runtime_table_counts_messages(self) -> None:
        """The table counts messages and requests."""
        box = self.box()
        box.kernel.append([message()])
        count_put(box.kernel.stats, {"TopicTest": (1, 10)})
        box.kernel.stats.record_day()
        count_put(box.kernel.stats, {"TopicTest": (2, 10)})
        box.kernel.stats.messages_got("g", "TopicTest", 3, 10)
        table = self.table(box)
        self.assertEqual(table["msgPutTotalTodayMorning"], "1")
        self.assertEqual(table["msgPutTotalTodayNow"], "3")
        self.assertEqual(table["msgGetTotalTodayNow"], "3")
        self.assertEqual(table["earliestMessageTimeStamp"], str(box.now_ms))
        self.assertNotEqual(table["remainHowManyDataToFlush"], "0 B")

    def test_a_slaves_runtime_table_leaves_out_the_masters_rows(self) -> None:
        """The table of a slave has no rows about the work of a master."""
        box = self.box()
        box.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.table(box)["brokerActive"], "false")

    def test_plugins_add_rows(self) -> None:
        """Another plugin's rows are there and replace the broker's."""
        @hookimpl
        def add_runtime_info() -> dict[str, str]:
            return {"timerReadBehind": "7", "mine": "8"}

        table = self.table(self.box(("mine", SimpleNamespace(add_runtime_info=add_runtime_info))))
        self.assertEqual((table["timerReadBehind"], table["mine"]), ("7", "8"))

    def test_disk_space(self) -> None:
        """The table has the size of the store's disk if the store has one."""
        root = self.mktemp()
        box = KernelBox([("admin", admin.Plugin)], {"storePathRootDir": root})
        self.addCleanup(box.stop)
        self.assertNotIn("commitLogDirCapacity", self.table(box))
        os.mkdir(root)
        self.assertRegex(self.table(box)["commitLogDirCapacity"],
                         r"^Total : [\d.]+ \wiB, Free : [\d.]+ \wi?B\.$")


class TransientStorePoolTests(SynchronousTestCase):
    """The rows of 28 about Apache's pool of buffers, which this broker does not have."""

    def test_no_pool(self) -> None:
        """The rows equal the rows of an Apache broker without a pool, whatever the settings are."""
        settings = {"transientStorePoolEnable": "true", "transientStorePoolSize": "7"}
        for asked in ({}, settings):
            box = KernelBox([("admin", admin.Plugin)], asked)
            self.addCleanup(box.stop)
            box.kernel.append([message("T")])
            rows = KVTable.decode(box.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
            self.assertEqual(rows["remainTransientStoreBufferNumbs"], "2147483647")
            self.assertNotIn("remainHowManyDataToCommit", rows)
