"""The client: producers and consumers of any RocketMQ broker from 4.9 on, in pure Python.

The classes ``Client``, ``Producer``, ``Consumer``, ``PullConsumer`` and ``PopConsumer`` of this
package are the blocking ones. ``twistmq.client.aio`` has classes of the same names for asyncio, and
``twistmq.client.tx`` has them for Twisted. Programs of all styles import everything else from here:
messages, errors, COMMIT, ``Retry``, ``sql`` and so on. A name is imported when it is first used, so
that a program loads only the code that it uses: a command that asks one question does not need a
consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from twistmq.client.base.codecs import Serialiser, json_of, msgpack_of
    from twistmq.client.base.errors import (
        AlreadyHandled,
        Attempt,
        Busy,
        ClientError,
        Closed,
        ConnectTimeout,
        Denied,
        ForkedError,
        Full,
        NoRoute,
        NotAssigned,
        NotSafe,
        OptionError,
        ProtocolError,
        ReceiptExpired,
        Rejected,
        RemotingConnectError,
        RemotingError,
        RemotingSendError,
        RemotingTimeout,
        RequestRefused,
        RequestTimeout,
        RouteTimeout,
        SendFailed,
        TopicMissing,
        Undecodable,
        Unsupported,
        WrongLoop,
    )
    from twistmq.client.base.handlers import COMMIT, ROLLBACK, UNKNOWN, Dead, Decision, Retry
    from twistmq.client.base.interceptors import Interceptor
    from twistmq.client.base.messages import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        ReceivedMessage,
        SendResult,
    )
    from twistmq.client.base.models import model_of
    from twistmq.client.base.received_message import DamagedMessage
    from twistmq.client.blocking.client import Client
    from twistmq.client.blocking.consumer import Consumer
    from twistmq.client.blocking.pop_consumer import PopConsumer
    from twistmq.client.blocking.producer import Producer
    from twistmq.client.blocking.pull_consumer import PullConsumer
    from twistmq.client.core.consumer.flow_control import PullLimits
    from twistmq.client.core.consumer.strategies import (
        Averagely,
        AveragelyByCircle,
        Configured,
        ConsistentHash,
        MachineRoom,
        MachineRoomNearby,
    )
    from twistmq.client.core.consumer.subscriptions import Sql, sql
    from twistmq.protocol.signature import Credentials

__all__ = [
    "COMMIT", "ROLLBACK", "UNKNOWN", "AlreadyHandled", "Attempt", "Averagely",
    "AveragelyByCircle", "Busy", "Client", "ClientError", "Closed", "Configured",
    "ConnectTimeout", "ConsistentHash", "Consumer", "Credentials", "DamagedMessage", "Dead",
    "Decision", "Denied", "ForkedError", "Full", "Interceptor", "MachineRoom",
    "MachineRoomNearby", "Message", "MessageQueue", "NoRoute", "NotAssigned", "NotSafe",
    "OptionError", "PopConsumer", "Producer", "ProtocolError", "PullConsumer", "PullLimits",
    "PullResult", "PullStatus", "ReceiptExpired", "ReceivedMessage", "Rejected",
    "RemotingConnectError", "RemotingError", "RemotingSendError", "RemotingTimeout",
    "RequestRefused", "RequestTimeout", "Retry", "RouteTimeout", "SendFailed", "SendResult",
    "Serialiser", "Sql", "TopicMissing", "Undecodable", "Unsupported", "WrongLoop", "json_of",
    "model_of", "msgpack_of", "sql",
]

_MODULES: Final = {
    "twistmq.protocol.signature": ["Credentials"],
    "twistmq.client.blocking.client": ["Client"],
    "twistmq.client.blocking.consumer": ["Consumer"],
    "twistmq.client.base.codecs": ["Serialiser", "json_of", "msgpack_of"],
    "twistmq.client.base.models": ["model_of"],
    "twistmq.client.base.interceptors": ["Interceptor"],
    "twistmq.client.core.consumer.flow_control": ["PullLimits"],
    "twistmq.client.core.consumer.strategies": [
        "Averagely", "AveragelyByCircle", "Configured", "ConsistentHash", "MachineRoom",
        "MachineRoomNearby"],
    "twistmq.client.core.consumer.subscriptions": ["Sql", "sql"],
    "twistmq.client.base.errors": [
        "AlreadyHandled", "Attempt", "Busy", "ClientError", "Closed", "ConnectTimeout", "Denied",
        "ForkedError", "Full", "NoRoute", "NotAssigned", "NotSafe", "OptionError",
        "ProtocolError", "ReceiptExpired", "Rejected", "RemotingConnectError", "RemotingError",
        "RemotingSendError", "RemotingTimeout", "RequestRefused", "RequestTimeout",
        "RouteTimeout", "SendFailed", "TopicMissing", "Undecodable", "Unsupported", "WrongLoop"],
    "twistmq.client.base.handlers": ["COMMIT", "ROLLBACK", "UNKNOWN", "Dead", "Decision", "Retry"],
    "twistmq.client.blocking.pop_consumer": ["PopConsumer"],
    "twistmq.client.blocking.producer": ["Producer"],
    "twistmq.client.blocking.pull_consumer": ["PullConsumer"],
    "twistmq.client.base.received_message": ["DamagedMessage"],
    "twistmq.client.base.messages": [
        "Message", "MessageQueue", "PullResult", "PullStatus", "ReceivedMessage", "SendResult"],
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, ("aio", "codecs", "testing", "tx"))
