"""Messages that brokers append by themselves: retried, revived and committed ones, in a simulation.

    derived = DerivedMessages(group, history, draw)
    derived.send_back(master)
    derived.pop(master)
    derived.send_half(master, "17")
    derived.look()

Each step sends a request as a client does. ``look`` notes the answers, and answers the questions
about half messages. What has to come of the requests is in the history as a ``Derivation``; rule H9
judges it with the entries of the retry topics, whose bodies begin with the name of their kind.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.history.records import Derivation, Entry, History, Outcome, Send
from tests.plugins.dledger.kernels import TOPIC, KernelGroup, Machine
from tests.plugins.pop.case import Popped, popped_of
from tests.transaction.case import COMMIT, ROLLBACK, questions
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins.pop.check_point import CK_TAG, CheckPoint, PointKey
from twistmq.plugins.pop.names import Receipt, pop_retry_topic
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.properties import TAGS
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED
from twistmq.protocol.topic_names import TIMER_TOPIC

__all__ = ["DELAYS_MS", "GROUPS", "DerivedMessages"]

#: The levels of delayed messages that are used, with their delays in ms.
DELAYS_MS: Final = {1: 1000, 2: 5000, 3: 10_000}
_RETRY_GROUP, _POP_GROUP, _PRODUCERS = "back", "pops", "producers"
#: The groups that all members have to know.
GROUPS: Final = (_RETRY_GROUP, _POP_GROUP)
_RETRY_TOPIC: Final = f"%RETRY%{_RETRY_GROUP}"
_POP_TOPIC: Final = pop_retry_topic(TOPIC, _POP_GROUP, False)
_INVISIBLE_MS: Final = 5000
_ANSWER_MS: Final = 3000
#: An acknowledgement is in time if it was accepted so long after the pop, ms.
_IN_TIME_MS: Final = 3500

_Done = Callable[[RemotingCommand | None], None]


@dataclass(slots=True)
class _Waiting:
    """A request without an answer so far."""

    begin_ms: int
    reply: Callable[[], RemotingCommand | None]
    done: _Done


class _Ack(Enum):
    """What is known about the acknowledgement of a pop."""

    NONE = "none"
    #: It was accepted, in time.
    ACCEPTED = "accepted"
    #: It may have been accepted, or came late.
    PERHAPS = "perhaps"


@dataclass(slots=True)
class _Pop:
    """A pop of one message, and when it was asked for."""

    body: str
    begin_ms: int
    #: The check point that has to bring the message again.
    point: PointKey
    ack: _Ack = _Ack.NONE


def _points(machine: Machine) -> set[PointKey]:
    """Return the check points in the log of a broker, which come from its timer."""
    assert machine.box is not None
    return {CheckPoint.decode(message.body, "").key
            for message in machine.box.stored(TIMER_TOPIC, 0)
            if message.properties_map().get(TAGS) == CK_TAG}


class DerivedMessages:
    """The clients of one simulation that cause derived messages."""

    def __init__(self, group: KernelGroup, history: History, draw: random.Random) -> None:
        self._group = group
        self._history = history
        self._draw = draw
        self._waiting: list[_Waiting] = []
        self._sent_back: set[bytes] = set()
        #: Derivations of requests whose outcome is not known.
        self._doubtful: list[Derivation] = []
        #: The pops of each message.
        self._pops: dict[str, list[_Pop]] = {}
        #: The pops of each copy, by its topic and offset: a revival makes another copy.
        self._copies: dict[tuple[str, int], list[_Pop]] = {}
        #: Whether a pop was not answered, so that it may have taken any message.
        self._has_lost_pop = False
        #: By the body of a half message, how it ends.
        self._decisions: dict[bytes, int] = {}
        #: The connection of the producers to each life of a broker.
        self._producers: dict[KernelBox, Peer] = {}
        self.counts: Counter[str] = Counter()

    # --- time

    def look(self) -> None:
        """Note the answers, and answer questions."""
        now_ms = self._group.now_ms()
        for waiting in list(self._waiting):
            reply = waiting.reply()
            if reply is not None or now_ms - waiting.begin_ms >= _ANSWER_MS:
                self._waiting.remove(waiting)
                waiting.done(reply)
        for machine in self._group.alive:
            self._answer_questions(machine)

    def _begin(self, machine: Machine, done: _Done, code: int, header: object, body: bytes = b""
               ) -> None:
        reply = self._group.begin(machine, code, header, body)  # type: ignore[arg-type]
        self._waiting.append(_Waiting(self._group.now_ms(), reply, done))

    # --- messages that a consumer sends back

    def send_back(self, machine: Machine) -> None:
        """Send a message back, to be delivered again in the retry topic."""
        box = machine.box
        assert box is not None
        messages = [message for message in box.stored(TOPIC, 0)[-8:]
                    if message.body not in self._sent_back]
        if not messages:
            return
        message, level = self._draw.choice(messages), self._draw.choice(list(DELAYS_MS))
        self._sent_back.add(message.body)
        derivation = Derivation(f"back {message.body.decode()}",
                                self._group.now_ms() + DELAYS_MS[level])

        def done(reply: RemotingCommand | None) -> None:
            self._note("sent back", derivation, reply)

        self._begin(machine, done, RequestCode.CONSUMER_SEND_MSG_BACK,
                    ConsumerSendMsgBackRequestHeader(
                        delay_level=level, origin_topic=TOPIC, origin_msg_id="0",
                        group=_RETRY_GROUP, offset=message.physical_offset))

    def _note(self, kind: str, derivation: Derivation, reply: RemotingCommand | None) -> None:
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            self.counts[kind] += 1
            self._history.derivations.append(derivation)
        else:
            self._doubtful.append(derivation)

    # --- pops

    def pop(self, machine: Machine) -> None:
        """Pop some messages, and acknowledge some of them a moment later."""
        begin_ms = self._group.now_ms()

        def done(reply: RemotingCommand | None) -> None:
            if reply is None:
                self._has_lost_pop = True
                return
            for popped in popped_of(reply, TOPIC, _POP_GROUP):
                self.counts["popped"] += 1
                receipt = Receipt.parse(popped.receipt)
                pop = _Pop(popped.body.decode(), begin_ms, PointKey(
                    popped.topic, _POP_GROUP, popped.queue_id, receipt.start_offset,
                    receipt.pop_time, receipt.broker_name))
                self._pops.setdefault(pop.body, []).append(pop)
                self._copies.setdefault((popped.topic, popped.offset), []).append(pop)
                if self._draw.random() < 0.6:
                    self._acknowledge(machine, popped, pop)

        self._begin(machine, done, RequestCode.POP_MESSAGE, PopMessageRequestHeader(
            consumer_group=_POP_GROUP, topic=TOPIC, queue_id=0, max_msg_nums=4,
            invisible_time=_INVISIBLE_MS, poll_time=0, born_time=begin_ms, init_mode=0,
            exp_type="TAG", exp="*", order=False))

    def _acknowledge(self, machine: Machine, popped: Popped, pop: _Pop) -> None:
        pop.ack = _Ack.PERHAPS

        def done(reply: RemotingCommand | None) -> None:
            if (reply is not None and reply.code == ResponseCode.SUCCESS
                    and self._group.now_ms() < pop.begin_ms + _IN_TIME_MS):
                pop.ack = _Ack.ACCEPTED

        if machine.box is not None:
            self._begin(machine, done, RequestCode.ACK_MESSAGE, AckMessageRequestHeader(
                consumer_group=_POP_GROUP, topic=popped.topic, queue_id=popped.queue_id,
                extra_info=popped.receipt, offset=popped.offset))

    def _pop_faults(self, machine: Machine) -> Iterator[str]:
        """A message comes again after each pop, by a revival or another pop, unless acknowledged.

        The check point of a pop by a leader that loses the lead may be lost with it, and so is the
        progress: either the message is popped again, or an earlier pop is in the log, which decides
        as if the lost one had not been. In seed 541 that earlier pop was acknowledged. A copy of a
        message waits in its own queue, which may be the one of the retries, as in seed 737.
        """
        assert machine.box is not None
        revived: defaultdict[str, list[float]] = defaultdict(list)
        for message in machine.box.stored(_POP_TOPIC, 0):
            revived[message.body.decode()].append(message.store_timestamp)
        progress = {topic: machine.kernel.consumer_offset.query(_POP_GROUP, topic, 0)
                    for topic in (TOPIC, _POP_TOPIC)}
        points = _points(machine)
        for (topic, offset), pops in self._copies.items():
            if self._has_lost_pop or offset >= progress[topic]:
                continue
            kept, times = [pop for pop in pops if pop.point in points], revived[pops[0].body]
            if not kept or (kept[-1].ack is _Ack.NONE and not any(
                    time >= kept[-1].begin_ms + _INVISIBLE_MS for time in times)):
                yield (f"{pops[0].body}, at {offset} of {topic}, was popped, and did not come "
                       f"again: {pops}, {len(kept)} in the log, {times}")
        for body, pops in self._pops.items():
            times = revived[body]
            if times and not self._has_lost_pop and (
                    min(times) < pops[0].begin_ms + _INVISIBLE_MS
                    or all(pop.ack is _Ack.ACCEPTED for pop in pops)):
                yield f"{body} was revived without a reason: {pops}, {times}"

    # --- transactions

    def send_half(self, machine: Machine, body: str) -> None:
        """Send a half message; it ends by a request, or by the answer to a question."""
        data = body.encode()
        decision = self._decisions[data] = COMMIT if self._draw.random() < 0.7 else ROLLBACK
        begin_ms = self._group.now_ms()
        header = send_header(TOPIC, begin_ms, properties={
            "TRAN_MSG": "true", "PGROUP": _PRODUCERS, "UNIQ_KEY": f"U{body}"})
        header.sys_flag = SYS_TRANSACTION_PREPARED

        def done(reply: RemotingCommand | None) -> None:
            if decision == COMMIT:
                self._note("transactions", Derivation(body, begin_ms), reply)
            else:
                self._history.sends.append(Send(
                    "a", machine.name, TOPIC, body, begin_ms, self._group.now_ms(),
                    Outcome.REFUSED))
            if (reply is not None and reply.code == ResponseCode.SUCCESS
                    and machine.box is not None and self._draw.random() < 0.5):
                half = reply.header(SendMessageResponseHeader)
                self._end(machine, EndTransactionRequestHeader(
                    producer_group=_PRODUCERS, tran_state_table_offset=half.queue_offset,
                    commit_log_offset=parse_offset_message_id(half.msg_id)[2],
                    commit_or_rollback=decision, msg_id=half.msg_id))

        self._begin(machine, done, RequestCode.SEND_MESSAGE_V2, header, data)

    def _end(self, machine: Machine, header: EndTransactionRequestHeader) -> None:
        self._begin(machine, lambda reply: None, RequestCode.END_TRANSACTION, header)

    def _answer_questions(self, machine: Machine) -> None:
        box = machine.box
        assert box is not None
        peer = self._producers.get(box)
        if peer is None:
            now_ms = self._group.now_ms()
            peer = self._producers[box] = box.peer()
            box.kernel.clients.register_producer(_PRODUCERS, Client(
                "producer", peer, "JAVA", 479, now_ms, now_ms))
        for asked in questions(peer):
            header = asked.header
            self.counts["questions"] += 1
            if self._draw.random() < 0.9:
                self._end(machine, EndTransactionRequestHeader(
                    producer_group=_PRODUCERS,
                    tran_state_table_offset=header.tran_state_table_offset,
                    commit_log_offset=header.commit_log_offset,
                    commit_or_rollback=self._decisions[asked.message.body],
                    from_transaction_check=True, msg_id=header.msg_id or "",
                    transaction_id=header.transaction_id))

    # --- the end

    def entries(self, machine: Machine) -> list[Entry]:
        """Return the messages of the retry topic."""
        assert machine.box is not None
        return [Entry(message.physical_offset, _RETRY_TOPIC, message.queue_offset,
                      f"back {message.body.decode()}", message.store_timestamp)
                for message in machine.box.stored(_RETRY_TOPIC, 0)]

    def is_missing(self, machine: Machine) -> bool:
        """Whether something has not come yet at a broker."""
        assert machine.box is not None
        there = {entry.body for entry in self.entries(machine)}
        there |= {message.body.decode() for message in machine.box.stored(TOPIC, 0)}
        return any(each.body not in there for each in self._history.derivations) or any(
            self._pop_faults(machine))

    def finish(self, stored: set[str]) -> None:
        """Decide about requests whose outcome was not known.

        :param stored: the bodies of all final logs.
        """
        self._history.derivations += [each for each in self._doubtful if each.body in stored]

    def faults(self) -> Iterator[str]:
        """Return what is wrong with popped messages."""
        for machine in self._group.alive:
            yield from (f"{machine.name}: {fault}" for fault in self._pop_faults(machine))
