"""Base classes with fields that 5.x clients add to many requests.

A header whose handler does not use these fields does not declare them, because fields that are not
declared are ignored. Source: RpcRequestHeader, TopicRequestHeader @5.3.3.
"""

from __future__ import annotations

import msgspec

from twistmq.protocol.header import CommandHeader

__all__ = ["RpcRequestHeader", "TopicRequestHeader"]


class RpcRequestHeader(CommandHeader):
    """The fields about the path of a request through proxies."""

    namespace: str | None = msgspec.field(default=None, name="ns")
    #: Whether the topic and group already contain the namespace.
    namespaced: bool | None = msgspec.field(default=None, name="nsd")
    #: The broker for which the request is meant.
    broker_name: str | None = msgspec.field(default=None, name="bname")
    oneway: bool | None = msgspec.field(default=None, name="oway")


class TopicRequestHeader(RpcRequestHeader):
    """The same fields for a request about a topic."""

    #: Whether the queue is a logical queue of a static topic.
    logical: bool | None = msgspec.field(default=None, name="lo")
