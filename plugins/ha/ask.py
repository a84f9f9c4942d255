"""Requests of one broker of a group to another: tables, and how long its log is.

Source: BrokerOuterAPI @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused, ResponseCode
from twistmq.broker.api.bodies import DIALECT_SIZE_MAX, Body, KVTable
from twistmq.broker.api.headers import ViewMessageRequestHeader
from twistmq.broker.api.limits import VIP_PORT_DISTANCE

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["HA_ADDRESS", "HEARS_IDS", "ROLE", "TIMEOUT_MS", "ask", "decode_body", "log_end_of",
           "log_range_of", "message_of", "range_in", "runtime_info",
           "vip_address"]

B = TypeVar("B", bound=Body)

#: The row in which a master of ours says where it is replicated from, "host:port".
HA_ADDRESS: Final = "haServerAddress"
#: The row in which a master of ours says that its slaves may say their broker ids.
HEARS_IDS: Final = "haHearsSlaveIds"
#: The row with the role of a broker of ours.
ROLE: Final = "brokerRole"
#: How long an answer may take, ms. Source: BrokerOuterAPI.getAllTopicConfig.
TIMEOUT_MS: Final = 3000


def vip_address(address: str) -> str:
    """The address of a broker's VIP port."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORT_DISTANCE}"


async def ask(broker: Broker, address: str, code: int) -> bytes:
    """Send a request without header and body; :returns: the body of the answer.

    :raises RequestRefused: with the code of the answer, when it is not SUCCESS.
    :raises RemotingError: when no answer comes.
    """
    reply = await broker.host.ask_server(address, code, None, timeout_ms=TIMEOUT_MS)
    if reply.code != ResponseCode.SUCCESS:
        raise RequestRefused(reply.code, f"it answered {reply.code}: {reply.remark or 'no remark'}")
    return reply.body


async def runtime_info(broker: Broker, address: str) -> dict[str, str]:
    """The rows that another broker says of itself, by name.

    :raises BrokerError: when it does not say them.
    """
    return KVTable.decode(await ask(broker, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table


async def log_end_of(broker: Broker, address: str) -> int:
    """Ask where the commit log of another broker ends.

    :raises BrokerError: when it does not say so.
    """
    text = (await runtime_info(broker, address)).get("commitLogMaxOffset", "")
    if not text.isdecimal():
        raise BrokerError(f"it says of its log that it ends at {text or 'nothing'}")
    return int(text)


async def log_range_of(broker: Broker, address: str) -> tuple[int, int]:
    """Ask where the commit log of another broker begins and ends.

    :raises BrokerError: when it does not say so.
    """
    return range_in(await runtime_info(broker, address), address)


def range_in(table: dict[str, str], address: str) -> tuple[int, int]:
    """Where the commit log of a broker begins and ends, as its rows say.

    :param address: the broker's, for the error.
    :raises BrokerError: when they do not say so.
    """
    try:
        # Apache's broker says -1 while it has no file.
        return max(0, int(table["commitLogMinOffset"])), int(table["commitLogMaxOffset"])
    except (KeyError, ValueError):
        raise BrokerError(f"{address} does not say where its log ends") from None


async def message_of(broker: Broker, address: str, offset: int) -> bytes | None:
    """Ask another broker for its message at a place; None when it says that there is not any.

    :raises RemotingError: when no answer comes.
    :raises RequestRefused: with the code of the answer, when it is about something else, as that
        this broker may not ask.
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
    """Read the body of an answer of any size; a large one is read on a thread.

    :raises WireError: when it has another form.
    """
    if len(body) <= DIALECT_SIZE_MAX:
        return kind.decode(body)
    read: list[B] = []
    await broker.store.in_thread(lambda: read.append(kind.decode_saved(body)))
    return read[0]
