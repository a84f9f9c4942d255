"""Topics, groups and offsets of the leader of a mixed group reach all its followers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.ledger_group import IDS, LedgerGroup
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

#: A change is at every follower after this time, s: Apache's broker asks every 10 s.
WITHIN_SECONDS: Final = 12.0
#: A follower of Apache's learns the leader's address when it registers, every 30 s.
FIRST_SECONDS: Final = 90.0


class TableTests(JavaTestCase):
    """Two brokers are ours, and ``n1`` is Apache's."""

    version = "5.5.0"

    def ask(self, member: str, code: int, header: CommandHeader | None = None,
            body: bytes = b"") -> bytes:
        """Send a request to a member; :returns: the body of the answer."""
        with RawClient(self.group.members[member].address, 10) as client:
            reply = client.request(code, header, body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.body

    def change(self, leader: str, name: str) -> None:
        """Create a topic and a group of a name at the leader, and commit an offset."""
        self.ask(leader, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=name, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG"))
        self.ask(leader, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                 SubscriptionGroupConfig(name, retry_max_times=3).encode())
        with RawClient(self.group.members[leader].address, 10) as client:
            for _ in range(5):
                client.send(name, b"x")
        self.ask(leader, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
            consumer_group=name, topic=name, queue_id=0, commit_offset=4))

    def has_all(self, member: str, name: str) -> bool:
        """Whether a member has what ``change`` made."""
        try:
            topics = TopicConfigSerializeWrapper.decode_reply(
                self.ask(member, RequestCode.GET_ALL_TOPIC_CONFIG)).topic_config_table
            groups = SubscriptionGroupWrapper.decode_reply(self.ask(
                member, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).subscription_group_table
            offsets = ConsumerOffsetSerializeWrapper.decode_reply(
                self.ask(member, RequestCode.GET_ALL_CONSUMER_OFFSET)).offset_table
        except BrokerError:
            return False
        return (name in topics and name in groups and groups[name].retry_max_times == 3
                and offsets.get(f"{name}@{name}", {}).get(0) == 4)

    def reach(self, name: str, members: Iterable[str], seconds: float) -> dict[str, float]:
        """Wait until members have all; :returns: how long each took, s."""
        begin, took = time.monotonic(), dict[str, float]()

        def are_there() -> bool:
            for member in members:
                if member not in took and self.has_all(member, name):
                    took[member] = time.monotonic() - begin
            return took.keys() >= set(members)

        wait_until(f"{members} have {name}", are_there, seconds)
        return took

    def lead(self, leader: str, name: str) -> dict[str, float]:
        """Let a member lead and make changes; :returns: how long each follower took, s."""
        self.group.give_lead(leader)
        wait_until("the leader accepts changes", lambda: self.is_changed(leader, f"{name}First"),
                   FIRST_SECONDS)
        followers = [member for member in IDS if member != leader]
        self.reach(f"{name}First", followers, FIRST_SECONDS)
        self.change(leader, name)
        return self.reach(name, followers, WITHIN_SECONDS)

    def is_changed(self, leader: str, name: str) -> bool:
        """Make changes; :returns: whether the leader accepted them."""
        try:
            self.change(leader, name)
        except (BrokerError, AssertionError):
            return False
        return True

    def long_tables_of_each_leader(self) -> None:
        """Within 12 s, whoever leads."""
        with LedgerGroup(self.folder, self.version, {"n0", "n2"}) as self.group:
            self.group.start()
            self.group.wait_for_leader()
            for leader, name in (("n0", "ByOurs"), ("n1", "ByApache")):
                took = self.lead(leader, name)
                print(f"{leader} leads; its changes were at its followers after " + ", ".join(
                    f"{member} {seconds:.1f} s" for member, seconds in sorted(took.items())))
