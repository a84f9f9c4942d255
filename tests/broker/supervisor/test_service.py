"""The service of several brokers, with simulated processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.supervisor.test_broker_process import BOOT, SpawningClock
from twistmq.broker.edge import boot
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.supervisor.child_command import ChildCommand
from twistmq.broker.supervisor.members import members_of
from twistmq.broker.supervisor.service import SupervisorService


class SupervisorServiceTests(SynchronousTestCase):
    """A service of two brokers."""

    def setUp(self) -> None:
        self.clock = SpawningClock()
        settings = boot.broker_settings(None, {
            "brokerName": "b", "storePathRootDir": self.mktemp()})
        self.service = SupervisorService(
            self.clock, settings, members_of(settings, 2), ChildCommand(2, None, {}), Hooks([]),
            None, lambda *line: None)
        self.service.startService()

    def test_it_has_started_when_all_answer(self) -> None:
        """The service has started when all brokers are ready."""
        first, second = self.clock.spawned
        first.protocol.childDataReceived(1, BOOT)
        self.assertNoResult(self.service.started)
        second.protocol.childDataReceived(1, BOOT)
        self.assertIs(self.successResultOf(self.service.started), self.service)

    def test_a_broker_that_ends_with_0_before_it_answers_fails_the_start(self) -> None:
        """A broker that ends with status 0 before it is ready makes the start fail."""
        self.clock.spawned[1].end(0)
        error = self.failureResultOf(self.service.started, boot.StartRefused).value
        self.assertEqual((error.status, str(error)), (
            255, "the broker b-1 did not start: it ended with status 0"))

    def test_a_start_without_a_process_fails(self) -> None:
        """The error gives the reason."""
        self.clock.fault = OSError(11, "Resource temporarily unavailable")
        settings = self.service.settings
        service = SupervisorService(
            self.clock, settings, members_of(settings, 2), ChildCommand(2, None, {}), Hooks([]),
            None, lambda *line: None)
        service.startService()
        error = self.failureResultOf(service.started, boot.StartRefused).value
        self.assertIn("no process can be created for it", str(error))

    def test_the_name_server_of_the_process_is_told_once(self) -> None:
        """The user may have named it as well, by another address of this host."""
        settings = boot.up_settings(self.mktemp(), None, {
            "brokerName": "b", "bindAddress": "0.0.0.0", "brokerIP1": "10.0.0.1",
            "namesrvAddr": "localhost:77;10.0.0.1:77;127.0.0.1:77;10.0.0.2:77"})
        name_server: Any = SimpleNamespace(
            settings=settings, port=77, started=succeed(None), startService=lambda: None)
        service = SupervisorService(
            self.clock, settings, members_of(settings, 1), ChildCommand(1, None, {}), Hooks([]),
            name_server, lambda *line: None)
        service.startService()
        self.assertIn("namesrvAddr=127.0.0.1:77;10.0.0.2:77", self.clock.spawned[-1].arguments)
