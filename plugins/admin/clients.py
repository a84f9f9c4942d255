"""Who is connected, and what a consumer is doing: 203, 204, 307.

The broker does not know what a consumer does: it hands the question on and the answer back.

Source: AdminBrokerProcessor.getConsumerConnectionList, getProducerConnectionList,
getConsumerRunningInfo, callConsumer, Broker2Client.callClient @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RemotingError, RemotingTimeout, RequestRefused
from twistmq.broker.remoting import Handled, Reply, Request, RequestHandler
from twistmq.broker.request.client_table import Client
from twistmq.broker.wire.bodies import Connection, ConsumerConnection, ProducerConnection
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["CALL_TIMEOUT_MS", "ClientQuestions"]

#: How long a client has to answer, ms. Source: Broker2Client.callClient.
CALL_TIMEOUT_MS: Final = 10_000
#: Clients before MQVersion V3_1_8_SNAPSHOT do not answer.
_ANSWERING_VERSION_MIN: Final = 62


class ClientQuestions:
    """The handlers about clients."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_CONSUMER_CONNECTION_LIST, self._consumers,
                           GetConsumerConnectionListRequestHeader),
            RequestHandler(RequestCode.GET_PRODUCER_CONNECTION_LIST, self._producers,
                           GetProducerConnectionListRequestHeader),
            RequestHandler(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info,
                           GetConsumerRunningInfoRequestHeader),
        ]

    def _consumers(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Reply:
        name = request.header.consumer_group
        group = self._kernel.clients.consumer_group(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE,
                                 f"the consumer group[{name}] not online")
        return Reply(body=ConsumerConnection(
            _connections(group.clients.values()), group.subscriptions, group.data.consume_type,
            group.data.message_model, group.data.consume_from_where).encode())

    def _producers(self, request: Request[GetProducerConnectionListRequestHeader]) -> Reply:
        name = request.header.producer_group
        clients = self._kernel.clients.producers.get(name)
        if clients is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"the producer group[{name}] not exist")
        return Reply(body=ProducerConnection(_connections(clients.values())).encode())

    # --- questions that are handed on

    def _running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Handled:
        header = request.header
        return self._call_consumer(RequestCode.GET_CONSUMER_RUNNING_INFO, header.consumer_group,
                                   header.client_id, header)

    def _call_consumer(
        self, code: RequestCode, group: str, client_id: str, header: CommandHeader,
        body: bytes = b"",
    ) -> Handled:
        """Ask one client of a group; its answer is the answer.

        :raises RequestRefused: when it is not there or too old.
        """
        client = self._kernel.clients.find_consumer(group, client_id)
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
