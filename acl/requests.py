"""The administration of accounts: 50, 51, 52, 53, 54.

    50  add or change an account         52  the versions of the files
    51  delete an account                54  all accounts, including their secret keys
    53  set white addresses

Only administrators may send these requests. A change is stored in the file and in effect before it
is answered.

Source: AdminBrokerProcessor @4.9.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from twistmq.acl.accounts import PlainAccessConfig
from twistmq.acl.errors import AclError
from twistmq.broker.api import (
    CommandHeader,
    EmptyHeader,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import Body, DataVersion
from twistmq.broker.api.limits import LONG_HEADER_SIZE_MAX

if TYPE_CHECKING:
    from twistmq.acl.table import AccountTable
    from twistmq.broker.api import Broker

__all__ = ["AccountRequests"]


class CreateAccessConfigRequestHeader(CommandHeader):
    """An account; lists are joined with commas, and values that are not given stay unchanged."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"CreateAccessConfigRequestHeader(access_key={self.access_key!r})"


class DeleteAccessConfigRequestHeader(CommandHeader):
    access_key: str | None = None


class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandHeader):
    """Patterns joined with commas, and the file to change; None for the default file."""

    global_white_addrs: str | None = None
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(CommandHeader):
    #: The version of the default file, and the versions of all files by path; both as JSON.
    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str


class GetBrokerClusterAclConfigResponseBody(Body):
    global_white_addrs: list[str] = msgspec.field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.plain_access_configs)} accounts)"


class _Versions(Body):
    """The versions by path; encoded without the name of the field."""

    table: dict[str, DataVersion]


class AccountRequests:
    """The handlers of account requests.

    :param table: None while aclEnable is false; then all requests are refused.
    """

    def __init__(self, broker: Broker, table: AccountTable | None) -> None:
        self._broker = broker
        self._table = table

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self._update,
                           CreateAccessConfigRequestHeader,
                           header_size_max=LONG_HEADER_SIZE_MAX),
            RequestHandler(RequestCode.DELETE_ACL_CONFIG, self._delete,
                           DeleteAccessConfigRequestHeader),
            RequestHandler(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self._versions, EmptyHeader),
            RequestHandler(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self._update_white,
                           UpdateGlobalWhiteAddrsConfigRequestHeader),
            RequestHandler(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, self._configs, EmptyHeader),
        ]

    def _need_table(self, code: ResponseCode) -> AccountTable:
        if self._table is None:
            raise RequestRefused(code, "aclEnable is false: there are no accounts")
        return self._table

    def _update(self, request: Request[CreateAccessConfigRequestHeader]) -> Reply:
        code = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        header = request.header
        config = PlainAccessConfig(
            header.access_key, header.secret_key, header.white_remote_address, header.admin,
            header.default_topic_perm, header.default_group_perm,
            _split(header.topic_perms), _split(header.group_perms))
        table = self._need_table(code)
        try:
            table.update_account(config)
        except AclError as error:
            _refuse(code, error)
        return Reply()

    def _delete(self, request: Request[DeleteAccessConfigRequestHeader]) -> Reply:
        code = ResponseCode.DELETE_ACL_CONFIG_FAILED
        table = self._need_table(code)
        key = request.header.access_key or ""
        try:
            deleted = table.delete_account(key)
        except AclError as error:
            _refuse(code, error)
        if not deleted:
            raise RequestRefused(code, f"The accesskey[{key}] corresponding to accessConfig "
                                       "has been deleted failed.")
        return Reply()

    def _update_white(self, request: Request[UpdateGlobalWhiteAddrsConfigRequestHeader]) -> Reply:
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        table = self._need_table(code)
        header = request.header
        addresses = _split(header.global_white_addrs)
        try:
            updated = addresses is not None and table.update_white_addresses(
                addresses, header.acl_file_full_path)
        except AclError as error:
            _refuse(code, error)
        if not updated:
            raise RequestRefused(code, f"The globalWhiteAddresses[{header.global_white_addrs}] "
                                       "has been updated failed.")
        return Reply()

    def _versions(self, request: Request[EmptyHeader]) -> Reply:
        table = self._need_table(ResponseCode.SYSTEM_ERROR)
        broker = self._broker
        return Reply(header=GetBrokerAclConfigResponseHeader(
            version=table.default_version().encode_standard().decode(),
            all_acl_file_version=_json(table.versions()), broker_name=broker.broker_name,
            broker_addr=broker.broker_address, cluster_name=broker.cluster_name))

    def _configs(self, request: Request[EmptyHeader]) -> Reply:
        table = self._need_table(ResponseCode.SYSTEM_ERROR)
        return Reply(body=GetBrokerClusterAclConfigResponseBody(
            table.white_addresses(), table.configs()).encode())


def _json(versions: dict[str, DataVersion]) -> str:
    text = _Versions(versions).encode_standard().decode()
    return text.removeprefix('{"table":').removesuffix("}")


def _refuse(code: ResponseCode, error: AclError) -> NoReturn:
    raise RequestRefused(code, str(error)) from None


def _split(text: str | None) -> list[str] | None:
    """Split a text at commas; as in Java, empty parts at the end are dropped."""
    if text is None:
        return None
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
