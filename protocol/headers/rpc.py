"""Fields that 5.x clients add to many requests, as bases for the headers that use them.

Headers whose handlers do not look at these fields do not declare them: a field that is not
declared is ignored. Source: RpcRequestHeader, TopicRequestHeader @5.3.3.
"""

from __future__ import annotations

import msgspec

from twistmq.protocol.header import CommandHeader

__all__ = ["RpcRequestHeader", "TopicRequestHeader"]


class RpcRequestHeader(CommandHeader):
    """The fields about the way of a request through proxies."""

    namespace: str | None = msgspec.field(default=None, name="ns")
    #: Whether topic and group already carry the namespace.
    namespaced: bool | None = msgspec.field(default=None, name="nsd")
    #: The broker the request is for.
    broker_name: str | None = msgspec.field(default=None, name="bname")
    oneway: bool | None = msgspec.field(default=None, name="oway")


class TopicRequestHeader(RpcRequestHeader):
    """The same for a request about a topic."""

    #: Whether the queue is a logical one of a static topic.
    logical: bool | None = msgspec.field(default=None, name="lo")
