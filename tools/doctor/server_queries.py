"""The questions of the checks to running servers: name servers and other brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from twistmq.broker.config.inner_credentials import inner_credentials
from twistmq.broker.config.properties_file import decode_properties, parse_properties
from twistmq.broker.config.settings import Settings
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies import ClusterInfo, KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.tls_checks import client_context

__all__ = ["broker_settings_at", "registered_addresses", "runtime_table_at"]

_TIMEOUT_SECONDS: Final = 3.0


def registered_addresses(settings: Settings) -> Iterator[Mapping[int, str]]:
    """Yield the addresses of the brokers of this name by their ids, as each name server knows them.

    :raises BrokerError, SettingsError, OSError: at the end, when a name server has not answered.
    """
    failure: Exception | None = None
    for address in settings.addresses("namesrvAddr"):
        try:
            with Connection(address, _TIMEOUT_SECONDS, tls=client_context(settings)) as connection:
                reply = connection.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            data = ClusterInfo.decode(reply.body).broker_addr_table.get(
                settings.text("brokerName"))
        except (BrokerError, OSError) as error:
            failure = error
            continue
        yield {} if data is None else data.broker_addrs
    if failure is not None:
        raise failure


def broker_settings_at(address: str, settings: Settings) -> dict[str, str]:
    """Return the settings of a running broker.

    :raises BrokerError, OSError: when the broker does not return them.
    """
    reply = _ask_broker(address, settings, RequestCode.GET_BROKER_CONFIG)
    if reply.code != ResponseCode.SUCCESS:
        raise BrokerError(f"{address} does not return its settings: {reply.remark or reply.code}")
    return {entry.key: entry.value
            for entry in parse_properties(decode_properties(reply.body)[0], address)}


def runtime_table_at(address: str, settings: Settings) -> Mapping[str, str] | None:
    """Return the runtime table of a running broker; None when the broker refuses it.

    :raises BrokerError, SettingsError, OSError: when the broker does not answer.
    """
    reply = _ask_broker(address, settings, RequestCode.GET_BROKER_RUNTIME_INFO)
    if reply.code != ResponseCode.SUCCESS:
        return None
    return KVTable.decode_reply(reply.body).table


def _ask_broker(address: str, settings: Settings, code: RequestCode) -> RemotingCommand:
    with Connection(address, _TIMEOUT_SECONDS, credentials=inner_credentials(settings),
                    tls=client_context(settings)) as connection:
        return connection.request(code)
