"""The checks of a master and its slave."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot, services
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.pair_checks import pair_findings

SIZE = "1048576"


def findings(*, running: bool = False, **settings: str) -> list[Finding]:
    """The findings about a broker with these settings."""
    values = boot.broker_settings(None, {
        "brokerName": "pair", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
        "mappedFileSizeCommitLog": SIZE, **settings})
    services.load_hooks(values)
    return list(pair_findings(values, running=running))


class MasterTests(SynchronousTestCase):
    """A master alone."""

    def test_a_lone_broker(self) -> None:
        """There is no finding."""
        self.assertEqual(findings(), [])

    def test_a_master_that_waits_for_no_slave(self) -> None:
        """The finding has the setting that changes it."""
        [finding] = findings(brokerRole="SYNC_MASTER")
        self.assertIs(finding.level, Level.WARN)
        self.assertIn("inSyncReplicas=2", finding.mend)
        self.assertEqual(findings(brokerRole="SYNC_MASTER", inSyncReplicas="2"), [])

    def test_an_address_that_no_slave_reaches(self) -> None:
        """The address means any address, or nothing listens there."""
        [finding] = findings(brokerRole="SYNC_MASTER", inSyncReplicas="2", brokerIP2="0.0.0.0")
        self.assertIs(finding.level, Level.BROKEN)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = str(closed.getsockname()[1])
            [finding] = findings(running=True, brokerRole="SYNC_MASTER", inSyncReplicas="2",
                                 haListenPort=port)
            self.assertIs(finding.level, Level.BROKEN)
            self.assertIn(f"brokerIP2=127.0.0.1 port {port}, does not answer", finding.text)
            closed.listen()
            [finding] = findings(running=True, brokerRole="SYNC_MASTER", inSyncReplicas="2",
                                 haListenPort=port)
            self.assertIs(finding.level, Level.OK)


class SlaveTests(SynchronousTestCase):
    """A slave beside a running master."""

    def of_slave(self, master: RunningBroker, **settings: str) -> list[Finding]:
        return findings(brokerRole="SLAVE", brokerId="1", namesrvAddr=master.namesrv_address,
                        **settings)

    def test_a_pair_that_is_well(self) -> None:
        """A slave whose files have the master's size, and whose master answers, has no findings."""
        with running_broker({"brokerName": "pair", "brokerIP2": "127.0.0.1", "haListenPort": "0",
                             "mappedFileSizeCommitLog": SIZE}) as master:
            port = str(master.kernel.identity.ha_port)
            found = self.of_slave(master, haMasterAddress=f"127.0.0.1:{port}")
            self.assertEqual([each.level for each in found], [Level.OK] * 2)

    def test_another_file_size_and_an_address_without_a_master(self) -> None:
        """Each is a finding with its cause."""
        settings = {"brokerName": "pair", "mappedFileSizeCommitLog": "65536",
                    "brokerIP2": "127.0.0.1", "haListenPort": "0"}
        with running_broker(settings) as master, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            size, port = self.of_slave(
                master, haMasterAddress=f"127.0.0.1:{closed.getsockname()[1]}")
        self.assertEqual([size.level, port.level], [Level.BROKEN] * 2)
        self.assertIn("start the slave with mappedFileSizeCommitLog=65536", size.mend)
        self.assertIn("does not answer", port.text)

    def test_a_master_that_is_not_there(self) -> None:
        """A missing master is a warning and not an error, because a slave waits for its master."""
        with running_broker({"brokerName": "other"}) as other:
            [finding] = self.of_slave(other)
        self.assertIs(finding.level, Level.WARN)
        self.assertIn("no name server knows a master pair", finding.text)
        [finding] = self.of_slave(other)
        self.assertIs(finding.level, Level.WARN)
        self.assertIn("the master cannot be asked", finding.text)
