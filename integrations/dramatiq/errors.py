"""The errors of the client as errors of Dramatiq."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dramatiq.errors import BrokerError, ConnectionClosed, ConnectionFailed

from twistmq.client import ClientError, NoRoute, RemotingConnectError
from twistmq.integrations.base.topics import is_connection_error

__all__ = ["dramatiq_errors"]


@contextmanager
def dramatiq_errors() -> Iterator[None]:
    """Turn errors of the client into errors of Dramatiq with the same text.

    :raises dramatiq.errors.ConnectionFailed: when no server can be reached.
    :raises dramatiq.errors.ConnectionClosed: when a server does not answer.
    :raises dramatiq.errors.BrokerError: when a server refuses the request.
    """
    try:
        yield
    except ClientError as error:
        if isinstance(error, RemotingConnectError | NoRoute):
            raise ConnectionFailed(str(error)) from error
        if is_connection_error(error):
            raise ConnectionClosed(str(error)) from error
        raise BrokerError(str(error)) from error
