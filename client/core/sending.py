"""Sending: one message or a batch, over as many attempts as the options allow.

An attempt chooses a queue, sends, and ends with a reply, a time-out or a lost connection. All
attempts of a send share one time-out. The outcome of an attempt decides about the next:

    outcome of an attempt                    a send that waits     send_soon
    no connection, no reply, no route        another broker        another broker
    a code of ``RETRY_CODES``                another broker        the error
    any other code                           the error             the error
    a queue that the caller chose            the error             the error

Source: DefaultMQProducerImpl (sendDefaultImpl, sendKernelImpl), MQClientAPIImpl
(processSendResponse, onExceptionImpl), DefaultMQProducer.retryResponseCodes @5.3.3. Differs from
Apache: an attempt of an asynchronous send has the queue it goes to in its header; Apache's keeps
the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import HeaderError, RemotingError, RemotingTimeout
from twistmq.broker.topic_names import (
    RETRY_GROUP_TOPIC_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    TEMPLATE_TOPIC,
    topic_fault,
)
from twistmq.broker.wire.batch import encode_batch
from twistmq.broker.wire.bodies import MessageQueue, ProducerData
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from twistmq.broker.wire.properties import UNIQ_KEY, WAIT, format_properties
from twistmq.client.core.client import ClientCore
from twistmq.client.core.link import Outcome
from twistmq.client.core.routes import NEW_TOPIC_QUEUES, Route
from twistmq.client.core.tasks import Future, Timer
from twistmq.client.errors import (
    Attempt,
    Closed,
    NoRoute,
    NotSafe,
    OptionError,
    RequestRefused,
    SendFailed,
    refusal,
)
from twistmq.client.messages import STORED, Message, SendResult

__all__ = ["BODY_SIZE_MAX", "RETRY_CODES", "Chooser", "Outgoing", "ProducerOptions", "Sender",
           "send_header"]

log = logging.getLogger("twistmq.client")

#: The longest body, and the longest batch as it is encoded, bytes. Source: DefaultMQProducer.
BODY_SIZE_MAX: Final = 4 << 20
#: Refusals after which another broker may take the message.
RETRY_CODES: Final = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
})
#: Names of topics that are remembered as checked.
_TOPICS_MAX: Final = 4096
#: The wait before a route that is not known is asked for again, ms.
_NO_ROUTE_WAIT_MS: Final = 10


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a producer."""

    group: str = "twistmq_producer"
    #: Bound on a send, all attempts together, ms.
    timeout_ms: float = 3000
    #: How often a send is tried again.
    retries: int = 2
    #: Raise ``NotSafe`` when a message is stored but a flush or a slave was not waited for.
    require_safe: bool = False
    #: Bodies of so many bytes are compressed; 0: none.
    compress_over: int = 4096
    #: "zlib", "lz4" or "zstd".
    codec: str = "zlib"
    #: Bounds on messages, and on their bytes, that ``send_soon`` has under way.
    in_flight_max: int = 1024
    in_flight_bytes_max: int = 64 << 20


def send_header(
    group: str, topic: str, queue_id: int, born_ms: int, properties: str, flag: int = 0,
    sys_flag: int = 0, reconsume_times: int = 0, is_batch: bool = False,
    max_reconsume_times: int | None = None,
) -> SendMessageRequestHeaderV2:
    """The header of a send; names are those at brokers, properties are encoded."""
    return SendMessageRequestHeaderV2(
        group, topic, TEMPLATE_TOPIC, NEW_TOPIC_QUEUES, queue_id, sys_flag, born_ms, flag,
        properties, reconsume_times, False, max_reconsume_times=max_reconsume_times,
        batch=is_batch)


class Chooser(Protocol):
    """Chooses the queue of an attempt."""

    def choose(self, route: Route, failed: Sequence[str]) -> MessageQueue:
        """Choose.

        :param failed: the brokers at which this send failed already.
        :raises NoRoute: when the route has no queue.
        """

    def ended(self, broker_name: str, duration_ms: float, error: BaseException | None) -> None:
        """Learn how long an attempt took and how it ended."""


