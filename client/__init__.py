"""The client: producers and consumers of any RocketMQ broker from 4.9 on, in pure Python.

The names here are the blocking ones. ``twistmq.client.aio`` has those for asyncio, and
``twistmq.client.tx`` those for Twisted. Names are imported when they are first used, so that a
program loads what it uses: a command that asks one question needs no consumer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twistmq.client.blocking import Client
    from twistmq.client.consumer import Consumer
    from twistmq.client.core.subscriptions import Sql, sql
    from twistmq.client.errors import (
        Busy,
        ClientError,
        Closed,
        Denied,
        ForkedError,
        Full,
        NoRoute,
        NotAssigned,
        NotSafe,
        OptionError,
        ReceiptExpired,
        Rejected,
        RemotingConnectError,
        RemotingError,
        RemotingSendError,
        RemotingTimeout,
        RequestRefused,
        RequestTimeout,
        SendFailed,
        TopicMissing,
        Undecodable,
        Unsupported,
    )
    from twistmq.client.handlers import COMMIT, ROLLBACK, UNKNOWN, Dead, Decision, Retry
    from twistmq.client.messages import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        ReceivedMessage,
        SendResult,
    )
    from twistmq.client.pop_consumer import PopConsumer
    from twistmq.client.producer import Producer
    from twistmq.client.pull_consumer import PullConsumer
    from twistmq.client.received_message import DamagedMessage
    from twistmq.protocol.signature import Credentials

__all__ = [
    "COMMIT", "ROLLBACK", "UNKNOWN", "Busy", "Client", "ClientError", "Closed", "Consumer",
    "Credentials", "DamagedMessage", "Dead", "Decision", "Denied", "ForkedError", "Full", "Message",
    "MessageQueue", "NoRoute", "NotAssigned", "NotSafe", "OptionError", "PopConsumer",
    "Producer", "PullConsumer", "PullResult", "PullStatus", "ReceiptExpired", "ReceivedMessage",
    "Rejected", "RemotingConnectError", "RemotingError", "RemotingSendError", "RemotingTimeout",
    "RequestRefused", "RequestTimeout", "Retry", "SendFailed", "SendResult", "Sql",
    "TopicMissing", "Undecodable", "Unsupported", "sql",
]

_MODULES: Final = {
    "twistmq.protocol.signature": ["Credentials"],
    "twistmq.client.blocking": ["Client"],
    "twistmq.client.consumer": ["Consumer"],
    "twistmq.client.core.subscriptions": ["Sql", "sql"],
    "twistmq.client.errors": [
        "Busy", "ClientError", "Closed", "Denied", "ForkedError", "Full", "NoRoute", "NotAssigned",
        "NotSafe", "OptionError", "ReceiptExpired", "Rejected", "RemotingConnectError",
        "RemotingError", "RemotingSendError", "RemotingTimeout", "RequestRefused",
        "RequestTimeout", "SendFailed", "TopicMissing", "Undecodable", "Unsupported"],
    "twistmq.client.handlers": ["COMMIT", "ROLLBACK", "UNKNOWN", "Dead", "Decision", "Retry"],
    "twistmq.client.pop_consumer": ["PopConsumer"],
    "twistmq.client.producer": ["Producer"],
    "twistmq.client.pull_consumer": ["PullConsumer"],
    "twistmq.client.received_message": ["DamagedMessage"],
    "twistmq.client.messages": [
        "Message", "MessageQueue", "PullResult", "PullStatus", "ReceivedMessage", "SendResult"],
}
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    module = _PLACES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value
