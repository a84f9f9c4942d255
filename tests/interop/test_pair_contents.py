"""Log, queues and index of a slave equal those of its master, in five kinds of pairs.

`python -m tests.long.interop test_pair_contents` sends 100,000 messages to each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.interop.pair_contents import Workload, queue_ends, same_answers
from tests.interop.test_replication import COMMON, FILE_SIZE, PairCase
from tests.plugins.ha.pair import identical, lone_broker, wait_until
from twistmq.plugins import ha

SHORT_COUNT, LONG_COUNT = 1500, 100_000
#: 100,000 messages fill so many files.
LONG_FILES = 200


class ContentsCase(PairCase):
    """What is done with each pair."""

    timeout = 3000

    def compare(
        self, master: tuple[str, Path], slave: tuple[str, Path], is_there: Callable[[], object],
        count: int,
    ) -> None:
        """Send to the master once the slave is there, and compare all that they say."""
        wait_until(is_there, "the slave is there", 60)
        workload = Workload(master[0], count)
        self.assertEqual(workload.codes, {0})

        def are_same() -> bool:
            ends = queue_ends(master[0])
            # Committed or rolled back, and delivered: what is sent later comes to the end.
            return ends == queue_ends(slave[0]) and self.end_of(master[0]) == self.end_of(slave[0])

        # Delayed messages come a second later.
        wait_until(lambda: queue_ends(master[0])["SCHEDULE_TOPIC_XXXX", 0] > 0, "delays", 60)
        wait_until(are_same, "the queues are the same", 120)
        end = self.end_of(slave[0])
        self.assertTrue(identical(master[1], slave[1], end))
        files = end // FILE_SIZE
        self.assertGreater(files, LONG_FILES if count == LONG_COUNT else 1)
        asked = same_answers(master[0], slave[0], workload.sent)
        self.assertGreater(asked, 200)
        print(f"{count:,} messages, {files} files of 1 MiB, {asked} asked by key and id: the same")


class BothForms:
    """The short form of a pair's tests, and the long one."""

    def contents(self, count: int) -> None:
        """Start the pair, and compare so many messages."""
        raise NotImplementedError

    def test_contents(self) -> None:
        """Log, queue ends, and answers by key and id are compared."""
        self.contents(SHORT_COUNT)

    def long_contents(self) -> None:
        """The same is done with 100,000 messages."""
        self.contents(LONG_COUNT)


class OurPairTests(BothForms, ContentsCase):
    """Both are ours."""

    def contents(self, count: int) -> None:
        master = self.our_master()
        slave = self.stack.enter_context(lone_broker(self.folder / "slave", {
            **COMMON, "namesrvAddr": master.namesrv_address, "brokerRole": "SLAVE",
            "brokerId": "1"}))
        self.compare((master.broker_address, self.folder / "ours/store/commitlog"),
                     (f"127.0.0.1:{slave.service.port}", slave.data / "commitlog"),
                     lambda: slave.plugin.follower.is_connected, count)


class OurMasterTests(BothForms, ContentsCase):
    """Our master with a slave of 5.3.3."""

    def contents(self, count: int) -> None:
        master = self.our_master()
        java = self.java_slave(master.namesrv_address)
        plugin = master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        self.compare((master.broker_address, self.folder / "ours/store/commitlog"),
                     (f"127.0.0.1:{java.broker_port}", java.home / "store/commitlog"),
                     lambda: plugin.slaves.links, count)


class OurMasterOldSlaveTests(OurMasterTests):
    """Our master with a slave of 4.9.4."""

    version = "4.9.4"


class OurSlaveTests(BothForms, ContentsCase):
    """Our slave of a master of 5.3.3."""

    def contents(self, count: int) -> None:
        java = self.java_master()
        slave = self.our_slave(java.namesrv_address)
        self.compare((f"127.0.0.1:{java.broker_port}", java.home / "store/commitlog"),
                     (f"127.0.0.1:{slave.service.port}", slave.data / "commitlog"),
                     lambda: slave.plugin.follower.is_connected, count)


class OurSlaveOldMasterTests(OurSlaveTests):
    """Our slave of a master of 4.9.4."""

    version = "4.9.4"
