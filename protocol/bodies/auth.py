"""Users and policies of ACL 2.0 (3001-3010), as tools send them and brokers answer.

A list of users or of policies is a plain JSON array, with quoted keys. A field that is None was not
sent; an answer with no user, or with no policy, has no body at all.

Source: UserInfo, AclInfo, AdminBrokerProcessor.createUser and the methods after it @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.body import Body
from twistmq.protocol.errors import WireError

__all__ = ["AclInfo", "PolicyEntryInfo", "PolicyInfo", "UserInfo", "decode_infos", "encode_infos"]

B = TypeVar("B", bound=Body)


class UserInfo(Body):
    """A user; None stands for a value that is not given, or stays as it is."""

    username: str | None = None
    #: The secret with which the user's requests are signed.
    password: str | None = None
    #: "Super" or "Normal".
    user_type: str | None = None
    #: "enable" or "disable".
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class PolicyEntryInfo(Body):
    """What a subject may or may not do with one resource."""

    #: "Topic:name", "Group:prefix*", "Cluster:*", or "*" for every resource.
    resource: str | None = None
    #: "Pub", "Sub", "Create", "Update", "Delete", "Get", "List", or "All".
    actions: list[str] | None = None
    #: Addresses or networks; None for all.
    source_ips: list[str] | None = None
    #: "Allow" or "Deny".
    decision: str | None = None


class PolicyInfo(Body):
    """The entries of one type; the default ones count when no custom one matches."""

    #: "Custom" or "Default"; None for "Custom".
    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """The policies of one subject."""

    #: "User:name".
    subject: str | None = None
    policies: list[PolicyInfo] | None = None


def encode_infos(infos: Sequence[Body]) -> bytes:
    """Write the body of an answer with several users or policies."""
    return json_dialect.encode(list(infos), quote_int_keys=False)


def decode_infos(kind: type[B], data: bytes) -> list[B]:
    """Read the body of an answer with several users or policies.

    :param kind: UserInfo or AclInfo.
    :param data: the body; empty when there is none.
    :raises WireError: when the body cannot be read.
    """
    if not data:
        return []
    try:
        return msgspec.json.decode(data, type=list[kind], strict=False)  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"list of {kind.__name__}: {error}") from None
