"""The errors of access control.

Source: AclException, PlainPermissionManager @4.9.4; the observed answers of the broker.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import BrokerError, ResponseCode

__all__ = ["AccessDenied", "AclError", "AuthRefused"]

#: Apache's broker begins the remark of a refusal with the class name, and clients look for it. It
#: also appends the Java line that threw the exception, which is left out here.
_PREFIX: Final = "org.apache.rocketmq.acl.common.AclException: "


class AclError(BrokerError):
    """A file, account or address is not valid; the text never contains a secret key."""


class AccessDenied(BrokerError):
    """A request may not be served: SYSTEM_ERROR (1), as in Apache's broker.

    :param reason: the reason, with Apache's text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(_PREFIX + reason)


class AuthRefused(BrokerError):
    """A request may not be served in ACL 2.0: NO_PERMISSION (16), with Apache's text."""

    response_code = ResponseCode.NO_PERMISSION
