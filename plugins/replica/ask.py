"""Requests of one broker of a group to another: for tables, and for the range of its log.

Source: BrokerOuterAPI @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused, ResponseCode
from twistmq.broker.api.bodies import DIALECT_SIZE_MAX, Body, KVTable
from twistmq.broker.api.headers import ViewMessageRequestHeader
from twistmq.broker.api.limits import LOG_OFFSET_MAX, VIP_PORT_DISTANCE
from twistmq.broker.api.wire import whole_number

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["HA_ADDRESS", "HEARS_IDS", "ROLE", "TIMEOUT_MS", "ask", "decode_body", "log_end_of",
           "log_range_of", "message_of", "range_in", "runtime_info",
           "vip_address"]

B = TypeVar("B", bound=Body)

#: The row in which a twistmq master reports its address for replication, "host:port".
HA_ADDRESS: Final = "haServerAddress"
#: The row in which a twistmq master announces that slaves may send their broker ids.
HEARS_IDS: Final = "haHearsSlaveIds"
#: The row with the role of a twistmq broker.
ROLE: Final = "brokerRole"
#: How long a response may take, ms. Source: BrokerOuterAPI.getAllTopicConfig.
TIMEOUT_MS: Final = 3000
#: The number of characters of a bad value that an error quotes.
_TEXT_MAX: Final = 40


def vip_address(address: str) -> str:
    """Return the address of the VIP port of a broker."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORT_DISTANCE}"


async def ask(broker: Broker, address: str, code: int) -> bytes:
    """Send a request without header and body; :returns: the body of the response.

    :raises RequestRefused: with the response's code, when that is not SUCCESS.
    :raises RemotingError: when no response arrives.
    """
    reply = await broker.host.ask_server(address, code, None, timeout_ms=TIMEOUT_MS)
    if reply.code != ResponseCode.SUCCESS:
        raise RequestRefused(reply.code, f"it answered {reply.code}: {reply.remark or 'no remark'}")
    return reply.body


async def runtime_info(broker: Broker, address: str) -> dict[str, str]:
    """Return the rows that another broker reports about itself, by name.

    :raises BrokerError: when it does not report them.
    """
    return KVTable.decode(await ask(broker, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table


async def log_end_of(broker: Broker, address: str) -> int:
    """Ask where the commit log of another broker ends.

    :raises BrokerError: when it does not report the end.
    """
    text = (await runtime_info(broker, address)).get("commitLogMaxOffset", "")
    end = whole_number(text, LOG_OFFSET_MAX)
    if end is None:
        raise BrokerError(f"it reports the end of its log as {text[:_TEXT_MAX] or 'nothing'}")
    return end


async def log_range_of(broker: Broker, address: str) -> tuple[int, int]:
    """Ask where the commit log of another broker begins and ends.

    :raises BrokerError: when it does not report the range.
    """
    return range_in(await runtime_info(broker, address), address)


def range_in(table: dict[str, str], address: str) -> tuple[int, int]:
    """Return where the commit log of a broker begins and ends, according to its rows.

    :param address: the broker's address, which the error names.
    :raises BrokerError: when the rows do not state it.
    """
    # Apache's broker reports -1 while it does not have a file.
    begin = 0 if table.get("commitLogMinOffset") == "-1" else whole_number(
        table.get("commitLogMinOffset", ""), LOG_OFFSET_MAX)
    end = whole_number(table.get("commitLogMaxOffset", ""), LOG_OFFSET_MAX)
    if begin is None or end is None:
        raise BrokerError(f"{address} does not report where its log begins and ends")
    return begin, end


async def message_of(broker: Broker, address: str, offset: int) -> bytes | None:
    """Ask another broker for its message at an offset; None if no message begins there.

    :raises RemotingError: when no response arrives.
    :raises RequestRefused: with the response's code, when the request failed for another reason,
        for example because this broker is not allowed to ask.
    """
    reply = await broker.host.ask_server(
        address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset),
        timeout_ms=TIMEOUT_MS)
    if reply.code == ResponseCode.SUCCESS:
        return reply.body
    if reply.code == ResponseCode.SYSTEM_ERROR:
        return None
    raise RequestRefused(reply.code, f"it answered {reply.code}: {reply.remark or 'no remark'}")


async def decode_body(broker: Broker, kind: type[B], body: bytes) -> B:
    """Decode the body of a response of any size; a large one is decoded on a thread.

    :raises WireError: when the body has another form.
    """
    if len(body) <= DIALECT_SIZE_MAX:
        return kind.decode(body)
    read: list[B] = []
    await broker.store.in_thread(lambda: read.append(kind.decode_saved(body)))
    return read[0]
