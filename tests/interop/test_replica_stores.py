"""The store of a slave of ours, opened by Apache's broker as a master, and by ours again."""

from __future__ import annotations

from tests.interop.clients import JavaTestCase
from tests.interop.contents import Contents
from tests.interop.exchange import FILE_SETTINGS, Exchange, fill
from tests.interop.replicas import Group, Replica, same_log
from tests.interop.servers import free_port, wait_until
from twistmq.broker.testing import RawClient

COUNT = 1200
#: One record in so many is looked for by key and by id.
EVERY = 20


class StoreTests(JavaTestCase):
    """A slave copies all that its master has, and its store is passed on, with 5.3.3."""

    timeout = 500

    def test_the_store_of_our_slave(self) -> None:
        """Apache's broker opens it, sends, and is stopped; ours opens that."""
        contents = self.copied()
        exchange = Exchange(self.folder / "slave", free_port(), self.version, every=EVERY,
                            check=True)
        exchange.check_store("of the slave")
        second = exchange.turn("apache", False, contents, COUNT)
        self.assertGreaterEqual(len(second.records), len(contents.records) + COUNT)
        exchange.turn("ours", False, second, 0)

    def copied(self) -> Contents:
        """Have a slave copy all that a master of ours has; :returns: what that is."""
        with Group(self.folder) as group:
            master = group.ours("master", **FILE_SETTINGS)
            slave = group.ours("slave", **FILE_SETTINGS, brokerRole="SLAVE", brokerId="1")
            master.start()
            with RawClient(master.address, 60) as client:
                fill(client, COUNT, 0, "plain")
                contents = Contents.read(client, EVERY)
            slave.start()
            same_log(master, [slave])
            self.wait_for_tables(slave)
            slave.end()
        return contents

    def wait_for_tables(self, slave: Replica) -> None:
        """Wait until a slave has saved its master's tables."""
        folder = slave.log_folder.parent / "config"
        words = {"topics.json": "ExchangeA", "subscriptionGroup.json": "exchange_group",
                 "consumerOffset.json": "ExchangeA@exchange_group"}
        wait_until("the tables are saved", lambda: all(
            (folder / name).exists() and word in (folder / name).read_text()
            for name, word in words.items()), 200)
