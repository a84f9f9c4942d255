"""The administration of users and policies: 3001 to 3010.

    3001 create   3002 change   3003 delete   3004 get   3005 list      users
    3006 create   3007 change   3008 delete   3009 get   3010 list      policies

A change is saved and in effect before it is answered. Only a super user creates, changes or deletes
a super user, and the last one stays. Passwords are shown to super users, because ``copyUser`` needs
them, and masked for other users. Errors have Apache's codes and texts.

Differs from Apache: a slave refuses changes, because it copies its tables from the master. It
refuses changes to topics for the same reason. 3008 refuses a resource that is not valid, where
Apache's broker deletes all policies of the subject.

Source: AdminBrokerProcessor.createUser and the methods after it @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from twisted.internet.defer import Deferred

from twistmq.acl.auth_table import AuthTable
from twistmq.acl.errors import AclError
from twistmq.acl.policies import (
    PolicyType,
    entries_of,
    policies_info,
    resource_text,
    subject_name,
)
from twistmq.acl.users import MASK, NAME_LENGTH_MAX, User
from twistmq.broker.api import (
    AnyHandler,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import AclInfo, Body, PolicyInfo, UserInfo, encode_infos
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from twistmq.broker.api.wire import ACCESS_KEY

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["AuthRequests"]

B = TypeVar("B", bound=Body)

_BLANK_NAME: Final = "The username is blank"
_SUPER_CREATES: Final = "The super user can only be create by super user"
_SUPER_UPDATES: Final = "The super user can only be update by super user"
#: Apache's text for an exception that it did not expect.
_UNEXPECTED: Final = "An system error occurred, please try again later."


class AuthRequests:
    """The handlers.

    :param table: None while authenticationEnabled is false; then all requests are refused.
    """

    def __init__(self, broker: Broker, table: AuthTable | None) -> None:
        self._broker = broker
        self._table = table

    def handlers(self) -> list[AnyHandler]:
        """Return the rows of the handler table."""
        code = RequestCode
        return [
            RequestHandler(code.AUTH_CREATE_USER, self._create_user, UserRequestHeader),
            RequestHandler(code.AUTH_UPDATE_USER, self._update_user, UserRequestHeader),
            RequestHandler(code.AUTH_DELETE_USER, self._delete_user, UserRequestHeader),
            RequestHandler(code.AUTH_GET_USER, self._get_user, UserRequestHeader),
            RequestHandler(code.AUTH_LIST_USER, self._list_users, ListUsersRequestHeader),
            RequestHandler(code.AUTH_CREATE_ACL, self._merge_acl, AclRequestHeader),
            RequestHandler(code.AUTH_UPDATE_ACL, self._merge_acl, AclRequestHeader),
            RequestHandler(code.AUTH_DELETE_ACL, self._delete_acl, DeleteAclRequestHeader),
            RequestHandler(code.AUTH_GET_ACL, self._get_acl, AclRequestHeader),
            RequestHandler(code.AUTH_LIST_ACL, self._list_acls, ListAclsRequestHeader),
        ]

    # --- users

    def _create_user(self, request: Request[UserRequestHeader]) -> Deferred[Reply]:
        table, name = self._need_table(), _name_of(request)
        info = _decode(UserInfo, request.body)
        if _is_super(info) and not self._is_by_super(request):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _SUPER_CREATES)
        return self._change(lambda: table.create_user(name, info))

    def _update_user(self, request: Request[UserRequestHeader]) -> Deferred[Reply]:
        table, name = self._need_table(), _name_of(request)
        info = _decode(UserInfo, request.body)
        if _is_super(info) and not self._is_by_super(request):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _SUPER_UPDATES)
        self._require_super_for(request, table.user_named(name))
        return self._change(lambda: table.update_user(name, info))

    def _delete_user(self, request: Request[UserRequestHeader]) -> Deferred[Reply]:
        table, name = self._need_table(), request.header.username or ""
        if not name.strip():
            _refuse("username can not be blank")
        self._require_super_for(request, table.user_named(name))
        return self._change(lambda: table.delete_user(name))

    def _get_user(self, request: Request[UserRequestHeader]) -> Reply:
        table, name = self._need_table(), _name_of(request, blank=True)
        user = table.user_named(name)
        return Reply() if user is None else Reply(
            body=encode_infos([self._shown(request, user)])[1:-1])

    def _list_users(self, request: Request[ListUsersRequestHeader]) -> Reply:
        table, text = self._need_table(), (request.header.filter or "").strip()
        infos = [self._shown(request, user) for user in table.sorted_users() if text in user.name]
        return Reply(body=encode_infos(infos) if infos else b"")

    def _shown(self, request: Request[Any], user: User) -> UserInfo:
        """Return a user in the form of an answer."""
        info = user.info()
        if not self._is_by_super(request):
            info.password = MASK
        return info

    def _is_by_super(self, request: Request[Any]) -> bool:
        """Whether a super user sent a request; its signature was checked before."""
        table = self._need_table()
        user = table.user_named(request.command.fields().get(ACCESS_KEY, ""))
        return user is not None and user.is_super

    def _require_super_for(self, request: Request[Any], user: User | None) -> None:
        if user is not None and user.is_super and not self._is_by_super(request):
            _refuse(_SUPER_UPDATES)

    # --- policies

    def _merge_acl(self, request: Request[AclRequestHeader]) -> Deferred[Reply]:
        """Add or change entries: Apache's broker does the same for both codes."""
        table = self._need_table()
        info = _decode(AclInfo, request.body)
        if not info.policies:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        # A valid subject in the body takes precedence over the subject in the header.
        name = subject_name(info.subject)
        if name is None:
            name = subject_name(request.header.subject)
        if name is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _UNEXPECTED)

        def merge() -> None:
            table.merge_policies(name, entries_of(info))

        return self._change(merge)

    def _delete_acl(self, request: Request[DeleteAclRequestHeader]) -> Deferred[Reply]:
        table, header = self._need_table(), request.header
        name = subject_name(header.subject)
        if name is None:
            _refuse("The subject is null.")
        resource: str | None = None
        if header.resource and header.resource.strip():
            resource = resource_text(header.resource)
            if resource is None:
                _refuse("The resource is null.")
        policy_type = _TYPES.get((header.policy_type or "").lower())
        return self._change(lambda: table.delete_policies(name, policy_type, resource))

    def _get_acl(self, request: Request[AclRequestHeader]) -> Reply:
        table, name = self._need_table(), subject_name(request.header.subject)
        if name is None:
            _refuse("The subject is null.")
        if table.user_named(name) is None:
            _refuse("The subject is not exist.")
        policies = table.policies_of_user(name)
        return Reply() if policies is None else Reply(
            body=encode_infos([policies_info(name, policies)])[1:-1])

    def _list_acls(self, request: Request[ListAclsRequestHeader]) -> Reply:
        table, header = self._need_table(), request.header
        subject_text = (header.subject_filter or "").strip()
        resource_part = (header.resource_filter or "").strip()
        infos = [policies_info(name, policies) for name, policies in table.sorted_policies()
                 if subject_text in f"User:{name}"]
        infos = [info for info in (_with_resources(each, resource_part) for each in infos)
                 if info.policies]
        return Reply(body=encode_infos(infos) if infos else b"")

    # --- changes

    def _need_table(self) -> AuthTable:
        if self._table is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 "authenticationEnabled is false: there are no users")
        return self._table

    def _change(self, change: Callable[[], None]) -> Deferred[Reply]:
        """Change the tables, and answer once they are saved."""
        table, broker = self._need_table(), self._broker
        if broker.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 "Can't modify users or policies from slave broker, please "
                                 "execute it from master broker.")
        try:
            change()
        except AclError as error:
            _refuse(str(error))
        return Deferred.fromCoroutine(self._saved(table))

    async def _saved(self, table: AuthTable) -> Reply:
        """Answer a change; :raises RequestRefused: when it cannot be saved."""
        saves = self._broker.saves
        # Users come first: after a crash in between, policies without a user have no effect.
        for each in (table.user_table, table.policy_table):
            if each.dirty:
                await saves.save(each)
            if each in saves.unsaved:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, "the change is in effect but not saved yet: see "
                                               "the broker's log for the reason")
        return Reply()


