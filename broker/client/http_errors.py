"""The errors of Twisted's HTTP client, which have no common base class and may wrap each other."""

from __future__ import annotations

from twisted.web.client import ResponseFailed

from twistmq.protocol.errors import RemotingConnectError

__all__ = ["connect_error"]


def connect_error(error: BaseException) -> RemotingConnectError:
    """Return the error of a connection that has the text of the first cause."""
    while isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[0].value
    return RemotingConnectError(str(error) or type(error).__name__)
