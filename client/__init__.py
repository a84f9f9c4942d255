"""The client: producers and consumers of any RocketMQ broker from 4.9 on, in pure Python.

The names here are the blocking ones. ``twistmq.client.aio`` has those for asyncio, and
``twistmq.client.tx`` those for Twisted.
"""

from twistmq.broker.wire.signature import Credentials
from twistmq.client.blocking import Client, Producer
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
from twistmq.client.handlers import Dead, Retry
from twistmq.client.messages import (
    Message,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
)

__all__ = [
    "Busy", "Client", "ClientError", "Closed", "Consumer", "Credentials", "Dead", "Denied",
    "ForkedError", "Full", "Message", "MessageQueue", "NoRoute", "NotAssigned", "NotSafe",
    "OptionError", "Producer", "PullResult", "PullStatus", "ReceivedMessage", "Rejected",
    "RemotingConnectError", "RemotingError", "RemotingSendError", "RemotingTimeout",
    "RequestRefused", "RequestTimeout", "Retry", "SendFailed", "SendResult", "Sql",
    "TopicMissing", "Undecodable", "Unsupported", "sql",
]
