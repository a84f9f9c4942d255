"""The common parts of tests of a whole pull member."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from tests.client.core.group_box import BROKER, GroupBroker
from twistmq.client.core.consumer.polls import Poll
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.roles.parts import build_pull_consumer
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.flags import PULL_COMMIT_OFFSET
from twistmq.protocol.headers import offset as offsets
from twistmq.protocol.headers.pull import PullMessageRequestHeader

__all__ = ["PullCase", "bodies"]


def bodies(poll: Poll[Any]) -> list[int]:
    """The bodies of the messages that a poll took, as numbers."""
    return [int(message.body) for batch in poll.batches for message in batch.messages]


class SeekBroker(GroupBroker):
    """A broker that also answers where queues begin, and accepts the commits of pulls."""

    def __call__(self, command: RemotingCommand) -> Answer:
        """Answer a request."""
        if command.code == RequestCode.GET_MIN_OFFSET:
            return 0, offsets.GetMinOffsetResponseHeader(self.min_offset), b"", None
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return 0, offsets.SearchOffsetResponseHeader(2), b"", None
        if command.code == RequestCode.PULL_MESSAGE:
            header = command.header(PullMessageRequestHeader)
            if header.sys_flag & PULL_COMMIT_OFFSET:
                self.offsets["g", header.topic, header.queue_id] = header.commit_offset
        return super().__call__(command)


class PullCase(SynchronousTestCase):
    """A topic with two queues of five messages each."""

    topics: str | None = "T"

    def setUp(self) -> None:
        """Start a member."""
        self.broker = SeekBroker(2)
        for number in range(10):
            self.broker.put("T", number % 2, b"%d" % number)
        self.box = Box()
        self.box.servers[BROKER] = self.broker
        self.box.servers[NAMESRV] = routes({"T": route({"a": BROKER}, 2)})
        self.pull: PullMember[Any] = build_pull_consumer(
            self.box.core, "g", self.topics, {"start": "first"})
        self.member, self.poller = self.pull.member, self.pull.poller
        self.positions, self.assignment = self.pull.positions, self.pull.assignment
        self.box.run(self.member.start())
        self.box.advance(600)

    def poll(self, most: int = 100, timeout_ms: float = 0) -> list[int]:
        """Poll as a shell does; :returns: the bodies as numbers."""
        with self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, most, timeout_ms))
            return bodies(poll)

    def committed(self) -> dict[int, int]:
        """Return the offsets at the broker, by queue."""
        return {key[2]: offset for key, offset in self.broker.offsets.items() if key[1] == "T"}
