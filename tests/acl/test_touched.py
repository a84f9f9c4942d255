"""Resources that a request names by a position in the log or in its content need permissions too.

Alice owns the topic A and the group GA, and Bob owns B and GB. Neither has a permission for the
resources of the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.acl.box import ADMIN, PREFIX, AclTestCase
from tests.kernel_case import run_all
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.kernel import Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import reply, retry, timer
from twistmq.plugins.timer.records import delete_key
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.header import CommandHeader, ext_fields_of
from twistmq.protocol.headers.client import ConsumeMessageDirectlyResultRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.query import ViewMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import offset_message_id, parse_offset_message_id
from twistmq.protocol.properties import format_properties
from twistmq.protocol.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
)
from twistmq.protocol.signature import request_content, signature_of
from twistmq.protocol.topic_names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from twistmq.transaction import plugin as transaction

ALICE, BOB = ("alice-key", "secret-of-alice"), ("bobby-key", "secret-of-bobby")
_ACCOUNTS = """\
accounts:
- {accessKey: admin-key, secretKey: secret-of-admin, admin: true}
- accessKey: alice-key
  secretKey: secret-of-alice
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [A=PUB|SUB]
  groupPerms: [GA=SUB]
- accessKey: bobby-key
  secretKey: secret-of-bobby
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [B=PUB|SUB]
  groupPerms: [GB=SUB]
