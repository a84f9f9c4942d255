"""What clients of a simulated group see: attempts of sends, reads, and the promises of groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.client.invariants import Invariants, PromiseBroken
from tests.history.records import History, Outcome, Read, Send
from tests.plugins.dledger.group_cluster import GroupCluster
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.testing import MemoryClient
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import records_of

__all__ = ["GroupInvariants", "PopInvariants", "RequestRecorder", "queue_name"]

#: The answers that mean that nothing was appended.
_REFUSALS = (
    ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL)
_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
#: The queue of a send without an answer.
_UNKNOWN_QUEUE = "?"


def queue_name(topic: str, queue_id: int) -> str:
    """The name of a queue in a history."""
    return f"{topic}-{queue_id}"


class RequestRecorder:
    """Records each attempt of a send, or each read, of one client.

    :param topic: the topic of a producer; empty: the client is a consumer, whose sends of failed
        messages to its retry topic are not recorded.
    """

    def __init__(self, cluster: GroupCluster, client: MemoryClient, history: History, topic: str
                 ) -> None:
        self._topic = topic
        self._codes = _SENDS if topic else _PULLS
        self._cluster = cluster
        self._client = client
        self._history = history
        self._nodes = {server.address: server for server in cluster.members.values()}
        #: The sends without an answer so far: the body, the node and the begin.
        self._pending: dict[int, tuple[str, str, float]] = {}
        self._count = 0
        engine = client.engine
        self._request, self._send_oneway = engine.request, engine.send_oneway
        engine.request = self._record_request  # type: ignore[method-assign]
        engine.send_oneway = self._record_oneway  # type: ignore[method-assign]

    def end(self) -> None:
        """Record the sends that were not answered."""
        for body, node, begin in self._pending.values():
            self._add_send(body, node, begin, Outcome.UNKNOWN)
        self._pending.clear()

    def _record_request(
        self, address: str, code: int, header: Any, body: bytes,
        on_reply: Callable[[Any], None], timeout_ms: float,
    ) -> None:
        if address not in self._nodes or code not in self._codes:
            self._request(address, code, header, body, on_reply, timeout_ms)
            return
        self._count += 1
        number, node, begin = self._count, self._nodes[address].member, self._cluster.wall_ms()
        if code in _SENDS:
            self._pending[number] = body.decode(), node, begin

        def replied(outcome: Any) -> None:
            if code in _PULLS:
                self._note_read(node, begin, outcome)
            elif self._pending.pop(number, None) is not None:
                self._note_send(body.decode(), node, begin, outcome)
            on_reply(outcome)

        self._request(address, code, header, body, replied, timeout_ms)

    def _record_oneway(self, address: str, code: int, header: Any, body: bytes = b"") -> None:
        if self._topic and address in self._nodes and code in _SENDS:
            self._add_send(body.decode(), self._nodes[address].member, self._cluster.wall_ms(),
                           Outcome.UNKNOWN)
        self._send_oneway(address, code, header, body)

    def _add_send(self, body: str, node: str, begin: float, outcome: Outcome,
                  queue: str = _UNKNOWN_QUEUE, place: int = -1, offset: int = -1) -> None:
        self._history.sends.append(Send(
            self._client.core.client_id, node, queue, body, begin, self._cluster.wall_ms(),
            outcome, place, offset))

    def _note_send(self, body: str, node: str, begin: float, outcome: Any) -> None:
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            answer = outcome.header(SendMessageResponseHeader)
            queue = queue_name(self._topic, answer.queue_id)
            self._add_send(body, node, begin, Outcome.OK, queue,
                           parse_offset_message_id(answer.msg_id)[2], answer.queue_offset)
        elif isinstance(outcome, RemotingCommand) and outcome.code in _REFUSALS:
            self._add_send(body, node, begin, Outcome.REFUSED)
        else:
            self._add_send(body, node, begin, Outcome.UNKNOWN)

    def _note_read(self, node: str, begin: float, outcome: Any) -> None:
        if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
            return
        answer = outcome.header(PullMessageResponseHeader)
        messages = records_of(outcome.body)
        bodies = [(message.queue_offset, message.body.decode()) for message in messages]
        self._history.reads.append(Read(
            self._client.core.client_id, node,
            queue_name(messages[0].topic, messages[0].queue_id), begin, self._cluster.wall_ms(),
            bodies[0][0], bodies, answer.min_offset, answer.max_offset, leads=False,
            life=self._cluster.members[node].lives))


class GroupInvariants(Invariants):
    """The promises of a consumer group in a group of brokers.

    The offsets that were committed in quiet times are known to all members, so no message below
    them comes again, whichever member leads.
    """

    _cluster: GroupCluster

    def __init__(self, cluster: GroupCluster, in_order: bool) -> None:
        super().__init__(cluster, in_order)
        #: When the masters last changed, in Unix ms.
        self.masters_changed_ms = cluster.wall_ms()
        #: The commits that are not settled yet: time, client, queue, offset.
        self._commits: list[tuple[float, str, MessageQueue, int]] = []
        self._settled: defaultdict[MessageQueue, int] = defaultdict(int)

    def _forgotten_ms(self, broker_name: str) -> int | None:
        """Locks are in the memory of the master."""
        return self.masters_changed_ms

    def _check_commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        super()._check_commit(client_id, queue, offset)
        self._commits.append((self._cluster.now_ms, client_id, queue, offset))

    def settle(self, since_ms: float, until_ms: float) -> None:
        """Note that it was quiet after the commits between two times, and forget earlier ones.

        A member that does not know yet that it has lost a queue may commit an older offset.
        """
        clients: defaultdict[MessageQueue, set[str]] = defaultdict(set)
        for time_ms, client_id, queue, _ in self._commits:
            if time_ms >= since_ms:
                clients[queue].add(client_id)
        waiting = []
        for commit in self._commits:
            time_ms, _, queue, offset = commit
            if time_ms > until_ms:
                waiting.append(commit)
            elif time_ms >= since_ms and len(clients[queue]) == 1:
                self._settled[queue] = max(self._settled[queue], offset)
        self._commits = waiting

    def begin(self, client: MemoryClient, message: ReceivedMessage[Any]) -> None:
        if message.offset < self._settled[message.queue]:
            raise PromiseBroken(f"{message!r} comes again, and {self._settled[message.queue]} was "
                                "committed in a quiet time")
        super().begin(client, message)


class PopInvariants:
    """The promises of a group that pops.

    The progress of a queue is an offset of the group, which a new master may know from some seconds
    ago only. What was acknowledged in quiet times does not come again.

    :param is_sent_again: whether a body was sent more than once, so that it may be stored twice.
    """

    def __init__(self, cluster: GroupCluster, is_sent_again: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._is_sent_again = is_sent_again
        self.acknowledged: set[bytes] = set()
        self.handled: set[bytes] = set()
        #: The bodies whose acknowledgement a broker has accepted, and when.
        self._finished: dict[bytes, float] = {}
        self._settled: set[bytes] = set()
        self.repeats = 0
        self.failures: list[Exception] = []

    def begin(self, message: ReceivedMessage[Any]) -> None:
        """Note that a message was received."""
        body = message.body
        if body in self._settled and not self._is_sent_again(body.decode()):
            raise PromiseBroken(f"{message!r} comes again, and it was acknowledged in a quiet time")
        self.repeats += body in self.handled
        self.handled.add(body)

    def finish(self, message: ReceivedMessage[Any]) -> None:
        """A broker has accepted the acknowledgement, in time."""
        self._finished[message.body] = self._cluster.now_ms

    @property
    def missing(self) -> set[bytes]:
        """Return messages that producers know to be stored and that were not handled."""
        return self.acknowledged - self.handled

    def settle(self, since_ms: float, until_ms: float) -> None:
        """Note that it was quiet after the acknowledgements between two times."""
        for body, time_ms in list(self._finished.items()):
            if time_ms <= until_ms:
                del self._finished[body]
                if time_ms >= since_ms:
                    self._settled.add(body)
