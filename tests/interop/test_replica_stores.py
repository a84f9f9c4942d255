"""Stores of slaves, ours and Apache's, stopped and killed, are opened by the other's master."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.contents import Contents
from tests.interop.exchange import FILE_SETTINGS, Exchange, fill
from tests.interop.kept import kept
from tests.interop.replicas import Group, Replica, same_log
from tests.interop.servers import free_port, wait_until
from twistmq.broker.testing import RawClient

#: Of each of two fillings; offsets that are committed then are the same in both.
COUNT: Final = 600
#: One record in so many is looked for by key and by id.
EVERY: Final = 20
#: How slaves are ended.
ENDS: Final = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}


class Stores:
    """The stores of the slaves of one master."""

    def __init__(self, folder: Path, versions: Sequence[str], ends: Sequence[str]) -> None:
        self.folder = folder
        #: All that the master had, by how the slaves were ended.
        self.contents: dict[str, Contents] = {}
        kinds = {"ours": "ours", **{f"java-{version}": version for version in versions}}
        with Group(folder / "group") as group:
            master = group.ours("master", **FILE_SETTINGS, **{"ha.send_all": "true"})
            slaves = {name: self._slave(group, name, kind, str(number + 1))
                      for number, (name, kind) in enumerate(kinds.items())}
            master.start()
            for how in ends:
                with RawClient(master.address, 60) as client:
                    fill(client, COUNT, len(self.contents) * COUNT, "plain")
                    self.contents[how] = Contents.read(client, EVERY)
                for slave in slaves.values():
                    slave.start()
                same_log(master, slaves.values(), 300)
                for name, slave in slaves.items():
                    self._wait_for_tables(slave, name)
                    slave.end(ENDS[how])
                    shutil.copytree(slave.log_folder.parent, folder / f"{name}-{how}/store")

    @staticmethod
    def _slave(group: Group, name: str, kind: str, broker_id: str) -> Replica:
        settings = {**FILE_SETTINGS, "brokerRole": "SLAVE", "brokerId": broker_id}
        return (group.ours(name, **settings) if kind == "ours"
                else group.apache(name, kind, **settings))

    @staticmethod
    def _wait_for_tables(slave: Replica, name: str) -> None:
        """Wait until a slave has saved its master's tables.

        Apache's empties a file before it writes it. Only from the second time on is there a backup.
        """
        folder = slave.log_folder.parent / "config"
        words = {"topics.json": "ExchangeA", "subscriptionGroup.json": "exchange_group",
                 "consumerOffset.json": "ExchangeA@exchange_group"}
        if name == "java-5.3.3":
            # The last table of a round; 4.9.4 has none.
            words["messageRequestMode.json"] = "{"

        def are_saved() -> bool:
            try:
                return all(word in (folder / table).read_text()
                           for table, word in words.items())
            except FileNotFoundError:
                return False

        wait_until(f"{folder} has the tables", are_saved, 200)


def make_killed_stores(folder: Path, _: ExitStack) -> Stores:
    """Have slaves copy all that a master has, and kill them."""
    return Stores(folder, ["5.3.3"], ["killed"])


def make_all_stores(folder: Path, _: ExitStack) -> Stores:
    """Have slaves of each version copy all that a master has, stop them, and later kill them."""
    return Stores(folder, ["5.3.3", "4.9.4"], ["stopped", "killed"])


class StoreCase(JavaTestCase):
    """Stores of slaves that brokers open in turn."""

    timeout = 900
    make_stores = staticmethod(make_killed_stores)

    def pass_on(self, name: str, how: str, *turns: str) -> None:
        """Let brokers take turns over the store of a slave.

        Each finds all that the master had, and ``twistmq store check`` no fault. The last one sends
        no more, those before are ended as the slave was.
        """
        stores = kept(self, self.make_stores)
        killed = how == "killed"
        # The other version begins with the slave's store as well.
        folder = self.folder / how / name
        shutil.copytree(stores.folder / f"{name}-{how}", folder)
        exchange = Exchange(folder, free_port(), self.version, every=EVERY, check=True,
                            killed=killed)
        exchange.check_store(f"of {name}, {how}")
        contents = stores.contents[how]
        least = len(contents.records)
        for number, whose in enumerate(turns):
            is_last = number == len(turns) - 1
            contents = exchange.turn(whose, killed, contents, 0 if is_last else COUNT)
            least += 0 if is_last else COUNT
            self.assertGreaterEqual(len(contents.records), least)


class StoreTests(StoreCase):
    """With masters of 5.3.3, of slaves that were killed; each broker after them is killed too."""

    def test_the_store_of_our_killed_slave(self) -> None:
        """Apache's broker opens it, and sends; ours opens that."""
        self.pass_on("ours", "killed", "apache", "ours")

    def test_the_store_of_apaches_killed_slave(self) -> None:
        """Ours opens it, and sends; Apache's opens that."""
        self.pass_on(f"java-{self.version}", "killed", "ours", "apache")


class StoppedStoreTests(StoreCase):
    """The same with stops: `python -m tests.long.interop test_replica_stores`."""

    make_stores = staticmethod(make_all_stores)

    def long_our_slave(self) -> None:
        """Apache's broker opens it, sends, and is stopped; ours opens that."""
        self.pass_on("ours", "stopped", "apache", "ours")

    def long_apaches_slave(self) -> None:
        """Ours opens it, sends, and is stopped; Apache's opens that."""
        self.pass_on(f"java-{self.version}", "stopped", "ours", "apache")


class OldStoreTests(StoreCase):
    """With masters of 4.9.4: `python -m tests.long.interop test_replica_stores`."""

    version = "4.9.4"
    make_stores = staticmethod(make_all_stores)

    def long_our_slave(self) -> None:
        """It is stopped, and killed."""
        self.pass_on("ours", "stopped", "apache", "ours")
        self.pass_on("ours", "killed", "apache", "ours")

    def long_apaches_slave(self) -> None:
        """It is stopped, and killed."""
        self.pass_on(f"java-{self.version}", "stopped", "ours", "apache")
        self.pass_on(f"java-{self.version}", "killed", "ours", "apache")
