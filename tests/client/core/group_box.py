"""A broker for tests of consumer groups: queues, offsets, members and locks, with a clock of the
test.

It answers as Apache's does, as far as members of a group ask. Records are held in memory.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.push_consumer import push_member
from twistmq.client.core.consumer.queue_intake import QueueIntake
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import (
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionData,
    TopicList,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers import offset as offsets
from twistmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.properties import TAGS, tags_code
from twistmq.protocol.record import MessageRecord, encode_record, host_bytes

__all__ = ["BROKER", "GroupBox", "GroupBroker"]

BROKER = "10.0.0.2:10911"


class GroupBroker:
    """One broker with the name ``a``."""

    def __init__(self, queues: int = 4) -> None:
        self.queues = queues
        self.records: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        #: The owner of each locked queue.
        self.locks: dict[MessageQueue, str] = {}
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.refusals: dict[int, int] = {}
        self.heartbeats = 0
        #: The newest subscriptions of each group, by topic.
        self.subscriptions: dict[str, dict[str, SubscriptionData]] = {}
        self.min_offset = 0
        #: Whether the first messages are in the broker's cache.
        self.is_at_hand = True
        #: The store time of the first message of each queue.
        self.earliest_ms = 1

    def put(self, topic: str, queue_id: int, body: bytes, tag: str = "", *,
            reconsume_times: int = 0) -> None:
        """Store a message."""
        records = self.records[topic, queue_id]
        record = MessageRecord(
            topic, queue_id, body, f"{TAGS}\x01{tag}\x02" if tag else "", 1,
            host_bytes("10.0.0.1", 1), host_bytes("10.0.0.2", 10911), [], tags_code(tag))
        record.reconsume_times = reconsume_times
        record.queue_offset = len(records)
        record.physical_offset = 1000 * queue_id + len(records)
        records.append(encode_record(record))

    def __call__(self, command: RemotingCommand) -> Answer:
        """Answer a request."""
        if command.code in self.refusals:
            return self.refusals[command.code], None, b"", "refused by the test"
        answer: Answer = getattr(self, f"_{RequestCode(command.code).name.lower()}")(command)
        return answer

    def _heart_beat(self, command: RemotingCommand) -> Answer:
        self.heartbeats += 1
        beat = HeartbeatData.decode(command.body)
        for data in beat.consumer_data_set:
            self.members[data.group_name].add(beat.client_id)
            self.subscriptions[data.group_name] = {
                each.topic: each for each in data.subscription_data_set}
        return ResponseCode.SUCCESS, None, b"", None

    def _unregister_client(self, command: RemotingCommand) -> Answer:
        fields = command.fields()
        self.members[fields.get("consumerGroup", "")].discard(fields["clientID"])
        return ResponseCode.SUCCESS, None, b"", None

    def _get_consumer_list_by_group(self, command: RemotingCommand) -> Answer:
        members = sorted(self.members[command.fields()["consumerGroup"]])
        body = GetConsumerListByGroupResponseBody(consumer_id_list=members).encode_standard()
        return ResponseCode.SUCCESS, None, body, None

    def _get_consumer_connection_list(self, command: RemotingCommand) -> Answer:
        table = self.subscriptions[command.fields()["consumerGroup"]]
        body = ConsumerConnection(subscription_table=table).encode_standard()
        return ResponseCode.SUCCESS, None, body, None

    def _query_consumer_offset(self, command: RemotingCommand) -> Answer:
        fields = command.fields()
        found = self.offsets.get((fields["consumerGroup"], fields["topic"],
                                  int(fields["queueId"])))
        if found is None:
            is_at_hand = self.is_at_hand and not self.min_offset and self.records[
                fields["topic"], int(fields["queueId"])]
            if fields.get("setZeroIfNotFound") == "false" or not is_at_hand:
                return ResponseCode.QUERY_NOT_FOUND, None, b"", "none"
            found = 0
        return 0, offsets.QueryConsumerOffsetResponseHeader(found), b"", None

    def _query_topics_by_consumer(self, command: RemotingCommand) -> Answer:
        group = command.fields()["group"]
        topics = {key[1] for key in self.offsets if key[0] == group}
        return 0, None, TopicList(topic_list=topics).encode_standard(), None

    def _update_consumer_offset(self, command: RemotingCommand) -> Answer:
        fields = command.fields()
        self.offsets[fields["consumerGroup"], fields["topic"], int(fields["queueId"])] = int(
            fields["commitOffset"])
        return 0, None, b"", None

    def _get_max_offset(self, command: RemotingCommand) -> Answer:
        fields = command.fields()
        end = len(self.records[fields["topic"], int(fields["queueId"])])
        return 0, offsets.GetMaxOffsetResponseHeader(end), b"", None

    def _get_min_offset(self, command: RemotingCommand) -> Answer:
        return 0, offsets.GetMinOffsetResponseHeader(self.min_offset), b"", None

    def _get_earliest_msg_storetime(self, command: RemotingCommand) -> Answer:
        return 0, offsets.GetEarliestMsgStoretimeResponseHeader(self.earliest_ms), b"", None

    def _lock_batch_mq(self, command: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.decode(command.body)
        mine = [queue for queue in body.mq_set
                if self.locks.setdefault(queue, body.client_id or "") == body.client_id]
        return 0, None, LockBatchResponseBody(lock_ok_mq_set=tuple(mine)).encode_standard(), None

    def _unlock_batch_mq(self, command: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.decode(command.body)
        for queue in body.mq_set:
            if self.locks.get(queue) == body.client_id:
                del self.locks[queue]
        return 0, None, b"", None

    def _consumer_send_msg_back(self, command: RemotingCommand) -> Answer:
        self.sent_back.append(command.header(ConsumerSendMsgBackRequestHeader))
        return 0, None, b"", None

    def _pull_message(self, command: RemotingCommand) -> Answer:
        header = command.header(PullMessageRequestHeader)
        records = self.records[header.topic, header.queue_id]
        begin = header.queue_offset
        if begin < self.min_offset or begin > len(records):
            to = self.min_offset if begin < self.min_offset else len(records)
            return (ResponseCode.PULL_OFFSET_MOVED,
                    PullMessageResponseHeader(0, to, self.min_offset, len(records)), b"", None)
        found = records[begin:begin + header.max_msg_nums]
        if not found:
            # A broker holds the pull; the box answers nothing, and asks again when there is some.
            return None
        return 0, PullMessageResponseHeader(
            0, begin + len(found), self.min_offset, len(records)), b"".join(found), None


class GroupBox(Box):
    """A core with a member of a group ``g`` that reads topic ``T``."""

    def __init__(self, broker: GroupBroker | None = None, **options: Any) -> None:
        super().__init__()
        self.broker = broker or GroupBroker()
        self.route: TopicRouteData = route({"a": BROKER}, self.broker.queues)
        self.servers[BROKER] = self.broker
        self.servers[NAMESRV] = lambda command: routes({"T": self.route})(command)
        self.member = self.new_member("g", **options)

    @property
    def intake(self) -> QueueIntake[bytes]:
        """Return the part of the member that reads its queues."""
        return cast(Any, self.member.intake)  # type: ignore[no-any-return]

    def new_member(self, group: str, **options: Any) -> Member[bytes]:
        """Another member of the client that reads the topic."""
        file = options.pop("file", None)
        sender = Sender(self.core, ProducerOptions(), lambda _: "ID")
        wanted = subscription("T", options.pop("expression", None))
        return push_member(self.core, MemberOptions(group=group, **{"start": "first", **options}),
                           {"T": wanted}, sender, file=file)

    def start(self) -> None:
        """Let the member join, and read all messages."""
        self.run(self.member.start())
        self.advance(600)

    def notify(self) -> None:
        """Notify that the members changed."""
        self.push(BROKER, encode_request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1,
            NotifyConsumerIdsChangedRequestHeader("g"), oneway=True))

    def take_all(self, most: int = 1000) -> list[int]:
        """Take all messages without finishing them; :returns: the bodies as numbers."""
        found: list[int] = []
        while (batch := self.member.take(most)) is not None:
            found += [int(message.body) for message in batch.messages]
        return found

