"""The doctor asks a running broker about its health."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.testing import running_broker
from twistmq.tools.doctor.findings import Level
from twistmq.tools.doctor.health_checks import health_findings


def settings_for(address: str) -> Settings:
    """Return the settings of a broker that listens at a port."""
    return boot.broker_settings(None, {
        "bindAddress": "127.0.0.1", "listenPort": address.rpartition(":")[2]})


class HealthTests(SynchronousTestCase):
    """Each fault is a finding with the text of the broker."""

    def test_a_broker_that_is_well_and_one_that_is_not(self) -> None:
        """Both brokers are running."""
        with running_broker() as broker:
            settings = settings_for(broker.broker_address)
            [finding] = health_findings(settings)
            self.assertIs(finding.level, Level.OK)
            broker.kernel.health_checks["replication"] = lambda: "no slave"
            [finding] = health_findings(settings)
            self.assertIs(finding.level, Level.BROKEN)
            self.assertEqual(finding.text, "replication: no slave")

    def test_what_does_not_answer_is_not_judged(self) -> None:
        """The response of its port is another check."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.assertEqual(
                list(health_findings(settings_for(f":{closed.getsockname()[1]}"))), [])
