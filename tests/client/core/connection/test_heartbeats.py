"""The heartbeats of a client to one broker, one at a time."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.protocol.bodies import HeartbeatData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class HeartbeatTests(SynchronousTestCase):
    """A member of one group; the broker answers heartbeats when the test asks for it."""

    def setUp(self) -> None:
        """Let it join, and hold the answers from then on."""
        self.box = GroupBox()
        self.box.start()
        serve = self.box.broker
        self.beats: list[RemotingCommand] = []

        def hold(command: RemotingCommand) -> object:
            if command.code == RequestCode.HEART_BEAT:
                self.beats.append(command)
                return None
            return serve(command)

        self.box.servers[BROKER] = hold  # type: ignore[assignment]

    def beat(self) -> Task[bool]:
        """Begin a heartbeat."""
        task = self.box.engine.tasks.spawn(self.box.core.heartbeat(BROKER))
        self.box.settle()
        return task

    def answer(self, code: int = ResponseCode.SUCCESS) -> None:
        """Answer the last heartbeat."""
        self.box.reply(BROKER, self.beats[-1], code, None)
        self.box.settle()

    def topics(self) -> set[str]:
        """The topics of the last heartbeat's subscriptions."""
        [data] = HeartbeatData.decode(self.beats[-1].body).consumer_data_set
        return {each.topic for each in data.subscription_data_set}

    def test_callers_that_would_send_the_same_share_a_heartbeat(self) -> None:
        """A broker refuses a second one during the first; both callers get its result."""
        for code, is_taken in ((ResponseCode.SUCCESS, True), (ResponseCode.SYSTEM_BUSY, False)):
            count = len(self.beats)
            tasks = [self.beat(), self.beat()]
            self.assertEqual(len(self.beats), count + 1)
            self.answer(code)
            self.assertEqual([task.result() for task in tasks], [is_taken, is_taken])

    def test_a_changed_subscription_follows_the_heartbeat_that_is_under_way(self) -> None:
        """It has the newest subscriptions, and is sent once."""
        self.beat()
        self.assertNotIn("U", self.topics())
        self.box.member.subscribe(Subscription("U"))
        self.beat()
        self.assertEqual(len(self.beats), 1)
        self.answer()
        self.assertEqual(len(self.beats), 2)
        self.assertIn("U", self.topics())

    def test_a_heartbeat_without_an_answer_is_followed_by_the_next(self) -> None:
        """A lost connection, or a broker that is silent."""
        first = self.beat()
        self.box.advance(3100)
        self.assertFalse(first.result())
        second = self.beat()
        self.box.cut(BROKER)
        self.box.settle()
        self.assertFalse(second.result())
        self.beat()
        self.assertGreaterEqual(len(self.beats), 3)

    def test_a_member_leaves_after_the_heartbeat_that_names_it(self) -> None:
        """A broker that handled the heartbeat last would keep the member in its group."""
        for is_answered, wait_ms in ((True, 0), (False, 3100)):
            box = self.box = GroupBox()
            box.start()
            serve = box.broker

            def hold(command: RemotingCommand, serve: GroupBroker = serve) -> object:
                if command.code == RequestCode.HEART_BEAT:
                    self.beats.append(command)
                    return None
                return serve(command)

            box.servers[BROKER] = hold  # type: ignore[assignment]
            self.beat()
            begin_ms = box.clock.now_ms
            leaving = box.engine.tasks.spawn(box.core.remove(box.member))
            box.advance(100)
            self.assertEqual(serve.members["g"], {"10.0.0.1@test"})
            if is_answered:
                self.answer()
            box.advance(wait_ms)
            self.assertEqual((leaving.is_done, serve.members["g"]), (True, set()))
            self.assertLess(box.clock.now_ms - begin_ms, 3300)

    def test_the_reason_of_a_refusal_is_one_printable_line_of_the_log(self) -> None:
        """The remark of the broker is escaped and cut."""
        task = self.beat()
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            self.box.reply(BROKER, self.beats[-1], ResponseCode.SYSTEM_BUSY, None,
                           remark="\x1b[2J\nforged" + "x" * 1_000_000)
            self.box.settle()
        self.assertFalse(task.result())
        [text] = [record.getMessage() for record in logs.records]
        self.assertTrue(text.isprintable())
        self.assertIn(f"{BROKER} answered 2: \\x1b[2J forged", text)
        self.assertLess(len(text), 3000)
