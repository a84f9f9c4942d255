"""The errors of access control.

Source: AclException, PlainPermissionManager @4.9.4; what the broker answers, as observed.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import BrokerError

__all__ = ["AccessDenied", "AclError"]

#: Apache's broker begins the remark of a refusal with the class, and clients look for it. Behind
#: the text it names the line of Java that threw, which is left out here.
_PREFIX: Final = "org.apache.rocketmq.acl.common.AclException: "


class AclError(BrokerError):
    """A file, an account or an address has no meaning; the text never holds a secret key."""


class AccessDenied(BrokerError):
    """A request may not be served: SYSTEM_ERROR (1), as in Apache's broker.

    :param reason: why, in Apache's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(_PREFIX + reason)
