"""Headers of requests that one broker forwards to another.

Source: RpcRequestHeader, TopicRequestHeader @5.3.3.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import msgspec
from msgspec.structs import asdict

from twistmq.broker.remoting.request import Request
from twistmq.protocol.header import CommandHeader

__all__ = ["forwarded"]


@cache
def _forwarded_type(header_type: type[CommandHeader]) -> type[CommandHeader]:
    """Make a header class with the fields that control where and how a request is forwarded."""
    return cast(type[CommandHeader], msgspec.defstruct(
        f"Forwarded{header_type.__name__}",
        [("lo", bool, False), ("bname", str | None, None), ("ns", str | None, None),
         ("nsd", str | None, None)],
        bases=(header_type,)))


def forwarded(
    header: CommandHeader, broker_name: str, request: Request[Any] | None = None, *,
    logical: bool = False,
) -> CommandHeader:
    """Make the header of a request that is forwarded to another broker.

    :param request: the request that is forwarded, which may name a namespace.
    :param logical: whether its queues are logical queues of a static topic.
    """
    given = {} if request is None else request.command.fields()
    return _forwarded_type(type(header))(
        **asdict(header), lo=logical, bname=broker_name, ns=given.get("ns"), nsd=given.get("nsd"))
