"""Requests to other brokers that hold parts of a logical queue.

The name servers provide the address of a broker. They are asked once, and again after a failed
request. A forwarded request states with ``lo=false`` that its queue is a physical one, and is
abandoned after ``forwardTimeout``.

With access control, a forwarded request is not signed, so the brokers' addresses must be on the
white list.

Source: RpcClientImpl, ClientMetadata, RpcRequestHeader, TopicRequestHeader @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from twistmq.broker.api import BrokerError, CommandHeader, RequestRefused, ResponseCode
from twistmq.broker.api.errors import RemotingError
from twistmq.broker.api.wire import RemotingCommand

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["OtherBrokers"]


class OtherBrokers:
    """Asks other brokers of the cluster; each request ends after ``forwardTimeout`` at latest."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Broker name to the address of its master.
        self._addresses: dict[str, str] = {}

    async def ask(
        self, broker_name: str, code: int, header: CommandHeader,
        accepted: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the master of a broker name.

        :param header: a header made by :func:`forwarded`.
        :param accepted: the response codes that are accepted.
        :raises RequestRefused: when the answer has another code.
        :raises BrokerError: when the broker cannot be asked, or does not answer in time.
        """
        broker = self._broker
        timeout_ms = broker.settings.int("forwardTimeout")
        end_ms = broker.steady.now_ms() + timeout_ms
        address = self._addresses.get(broker_name) or await self._find(broker_name)
        try:
            reply = await broker.host.ask_server(
                address, code, header, timeout_ms=max(end_ms - broker.steady.now_ms(), 1))
        except RemotingError as error:
            # The broker may have moved to another address.
            self._addresses.pop(broker_name, None)
            raise BrokerError(f"broker {broker_name}: {error}") from None
        if reply.code not in accepted:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"broker {broker_name} at {address} answered {reply.code}: "
                                 f"{reply.remark or 'no remark'}")
        return reply

    async def _find(self, broker_name: str) -> str:
        host = self._broker.host
        address = await host.find_broker(broker_name) if host.has_name_servers else None
        if address is None:
            raise BrokerError(f"cannot find addr for broker {broker_name}")
        self._addresses[broker_name] = address
        return address
