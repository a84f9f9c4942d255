"""Decides by address, signature and permissions whether a request may be served.

The checks are made in this order:

1. A request from an address that is white for all accounts passes.
2. The access key must exist.
3. A request from an address that is white for this account passes.
4. The signature must be right.
5. The account must have the needed permissions. Every account may send to the trace topic.

Differs from Apache: the needed permissions are determined last, so that the body of a client
without an account is never parsed. Apache's broker answers an unreadable heartbeat before it checks
the key.

Source: PlainPermissionManager.validate @4.9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from zope.interface import implementer

from twistmq.acl.accounts import Account
from twistmq.acl.errors import AccessDenied, AclError
from twistmq.acl.known_names import NO_NAMES, KnownNames
from twistmq.acl.leading_sends import passing_sends
from twistmq.acl.permissions import Permission
from twistmq.acl.resources import (
    Fields,
    Needed,
    deciding_values,
    needed_by_batch_header,
    needed_resources,
    touched_resources,
)
from twistmq.acl.table import AccountTable
from twistmq.broker.api import (
    IClientValidator,
    IResourceValidator,
    IRunValidator,
    Request,
    RequestCode,
)
from twistmq.broker.api.errors import HeaderError, MessageIllegal
from twistmq.broker.api.topics import TRACE_TOPIC
from twistmq.broker.api.wire import ACCESS_KEY, FRAME_SIZE_MAX

__all__ = ["PlainAccessValidator"]

_PUB: Final = Permission.PUB


@implementer(IClientValidator, IResourceValidator, IRunValidator)
class PlainAccessValidator:
    """Checks requests against the accounts of a table.

    :param names: the topics and groups of the broker.
    :param body_size_max: returns the current limit for the body of a message, bytes.
    """

    def __init__(
        self, table: AccountTable, names: KnownNames = NO_NAMES,
        body_size_max: Callable[[], int] = lambda: FRAME_SIZE_MAX,
    ) -> None:
        self._table = table
        self._names = names
        self._body_size_max = body_size_max

    def passing(self, requests: Sequence[Request[Any]]) -> int:
        """Count the leading requests that certainly pass."""
        table = self._table
        return 0 if table.has_white else passing_sends(requests, table.accounts)

    def validate(self, request: Request[Any]) -> None:
        """Check a request; it passes if this method returns.

        :raises AccessDenied: when the request may not be served.
        :raises MessageIllegal: when the request is a batch that is too long to be examined.
        """
        table = self._table
        if table.has_white and table.is_white(host_of(request.channel.remote_address)):
            return
        code, body = request.code, request.body
        try:
            texts = request.texts
            fields: Fields
            if texts is None:
                command = request.command
                fields = pairs = command.fields()
            else:
                fields = texts
            access_key = fields.get(ACCESS_KEY)
            if access_key is None:
                raise AclError("No accessKey is configured")
            account = table.accounts.get(access_key)
            if account is None:
                raise AclError(f"No acl config for {access_key}")
            white = account.white_address
            if white.text and white.matches(host_of(request.channel.remote_address)):
                return
            if not (account.signer.has_signed(pairs, body, command.version)
                    if texts is None else texts.are_signed_by(account.signer, body)):
                raise AclError(f"Check signature failed for accessKey={access_key}")
            values = deciding_values(code, fields, body)
            if values is not None and values in account.passed:
                return
            # The body of a batch is read only if its sender may use the topic of the header:
            # reading it takes long, and other connections wait during this time.
            header_needed = (
                None if values is not None else needed_by_batch_header(code, fields, body))
            if header_needed is not None:
                self._check(account, code, header_needed)
                if len(body) > self._body_size_max():
                    raise MessageIllegal(f"the message body has {len(body)} bytes, more than "
                                         f"{self._body_size_max()}")
            is_lasting = self._check(account, code, needed_resources(code, fields, body))
            if values is not None and is_lasting:
                account.note_passed(values)
        except (AclError, HeaderError) as error:
            raise AccessDenied(str(error)) from None

    def _check(self, account: Account, code: int, needed: Needed) -> bool:
        """Check a request like ``Account.check``, except that every account may send traces."""
        if needed.get(TRACE_TOPIC) is _PUB:
            # Other permissions, such as for the topic of a recalled message, are still needed.
            needed = {name: each for name, each in needed.items() if name != TRACE_TOPIC}
        return account.check(code, needed.items(), self._names)

    def require(
        self, request: Request[Any], publishes: Collection[str], consumes: Collection[str],
        groups: Collection[str],
    ) -> None:
        """:raises AccessDenied: when the request's account may not touch these resources."""
        table = self._table
        host = host_of(request.channel.remote_address)
        if table.has_white and table.is_white(host):
            return
        try:
            access_key = request.command.fields().get(ACCESS_KEY, "")
            account = table.accounts.get(access_key)
            if account is None:
                raise AclError(f"No acl config for {access_key}")
            white = account.white_address
            if not (white.text and white.matches(host)):
                account.check(request.command.code,
                              touched_resources(publishes, consumes, groups).items(), self._names)
        except (AclError, HeaderError) as error:
            raise AccessDenied(str(error)) from None

    def owner_of(self, request: Request[Any]) -> str | None:
        """Return the access key of a permitted request; None if its address is white for all."""
        table = self._table
        if table.has_white and table.is_white(host_of(request.channel.remote_address)):
            return None
        return request.command.fields().get(ACCESS_KEY)

    def may_publish(self, owner: str | None, address: str, topic: str) -> bool:
        """Whether the client of an account may send to a topic now."""
        table, host = self._table, host_of(address)
        if table.has_white and table.is_white(host):
            return True
        account = None if owner is None else table.accounts.get(owner)
        if account is None:
            return False
        white = account.white_address
        if topic == TRACE_TOPIC or (white.text and white.matches(host)):
            return True
        try:
            account.check(RequestCode.SEND_MESSAGE_V2,
                          touched_resources((topic,), (), ()).items(), self._names)
        except AclError:
            return False
        return True


def host_of(address: str) -> str:
    """Return the host of "host:port" or "[host]:port"."""
    return address.rpartition(":")[0].strip("[]")
