"""The check of one half queue: finds open half messages and asks their producers for the outcome.

A half message stays hidden until its producer reports the outcome of the transaction. The report
may be lost, and the commit log cannot be changed in place, so the broker must find the half
messages without an outcome and ask. It does this with a cursor over the half queue, and a second
cursor over the op queue, which lists the half messages that were ended. A check goes through the
half queue in small steps, from the end of the previous check to the end that the queue had when the
check began.

- A half message that was ended is passed.
- An open half message is copied to the end of the queue and then passed, so that it does not hold
  up the messages after it, and its producer group is asked. If it was checked too often or is too
  old, it is given up instead.
- A half message that is too young ends the check, because all messages after it are younger.

A slave that stands in for its master asks no producers. It hands the open half messages over to
other brokers, one after the other.

Source: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener,
DefaultTransactionalMessageCheckListener @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import (
    BrokerError,
    MessageRecord,
    RequestCode,
    ResponseCode,
    StoredMessage,
    decode_record,
)
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.headers import CheckTransactionStateRequestHeader
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import Shares
from twistmq.broker.api.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twistmq.broker.api.wire import PERM_READ_WRITE, offset_message_id
from twistmq.broker.api.wire import properties as names
from twistmq.transaction.half_message import (
    born_ms,
    check_body,
    checks_of,
    copy_of_half,
    discarded_record,
    escaping_record,
    immunity_ms,
    origin_of,
)
from twistmq.transaction.ops import KnownOps, OpBatches

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from twistmq.broker.api import Broker
    from twistmq.broker.api.requests import Client
    from twistmq.transaction.metrics import TransactionMetrics
    from twistmq.transaction.questions import Questions

__all__ = ["HalfQueue"]

#: The limits of one step: number of half messages, their bytes, and time. A step encodes and
#: appends the copies that it makes; this many bytes take some ms.
STEP_COUNT: Final = 64
STEP_BYTES: Final = 1024 * 1024
STEP_MS: Final = 4
#: Limit of bytes, within an interval in ms, of half messages that are copied because their own
#: first-check time is still in the future. Every check copies them again, endlessly if the time is
#: far away. Beyond this limit, producers are asked at once, and messages are given up after
#: transactionCheckMax checks. Each host may use half of the room that the other hosts left.
#: Apache's broker has no such limit.
UNASKED_BYTES: Final = 4 * 1024 * 1024
UNASKED_MS: Final = 30_000
#: Size of the port in the host of a message, which consists of an address and a port.
_PORT_SIZE_BYTES: Final = 4
#: The maximum number of ended half messages that are passed as one.
PASSED_COUNT: Final = 1000
#: The number of entries of the half queue that are read at once.
READ_COUNT: Final = 32
_HOUR_MS: Final = 3_600_000


class HalfQueue:
    """One half queue and the offset of its check.

    :param offset: the first half message to check.
    :param op_offset: the first op message that is not consumed.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, batches: OpBatches, metrics: TransactionMetrics,
        questions: Questions, queue_id: int, offset: int, op_offset: int,
    ) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._batches = batches
        self._metrics = metrics
        self._questions = questions
        self.queue_id = queue_id
        self.offset = offset
        self.ops = KnownOps(broker, queue_id, op_offset)
        #: The end of the queue when the check began; later messages are copies made by the check.
        self._end = 0
        self._entries: list[tuple[int, int, int]] = []
        self._bytes = 0
        #: Groups whose half messages could not be checked; each is logged once in a check.
        self._without_producer: set[str] = set()
        #: Bytes copied without asking since a time in Unix ms, by the sender's host, and whether it
        #: was logged that they exceed the limit.
        self._unasked: Shares[bytes] = Shares()
        self._unasked_ms = 0
        self._unasked_full = False
        #: Fires when another broker has answered; used by a slave that stands in for its master.
        self.waiting: Deferred[None] | None = None
        #: Whether the other brokers refused the half message at the current offset.
        self._is_refused = False

    def begin(self) -> None:
        """Start a check; :meth:`step` continues it."""
        self._end = self._broker.store.queues.max_offset(HALF_TOPIC, self.queue_id)
        self._without_producer.clear()
        self._unasked_full = self._is_refused = False

    def step(self) -> bool:
        """Do one step of the check; :returns: whether there is more to do."""
        begin_ms = self._broker.steady.now_ms()
        self._bytes = 0
        for _ in range(STEP_COUNT):
            if not self._one():
                return False
            if self._bytes >= STEP_BYTES or self._broker.steady.now_ms() - begin_ms >= STEP_MS:
                break
        return True

    def _one(self) -> bool:
        """Process one half message; :returns: False when the check is at its end."""
        if self.waiting is not None or self._is_refused:
            return False
        if self._pass_ended():
            return True
        if self.offset >= self._end:
            return False
        message = self._read()
        if message is None:
            return True
        now_ms = self._broker.now_ms()
        settings = self._broker.settings
        properties = message.properties_map()
        timeout_ms = settings.int("transactionTimeOut")
        age_ms = now_ms - born_ms(message)
        own_ms = immunity_ms(properties, timeout_ms)
        if own_ms is None and 0 <= age_ms < timeout_ms:
            return False
        # A half message is known to be open only after all op messages were written and read.
        if self._batches.waits(self.queue_id) and not self._batches.write():
            return False
        if not self.ops.all_read:
            self.ops.read(self.offset)
            return True
        self._bytes += message.size
        if origin_of(message, properties) in self.ops.late:
            self._advance()
            return True
        if self._broker.is_slave:
            self._escape(message, properties)
            return self.waiting is None
        checks = checks_of(properties)
        if (
            (names.TRANSACTION_CHECK_TIMES in properties
             and checks >= settings.int("transactionCheckMax"))
            or age_ms > settings.int("fileReservedTime") * _HOUR_MS
        ):
            return self._discard(message, properties)
        try:
            if own_ms is not None and age_ms < own_ms and self._may_wait(message, now_ms):
                self._put_back(copy_of_half(message, properties))
            else:
                self._check(message, properties, checks + 1)
        except BrokerError as error:
            if error.response_code == ResponseCode.MESSAGE_ILLEGAL:
                # No copy can ever be stored, because the properties leave no room for another one.
                return self._discard(message, properties)
            self.log.error("half message {offset} of queue {queue_id} cannot be put back: {error}",
                           offset=self.offset, queue_id=self.queue_id, error=str(error))
            return False
        return True

    def _may_wait(self, message: StoredMessage, now_ms: int) -> bool:
        """Whether a half message may be copied without asking, because it set its own time."""
        if not 0 <= now_ms - self._unasked_ms < UNASKED_MS:
            self._unasked_ms = now_ms
            self._unasked.clear()
        size, host = message.size, message.born_host[:-_PORT_SIZE_BYTES]
        if self._unasked.amount(host) + size > self._unasked.maximum(host, UNASKED_BYTES):
            if not self._unasked_full:
                self._unasked_full = True
                self.log.warn("half messages of queue {queue_id} are checked before their own "
                              "time: the waiting ones exceed the share of their host in {size} "
                              "bytes", queue_id=self.queue_id, size=UNASKED_BYTES)
            return False
        self._unasked.add(host, size)
        return True

    def _advance(self) -> None:
        self.offset += 1
        del self._entries[:1]

    def _pass_ended(self) -> bool:
        """Pass half messages that are known to be ended; :returns: whether there were any."""
        first = self.offset
        while self.offset - first < PASSED_COUNT and self.ops.take(self.offset):
            self._advance()
        return self.offset > first

    def _read(self) -> StoredMessage | None:
        """Return the current half message; if it is unreadable, pass it and return None."""
        store = self._broker.store
        if not self._entries:
            min_offset = store.queues.min_offset(HALF_TOPIC, self.queue_id)
            if self.offset < min_offset:
                self.log.error("{count} messages of {topic}-{queue_id} were removed before they "
                               "were checked: checks continue at {least}, where the queue begins, "
                               "instead of {offset}", count=min_offset - self.offset,
                               topic=HALF_TOPIC, queue_id=self.queue_id, least=min_offset,
                               offset=self.offset)
                self.offset = min_offset
                self.ops.skip_to(min_offset)
                return None
            self._entries = store.queues.entries(
                HALF_TOPIC, self.queue_id, self.offset, READ_COUNT)
        log_offset = self._entries[0][0] if self._entries else -1
        try:
            data = store.look_message(log_offset)
            if data is None:
                raise StoreDamaged("it is not in the commit log")
            return decode_record(data)
        except StoreDamaged as error:
            self.log.error("half message {offset} of {topic}-{queue_id}, at {place} of the commit "
                           "log, cannot be checked: {error}", offset=self.offset, topic=HALF_TOPIC,
                           queue_id=self.queue_id, place=log_offset, error=str(error))
            self._advance()
            return None

    # --- handling an open half message

    def _escape(self, message: StoredMessage, properties: dict[str, str]) -> None:
        """Hand a half message over to another broker, which then asks the producers.

        Differs from Apache, which passes a half message that no broker accepted in ten tries: this
        one waits for the master.
        """
        escape, offset = self._broker.escape, self.offset
        try:
            record = escaping_record(message, properties)
        except BrokerError as error:
            self.log.error("half message {offset} of queue {queue_id} cannot be stored on another "
                           "broker: {error}", offset=offset, queue_id=self.queue_id,
                           error=str(error))
            self._advance()
            return
        if escape is None:
            return

        def done(refusals: dict[int, BrokerError]) -> None:
            self._is_refused = bool(refusals)
            for error in refusals.values():
                self.log.warn("half message {offset} of queue {queue_id} was not stored on another "
                              "broker: {error}", offset=offset, queue_id=self.queue_id,
                              error=str(error))
            if not refusals:
                self._advance()

        def failed(failure: Failure) -> None:
            self._is_refused = True
            self.log.failure("half messages cannot be stored on other brokers", failure)

        def end(_: None) -> None:
            self.waiting = None

        self.waiting = waiting = escape([record]).addCallbacks(done, failed)
        waiting.addCallback(end)

    def _put_back(self, copy: MessageRecord) -> None:
        """Store the copy of a half message and pass the half message.

        :raises BrokerError: when the copy cannot be stored.
        """
        for error in self._broker.append([copy]).values():
            raise error
        self._broker.stats.messages_put([copy])
        self._advance()

    def _check(self, message: StoredMessage, properties: dict[str, str], checks: int) -> None:
        """Put a half message back and ask its producer group for the outcome.

        :raises BrokerError: when it cannot be put back.
        """
        copy = copy_of_half(message, properties, checks=checks)
        self._put_back(copy)
        group = properties.get(names.PGROUP, "")
        topic = properties.get(names.REAL_TOPIC, "")

        #: Cached answers by account and host, because a group may have thousands of members.
        is_allowed_for: dict[tuple[object, str], bool] = {}

        def may_be_asked(client: Client) -> bool:
            """Whether a producer may see the message; in Apache's broker every member may."""
            address = client.channel.remote_address
            key = client.owner, address.rpartition(":")[0]
            is_allowed = is_allowed_for.get(key)
            if is_allowed is None:
                is_allowed = is_allowed_for[key] = self._broker.may_publish(
                    client.owner, address, topic)
            return is_allowed

        producer = self._broker.clients.available_producer(group, may_be_asked)
        if producer is None:
            if group not in self._without_producer:
                self._without_producer.add(group)
                self.log.warn("no producer of {group} that may send to {topic} is connected to "
                              "report how its half messages ended, the first at {offset}",
                              group=group, topic=topic, offset=message.queue_offset)
            return
        unique_key = properties.get(names.UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            topic=HALF_TOPIC, tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.physical_offset, msg_id=unique_key, transaction_id=unique_key,
            offset_msg_id=offset_message_id(copy.store_host, copy.physical_offset),
            broker_name=self._broker.broker_name)
        try:
            body = check_body(message, copy, properties)
        except BrokerError as error:
            self.log.error("half message {offset} of queue {queue_id} cannot be checked: {error}",
                           offset=copy.queue_offset, queue_id=self.queue_id, error=str(error))
            return
        self.log.debug("{group} is asked how {key} ended, check {checks}", group=group,
                       key=unique_key, checks=checks)
        channel = producer.channel
        self._questions.ask(copy.physical_offset, lambda: channel.send_oneway(
            RequestCode.CHECK_TRANSACTION_STATE, header, body))

    def _discard(self, message: StoredMessage, properties: dict[str, str]) -> bool:
        """Give a half message up; :returns: False when that cannot be stored now."""
        broker = self._broker
        if broker.topic_config.get(CHECK_MAX_TIME_TOPIC) is None:
            broker.topic_config.create_in_send_back(CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE, 0)
            broker.topics_changed()
        record = discarded_record(message)
        for error in broker.append([record]).values():
            self.log.error("half message {offset} of queue {queue_id} cannot be given up: {error}",
                           offset=self.offset, queue_id=self.queue_id, error=str(error))
            if error.response_code != ResponseCode.MESSAGE_ILLEGAL:
                return False
            self._advance()
            return True
        broker.stats.messages_put([record])
        self._lines.warn(
            broker.now_ms(), "half message {key} of {topic} is given up after {checks} checks: no "
            "producer reported how it ended", key=properties.get(names.UNIQ_KEY),
            topic=properties.get(names.REAL_TOPIC), checks=checks_of(properties))
        self._metrics.add({properties.get(names.REAL_TOPIC, ""): -1})
        self._advance()
        data = broker.store.look_message(message.physical_offset)
        assert data is not None, "it was read in this turn"
        broker.hooks.half_message_discarded(data)
        return True