_TYPES: Final = {each.value.lower(): each for each in PolicyType}


def _with_resources(info: AclInfo, text: str) -> AclInfo:
    """Return policies with the entries whose resource contains a text."""
    if not text:
        return info
    policies = [PolicyInfo(policy.policy_type, [
        entry for entry in policy.entries or () if text in (entry.resource or "")])
        for policy in info.policies or ()]
    return AclInfo(info.subject, [policy for policy in policies if policy.entries])


def _name_of(request: Request[UserRequestHeader], *, blank: bool = False) -> str:
    """Return the name of a request.

    :param blank: whether a name that consists of blanks counts as missing.
    :raises RequestRefused: when the request has no name, or a name that is too long.
    """
    name = request.header.username or ""
    if not (name.strip() if blank else name):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, _BLANK_NAME)
    if len(name) > NAME_LENGTH_MAX:
        _refuse(f"username has {len(name)} characters, the limit is {NAME_LENGTH_MAX}")
    return name


def _is_super(info: UserInfo) -> bool:
    return (info.user_type or "").lower() == "super"


def _decode(kind: type[B], body: bytes) -> B:
    """:raises RequestRefused: when a body cannot be read; the text shows no part of it."""
    try:
        return kind.decode(body)
    except WireError:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                             f"the body is not a {kind.__name__} in JSON") from None


def _refuse(text: str) -> NoReturn:
    raise RequestRefused(ResponseCode.NO_PERMISSION, text)
