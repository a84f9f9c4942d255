"""Users of ACL 2.0: a name, a password, a type and a status.

The password is the key with which the user's requests are signed, so a broker has to keep it as it
is. A super user passes every check of permissions; a disabled user passes none.

Source: User, UserType, UserStatus, UserConverter, AuthenticationMetadataManagerImpl @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.acl.errors import AclError
from twistmq.broker.api.bodies import UserInfo

__all__ = ["MASK", "NAME_LENGTH_MAX", "User", "changed_user", "new_user"]

#: The longest name and the longest password, characters. Apache has no limit.
NAME_LENGTH_MAX: Final = 255
#: The text in place of a password.
MASK: Final = "******"
_TYPES: Final = {"super": True, "normal": False}
_STATUSES: Final = {"enable": True, "disable": False}


class User(msgspec.Struct, frozen=True, gc=False):
    """A user."""

    name: str
    password: str
    is_super: bool = False
    is_enabled: bool = True

    def __repr__(self) -> str:
        return f"User({self.name!r}, is_super={self.is_super}, is_enabled={self.is_enabled})"

    def info(self) -> UserInfo:
        """Return the user in the form of requests and files, with the password."""
        return UserInfo(self.name, self.password, "Super" if self.is_super else "Normal",
                        "enable" if self.is_enabled else "disable")


def new_user(name: str, info: UserInfo) -> User:
    """Make a user from the fields of a request or a file.

    As in Apache's broker, an unknown type or status counts as not given: a user is normal and
    enabled by default.

    :raises AclError: when the name or the password is missing or too long.
    """
    if not name.strip():
        raise AclError("username can not be blank")
    password = info.password
    if password is None or not password.strip():
        raise AclError("password can not be blank")
    _check_length("username", name)
    _check_length("password", password)
    return User(name, password, _TYPES.get((info.user_type or "").lower(), False),
                _STATUSES.get((info.user_status or "").lower(), True))


def changed_user(user: User, info: UserInfo) -> User:
    """Return a user with the values that a request gives.

    :raises AclError: when the password is too long.
    """
    password = info.password if info.password and info.password.strip() else user.password
    _check_length("password", password)
    return User(user.name, password,
                _TYPES.get((info.user_type or "").lower(), user.is_super),
                _STATUSES.get((info.user_status or "").lower(), user.is_enabled))


def _check_length(what: str, text: str) -> None:
    if text == MASK:
        # Otherwise a copy made by a user who sees only masks would set the mask as a password.
        raise AclError(f"{what} is masked: only a super user can read and copy it")
    if len(text) > NAME_LENGTH_MAX:
        raise AclError(f"{what} has {len(text)} characters, the limit is {NAME_LENGTH_MAX}")
    try:
        text.encode()
    except UnicodeEncodeError:
        # Python's own error would contain the text, which may be a password.
        raise AclError(f"{what} contains half a character of UTF-16") from None
