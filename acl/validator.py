"""Decides by address, signature and permissions whether a request may be served.

In this order: an address that is white for all; an access key there is; an address that is white
for its account; the signature; a message for the trace topic, which every account may send; then
what the account may do.

Differs from Apache: what a request needs is looked up last, so that nobody without an account
has a body read; Apache's broker answers a heartbeat it cannot read before it looks at the key.

Source: PlainPermissionManager.validate @4.9.4.
"""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from twistmq.acl.errors import AccessDenied, AclError
from twistmq.acl.permissions import Permission
from twistmq.acl.resources import needed_resources
from twistmq.acl.signature import ACCESS_KEY, is_signed_by
from twistmq.acl.table import AccountTable
from twistmq.broker.errors import HeaderError
from twistmq.broker.interfaces import IAccessValidator
from twistmq.broker.remoting import Request
from twistmq.broker.topic_names import TRACE_TOPIC

__all__ = ["PlainAccessValidator"]


@implementer(IAccessValidator)
class PlainAccessValidator:
    """Checks requests against the accounts of a table."""

    def __init__(self, table: AccountTable) -> None:
        self._table = table

    def validate(self, request: Request[Any]) -> None:
        """:raises AccessDenied: when the request may not be served."""
        try:
            self._validate(request)
        except (AclError, HeaderError) as error:
            raise AccessDenied(str(error)) from None

    def _validate(self, request: Request[Any]) -> None:
        address = host_of(request.channel.remote_address)
        if self._table.is_white(address):
            return
        command = request.command
        fields = command.fields()
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise AclError("No accessKey is configured")
        account = self._table.account(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key}")
        if account.white_address.matches(address):
            return
        if not is_signed_by(account.secret_key, fields, command.body, command.version):
            raise AclError(f"Check signature failed for accessKey={access_key}")
        needed = needed_resources(command.code, fields, command.body)
        if needed.get(TRACE_TOPIC) != Permission.PUB:
            account.check(command.code, needed.items())


def host_of(address: str) -> str:
    """The host of "host:port" or "[host]:port"."""
    return address.rpartition(":")[0].strip("[]")
