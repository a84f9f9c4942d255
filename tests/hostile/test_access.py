"""Two accounts on a live broker: neither gets data of the other in any way."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.plugins.timer.recall import RecallHandle, encode_handle
from twistmq.protocol.bodies import LockBatchRequestBody, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.query import ViewMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
)
from twistmq.protocol.signature import Credentials

_ACCOUNT = """\
- accessKey: {name}-key
  secretKey: secret-of-{name}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [{topic}=PUB|SUB]
  groupPerms: [G{topic}=SUB]
"""
_DENIED = "AclException: No default permission for"
_ADMINS = "AclException: Need admin permission"


class AccessTests(SynchronousTestCase):
    """Alice, who owns topic A and group GA, asks for Bob's topic B and group GB."""

    def setUp(self) -> None:
        data = Path(tempfile.mkdtemp(prefix="twistmq-hostile-"))
        self.addCleanup(shutil.rmtree, data, ignore_errors=True)
        (data / "conf").mkdir()
        (data / "conf/plain_acl.yml").write_text("accounts:\n" + "".join(
            _ACCOUNT.format(name=name, topic=topic)
            for name, topic in (("alice", "A"), ("bobby", "B"))))
        servers = Servers(data, "aclEnable=true", f"rocketmqHome={data}",
                          "recallMessageEnable=true")
        self.addCleanup(servers.stop)
        servers.start()
        self.alice, self.bob = (self.client(servers, name) for name in ("alice", "bobby"))
        self.alice.send("A", b"hers")
        self.bob.send("B", b"his")

    def client(self, servers: Servers, name: str) -> RawClient:
        client = RawClient(f"127.0.0.1:{servers.broker_port}",
                                credentials=Credentials(f"{name}-key", f"secret-of-{name}"))
        self.addCleanup(client.close)
        return client

    def half(self) -> SendMessageResponseHeader:
        """Return a half message of Bob."""
        header = send_header("B", 0, properties={
            "TRAN_MSG": "true", "PGROUP": "PB", "UNIQ_KEY": "U"})
        header.sys_flag = SYS_TRANSACTION_PREPARED
        reply = self.bob.request(RequestCode.SEND_MESSAGE_V2, header, b"half")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return reply.header(SendMessageResponseHeader)

    def end(self, half: SendMessageResponseHeader, how: int) -> EndTransactionRequestHeader:
        return EndTransactionRequestHeader(
            producer_group="PB", tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_message_id(half.msg_id)[2], commit_or_rollback=how)

    def attacks(
        self, half: SendMessageResponseHeader
    ) -> Iterator[tuple[RequestCode, CommandHeader | None, bytes]]:
        """Return the requests of Alice."""
        code = RequestCode
        for how in (SYS_TRANSACTION_ROLLBACK, SYS_TRANSACTION_COMMIT):
            yield code.END_TRANSACTION, self.end(half, how), b""
        for topic in ("B", "%RETRY%GB", "made"):
            yield code.SEND_REPLY_MESSAGE_V2, send_header(topic, 0, properties={
                "REPLY_TO_CLIENT": "c", "CORRELATION_ID": "1"}), b"forged"
        delete = {"TIMER_DELAY_SEC": "100", "TIMER_DEL_UNIQKEY": "B+KEY"}
        yield code.SEND_MESSAGE_V2, send_header("A", 0, properties=delete), b"x"
        yield code.RECALL_MESSAGE, RecallMessageRequestHeader(
            topic="B", recall_handle=encode_handle(RecallHandle("B", "b", "1", "KEY"))), b""
        for group, topic in (("GB", "A"), ("GA", "B")):
            lock = LockBatchRequestBody(group, "c", mq_set=(MessageQueue(topic, "b", 0),))
            yield code.LOCK_BATCH_MQ, None, lock.encode_standard()
            yield code.UNLOCK_BATCH_MQ, None, lock.encode_standard()
            asked = f'{{"topic":"{topic}","consumerGroup":"{group}","mode":"POP"}}'.encode()
            yield code.SET_MESSAGE_REQUEST_MODE, None, asked
            yield code.QUERY_ASSIGNMENT, None, asked
        place = parse_offset_message_id(self.bob.send("B", b"his").msg_id)[2]
        for where in (place, parse_offset_message_id(half.msg_id)[2]):
            yield code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=where), b""
            yield code.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                offset=where, group="GA", delay_level=1, origin_topic="A"), b""

    def test_nothing_of_the_others(self) -> None:
        """All of them are refused and change nothing, and Bob continues."""
        half = self.half()
        for code, header, body in self.attacks(half):
            reply = self.alice.request(code, header, body)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=f"{code!r} {reply}")
            self.assertIn(_DENIED, reply.remark or "", msg=repr(code))
            self.assertEqual(reply.body, b"", msg=repr(code))
        for number in (26, 43, 306, 316, 323, 329):
            self.assertIn(_ADMINS, self.alice.request(number, None).remark or "")
        self.assertEqual(self.bob.max_offset("B"), 2)
        reply = self.bob.request(
            RequestCode.END_TRANSACTION, self.end(half, SYS_TRANSACTION_COMMIT))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual([message.body for message in self.bob.pull("B", group="GB")],
                         [b"his", b"his", b"half"])
        self.alice.send("A", b"hers")
        self.assertEqual(len(self.alice.pull("A", group="GA")), 2)