class Outgoing:
    """A message, or a batch, that is ready to be sent.

    :param topic: as brokers know it.
    :param ids: the unique ids, joined by commas.
    """

    __slots__ = ("body", "code", "flag", "ids", "is_batch", "max_reconsume_times", "properties",
                 "reconsume_times", "sys_flag", "topic")

    def __init__(
        self, topic: str, body: bytes, properties: str, ids: str, *, flag: int = 0,
        sys_flag: int = 0, is_batch: bool = False, reconsume_times: int = 0,
        max_reconsume_times: int | None = None, code: int = RequestCode.SEND_MESSAGE_V2,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.ids = ids
        self.flag = flag
        self.sys_flag = sys_flag
        self.is_batch = is_batch
        self.reconsume_times = reconsume_times
        self.max_reconsume_times = max_reconsume_times
        self.code = code

    @property
    def size(self) -> int:
        """Bytes, nearly, for bounds."""
        return len(self.body) + len(self.properties) + 64


class Sending:
    """A send under way: its attempts, one after the other.

    :param on_done: called once, with the result or the error.
    :param queue: where it has to go; None: the chooser's choice.
    :param retry_codes: the refusals after which it is tried again.
    """

    __slots__ = (
        "_attempts",
        "_begin_ms",
        "_broker_name",
        "_chooser",
        "_deadline_ms",
        "_message",
        "_on_done",
        "_queue",
        "_retry_codes",
        "_sender",
        "_timer",
    )

    def __init__(
        self, sender: Sender, message: Outgoing,
        on_done: Callable[[SendResult | Exception], object],
        queue: MessageQueue | None, timeout_ms: float, retry_codes: frozenset[int],
        chooser: Chooser,
    ) -> None:
        self._sender = sender
        self._message = message
        self._on_done = on_done
        self._queue = queue
        self._retry_codes = retry_codes
        self._chooser = chooser
        self._deadline_ms = sender.client.tasks.now_ms + timeout_ms
        self._attempts: list[Attempt] | None = None
        self._broker_name = ""
        self._begin_ms = 0.0
        self._timer: Timer | None = None

    def attempt(self) -> None:
        """Begin an attempt."""
        sender = self._sender
        route = sender.client.routes.known(self._message.topic)
        if route is None or not route.write_queues:
            self._find_route()
        else:
            self._send(route)

    def _find_route(self) -> None:
        routes = self._sender.client.routes
        finding = self._sender.client.tasks.spawn(
            routes.find_for_send(self._message.topic), "route for a send")
        self._begin_ms = self._sender.client.tasks.now_ms
        self._broker_name = ""
        self._timer = self._sender.client.tasks.later(
            self._left_ms(), self._ended, NoRoute("no name server answers in time"))

        def found(done: Future[Route]) -> None:
            if self._timer is None or not self._timer.is_pending:
                return
            self._timer.cancel()
            if isinstance(done.error, RequestRefused):
                # Neither this topic nor one that it could be made of: a wait changes nothing.
                self._on_done(done.error)
            elif done.error is not None:
                self._ended(_as_exception(done.error))
            else:
                self._send(done.result())

        finding.when_done(found)

    def _left_ms(self) -> float:
        return max(self._deadline_ms - self._sender.client.tasks.now_ms, 0)

    def _send(self, route: Route) -> None:
        """Send to one queue."""
        sender, message = self._sender, self._message
        client = sender.client
        self._begin_ms = client.tasks.now_ms
        self._broker_name = ""
        try:
            queue = self._queue or self._chooser.choose(route, self._failed())
            self._broker_name = client.routes.broker_of(queue)
            address = client.routes.master(self._broker_name)
        except NoRoute as error:
            self._ended(error)
            return
        client.engine.request(address, message.code, sender.header(message, queue.queue_id),
                              message.body, self._replied, self._left_ms())

    def _failed(self) -> list[str]:
        return [attempt.broker_name for attempt in self._attempts] if self._attempts else []

    def _replied(self, outcome: Outcome) -> None:
        if not isinstance(outcome, RemotingCommand):
            self._ended(outcome)
            return
        if outcome.code not in STORED:
            self._ended(refusal(outcome.code, outcome.remark, self._broker_name))
            return
        try:
            answer = outcome.header(SendMessageResponseHeader)
        except HeaderError as error:
            self._ended(error)
            return
        sender = self._sender
        self._chooser.ended(self._broker_name, sender.client.tasks.now_ms - self._begin_ms, None)
        topic = sender.client.namespace.without(self._message.topic)
        queue_broker = self._queue.broker_name if self._queue else self._broker_name
        self._on_done(SendResult(
            self._message.ids, answer.msg_id, MessageQueue(topic, queue_broker, answer.queue_id),
            answer.queue_offset, outcome.code, answer.transaction_id, answer.recall_handle,
            answer.msg_region, answer.trace_on is not False))

    def _ended(self, error: Exception) -> None:
        """An attempt failed: try again, or tell the error."""
        client = self._sender.client
        duration_ms = client.tasks.now_ms - self._begin_ms
        if self._broker_name:
            self._chooser.ended(self._broker_name, duration_ms, error)
        if self._attempts is None:
            self._attempts = []
        self._attempts.append(Attempt(self._broker_name, duration_ms, error))
        again = isinstance(error, RemotingError | NoRoute) or (
            isinstance(error, RequestRefused) and error.response_code in self._retry_codes)
        if (again and self._queue is None and not client.is_closed
                and len(self._attempts) <= self._sender.options.retries
                and self._left_ms() > 0):
            if self._broker_name:
                self.attempt()
            else:
                client.tasks.later(_NO_ROUTE_WAIT_MS, self.attempt)
            return
        if len(self._attempts) == 1 and not isinstance(error, RemotingError | NoRoute):
            self._on_done(error)
        else:
            self._on_done(SendFailed(self._message.topic, self._attempts))


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RemotingTimeout(str(error))


class RoundRobin:
    """The queues of each topic in turn, those of brokers that failed left out."""

    def __init__(self, seed: int = 0) -> None:
        self._turn = seed

    def choose(self, route: Route, failed: Sequence[str]) -> MessageQueue:
        """Choose; :raises NoRoute: when the route has no queue."""
        queues = route.write_queues
        if not queues:
            raise NoRoute(f"topic {route.topic} has no queue that can be written to")
        for _ in range(len(queues)):
            self._turn += 1
            queue = queues[self._turn % len(queues)]
            if queue.broker_name not in failed:
                return queue
        return queues[self._turn % len(queues)]

    def ended(self, broker_name: str, duration_ms: float, error: BaseException | None) -> None:
        """Learn nothing."""


class Sender:
    """The core of a producer.

    :param client: the client, perhaps shared.
    :param make_id: makes a unique id at a Unix ms; called by many threads.
    """

    def __init__(
        self, client: ClientCore, options: ProducerOptions, make_id: Callable[[int], str]
    ) -> None:
        self.client = client
        self.options = options
        #: The group, and its name at brokers.
        self.group = client.namespace.group(options.group)
        #: Names of topics that were checked, and their names at brokers.
        self._topics: dict[str, str] = {}
        self.chooser: Chooser = RoundRobin(client.randrange(1 << 16))
        self._make_id = make_id

    # --- preparing, on any thread

    def prepare(self, message: Message) -> Outgoing:
        """Check and encode a message.

        :raises OptionError: when it cannot be sent to any broker.
        """
        topic = self._topic(message.topic)
        body = message.body
        if not isinstance(body, bytes | bytearray | memoryview):
            raise OptionError(f"the body is a {type(body).__name__}, not bytes")
        body = bytes(body)
        if not body or len(body) > BODY_SIZE_MAX:
            raise OptionError(f"the body has {len(body)} bytes; 1 to {BODY_SIZE_MAX} may be sent")
        properties = message.all_properties()
        ids = properties.get(UNIQ_KEY)
        if ids is None:
            ids = properties[UNIQ_KEY] = self.new_id()
        return Outgoing(topic, body, format_properties(properties), ids, flag=message.flag,
                        sys_flag=message.sys_flag)

    def prepare_batch(self, messages: Sequence[Message]) -> Outgoing:
        """Check and encode messages of one topic as one request.

        :raises OptionError: when they do not go into one batch.
        """
        if not messages:
            raise OptionError("a batch has at least one message")
        first = messages[0]
        topic = self._topic(first.topic)
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise OptionError("a batch cannot go to a retry topic")
        parts: list[tuple[int, bytes, str]] = []
        ids: list[str] = []
        for message in messages:
            if message.topic != first.topic or message.wait_stored != first.wait_stored:
                raise OptionError("the messages of a batch have one topic and one wait_stored")
            if message.delay_level or message.delay_ms or message.deliver_at is not None:
                raise OptionError("a message with a delay cannot be in a batch")
            one = self.prepare(message)
            ids.append(one.ids)
            parts.append((one.flag, one.body, one.properties))
        body = encode_batch(parts)
        if len(body) > BODY_SIZE_MAX:
            raise OptionError(f"the batch has {len(body)} bytes; {BODY_SIZE_MAX} may be sent")
        properties = {UNIQ_KEY: self.new_id(), WAIT: "true" if first.wait_stored else "false"}
        return Outgoing(topic, body, format_properties(properties), ",".join(ids), is_batch=True,
                        code=RequestCode.SEND_BATCH_MESSAGE)

    def new_id(self) -> str:
        """A unique id."""
        return self._make_id(self.client.tasks.clock.wall_ms())

    def _topic(self, name: str) -> str:
        """The name at brokers; :raises OptionError: when nothing can be sent to it."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self.client.namespace.topic(name)
            fault = topic_fault(topic)
            if fault is not None:
                raise OptionError(f"topic {name!r}: {fault}")
            if topic in SEND_FORBIDDEN_TOPICS:
                raise OptionError(f"topic {name!r} is the system's own")
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            self._topics[name] = topic
        return topic

    # --- sending, in the engine

    def begin(
        self, message: Outgoing, on_done: Callable[[SendResult | Exception], object],
        queue: MessageQueue | None = None, *, timeout_ms: float | None = None,
        retry_codes: frozenset[int] = frozenset(), chooser: Chooser | None = None,
    ) -> None:
        """Send, and call back with the result or the error."""
        client = self.client
        if client.is_closed:
            on_done(Closed("the producer is closed"))
            return
        client.routes.follow(message.topic)
        Sending(self, message, on_done, queue,
                self.options.timeout_ms if timeout_ms is None else timeout_ms, retry_codes,
                chooser or self.chooser).attempt()

    async def send(
        self, message: Outgoing, queue: MessageQueue | None = None, *,
        timeout_ms: float | None = None, chooser: Chooser | None = None,
    ) -> SendResult:
        """Send and wait, trying again after the codes of ``RETRY_CODES`` too.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses it for good.
        :raises NotSafe: when ``require_safe`` is set and it is not.
        """
        future: Future[SendResult] = Future()

        def done(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, Exception):
                future.set_error(outcome)
            else:
                future.set_result(outcome)

        self.begin(message, done, queue, timeout_ms=timeout_ms, retry_codes=RETRY_CODES,
                   chooser=chooser)
        return self.checked(await future)

    def checked(self, result: SendResult) -> SendResult:
        """The result; :raises NotSafe: when it is not as safe as the options ask for."""
        if self.options.require_safe and not result.safe:
            raise NotSafe(result)
        return result

    async def send_oneway(self, message: Outgoing, queue: MessageQueue | None = None) -> None:
        """Send without an answer.

        :raises NoRoute: when no broker takes the topic.
        """
        client = self.client
        client.check_open()
        client.routes.follow(message.topic)
        route = await client.routes.find_for_send(message.topic)
        target = queue or self.chooser.choose(route, ())
        address = client.routes.master(client.routes.broker_of(target))
        client.engine.send_oneway(address, message.code, self.header(message, target.queue_id),
                                  message.body)

    def header(self, message: Outgoing, queue_id: int) -> SendMessageRequestHeaderV2:
        """The header of a send."""
        return send_header(
            self.group, message.topic, queue_id, self.client.tasks.clock.wall_ms(),
            message.properties, message.flag, message.sys_flag, message.reconsume_times,
            message.is_batch, message.max_reconsume_times)

    # --- the group

    def producer_data(self) -> ProducerData:
        """The producer's part of a heartbeat."""
        return ProducerData(group_name=self.group)

    def consumer_data(self) -> None:
        """A producer consumes nothing."""
