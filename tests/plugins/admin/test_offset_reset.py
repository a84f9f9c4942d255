"""The reset of the offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageQueue,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionData,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.client import ResetOffsetRequestHeader


class ResetCase(SynchronousTestCase):
    """A broker with three messages, a second apart, in queue 0 of two."""

    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)], self.settings)
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.kernel.topic_config.update(TopicConfig("T", 2, 2), {})
        self.kernel.subscription_group.find("g")
        self.begin_ms = self.box.now_ms
        for number in range(3):
            self.box.now_ms = self.begin_ms + number * 1000
            self.kernel.append([message("T")])

    def reset(
        self, timestamp: int = -1, *, topic: str = "T", group: str = "g", queue_id: int = -1,
        offset: int | None = None, is_force: bool = True,
    ) -> RemotingCommand:
        return self.box.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp, is_force=is_force, queue_id=queue_id,
            offset=offset))

    def assertMoved(self, reply: RemotingCommand, offsets: dict[int, int]) -> None:
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        self.assertEqual(ResetOffsetBody.decode(reply.body).offset_table, {
            MessageQueue("T", "broker-a", queue_id): offset
            for queue_id, offset in offsets.items()})

    def assertRefused(self, reply: RemotingCommand, code: ResponseCode, remark: str) -> None:
        self.assertEqual((reply.code, reply.remark), (code, remark))


class ResetByBrokerTests(ResetCase):
    """The request 222 with its default settings."""

    def test_to_a_time(self) -> None:
        """All queues continue at the first message stored at the time or later."""
        self.kernel.consumer_offset.commit("test", "g", "T", 0, 3)
        self.assertMoved(self.reset(self.begin_ms + 1), {0: 1, 1: 0})
        table = self.kernel.consumer_offset
        self.assertEqual(table.query("g", "T", 0), 1)
        self.assertEqual(table.take_reset_offset("T", "g", 0), 1)

    def test_to_the_end(self) -> None:
        """A negative time skips all messages that exist."""
        self.assertMoved(self.reset(-1), {0: 3, 1: 0})

    def test_without_force(self) -> None:
        """Without force the group may still go forward, as at Apache's broker."""
        self.kernel.consumer_offset.commit("test", "g", "T", 0, 1)
        self.assertMoved(self.reset(-1, is_force=False), {0: 3, 1: 0})

    def test_one_queue(self) -> None:
        """The other queues keep their offsets."""
        self.assertMoved(self.reset(self.begin_ms + 1, queue_id=0), {0: 1})
        self.assertFalse(self.kernel.consumer_offset.is_reset("g", "T", 1))

    def test_to_an_offset(self) -> None:
        """An offset takes precedence over the time; -1 means no offset."""
        self.assertMoved(self.reset(self.begin_ms, queue_id=0, offset=2), {0: 2})
        self.assertMoved(self.reset(self.begin_ms, queue_id=0, offset=3), {0: 3})
        self.assertMoved(self.reset(self.begin_ms, queue_id=0, offset=-1), {0: 0})

    def test_offset_outside(self) -> None:
        """The reset is refused, and the group keeps its offset."""
        for offset in (4, 99, -2):
            self.assertRefused(
                self.reset(queue_id=0, offset=offset), ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [0-3]")
        self.assertFalse(self.kernel.consumer_offset.is_reset("g", "T", 0))

    def test_queue_that_there_is_not(self) -> None:
        """No offset is stored for it."""
        self.assertRefused(self.reset(queue_id=2), ResponseCode.INVALID_PARAMETER,
                           "topic T has no queue 2")

    def test_unknown_names(self) -> None:
        """Unknown topics and groups are named in the refusal."""
        self.assertRefused(self.reset(topic="nope"), ResponseCode.TOPIC_NOT_EXIST,
                           "Topic nope does not exist")
        self.assertRefused(self.reset(group="nope"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                           "Group nope does not exist")

    def test_no_queues(self) -> None:
        """The topic has no queues to read."""
        self.kernel.topic_config.update(TopicConfig("T", 0, 2), {})
        self.assertRefused(self.reset(), ResponseCode.SYSTEM_ERROR, "No queues to reset.")

    def test_a_slaves_offsets_are_its_masters(self) -> None:
        """A slave has the offsets of its master."""
        self.kernel.set_role("SLAVE", 1)
        self.assertRefused(self.reset(), ResponseCode.SYSTEM_ERROR,
                           "Can not reset offset in slave broker")


class ResetByClientsTests(ResetCase):
    """The request 222 with useServerSideResetOffset=false."""

    settings: Mapping[str, str] = {"useServerSideResetOffset": "false"}

    def setUp(self) -> None:
        super().setUp()
        for queue_id, offset in ((0, 2), (1, 0)):
            self.kernel.consumer_offset.commit("test", "g", "T", queue_id, offset)

    def member(self, client_id: str, language: str = "JAVA", version: int = 400) -> Peer:
        """Register a consumer of the group."""
        peer = self.box.peer()
        data = ConsumerData("g", subscription_data_set=(SubscriptionData("T"),))
        self.box.ask(RequestCode.HEART_BEAT, peer=peer,
                     body=HeartbeatData(client_id, (), (data,)).encode_standard())
        client = self.kernel.clients.find_consumer("g", client_id)
        assert client is not None
        client.language, client.version = language, version
        return peer

    def told(self, peer: Peer) -> list[bytes]:
        found = [each for each in peer.requests
                 if each.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
        for each in found:
            self.assertEqual(each.header, ResetOffsetRequestHeader(
                group="g", topic="T", timestamp=self.begin_ms, is_force=False))
        return [each.body for each in found]

    def test_members_are_told(self) -> None:
        """Each member gets the new offsets, in the form that it can read."""
        java, cpp = self.member("one"), self.member("two", "CPP")
        self.assertMoved(self.reset(self.begin_ms), {0: 0, 1: 0})
        body, = self.told(java)
        self.assertEqual(ResetOffsetBody.decode(body).offset_table,
                         {MessageQueue("T", "broker-a", 0): 0, MessageQueue("T", "broker-a", 1): 0})
        body, = self.told(cpp)
        self.assertEqual(ResetOffsetBodyForC.decode(body).offset_table,
                         [MessageQueueForC("T", "broker-a", 0, 0),
                          MessageQueueForC("T", "broker-a", 1, 0)])
        self.assertFalse(self.kernel.consumer_offset.is_reset("g", "T", 0))

    def test_forwards_by_force_only(self) -> None:
        """Without force a group can only go back."""
        self.member("one")
        self.assertMoved(self.reset(-1, is_force=False), {0: 2, 1: 0})
        self.assertMoved(self.reset(-1, is_force=True), {0: 3, 1: 0})

    def test_a_reset_of_a_group_without_members_is_refused(self) -> None:
        """If no member of the group is online, the request is refused."""
        self.assertRefused(
            self.reset(5), ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 5")

    def test_group_that_never_consumed(self) -> None:
        """The refusal has Apache's remark."""
        self.assertRefused(self.reset(group="nope"), ResponseCode.SYSTEM_ERROR,
                           "THe consumer group <nope> not exist")

    def test_unknown_topic(self) -> None:
        """The refusal names the topic."""
        self.assertRefused(
            self.reset(topic="nope"), ResponseCode.TOPIC_NOT_EXIST,
            "[reset-offset] reset offset failed, no topic in this broker. topic=nope")

    def test_old_client(self) -> None:
        """If one client is too old for the request, no client gets it."""
        new = self.member("new")
        self.member("old", version=27)
        self.assertRefused(self.reset(), ResponseCode.SYSTEM_ERROR,
                           "the client does not support this feature. version=27")
        self.assertEqual(self.told(new), [])
