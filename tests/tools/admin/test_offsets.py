"""Commands for the offsets of groups."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tools.admin.case import AdminCase
from twistmq.client import Client
from twistmq.protocol.bodies import MessageQueue

_QUEUES = [MessageQueue("T", "broker-a", at) for at in range(2)]


class OffsetTests(AdminCase):
    """A topic of two queues, three messages each; a group that consumed one of each."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "2", "-w", "2")
        for group in ("g", "h"):
            self.rows("updateSubGroup", "-b", self.broker, "-g", group)
        with self.running.client() as sender:
            for queue in range(2):
                for _ in range(3):
                    sender.send("T", b"x", queue_id=queue)
        self.client = Client(self.running.namesrv_address)
        self.addCleanup(self.client.close)
        for queue in _QUEUES:
            self.client.commit_group_offset("g", queue, 1)

    def offsets(self, group: str = "g") -> list[int | None]:
        return [self.client.group_offset(group, queue) for queue in _QUEUES]

    def test_to_a_time(self) -> None:
        """The offsets are set to the oldest message, and after the newest."""
        rows = self.rows("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
        self.assertEqual([(row["broker"], row["topic"], row["queue"], row["offset"])
                          for row in rows],
                         [("broker-a", "T", 0, 0), ("broker-a", "T", 1, 0)])
        self.assertEqual(self.offsets(), [0, 0])
        rows = self.rows("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "2099-01-01T00:00:00")
        self.assertEqual([row["offset"] for row in rows], self.offsets())
        self.assertTrue(all(row["offset"] >= 2 for row in rows))

    def test_one_queue(self) -> None:
        """One queue is set to an offset; the other queue is unchanged."""
        [row] = self.rows("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", "-b", self.broker,
                          "-q", "1", "-o", "2")
        self.assertEqual((row["broker"], row["queue"], row["offset"]), ("broker-a", 1, 2))
        self.assertEqual(self.offsets(), [1, 2])
        self.assertIn("go together", self.refusal(
            "resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", "-q", "1"))
        self.assertIn("-b and -q name", self.refusal(
            "resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", "-o", "1"))

    def test_skipped_messages_are_not_consumed(self) -> None:
        """The group continues after the skipped messages."""
        rows = self.rows("skipAccumulatedMessage", "-g", "g", "-t", "T")
        self.assertEqual([row["offset"] for row in rows], [3, 3])
        self.assertEqual(self.offsets(), [3, 3])

    def test_another_group_continues_at_the_cloned_offsets(self) -> None:
        """The other group continues at the offsets of this one."""
        self.member("g", "T")
        rows = self.rows("cloneGroupOffset", "-s", "g", "-d", "h", "-t", "T")
        self.assertEqual([(row["queue"], row["offset"]) for row in rows], [(0, 1), (1, 1)])
        self.assertEqual(self.offsets("h"), [1, 1])


class ClientsResetTests(OffsetTests):
    """A broker leaves the reset to the group's members, or the group has none."""

    settings: Mapping[str, str] = {**AdminCase.settings, "useServerSideResetOffset": "false"}
