"""Groups that are far behind are stopped if a setting asks for it."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import cold_consumer
from twistmq.plugins.cold_consumer import SWITCH, THRESHOLD
from twistmq.protocol.codes import RequestCode, ResponseCode


class ColdConsumerTests(SynchronousTestCase):
    """A topic of a hundred messages with a kilobyte each, and groups that read it."""

    def make(self, **settings: str) -> None:
        self.box = KernelBox([("cold_consumer", cold_consumer.Plugin)], settings)
        self.addCleanup(self.box.stop)
        for _ in range(100):
            self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x" * 1024)

    def join(self, group: str) -> Peer:
        """Register a member of a group."""
        peer = self.box.peer()
        self.box.ask(RequestCode.HEART_BEAT, None, json.dumps({
            "clientID": group, "producerDataSet": [], "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}]}).encode(), peer)
        return peer

    def pull(self, group: str, offset: int) -> int:
        return self.box.ask(RequestCode.PULL_MESSAGE,
                            pull_header("T", offset, group=group, max_count=1)).code

    def protect(self) -> None:
        """Run the task that runs every three minutes."""
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "limit groups with a large lag"]
        self.assertEqual(task.period_ms, 180_000)
        task.run(self.box.now_ms)
        self.box.kernel.slices.finish()

    def enabled(self, *groups: str) -> list[bool]:
        table = self.box.kernel.subscription_group.table
        return [table[group].consume_enable for group in groups]

    def test_far_behind(self) -> None:
        """A group beyond the threshold gets no more messages; other groups do."""
        self.make(**{SWITCH: "true", THRESHOLD: "50000"})
        self.join("slow")
        self.join("quick")
        self.assertEqual([self.pull("slow", 0), self.pull("quick", 80)], [0, 0])
        self.protect()
        self.assertEqual(self.enabled("slow", "quick"), [False, True])
        self.assertEqual([self.pull("slow", 1), self.pull("quick", 81)],
                         [ResponseCode.NO_PERMISSION, 0])

    def test_a_stopped_group_stays_stopped_over_a_restart(self) -> None:
        """The ban survives a restart, until an administrator lifts it."""
        self.make(**{SWITCH: "true", THRESHOLD: "50000"})
        self.join("slow")
        self.pull("slow", 0)
        self.protect()
        self.box.kernel.saves.step(self.box.now_ms + 60_000)
        self.box.kernel.slices.finish()
        text = self.box.disk.read_file("/store/config/subscriptionGroup.json")
        self.assertIs(json.loads(text)["subscriptionGroupTable"]["slow"]["consumeEnable"], False)
        self.box.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(
            {"groupName": "slow", "consumeEnable": True}).encode())
        self.assertEqual(self.pull("slow", 1), 0)

    def test_without_the_setting_no_group_is_stopped(self) -> None:
        """Without the setting no group is stopped; it can be set at run time."""
        self.make(**{THRESHOLD: "50000"})
        self.join("slow")
        self.pull("slow", 0)
        self.protect()
        self.assertEqual(self.enabled("slow"), [True])
        self.box.settings.update({SWITCH: "true"})
        self.protect()
        self.assertEqual(self.enabled("slow"), [False])

    def test_who_counts(self) -> None:
        """A group without members, or at the end of the log, reads no old data."""
        self.make(**{SWITCH: "true", THRESHOLD: "0"})
        self.join("at the end".replace(" ", "_"))
        self.assertEqual([self.pull("gone", 0), self.pull("at_the_end", 99)], [0, 0])
        self.protect()
        self.assertEqual(self.enabled("gone", "at_the_end"), [True, True])

    def test_lag_is_measured_in_bytes_of_the_log(self) -> None:
        """The lag is measured in bytes of the log, from the next message of the group."""
        self.make()
        cold = cold_consumer.ColdConsumers(self.box.kernel)
        store = self.box.kernel.store
        self.assertEqual(cold.behind_bytes("T", 0, 0), store.commit_log.max_offset)
        self.assertEqual(cold.behind_bytes("T", 0, 99),
                         store.commit_log.max_offset - store.queues.commit_log_offset("T", 0, 99))
        self.assertEqual([cold.behind_bytes("T", 0, 100), cold.behind_bytes("none", 0, 0)], [0, 0])
