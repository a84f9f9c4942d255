"""Sends one message or a batch, with as many attempts as the options allow.

An attempt chooses a queue, sends, and ends with a response, a time-out or a lost connection. All
attempts of a send share one time-out. The outcome of an attempt decides about the next one:

    outcome of an attempt                    a send that waits     send_soon
    no connection, no response, no route     another broker        another broker
    the broker is busy: it stored nothing    again, see below      again, see below
    a code of ``RETRY_CODES``                another broker        the error
    any other code                           the error             the error
    a queue that the caller chose            the error             the error

While a send can still go to other brokers, an attempt gets only a share of the remaining time, so
that one broker that hangs does not use it up; the last attempt gets all of it. Later sends avoid a
broker that was not reached for a while, see ``fault_tolerance``.

A busy broker did not store the message. The send goes to another broker that is not busy, or waits
until this broker accepts it, however often it is refused within its time; see ``busy_brokers``.
This is also true for a queue that the caller chose. With ``retries=0`` nothing is tried again.

With ``await_master``, a send that finds no master for its topic asks for the route again and again,
until there is a master or its time is over. A master is also missing if its process does not answer
or if it says that it is a slave; both happen while a group of brokers elects another one.

Source: DefaultMQProducerImpl (sendDefaultImpl, sendKernelImpl), MQClientAPIImpl
(processSendResponse, onExceptionImpl), DefaultMQProducer.retryResponseCodes @5.3.3. Differs from
Apache: its client gives an attempt all the remaining time unless sendMsgMaxTimeoutPerRequest is
set, and tries a busy broker again at once, or not at all in asynchronous sends. In this client, the
header of each attempt of an asynchronous send names the queue of that attempt; in Apache's client
it names the first queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from twistmq.client.base.answers import STORED
from twistmq.client.base.errors import (
    Attempt,
    Busy,
    Closed,
    NoRoute,
    NotSafe,
    OptionError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeout,
    RequestRefused,
    RouteTimeout,
    SendFailed,
    Unsupported,
    refusal,
)
from twistmq.client.base.messages import ReceivedMessage, SendResult
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.link import Filled, Outcome
from twistmq.client.core.connection.routes import Route
from twistmq.client.core.connection.tasks import Future, Task, Timer
from twistmq.client.core.producer.batcher import Batcher, BatchSender
from twistmq.client.core.producer.fault_tolerance import TABLE_FAILURES, Faults
from twistmq.client.core.producer.outgoing_message import (
    OutgoingMessage,
    Preparer,
    ProducerOptions,
    send_header,
)
from twistmq.client.core.producer.queue_selector import Choice, RoundRobin, by_hash
from twistmq.protocol.bodies import MessageQueue, ProducerData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, HeaderError
from twistmq.protocol.header import request_template
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from twistmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from twistmq.protocol.json_text import RequestTemplate
from twistmq.protocol.topic_names import TEMPLATE_TOPIC

if TYPE_CHECKING:
    from twistmq.client.core.producer.busy_brokers import Gate

__all__ = ["RETRY_CODES", "Sender", "is_busy"]

#: The lowest version of brokers that have a timer. Source: MQVersion.V5_0_0 @5.3.3.
TIMER_VERSION_MIN: Final = 413
#: The refusals after which another broker may accept the message.
RETRY_CODES: Final = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
})
#: The refusals of an overloaded broker; and the begin of the remark of one more such refusal, whose
#: code is not specific. Source: AbstractSendMessageProcessor, BrokerFastFailure @5.3.3.
_BUSY_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_BUSY_REMARK: Final = "[PC_SYNCHRONIZED]"
#: The fields that differ between the sends of one topic, in the order of the header; and the number
#: of kinds of sends that have a template.
_VARYING: Final = ("queue_id", "born_timestamp", "properties")
_TEMPLATES_MAX: Final = 4096
#: The codes with which a broker refuses a message after it has lost the role of a master, and the
#: beginning of a remark with which it does so under other codes.
#: Source: SendMessageProcessor.rejectRequest @5.3.3.
_NO_MASTER_CODES: Final = frozenset({
    ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR})
_SLAVE_REMARK: Final = "[REJECTREQUEST]"
#: The wait before a route without a master is requested again, in ms.
_NO_MASTER_WAIT_MS: Final = 100
#: The wait before an unknown route is requested again, in ms.
_NO_ROUTE_WAIT_MS: Final = 10


class TransactionChecks(Protocol):
    """Answers checks of transactions, see ``transactions``."""

    on_check: Callable[[ReceivedMessage[Any]], Any]
    decide: Callable[[ReceivedMessage[Any]], Future[Any]]

    def asked(
        self, address: str, header: CheckTransactionStateRequestHeader,
        message: ReceivedMessage[Any],
    ) -> None:
        """Accept the check of a broker."""


class SendTrace(Protocol):
    """Records the sent messages, see ``tracer``."""

    def sent(self, message: OutgoingMessage, result: SendResult, duration_ms: float) -> None:
        """Record a message or a batch that was stored."""

    async def flush(self) -> None:
        """Send the waiting records."""

    async def close(self) -> None:
        """Send the waiting records, and stop accepting new ones."""


class PendingSend(msgspec.Struct):
    """A send in flight, with its attempts one after the other.

    :param on_done: called once, with the result or the error.
    :param queue: the queue to use; with None, the sender's choice applies.
    :param retry_codes: the refusals after which it is tried again.
    """

    _sender: Sender
    _message: OutgoingMessage
    _on_done: Callable[[SendResult | Exception], object]
    _queue: MessageQueue | None
    _retry_codes: frozenset[int]
    #: When it began, and when it fails at the latest, by the monotonic clock.
    _start_ms: float
    _deadline_ms: float
    #: The failed attempts.
    _attempts: list[Attempt] | None = None
    #: The address, broker and start of the attempt in flight.
    _address: str = ""
    _broker_name: str = ""
    _begin_ms: float = 0.0
    _timer: Timer | None = None
    #: The time-out and the queue of the attempt in flight.
    _time_ms: float = 0.0
    _target: MessageQueue | None = None
    #: The number of attempts that failed, except because of a busy broker.
    _tries: int = 0

    def attempt(self) -> None:
        """Start an attempt."""
        sender, topic = self._sender, self._message.topic
        route = sender.client.routes.cached_route(topic)
        if route is None or not route.write_queues or topic in sender.finding or (
                self._queue is not None and not sender.client.routes.has_master(self._queue)):
            # The route may have a queue again, or name the master of the queue's broker again.
            self._find_route(again=route is not None)
        else:
            self._send(route)

    def _find_route(self, *, again: bool) -> None:
        finding = self._sender.find_route(self._message.topic, again=again)
        self._begin_ms = self._sender.client.tasks.now_ms
        self._broker_name = ""
        self._timer = self._sender.client.tasks.call_later(
            self._remaining_ms(), self._ended, RouteTimeout("no name server answers in time"))

        def on_route(future: Future[Route]) -> None:
            if self._timer is None or not self._timer.is_pending:
                return
            self._timer.cancel()
            if isinstance(future.error, RequestRefused):
                # Neither this topic nor the template topic exists: waiting would not help.
                self._finish(future.error)
            elif future.error is not None:
                kind = RouteTimeout if isinstance(future.error, TimeoutError) else NoRoute
                self._ended(kind(str(_as_exception(future.error))))
            else:
                self._send(future.result())

        finding.when_done(on_route)

    def _remaining_ms(self) -> float:
        return max(self._deadline_ms - self._sender.client.tasks.now_ms, 0)

    def _send(self, route: Route) -> None:
        """Send to one queue of a route."""
        sender, message = self._sender, self._message
        client = sender.client
        self._begin_ms = client.tasks.now_ms
        self._broker_name = ""
        try:
            queue = self._queue or sender.choose(
                message, route, self._failed() if self._attempts or sender.gates else ())
            name = self._broker_name = client.routes.broker_of(queue)
            address = self._address = client.routes.master(name)
        except NoRoute as error:
            self._ended(error)
            return
        brokers = route.write_brokers
        self._time_ms = (self._deadline_ms - self._begin_ms if len(brokers) == 1
                         else self._share_ms(brokers))
        if sender.gates:
            gate = sender.gates.get(name)
            if gate is not None and not gate.is_open:
                self._target = queue
                gate.wait(self)
                return
        if message.is_timed:
            self._send_timely(address, queue)
        else:
            self._write(address, queue)

    def _share_ms(self, brokers: Collection[str]) -> float:
        """Return the time of an attempt: a share, while other brokers can be tried after it."""
        remaining_ms = self._deadline_ms - self._begin_ms
        if self._is_free:
            sender = self._sender
            shares = min(sender.options.retries + 1 - self._tries,
                         sender.remaining_count(brokers, self._failed() if self._attempts else ()))
            if shares > 1:
                remaining_ms /= shares
                bound_ms = sender.options.attempt_timeout_ms
                return remaining_ms if bound_ms is None else min(remaining_ms * shares, bound_ms)
        return remaining_ms

    @property
    def _is_free(self) -> bool:
        """Whether the send may go to any broker."""
        return self._queue is None and not self._message.sharding_key

    # --- waiting for a busy broker, see ``busy_brokers``

    @property
    def deadline_ms(self) -> float:
        """See ``WaitingSend``."""
        return self._deadline_ms

    def send_now(self) -> None:
        """See ``WaitingSend``: try the queue again."""
        client = self._sender.client
        self._begin_ms = client.tasks.now_ms
        try:
            address = self._address = client.routes.master(self._broker_name)
        except NoRoute as error:
            self._ended(error)
            return
        assert self._target is not None
        self._time_ms = self._remaining_ms()
        if self._message.is_timed:
            self._send_timely(address, self._target)
        else:
            self._write(address, self._target)

    def give_up(self) -> None:
        """See ``WaitingSend``."""
        if self._sender.client.is_closed:
            self._finish(Closed("the producer is closed"))
        elif not self._attempts:
            self._finish(SendFailed(self._message.topic, [Attempt(
                self._broker_name, self._sender.client.tasks.now_ms - self._begin_ms,
                Busy(ResponseCode.SYSTEM_BUSY, f"{self._address} is busy, and this message was not "
                     "sent to it"))]))
        else:
            self._fail(self._attempts[-1].error)

    def _send_timely(self, address: str, queue: MessageQueue) -> None:
        """Send a timed message, for which the version of its broker matters."""
        client = self._sender.client
        if client.versions.get(address, 0) >= TIMER_VERSION_MIN:
            self._write(address, queue)
        else:
            client.tasks.spawn(self._send_timed(address, queue), "version for a timed message")

    async def _send_timed(self, address: str, queue: MessageQueue) -> None:
        """Send a timed message after its broker is known to have a timer."""
        try:
            await self._sender.check_timer(address, self._time_ms)
        except BrokerError as error:
            self._ended(error)
        else:
            spent_ms = self._sender.client.tasks.now_ms - self._begin_ms
            self._time_ms = max(self._time_ms - spent_ms, 0.0)
            self._write(address, queue)

    def _write(self, address: str, queue: MessageQueue) -> None:
        sender, message = self._sender, self._message
        client = sender.client
        header = (sender.filled(message, queue.queue_id) if sender.is_plain
                  else sender.header(message, queue.queue_id))
        self._target = queue
        client.engine.request(address, message.code, header, message.body, self._replied,
                              self._time_ms)

    def _failed(self) -> list[str]:
        """Return the brokers to avoid: brokers at which this send failed, and busy ones."""
        return [*(attempt.broker_name for attempt in self._attempts or ()),
                *(name for name, gate in self._sender.gates.items() if not gate.is_open)]

    def _replied(self, outcome: Outcome) -> None:
        if not isinstance(outcome, RemotingCommand):
            self._ended(outcome)
            return
        if outcome.code not in STORED:
            self._ended(refusal(outcome.code, outcome.remark, self._address))
            return
        try:
            answer = outcome.header(SendMessageResponseHeader)
        except HeaderError as error:
            # The message may be stored, as after a lost response.
            self._ended(RemotingSendError(
                f"{self._address}: its answer cannot be read: {error}"))
            return
        sender, message, queue = self._sender, self._message, self._queue
        if sender.faults.is_active:
            sender.attempt_ended(
                self._broker_name, sender.client.tasks.now_ms - self._begin_ms, None)
        if sender.gates:
            gate = sender.gates.get(self._broker_name)
            if gate is not None:
                gate.stored()
        self._finish(SendResult(
            message.ids, answer.msg_id, MessageQueue(
                sender.client.namespace.without(message.topic),
                self._broker_name if queue is None else queue.broker_name, answer.queue_id),
            answer.queue_offset, outcome.code, answer.transaction_id, answer.recall_handle,
            answer.msg_region, answer.trace_on is not False))

    def _finish(self, outcome: SendResult | Exception) -> None:
        """Report the outcome, once."""
        sender = self._sender
        sender.client.sends_under_way -= 1
        if sender.is_watched:
            self._tell(outcome)
        self._on_done(outcome)

    def _tell(self, outcome: SendResult | Exception) -> None:
        """Report the outcome to the trace and the interceptors."""
        client = self._sender.client
        trace = self._sender.trace
        if trace is not None and isinstance(outcome, SendResult):
            trace.sent(self._message, outcome, client.tasks.now_ms - self._start_ms)
        if client.interceptors:
            failed = isinstance(outcome, Exception)
            client.interceptors.call(
                "after_send", client.namespace.without(self._message.topic), self._message.ids,
                client.tasks.now_ms - self._start_ms, None if failed else outcome,
                outcome if failed else None)

    def _ended(self, error: Exception) -> None:
        """Handle a failed attempt: try again, or report the error."""
        client = self._sender.client
        duration_ms = client.tasks.now_ms - self._begin_ms
        if self._broker_name:
            self._sender.attempt_ended(self._broker_name, duration_ms, error)
        if self._lacks_master(error):
            self._attempts = [Attempt(self._broker_name, duration_ms, error)]
            client.tasks.call_later(_NO_MASTER_WAIT_MS, self._await_master)
            return
        if is_busy(error) and self._sender.options.retries:
            self._note(duration_ms, error)
            self._wait_or_fail(error)
            return
        self._note(duration_ms, error)
        self._tries += 1
        again = isinstance(error, RemotingError | NoRoute) or (
            isinstance(error, RequestRefused) and error.response_code in self._retry_codes)
        if (again and self._is_free and not client.is_closed
                and self._tries <= self._sender.options.retries and self._remaining_ms() > 0):
            if self._broker_name:
                self.attempt()
            else:
                client.tasks.call_later(_NO_ROUTE_WAIT_MS, self.attempt)
            return
        self._fail(error)

    def _lacks_master(self, error: Exception) -> bool:
        """Whether this send waits for a master, because its topic has none after this failure."""
        sender = self._sender
        if not (sender.options.await_master and self._is_free and not sender.client.is_closed
                and self._remaining_ms() > _NO_MASTER_WAIT_MS):
            return False
        if isinstance(error, RequestRefused):
            is_missing = error.response_code in _NO_MASTER_CODES or _SLAVE_REMARK in str(error)
        else:
            is_missing = isinstance(error, RemotingError | NoRoute)
        route = sender.client.routes.cached_route(self._message.topic)
        return is_missing and (route is None or sender.remaining_count(
            route.write_brokers, [*self._failed(), self._broker_name]) == 0)

    def _await_master(self) -> None:
        """Ask for the route again, and send to the master that it names."""
        self._find_route(again=True)

    def _note(self, duration_ms: float, error: Exception) -> None:
        """Keep a failed attempt; of several refusals of a busy broker, only the last one."""
        attempts = self._attempts
        if attempts is None:
            attempts = self._attempts = []
        elif (attempts and attempts[-1].broker_name == self._broker_name
                and is_busy(error) and is_busy(attempts[-1].error)):
            attempts.pop()
        attempts.append(Attempt(self._broker_name, duration_ms, error))

    def _wait_or_fail(self, error: Exception) -> None:
        """Go to another broker, or wait for this busy one."""
        sender, client = self._sender, self._sender.client
        gate = sender.gate(self._broker_name, self._address)
        route = client.routes.cached_route(self._message.topic)
        if client.is_closed or self._remaining_ms() <= 0:
            gate.refused(None)
            self._fail(error)
        elif (self._is_free and route is not None
                and sender.remaining_count(route.write_brokers, self._failed()) > 0):
            gate.refused(None)
            self.attempt()
        else:
            gate.refused(self)

    def _fail(self, error: BaseException) -> None:
        """Report the error of the last attempt, or the errors of all attempts."""
        assert self._attempts is not None
        if (len(self._attempts) == 1 and isinstance(error, Exception)
                and not isinstance(error, RemotingError | NoRoute)):
            self._finish(error)
        else:
            self._finish(SendFailed(self._message.topic, self._attempts))


def is_busy(error: BaseException) -> bool:
    """Whether an overloaded broker refused a message, which is then not stored."""
    return isinstance(error, RequestRefused) and (
        error.response_code in _BUSY_CODES
        or (error.response_code == ResponseCode.SYSTEM_ERROR and _BUSY_REMARK in str(error)))


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RemotingTimeout(str(error))


class Sender:
    """The core of a producer.

    :param client: the client, perhaps shared.
    :param make_id: makes a unique id for a Unix time in ms; several threads call it.
    :param encode: converts a value to a body; with None, bodies are bytes.
    :param choice: chooses queues; with None, the queues take turns.
    """

    #: The value of ``GroupMember`` for producers.
    kind = "Sender"

    def __init__(
        self, client: ClientCore, options: ProducerOptions, make_id: Callable[[int], str],
        encode: Callable[[Any], bytes] | None = None, choice: Choice | None = None,
    ) -> None:
        self.client = client
        self.options = options
        #: The group's name at brokers.
        self.group = client.namespace.group(options.group)
        self.send_timeout_ms = options.timeout_ms
        preparer = Preparer(client, options, make_id, encode)
        self.prepare = preparer.prepare
        self.prepare_batch = preparer.prepare_batch
        self.preparer = preparer
        self.faults = Faults(options.latencies if options.avoid_slow else TABLE_FAILURES,
                             client.tasks.now_ms)
        #: The gates of busy brokers by name.
        self.gates: dict[str, Gate] = {}
        self.choice: Choice = choice or RoundRobin(client.randrange(1 << 16), self.faults)
        #: Whether requests have only the fields of their headers.
        self.is_plain = client.engine.is_plain
        self._is_intercepted = bool(client.interceptors)
        self._templates: dict[tuple[object, ...], RequestTemplate] = {}
        #: The route requests in flight, by topic. Sends of a topic wait for the same response, even
        #: if the route becomes known earlier, so that they are written in their original order.
        self.finding: dict[str, Task[Route]] = {}
        #: Records the sent messages; None: the producer is not traced.
        self.trace: SendTrace | None = None
        #: Answers checks of transactions; None: the producer does not send any.
        self.checks: TransactionChecks | None = None
        self._probing: Task[None] | None = None
        #: Puts messages that no caller waits for into batches; None: each is sent alone.
        self.batching: BatchSender[Any] | None = (
            Batcher(client.tasks, self.begin, preparer.join) if options.auto_batch else None)
        if options.auto_batch:
            client.on_close.append(self.flush_batches)

    # --- sending, in the engine

    def begin(
        self, message: OutgoingMessage, on_done: Callable[[SendResult | Exception], object],
        queue: MessageQueue | None = None, *, timeout_ms: float | None = None,
        retry_codes: frozenset[int] = frozenset(),
    ) -> None:
        """Send, and call back with the result or the error."""
        client = self.client
        if client.is_closed:
            on_done(Closed("the producer is closed"))
            return
        if queue is not None:
            fault = self._queue_fault(message, queue)
            if fault is not None:
                on_done(fault)
                return
        client.routes.follow(message.topic)
        bound_ms = self.options.timeout_ms if timeout_ms is None else timeout_ms
        now_ms = client.tasks.now_ms
        client.sends_under_way += 1
        PendingSend(self, message, on_done, queue, retry_codes, now_ms, now_ms + bound_ms).attempt()

    def find_route(self, topic: str, *, again: bool) -> Task[Route]:
        """Request the route of a topic, or join a request in flight; see ``find_for_send``."""
        finding = self.finding.get(topic)
        if finding is None:
            client = self.client
            finding = self.finding[topic] = client.tasks.spawn(
                client.routes.find_for_send(topic, again=again), "route for a send")
            # This callback runs first: a send that begins after the response does not wait for it.
            finding.when_done(lambda _: self.finding.pop(topic, None))
        return finding

    def _queue_fault(self, message: OutgoingMessage, queue: MessageQueue) -> OptionError | None:
        """Return the error if a message cannot be sent to a queue that the caller chose."""
        if not isinstance(queue, MessageQueue):
            return OptionError(f"queue is {queue!r}: give a MessageQueue, as queues() returns them")
        # The topics of replies do not belong to a namespace.
        if message.topic not in (queue.topic, self.client.namespace.topic(queue.topic)):
            return OptionError(f"the message is for topic {message.topic}, not for {queue}")
        return None

    @property
    def is_watched(self) -> bool:
        """Whether sends are reported to a trace or an interceptor."""
        return self.trace is not None or self._is_intercepted

    def begin_soon(
        self, message: OutgoingMessage, on_done: Callable[[SendResult | Exception], object],
        queue: MessageQueue | None = None,
    ) -> None:
        """Send a message that no caller waits for, perhaps in a batch."""
        if isinstance(self.batching, Batcher):
            self.batching.add(message, on_done, queue)
        else:
            self.begin(message, on_done, queue)

    def flush_batches(self) -> None:
        """Send the batches that are not full yet."""
        if self.batching is not None:
            self.batching.flush()

    async def send(
        self, message: OutgoingMessage, queue: MessageQueue | None = None, *,
        timeout_ms: float | None = None, retry_codes: frozenset[int] = RETRY_CODES,
    ) -> SendResult:
        """Send and wait.

        :param retry_codes: the refusals after which it is tried again.
        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker finally refuses it.
        :raises NotSafe: when ``require_safe`` is set and the message is not safe.
        """
        future: Future[SendResult] = Future()

        def done(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, Exception):
                future.set_error(outcome)
            else:
                future.set_result(outcome)

        self.begin(message, done, queue, timeout_ms=timeout_ms, retry_codes=retry_codes)
        return self.checked(await future)

    def choose(self, message: OutgoingMessage, route: Route, failed: Sequence[str]) -> MessageQueue:
        """Choose the queue of an attempt.

        :param failed: the brokers at which this send already failed.
        :raises NoRoute: when the route has no queue.
        """
        queues = route.write_queues
        if not queues:
            raise NoRoute(route.write_fault)
        if message.sharding_key:
            return by_hash(queues, message.sharding_key)
        now_ms = self.client.tasks.now_ms
        if route.owners and (failed or self.faults.is_active):
            # Logical queues do not name their broker.
            queues = [queue for queue in queues
                      if route.owners[queue] not in failed
                      and self.faults.is_available(route.owners[queue], now_ms)] or queues
        return self.choice.choose(queues, failed, now_ms)

    def remaining_count(self, brokers: Collection[str], failed: Collection[str]) -> int:
        """Return the number of brokers that a send can still try: not failed and not left out."""
        faults, now_ms = self.faults, self.client.tasks.now_ms
        return sum(name not in failed
                   and (not faults.is_active or faults.is_available(name, now_ms))
                   for name in brokers)

    def gate(self, broker_name: str, address: str) -> Gate:
        """Return the gate of a busy broker."""
        gate = self.gates.get(broker_name)
        if gate is None:
            # Imported here, because few producers need it.
            from twistmq.client.core.producer.busy_brokers import Gate

            client = self.client
            if not self.gates:
                client.on_close.append(self._close_gates)

            def forget() -> None:
                del self.gates[broker_name]
                if not self.gates:
                    client.on_close.remove(self._close_gates)

            gate = self.gates[broker_name] = Gate(
                client.tasks, broker_name, lambda: client.engine.under_way(address), forget)
        return gate

    def _close_gates(self) -> None:
        for gate in list(self.gates.values()):
            gate.close()

    def attempt_ended(
        self, broker_name: str, duration_ms: float, error: BaseException | None
    ) -> None:
        """Record how fast a broker is, and whether it is alive, from an attempt."""
        faults = self.faults
        unreached = isinstance(error, RemotingError)
        faults.ended(broker_name, duration_ms, self.client.tasks.now_ms,
                     failed=error is not None and not isinstance(error, RequestRefused),
                     reachable=not unreached)
        if unreached and self._probing is None:
            self._probing = self.client.tasks.spawn(self._probe_always(faults), "probes")
            self._probing.when_done(self._probed)

    def _probed(self, _: object) -> None:
        self._probing = None

    async def _probe_always(self, faults: Faults) -> None:
        """Probe the brokers that were not reached, until all are reachable."""
        client = self.client
        while (due_ms := faults.due_ms()) is not None and not client.is_closed:
            await client.tasks.sleep(max(due_ms - client.tasks.now_ms, 1))
            for name in faults.probes(client.tasks.now_ms):
                client.tasks.spawn(self._probe(faults, name), "probe")

    async def _probe(self, faults: Faults, broker_name: str) -> None:
        try:
            address = self.client.routes.master(broker_name)
        except NoRoute:
            faults.forget(broker_name)
            return
        topic = next(iter(self.client.routes.followed()), TEMPLATE_TOPIC)
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
        try:
            await self.client.engine.invoke(address, RequestCode.GET_MAX_OFFSET, header,
                                            timeout_ms=faults.probe_timeout_ms)
        except RemotingError:
            return
        faults.probed(broker_name)

    def checked(self, result: SendResult) -> SendResult:
        """Return the result; :raises NotSafe: when it is less safe than the options require."""
        if self.options.require_safe and not result.safe:
            raise NotSafe(result)
        return result

    async def send_oneway(
        self, message: OutgoingMessage, queue: MessageQueue | None = None
    ) -> None:
        """Send without a response.

        :raises NoRoute: when no broker accepts the topic.
        """
        client = self.client
        client.check_open()
        begin_ms = client.tasks.now_ms
        fault = None if queue is None else self._queue_fault(message, queue)
        if fault is not None:
            raise fault
        client.routes.follow(message.topic)
        route = await client.routes.find_for_send(
            message.topic, again=queue is not None and not client.routes.has_master(queue))
        target = queue or self.choose(message, route, ())
        address = client.routes.master(client.routes.broker_of(target))
        if message.is_timed:
            await self.check_timer(address, self.options.timeout_ms)
        client.engine.send_oneway(address, message.code, self.header(message, target.queue_id),
                                  message.body)
        if client.interceptors:
            client.interceptors.call(
                "after_send", client.namespace.without(message.topic), message.ids,
                client.tasks.now_ms - begin_ms, None, None)

    async def check_timer(self, address: str, timeout_ms: float) -> None:
        """Check, by the response to a heartbeat, that a broker can deliver timed messages.

        :raises Unsupported: when it is older than 5.0: it would deliver them at once.
        :raises RemotingConnectError: when it does not report its version.
        """
        client = self.client
        if address not in client.versions:
            # A heartbeat in flight may have a longer time-out than this message.
            beating = client.tasks.spawn(client.heartbeat(address, timeout_ms), "heartbeat")
            with suppress(TimeoutError):
                await client.tasks.wait_for(timeout_ms, beating, TimeoutError)
        if address not in client.versions:
            raise RemotingConnectError(f"{address} does not report its version in response to a "
                                       "heartbeat, which is needed before a timed message")
        if client.versions[address] < TIMER_VERSION_MIN:
            raise Unsupported(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"the broker at {address} is older than 5.0 and would deliver a message that has "
                "delay_s or deliver_at at once; use delay_level")

    def header(self, message: OutgoingMessage, queue_id: int) -> SendMessageRequestHeaderV2:
        """Return the header of a send."""
        return send_header(
            self.group, message.topic, queue_id, self.client.tasks.clock.wall_ms(),
            message.properties, message.flag, message.sys_flag, message.reconsume_times,
            message.is_batch, message.max_reconsume_times)

    def filled(self, message: OutgoingMessage, queue_id: int) -> Filled:
        """Return the same header, for a link without credentials."""
        kind = (message.topic, message.code, message.is_batch, message.flag, message.sys_flag,
                message.reconsume_times, message.max_reconsume_times)
        template = self._templates.get(kind)
        if template is None:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            template = self._templates[kind] = request_template(
                message.code, self.header(message, queue_id), _VARYING)
        return Filled(template, (queue_id, self.client.tasks.clock.wall_ms(),
                                 encode_basestring(message.properties)[1:-1]))

    # --- the group

    async def leave(self) -> None:
        """Leave the group; the client stays open."""
        if self.flush_batches in self.client.on_close:
            self.client.on_close.remove(self.flush_batches)
        if self.trace is not None:
            await self.trace.close()
        await self.client.remove(self)

    async def finish(self) -> None:
        """See ``GroupMember``; ``exit_flush`` waits for the sends themselves."""
        self.flush_batches()
        if self.trace is not None:
            while self.client.sends_under_way:
                await self.client.tasks.sleep(_NO_ROUTE_WAIT_MS)
            await self.trace.flush()

    def producer_data(self) -> ProducerData:
        """Return the producer's part of a heartbeat."""
        return ProducerData(group_name=self.group)

    def __repr__(self) -> str:
        return f"producer of group {self.group}"

    def consumer_data(self) -> None:
        """Return None, because a producer does not consume."""