"""
_ASKED = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "asker", "TTL": "3000"}
_REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


class TouchedTests(AclTestCase):
    """Requests of one account about the resources of another account."""

    settings: Mapping[str, str] = {"aclEnable": "true", "maxMessageSize": "1000"}
    accounts = _ACCOUNTS
    plugins = (("reply", reply.Plugin), ("retry", retry.Plugin), ("timer", timer.Plugin),
               ("transaction", transaction.Plugin))

    def setUp(self) -> None:
        super().setUp()
        self.bobs.unlink()
        for keys, topic in ((ALICE, "A"), (BOB, "B")):
            self.assert_served(self.ask(keys, 310, send_header(topic, 0), b"x"))

    def assert_served(self, answer: RemotingCommand) -> None:
        self.assertEqual((answer.code, answer.remark), (ResponseCode.SUCCESS, None))

    def assert_denied(self, answer: RemotingCommand, what: str) -> None:
        self.assertEqual((answer.code, answer.remark), (
            ResponseCode.SYSTEM_ERROR, f"{PREFIX}No default permission for {what}"))

    def count(self, topic: str) -> int:
        return self.box.kernel.store.queues.max_offset(topic, 0)

    # --- transactions

    def half(self) -> SendMessageResponseHeader:
        """Send a half message of Bob."""
        header = send_header("B", self.box.now_ms, properties={
            "TRAN_MSG": "true", "PGROUP": "PB", "UNIQ_KEY": "U"})
        header.sys_flag = SYS_TRANSACTION_PREPARED
        answer = self.ask(BOB, 310, header, b"half")
        self.assert_served(answer)
        return answer.header(SendMessageResponseHeader)

    def end(self, keys: tuple[str, str], half: SendMessageResponseHeader, how: int,
            group: str = "PB") -> RemotingCommand:
        return self.ask(keys, RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
            producer_group=group, tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_message_id(half.msg_id)[2], commit_or_rollback=how,
            msg_id=half.msg_id))

    def test_end_of_anothers(self) -> None:
        """The request is refused, and the owner can still commit the message."""
        half, before = self.half(), self.count("B")
        for how in (SYS_TRANSACTION_ROLLBACK, SYS_TRANSACTION_COMMIT):
            self.assert_denied(self.end(ALICE, half, how), "topic:B")
        self.assertEqual(self.end(BOB, half, SYS_TRANSACTION_COMMIT, "other").code,
                         ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.count("B"), before)
        self.assert_served(self.end(BOB, half, SYS_TRANSACTION_COMMIT))
        self.assertEqual(self.count("B"), before + 1)

    def beat(self, keys: tuple[str, str] | None, client_id: str, *groups: str,
             peer: Peer | None = None) -> Peer:
        """Register a producer; :returns: its connection."""
        peer = peer or self.peer()
        body = HeartbeatData(client_id, tuple(map(ProducerData, groups))).encode()
        self.assert_served(self.ask(keys, RequestCode.HEART_BEAT, None, body, peer=peer))
        return peer

    def check(self) -> None:
        """Let the time pass until producers are asked about half messages."""
        self.box.now_ms += 60_000
        run_all(self.box, "check half messages")

    def test_who_is_asked_about_a_half_message(self) -> None:
        """A producer that claims the group of another account does not see messages that it may not
        send.
        """
        self.half()
        alice = self.beat(ALICE, "alice", "PB")
        for _ in range(4):
            self.check()
        self.assertEqual(alice.requests, [])
        bob, admin = self.beat(BOB, "bob", "PB"), self.beat(ADMIN, "admin", "PB")
        for count in (2, 4):
            self.check()
            self.check()
            self.assertEqual(len(bob.requests) + len(admin.requests), count)
        self.assertEqual(alice.requests, [])
        self.assertIn(b"half", bob.requests[0].body)

    def test_a_permission_that_was_taken_away_counts_at_the_next_check(self) -> None:
        """The permission at the time of the check counts, and not the one at the registration."""
        self.half()
        bob = self.beat(BOB, "bob", "PB")
        self.check()
        self.plain.write_text(self.plain.read_text().replace("B=PUB|SUB", "B=SUB"))
        self.look_at_files()
        self.check()
        self.assertEqual(len(bob.requests), 1)
        self.plain.write_text(self.plain.read_text().replace("bobby-key", "robert-key"))
        self.look_at_files()
        self.check()
        self.assertEqual(len(bob.requests), 1)

    def test_a_producer_at_a_white_address_is_asked(self) -> None:
        """The producer needs no account, so it is asked like an administrator."""
        self.plain.write_text(self.plain.read_text() + "globalWhiteRemoteAddresses: [10.1.1.*]\n")
        self.look_at_files()
        self.half()
        white = self.beat(None, "white", "PB", peer=self.peer("10.1.1.1:9"))
        self.check()
        self.assertEqual(len(white.requests), 1)

    def test_administrator_ends(self) -> None:
        self.assert_served(self.end(ADMIN, self.half(), SYS_TRANSACTION_ROLLBACK))

    # --- reply messages

    def answer(self, topic: str, keys: tuple[str, str] = ALICE, body: bytes = b"answer",
               v2: bool = True, **properties: str) -> RemotingCommand:
        header: CommandHeader = send_header(topic, 0, properties={**_ASKED, **properties})
        if v2:
            return self.ask(keys, RequestCode.SEND_REPLY_MESSAGE_V2, header, body)
        assert isinstance(header, SendMessageRequestHeader)
        old = SendMessageRequestHeader(**{
            name: getattr(header, name) for name in SendMessageRequestHeader.__struct_fields__})
        return self.ask(keys, RequestCode.SEND_REPLY_MESSAGE, old, body)

    def test_a_client_id_belongs_to_the_account_that_came_first(self) -> None:
        """Another account with the same client id gets no replies, however often it sends a
        heartbeat.
        """
        victim = self.beat(BOB, "asker", "PB")
        thief = self.beat(ALICE, "asker", "PA")
        self.beat(ALICE, "asker", "PB", peer=thief)
        self.beat(BOB, "asker", "PB", peer=victim)
        self.send_answer()
        self.assertEqual((len(victim.requests), len(thief.requests)), (1, 0))
        self.assertEqual(victim.requests[0].code, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        # A new connection of the account replaces its old one, as without access control.
        again = self.beat(BOB, "asker", "PB")
        self.send_answer()
        self.assertEqual((len(victim.requests), len(again.requests)), (1, 1))
        # The id is free when the account has no connection any longer.
        for peer in (victim, again):
            peer.active = False
        self.send_answer()
        self.assertEqual(len(thief.requests), 1)

    def send_answer(self) -> None:
        """Send a reply to the client of the request; it is pushed, and the push is not answered."""
        fields = {**ext_fields_of(send_header(_REPLY_TOPIC, 0, properties=_ASKED)),
                  "AccessKey": ADMIN[0]}
        content = request_content(fields, b"answer", VERSION)
        fields["Signature"] = signature_of(content, ADMIN[1])
        reply = self.box.send(self.peer(), RequestCode.SEND_REPLY_MESSAGE_V2, None, b"answer",
                              extra_fields=fields)
        self.assertIsNone(reply)

    def test_reply_elsewhere(self) -> None:
        """The reply needs the permission of a send; without it, nothing is pushed, stored or
        created.
        """
        asker = self.peer()
        self.box.kernel.clients.register_producer(
            "P", Client("asker", asker, "JAVA", 479, 0, 0))
        for v2 in (True, False):
            self.assert_denied(self.answer("B", v2=v2), "topic:B")
            self.assert_denied(self.answer("new", v2=v2), "topic:new")
            self.assert_denied(self.answer("%RETRY%GB", v2=v2), "group:GB")
        self.assertEqual((self.count("B"), asker.requests), (1, []))
        for topic in ("new", "%RETRY%GB"):
            self.assertIsNone(self.box.kernel.topic_config.get(topic))

    def test_any_account_may_send_to_the_clusters_reply_topic(self) -> None:
        """Every account may send to the cluster's topic of replies."""
        before = self.count(_REPLY_TOPIC)
        for topic in (_REPLY_TOPIC, "A"):
            # No client has sent this request.
            self.assertIn("channel of <asker> not found", self.answer(topic).remark or "")
        self.assertEqual(self.count(_REPLY_TOPIC), before + 1)
        self.assertEqual(self.count("A"), 2)

    def test_long_reply(self) -> None:
        """A body that could not be stored is refused."""
        answer = self.answer("A", body=bytes(1001))
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.count("A"), 1)

    # --- timed messages

    def test_takes_back_anothers(self) -> None:
        """A message of B can be recalled by an account that may write to B, whatever code sends the
        recall.
        """
        fields = {"TIMER_DELAY_SEC": "100", "TIMER_DEL_UNIQKEY": delete_key("B", "KEY")}
        timed = self.box.kernel.store.commit_log.max_offset
        header = send_header("A", 0, properties=fields)
        self.assert_denied(self.ask(ALICE, 310, header, b"x"), "topic:B")
        half = send_header("A", 0, properties={**fields, "TRAN_MSG": "true", "PGROUP": "PA"})
        half.sys_flag = SYS_TRANSACTION_PREPARED
        self.assert_denied(self.ask(ALICE, 310, half, b"x"), "topic:B")
        self.assert_denied(self.answer("A", **fields), "topic:B")
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, timed)
        self.assert_served(self.ask(BOB, 310, send_header("B", 0, properties=fields), b"x"))

    def test_takes_back_a_trace(self) -> None:
        """The permission of every account to send traces does not include another topic."""
        taken_back = {"TIMER_DEL_UNIQKEY": delete_key(TRACE_TOPIC, "KEY")}
        for keys, topic, what in ((ALICE, "B", "topic:B"), (BOB, "A", "topic:A")):
            self.assert_denied(
                self.ask(keys, 310, send_header(topic, 0, properties=taken_back), b"x"), what)
            self.assertEqual(self.count(topic), 1)
        header = send_header(TRACE_TOPIC, 0, properties={
            "TIMER_DELAY_SEC": "100", "TIMER_DEL_UNIQKEY": delete_key("B", "KEY")})
        self.assert_denied(self.ask(ALICE, 310, header, b"x"), "topic:B")
        self.assert_served(self.ask(ALICE, 310, send_header(TRACE_TOPIC, 0), b"x"))

    def test_takes_back_in_a_batch(self) -> None:
        """The messages of a batch are checked, whatever code marks the body as a batch."""
        batch = encode_batch([(0, b"x", format_properties({
            "TIMER_DELAY_SEC": "100", "TIMER_DEL_UNIQKEY": delete_key("B", "KEY")}))])
        new = send_header("A", 0)
        new.batch = True
        old = SendMessageRequestHeader(**{
            name: getattr(new, name) for name in SendMessageRequestHeader.__struct_fields__})
        for code, header in ((10, old), (310, new), (320, new)):
            self.assert_denied(self.ask(ALICE, code, header, batch), "topic:B")

    # --- by place

    def place(self, keys: tuple[str, str], topic: str, **properties: str) -> int:
        answer = self.ask(keys, 310, send_header(topic, 0, properties=properties), b"secret")
        self.assert_served(answer)
        return parse_offset_message_id(answer.header(SendMessageResponseHeader).msg_id)[2]

    def test_a_message_is_shown_only_with_read_permission_of_its_topic(self) -> None:
        """An account may see a message if it may read its topic, even while the message waits for
        its time.
        """
        half = parse_offset_message_id(self.half().msg_id)[2]
        for place in (self.place(BOB, "B"), self.place(BOB, "B", TIMER_DELAY_SEC="100"), half):
            header = ViewMessageRequestHeader(offset=place)
            answer = self.ask(ALICE, RequestCode.VIEW_MESSAGE_BY_ID, header)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("No default permission for topic:", answer.remark or "")
            self.assertEqual(answer.body, b"")
            self.assertIn(b"B", self.ask(ADMIN, RequestCode.VIEW_MESSAGE_BY_ID, header).body)
        place = self.place(ALICE, "A")
        self.assert_served(self.ask(
            ALICE, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=place)))
        self.assertEqual(self.box.stored(HALF_TOPIC, 0)[0].topic, HALF_TOPIC)

    def test_send_back(self) -> None:
        """A message can be sent back only by an account that may read its topic."""
        for keys, place, is_served in ((ALICE, self.place(BOB, "B"), False),
                                       (ALICE, self.place(ALICE, "A"), True)):
            self.box.kernel.subscription_group.find("GA")
            answer = self.ask(keys, RequestCode.CONSUMER_SEND_MSG_BACK,
                              ConsumerSendMsgBackRequestHeader(
                                  offset=place, group="GA", delay_level=3, origin_topic="A"))
            if is_served:
                self.assert_served(answer)
            else:
                self.assert_denied(answer, "topic:B")

    def test_where_all_wait(self) -> None:
        """A default permission for topics does not include waiting messages of denied topics."""
        bob = self.plain.read_text().replace("defaultTopicPerm: DENY", "defaultTopicPerm: SUB")
        self.plain.write_text(bob.replace("[A=PUB|SUB]", "[A=PUB|SUB, B=DENY]"))
        self.look_at_files()
        for topic in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, CHECK_MAX_TIME_TOPIC, _REPLY_TOPIC,
                      TRACE_TOPIC):
            self.assert_denied(self.ask(ALICE, RequestCode.PULL_MESSAGE, PullMessageRequestHeader(
                consumer_group="GA", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=32,
                sys_flag=0, commit_offset=0, suspend_timeout_millis=0, sub_version=0)),
                f"topic:{topic}")
        header = ViewMessageRequestHeader(
            offset=self.place(BOB, "B", TIMER_DELAY_SEC="100"))
        self.assert_denied(self.ask(ALICE, RequestCode.VIEW_MESSAGE_BY_ID, header), "topic:B")
        self.assert_served(self.ask(BOB, RequestCode.VIEW_MESSAGE_BY_ID, header))

    def pull(self, topic: str, group: str = "GA") -> RemotingCommand:
        return self.ask(ALICE, RequestCode.PULL_MESSAGE, PullMessageRequestHeader(
            consumer_group=group, topic=topic, queue_id=0, queue_offset=0, max_msg_nums=32,
            sys_flag=0, commit_offset=0, suspend_timeout_millis=0, sub_version=0))

    def test_retries_of_pops(self) -> None:
        """A default permission lets an account neither read nor write the retries of a denied group
        and topic.
        """
        self.plain.write_text(self.plain.read_text().replace(
            "groupPerms: [GA=SUB]", "groupPerms: [GA=SUB, GB=DENY]").replace(
            "defaultGroupPerm: DENY", "defaultGroupPerm: SUB", 1))
        self.look_at_files()
        kernel = self.box.kernel
        kernel.subscription_group.find("GB")
        for name in ("%RETRY%GB_B", "%RETRY%GB+B"):
            kernel.topic_config.create_in_send_back(name, 1, 6, 0)
            said = (f"group:{name[7:]}: the topic {name} may have retries of the group GB and the "
                    "topic B")
            self.assert_denied(self.pull(name), said)
            self.assert_denied(self.ask(ALICE, 310, send_header(name, 0), b"forged"), said)
            self.assert_denied(self.ask(ALICE, 34, None, HeartbeatData("c", (), (ConsumerData(
                "GA", subscription_data_set=(SubscriptionData(name),)),)).encode()), said)
            self.assertEqual(self.count(name), 0)
        # A real group with such a name is a group like any other.
        kernel.topic_config.create_in_send_back("%RETRY%my_group", 1, 6, 0)
        self.assertEqual(self.pull("%RETRY%my_group", "my_group").code,
                         ResponseCode.SUBSCRIPTION_NOT_EXIST)

    def test_a_topic_that_is_made_later_closes_its_retries(self) -> None:
        """A decision that was made before the topic existed is not remembered."""
        self.plain.write_text(self.plain.read_text().replace(
            "defaultGroupPerm: DENY", "defaultGroupPerm: SUB", 1))
        self.look_at_files()
        kernel = self.box.kernel
        kernel.topic_config.create_in_send_back("%RETRY%my_group", 1, 6, 0)
        kernel.subscription_group.find("my")
        for _ in range(2):
            self.assertEqual(self.pull("%RETRY%my_group", "my_group").code,
                             ResponseCode.SUBSCRIPTION_NOT_EXIST)
        kernel.topic_config.create_in_send_back("group", 1, 6, 0)
        self.assertIn("retries of the group my and the topic group",
                      self.pull("%RETRY%my_group", "my_group").remark or "")

    def test_consume_directly(self) -> None:
        """A message is delivered to a consumer if the account may read the topic of the message."""
        for place, is_allowed in ((self.place(BOB, "B"), False), (self.place(ALICE, "A"), True)):
            answer = self.ask(
                ALICE, RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyResultRequestHeader(
                    consumer_group="GA", client_id="c", topic="A",
                    msg_id=offset_message_id(bytes(8), place)))
            if is_allowed:
                self.assertIn("not online", answer.remark or "")
            else:
                self.assert_denied(answer, "topic:B")

    # --- the broker as a whole

    def test_requests_about_all_groups_need_an_administrator(self) -> None:
        """Requests about all groups or about the broker's files are reserved for administrators."""
        for code in (26, 43, 306, 316, 323, 329):
            answer = self.ask(ALICE, code)
            self.assertEqual(answer.remark, f"{PREFIX}Need admin permission for request "
                                            f"code={code}, but accessKey=alice-key is not")
