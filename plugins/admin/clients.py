"""Requests about clients, and requests forwarded to clients: 203, 204, 223, 307, 309, 328.

The broker does not know the state of a consumer: it forwards the question and returns the answer.

Source: AdminBrokerProcessor.getConsumerConnectionList, getProducerConnectionList,
getAllProducerInfo, getConsumerStatus, getConsumerRunningInfo, consumeMessageDirectly, callConsumer,
Broker2Client.callClient, getConsumeStatus @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import (
    CommandHeader,
    EmptyHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    decode_record,
)
from twistmq.broker.api.bodies import (
    Connection,
    ConsumerConnection,
    GetConsumerStatusBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    encode_with_rows,
    map_row,
)
from twistmq.broker.api.errors import MessageIllegal, RemotingError, RemotingTimeout, WireError
from twistmq.broker.api.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import Client, Work
from twistmq.broker.api.wire import RemotingCommand, parse_offset_message_id
from twistmq.plugins.admin.offset_reset import TELLABLE_VERSION_MIN

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["CALL_TIMEOUT_MS", "STATUS_TIMEOUT_MS", "ClientQuestions"]

#: The time within which a client must answer, ms. Source: Broker2Client.callClient.
CALL_TIMEOUT_MS: Final = 10_000
#: The time within which each client must report its progress, ms.
#: Source: Broker2Client.getConsumeStatus.
STATUS_TIMEOUT_MS: Final = 5_000
#: Clients before MQVersion V3_1_8_SNAPSHOT do not answer.
_ANSWERING_VERSION_MIN: Final = 62


class ClientQuestions:
    """The handlers of requests about clients."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_CONSUMER_CONNECTION_LIST, self._consumers,
                           GetConsumerConnectionListRequestHeader),
            RequestHandler(RequestCode.GET_PRODUCER_CONNECTION_LIST, self._producers,
                           GetProducerConnectionListRequestHeader),
            RequestHandler(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info,
                           GetConsumerRunningInfoRequestHeader),
            RequestHandler(RequestCode.GET_ALL_PRODUCER_INFO, self._all_producers, EmptyHeader),
            RequestHandler(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self._status,
                           GetConsumerStatusRequestHeader),
            RequestHandler(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume,
                           ConsumeMessageDirectlyResultRequestHeader),
        ]

    def _consumers(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Reply:
        name = request.header.consumer_group
        group = self._broker.clients.consumer_group(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE,
                                 f"the consumer group[{name}] not online")
        return Reply(body=ConsumerConnection(
            _connections(group.clients.values()), group.subscriptions, group.data.consume_type,
            group.data.message_model, group.data.consume_from_where).encode())

    def _producers(self, request: Request[GetProducerConnectionListRequestHeader]) -> Reply:
        name = request.header.producer_group
        clients = self._broker.clients.producers.get(name)
        if clients is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"the producer group[{name}] not exist")
        return Reply(body=ProducerConnection(_connections(clients.values())).encode())

    def _all_producers(self, request: Request[EmptyHeader]) -> Handled:
        return self._broker.long_answers.answer(self._read_producers(), request.channel)

    def _read_producers(self) -> Work:
        rows = []
        for group, clients in list(self._broker.clients.producers.items()):
            rows.append(map_row(group, [
                ProducerInfo(client.client_id, f"/{client.channel.remote_address}",
                             client.language, client.version, client.last_heartbeat_ms)
                for client in clients.values()]))
            yield
        return Reply(body=encode_with_rows(ProducerTableInfo(), b'"data":{}', rows))

    # --- progress reported by consumers

    def _status(self, request: Request[GetConsumerStatusRequestHeader]) -> Handled:
        """Ask all members of a group at the same time, or one member if it is named.

        Differs from Apache, which asks one after the other, and fails if the group does not exist.
        """
        header = request.header
        group = self._broker.clients.consumer_group(header.group)
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"No Any Consumer online in the consumer group: [{header.group}]")
        client_id = (header.client_addr or "").strip()
        clients = [client for client in group.clients.values()
                   if not client_id or client.client_id == client_id]
        for client in clients:
            if client.version < TELLABLE_VERSION_MIN:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={client.version}")
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        answers = [client.channel.call(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question,
                                       timeout_ms=STATUS_TIMEOUT_MS) for client in clients]
        all_answers: Deferred[Any] = DeferredList(answers, consumeErrors=True)

        def read_results(results: Sequence[tuple[bool, Any]]) -> Any:
            return self._broker.long_answers.answer(
                self._read_status(clients, results), request.channel)

        return all_answers.addCallback(read_results)

    def _read_status(
        self, clients: Sequence[Client], results: Sequence[tuple[bool, Any]]
    ) -> Work:
        """Combine the answers of the clients that sent one."""
        rows = []
        for client, (_, result) in zip(clients, results, strict=True):
            if isinstance(result, Failure):
                result.trap(RemotingError)
                self._no_status(client, str(result.value))
            elif result.code == ResponseCode.SUCCESS and result.body:
                try:
                    body = GetConsumerStatusBody.decode(result.body)
                except WireError as error:
                    self._no_status(client, str(error))
                else:
                    rows.append(map_row(client.client_id, body.message_queue_table))
            yield
        return Reply(body=encode_with_rows(GetConsumerStatusBody(), b'"consumerTable":{}', rows))

    def _no_status(self, client: Client, error: str) -> None:
        self._lines.warn(
            self._broker.now_ms(), "{client} at {peer} does not report its offsets: {error}",
            client=client.client_id, peer=client.channel.remote_address, error=error)

    # --- forwarded questions

    def _consume(self, request: Request[ConsumeMessageDirectlyResultRequestHeader]) -> Handled:
        """Send a message of the log to a consumer, with everything needed to consume it."""
        header, broker = request.header, self._broker
        try:
            _, _, offset = parse_offset_message_id(header.msg_id or "")
        except MessageIllegal as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = broker.store.look_message(offset)
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"can not find message by the offset, {offset}")
        broker.require_readable(request, decode_record(record, 0, False))
        header.broker_name = broker.broker_name
        topic = broker.topic_config.get(header.topic or "")
        if topic is not None:
            header.topic_sys_flag = topic.topic_sys_flag
        group = broker.subscription_group.find(header.consumer_group)
        if group is not None:
            header.group_sys_flag = group.group_sys_flag
        return self._call_consumer(RequestCode.CONSUME_MESSAGE_DIRECTLY, header.consumer_group,
                                   header.client_id or "", header, record)

    def _running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Handled:
        header = request.header
        return self._call_consumer(RequestCode.GET_CONSUMER_RUNNING_INFO, header.consumer_group,
                                   header.client_id, header)

    def _call_consumer(
        self, code: RequestCode, group: str, client_id: str, header: CommandHeader,
        body: bytes = b"",
    ) -> Handled:
        """Ask one client of a group and return its answer.

        :raises RequestRefused: when the client is not connected or too old.
        """
        client = self._broker.clients.find_consumer(group, client_id)
        if client is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"The Consumer <{group}> <{client_id}> not online")
        if client.version < _ANSWERING_VERSION_MIN:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT")
        answer = client.channel.call(code, header, body, timeout_ms=CALL_TIMEOUT_MS)

        def failed(failure: Failure) -> Reply:
            failure.trap(RemotingError)
            if failure.check(RemotingTimeout):
                raise RequestRefused(ResponseCode.CONSUME_MSG_TIMEOUT,
                                     f"consumer <{group}> <{client_id}> Timeout: {failure.value}")
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {failure.value}")

        reply: Deferred[Reply] = answer.addCallbacks(_handed_on, failed)
        return reply


def _handed_on(command: RemotingCommand) -> Reply:
    return Reply(command.code, body=command.body, remark=command.remark)


def _connections(clients: Iterable[Client]) -> tuple[Connection, ...]:
    return tuple(Connection(client.client_id, client.channel.remote_address, client.language,
                            client.version) for client in clients)
