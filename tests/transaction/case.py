"""A kernel with the transaction plugin, a producer that records its questions, and a clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import run_all
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    StoredMessage,
    decode_record,
)
from twistmq.protocol.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from twistmq.transaction import plugin
from twistmq.transaction.service import SYSTEM_GROUP, TransactionService

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "g"


class Asked:
    """A question a producer got: the header and the message."""

    def __init__(self, header: CheckTransactionStateRequestHeader, message: StoredMessage) -> None:
        self.header = header
        self.message = message


def questions(peer: Peer) -> list[Asked]:
    """Return the questions that a producer received since the last call."""
    found = []
    for request in peer.requests:
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        assert request.reply is None, "it wants an answer"
        assert isinstance(request.header, CheckTransactionStateRequestHeader)
        found.append(Asked(request.header, decode_record(request.body)))
    peer.requests.clear()
    return found


class TransactionTestCase(SynchronousTestCase):
    """A test with a kernel that has the plugin; the clock is the test's."""

    settings: Mapping[str, str] = {}
    plugins: tuple[tuple[str, object], ...] = (("transaction", plugin.Plugin),)

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = self.start()
        self.addCleanup(lambda: self.box.stop())
        self.producer = self.new_producer()

    def start(self, plugins: tuple[tuple[str, object], ...] | None = None) -> KernelBox:
        """A kernel on the disk, as late as the last one was."""
        now_ms = self.box.now_ms if hasattr(self, "box") else None
        box = KernelBox(self.plugins if plugins is None else plugins, self.settings, self.disk)
        if now_ms is not None:
            box.now_ms = now_ms
        return box

    def restart(self, plugins: tuple[tuple[str, object], ...] | None = None) -> None:
        """Stop cleanly and start again; the producer comes back."""
        self.box.stop()
        self.box = self.start(plugins)
        self.producer = self.new_producer()

    @property
    def service(self) -> TransactionService:
        service = self.box.kernel.transaction_service
        assert isinstance(service, TransactionService)
        return service

    def new_producer(self, group: str = GROUP) -> Peer:
        peer = self.box.peer()
        self.box.kernel.clients.register_producer(
            group, Client(f"client-{peer.channel_id}", peer, "JAVA", 479, self.box.now_ms,
                          self.box.now_ms))
        return peer

    # --- what producers do

    def send(self, body: bytes = b"half", *, queue_id: int = 1, topic: str = "T",
             born_ms: int | None = None, peer: Peer | None = None, **properties: str
             ) -> RemotingCommand:
        """Send a half message; :returns: the reply.

        :param born_ms: when it says that it was born; None: now.
        :param peer: who sends it; None: anybody.
        """
        fields = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"U-{body.decode()}",
                  **properties}
        header = send_header(topic, born_ms or self.box.now_ms, queue_id=queue_id, tag="red",
                             keys="k", properties=fields)
        header.sys_flag = SYS_TRANSACTION_PREPARED if fields["TRAN_MSG"] == "true" else 0
        if peer is None:
            return self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        reply = self.box.send(peer, RequestCode.SEND_MESSAGE_V2, header, body)
        assert reply is not None
        return reply

    def half(self, body: bytes = b"half", **options: Any) -> SendMessageResponseHeader:
        """Send a half message that must be stored."""
        reply = self.send(body, **options)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.header(SendMessageResponseHeader)

    def end_header(self, half: SendMessageResponseHeader, how: int, **changes: Any
                   ) -> EndTransactionRequestHeader:
        fields: dict[str, Any] = {
            "producer_group": GROUP, "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": parse_offset_message_id(half.msg_id)[2],
            "commit_or_rollback": how, "msg_id": half.msg_id, **changes}
        return EndTransactionRequestHeader(**fields)

    def end(self, half: SendMessageResponseHeader, how: int, **changes: Any
            ) -> tuple[int, str | None]:
        """End a transaction; :returns: the code and the remark of the response."""
        reply = self.box.ask(RequestCode.END_TRANSACTION, self.end_header(half, how, **changes))
        return reply.code, reply.remark

    def must_end(self, half: SendMessageResponseHeader, how: int) -> None:
        self.assertEqual(self.end(half, how), (ResponseCode.SUCCESS, None))

    def answer(self, asked: Asked, how: int) -> None:
        """Answer a question as a client does."""
        header = asked.header
        reply = self.box.ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
            producer_group=GROUP, tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset, commit_or_rollback=how,
            from_transaction_check=True, msg_id=header.msg_id or "",
            transaction_id=header.transaction_id))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    # --- time

    def check(self, elapsed_ms: int = 0) -> list[Asked]:
        """Let time pass, then check; :returns: the questions that the producer received."""
        self.box.now_ms += elapsed_ms
        run_all(self.box, "check half messages")
        return questions(self.producer)

    def asked(self, elapsed_ms: int = 0) -> list[bytes]:
        """Return the bodies of the messages about which a check asks the producer."""
        return [asked.message.body for asked in self.check(elapsed_ms)]

    def write_ends(self) -> None:
        run_all(self.box, "write ends of half messages")

    # --- what there is

    def stored(self, topic: str = "T", queue_id: int = 1) -> list[StoredMessage]:
        """Return all messages of a queue."""
        return self.box.stored(topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        return [each.body for each in self.stored(topic, queue_id)]

    def halves(self) -> list[StoredMessage]:
        return self.stored(HALF_TOPIC, 0)

    def ops(self) -> list[StoredMessage]:
        return self.stored(OP_HALF_TOPIC, 0)

    def given_up(self) -> list[bytes]:
        return self.bodies(CHECK_MAX_TIME_TOPIC, 0)

    def progress(self) -> tuple[int, int]:
        """The offsets of the system group in half and op topic."""
        table = self.box.kernel.consumer_offset
        return (table.query(SYSTEM_GROUP, HALF_TOPIC, 0),
                table.query(SYSTEM_GROUP, OP_HALF_TOPIC, 0))
